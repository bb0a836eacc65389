"""What the developer learns of a tool that raises: its traceback in the log, and the exception on the event."""

import logging
from typing import Any

import pytest

from prompty import tool
from prompty.events import ToolFinished
from prompty.registry import DEFAULT
from prompty.testing import Script, call
from tests.conversations.turns import scripted
from tests.ways import Way, sync_and_async


def broken(at: str = "") -> str:
    raise KeyError("no such place, key hunter2hunter2hunter2")


async def broken_later(at: str = "") -> str:
    raise KeyError("no such place, key hunter2hunter2hunter2")


def unserializable() -> Any:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("it has no text")

    return Odd()


@sync_and_async
@pytest.mark.parametrize("function", [broken, broken_later])
@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_tool_that_raises_is_logged_with_its_traceback(
    way: Way, function: Any, timeout: float | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DEFAULT, "dotenv", {"SHOP_PASSWORD": "hunter2hunter2hunter2"})
    with Script(call(function.__name__), "Done."), caplog.at_level(logging.ERROR, "prompty"):
        seen = way.turn(scripted(), tools=[function], tool_timeout=timeout)
    [finished] = seen.of(ToolFinished)
    assert isinstance(finished.error, KeyError)
    assert seen.result == "Done."
    [record] = [record for record in caplog.records if record.name == "prompty"]
    text = record.getMessage()
    assert f"The tool '{function.__name__}' raised." in text
    assert "Traceback (most recent call last):" in text
    assert f"in {function.__name__}" in text
    assert "hunter2" not in text


@sync_and_async
def test_a_tool_that_returns_has_no_exception(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def fine() -> str:
        return "fine"

    with Script([call("fine"), call("fine", unknown=1)], "Done."):
        seen = way.turn(scripted(), tools=[fine])
    assert [finished.error for finished in seen.of(ToolFinished)] == [None]
    assert caplog.records == []


@sync_and_async
def test_a_result_that_cannot_be_written_is_an_error_of_the_tool(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    with Script(call("unserializable"), "Done."):
        seen = way.turn(scripted(), tools=[unserializable])
    assert isinstance(seen.of(ToolFinished)[0].error, Exception)
    assert "The tool 'unserializable' raised." in caplog.text


def test_an_exception_does_not_count_in_a_comparison_of_events() -> None:
    with Script(call("broken"), "Done."):
        seen = Way().turn(scripted(), tools=[broken])
    [finished] = seen.of(ToolFinished)
    assert finished == ToolFinished(finished.call, finished.result, finished.key)
