"""`details=True`: the value of a run with its usage, cost, finish reason, model and messages."""

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import prompty
from prompty import Paused, Result, Usage, loads, pipeline
from prompty.errors import IterationsExceeded, RequestError
from prompty.testing import Script, answer, call

FILE = """---
model: gpt-4o
inputs: {q: {kind: string, required: true}}
---
system:
Be brief.
user:
{{q}}
"""
USAGE = Usage(input_tokens=1000, output_tokens=100)


@dataclass
class Person:
    name: str


def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


CALLS: dict[str, Any] = {
    "invoke": prompty.invoke,
    "invoke_async": lambda *arguments, **options: asyncio.run(prompty.invoke_async(*arguments, **options)),
    "turn": prompty.turn,
    "turn_async": lambda *arguments, **options: asyncio.run(prompty.turn_async(*arguments, **options)),
}


@pytest.mark.parametrize("call_prompt", CALLS.values(), ids=CALLS)
def test_a_result_has_everything_that_is_known_of_the_run(call_prompt: Any) -> None:
    with Script(answer("Hello.", finish_reason="length", usage=USAGE)):
        result = call_prompt(loads(FILE), {"q": "Hi"}, details=True)
    assert isinstance(result, Result)
    assert (result.value, result.finish_reason, result.usage) == ("Hello.", "length", USAGE)
    assert result.model.startswith("gpt-4o")
    assert [message.text for message in result.messages] == ["Be brief.", "Hi", "Hello."]
    assert result.cost == Decimal("0.0035")


def test_the_value_has_the_output_type() -> None:
    with Script('{"name": "Ada"}'):
        assert prompty.invoke(loads(FILE), {"q": "Who?"}, output_type=Person, details=True).value == Person("Ada")


def test_the_usage_and_cost_of_a_turn_are_those_of_all_its_calls() -> None:
    with Script(answer("", call("look", at="a"), usage=USAGE), answer("Done.", usage=USAGE)):
        result = prompty.turn(loads(FILE), {"q": "Look"}, tools=[look], details=True)
    assert isinstance(result, Result)
    assert result.usage == USAGE + USAGE
    assert result.cost == Decimal("0.007")
    assert [message.role for message in result.messages] == ["system", "user", "assistant", "tool", "assistant"]


def test_prompts_that_run_as_tools_count_and_the_model_is_that_of_the_turn(tmp_path: Path) -> None:
    (tmp_path / "child.prompty").write_text("---\nmodel: gpt-4o-mini\n---\nuser:\nHi")
    parent = tmp_path / "parent.prompty"
    tools = "tools: [{name: ask, kind: prompty, path: child.prompty, mode: single}]"
    parent.write_text(f"---\nmodel: gpt-4o\n{tools}\n---\nuser:\nHi")
    with Script(
        answer("", call("ask"), usage=USAGE), answer("Child.", usage=USAGE), answer("Done.", usage=USAGE)
    ) as script:
        result = prompty.turn(parent, details=True)
    assert [body["model"] for body in script.requests] == ["gpt-4o", "gpt-4o-mini", "gpt-4o"]
    assert isinstance(result, Result)
    assert result.usage == USAGE + USAGE + USAGE
    assert result.model.startswith("gpt-4o")
    assert "mini" not in result.model
    assert result.cost is not None
    assert Decimal("0.007") < result.cost < Decimal("0.0075")


def test_a_resumed_turn_that_stops_after_its_tools_has_the_details_of_the_answer_it_was_paused_at() -> None:
    agent = loads(FILE)
    with Script(answer("", call("look", at="a"), usage=USAGE)):
        paused = prompty.turn(agent, {"q": "Look"}, tools=[look], approval="always")
        assert isinstance(paused, Paused)
        result = prompty.resume(agent, paused, [True], tools=[look], stop=lambda progress: True, details=True)
    assert isinstance(result, Result)
    assert result.messages[-1].text == "seen a"
    assert result.usage == USAGE
    assert result.finish_reason == "tool_calls"
    assert result.model.startswith("gpt-4o")


def test_the_model_is_the_one_that_answered() -> None:
    with Script("Hello."):
        assert prompty.invoke(loads(FILE), {"q": "Hi"}, model="ollama:llama3:8b", details=True).model == "llama3:8b"


def test_a_cost_that_is_not_known_is_none() -> None:
    with Script("Hello."):
        assert prompty.invoke(loads(FILE), {"q": "Hi"}, model="nobody-knows-it", details=True).cost is None


def test_a_turn_that_waits_for_a_person_is_paused_with_details_too() -> None:
    options: dict[str, Any] = {"tools": [look], "approval": "always", "details": True}
    with Script(call("look", at="a"), "Done."):
        paused = prompty.turn(loads(FILE), {"q": "Look"}, **options)
        assert isinstance(paused, Paused)
        result = prompty.resume(loads(FILE), paused, [True], {"q": "Look"}, **options)
    assert isinstance(result, Result)
    assert (result.value, result.cost) == ("Done.", None)
    assert result.usage.output_tokens == 10


def test_a_stream_has_its_own_details() -> None:
    with Script(answer("Hello.", usage=USAGE)):
        with pytest.raises(RequestError, match="exclude each other"):
            prompty.invoke(loads(FILE), {"q": "Hi"}, stream=True, details=True)  # type: ignore[call-overload]  # the mistake
        stream = prompty.invoke(loads(FILE), {"q": "Hi"}, stream=True)
        before = stream.cost
        assert stream.result == "Hello."
    assert (before, stream.usage, stream.cost) == (None, USAGE, Decimal("0.0035"))


def test_a_result_shows_what_it_is_and_no_replies() -> None:
    with Script("Hello."):
        shown = repr(prompty.invoke(loads(FILE), {"q": "Hi"}, details=True))
    assert shown.startswith("Result(value='Hello.'")
    assert "PromptAgent" not in shown


def test_a_turn_goes_on_from_the_messages_of_an_error_without_its_inputs() -> None:
    agent = loads(FILE)
    with Script(call("look", at="a"), call("look", at="b"), "Done."):
        with pytest.raises(IterationsExceeded) as caught:
            prompty.turn(agent, {"q": "Look"}, tools=[look], max_iterations=1)
        assert prompty.turn(agent, messages=caught.value.messages, tools=[look]) == "Done."


@pytest.mark.parametrize("kind", [str, Path])
def test_every_function_takes_a_path(kind: Any, tmp_path: Path) -> None:
    file = tmp_path / "hi.prompty"
    file.write_text(FILE)
    path, inputs = kind(file), {"q": "Hi"}
    raw = {"choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}]}
    messages = prompty.prepare(path, inputs)
    assert [message.text for message in messages] == ["Be brief.", "Hi"]
    assert asyncio.run(pipeline.prepare_async(path, inputs)) == messages
    assert prompty.render(path, inputs) == asyncio.run(pipeline.render_async(path, inputs))
    text = prompty.render(path, inputs)
    assert pipeline.parse(path, text) == asyncio.run(pipeline.parse_async(path, text)) == messages
    assert pipeline.validate_inputs(path, inputs) == inputs
    assert pipeline.process(path, raw) == asyncio.run(pipeline.process_async(path, raw)) == "Hello."
    assert pipeline.process_stream(path, []).usage == Usage()
    with Script("1", "2"):
        assert pipeline.run(path, messages) == "1"
        assert asyncio.run(pipeline.run_async(path, messages)) == "2"
