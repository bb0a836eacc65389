"""What can be a tool, what reaches it, and what the model reads of what came of it."""

import asyncio
import json
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from prompty import ToolCall, ToolContext, tool
from prompty.events import ToolFinished, ToolStarted
from prompty.messages import TextPart
from prompty.model.content import ImagePart
from prompty.testing import Script, answer, call
from tests.loop.bodies import calls_in
from tests.ways import LONG, Way, agent_of, every_way, every_wire, one_way

AGENT = agent_of()


def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


async def look_async(at: str) -> str:
    return f"saw {at}"


class Eyes:
    color = "blue"

    def look(self, at: str) -> str:
        return f"{self.color} saw {at}"

    async def look_async(self, at: str) -> str:
        return f"{self.color} saw {at}"

    @classmethod
    def look_all(cls, at: str) -> str:
        return f"{cls.color} saw {at}"

    @staticmethod
    def look_static(at: str) -> str:
        return f"saw {at}"


class Looking:
    """Look at something."""

    def __call__(self, at: str) -> str:
        return f"called for {at}"


class LookingAsync:
    async def __call__(self, at: str) -> str:
        return f"called for {at}"


def look_with(glass: str, at: str) -> str:
    return f"{glass} saw {at}"


TOOLS: dict[str, tuple[Callable[..., Any], str]] = {
    "a function": (look, "saw it"),
    "a coroutine function": (look_async, "saw it"),
    "a method": (Eyes().look, "blue saw it"),
    "an async method": (Eyes().look_async, "blue saw it"),
    "a class method": (Eyes.look_all, "blue saw it"),
    "a static method": (Eyes.look_static, "saw it"),
    "an object": (Looking(), "called for it"),
    "an object with a coroutine": (LookingAsync(), "called for it"),
    "a partial": (partial(look_with, "red"), "red saw it"),
    "a partial of a coroutine": (partial(look_async), "saw it"),
    "a lambda": (lambda at: f"saw {at}", "saw it"),
    "a function that gives a coroutine": (lambda at: look_async(at), "saw it"),
}


def offered_in(script: Script) -> dict[str, Any]:
    """The parameters of the one function that the model was offered."""
    body: dict[str, Any] = script.requests[0]
    [offered] = body["tools"]
    parameters: dict[str, Any] = offered["function"]["parameters"]
    return parameters


@every_way
@pytest.mark.parametrize(("function", "expected"), TOOLS.values(), ids=TOOLS)
def test_whatever_can_be_called_can_be_a_tool(way: Way, function: Callable[..., Any], expected: str) -> None:
    with Script(call("look", at="it"), "Done.") as script:
        seen = way.turn(AGENT, tools={"look": function})
    assert seen.told == [expected]
    assert list(offered_in(script)["properties"]) == ["at"]


@pytest.mark.parametrize("name", [name for name in TOOLS if "lambda" not in name and "gives" not in name])
def test_the_model_is_told_the_types_of_whatever_can_be_called(name: str) -> None:
    with Script("Done.") as script:
        Way(asynchronous=False, streamed=False).turn(AGENT, tools={"look": TOOLS[name][0]})
    assert offered_in(script)["properties"]["at"] == {"type": "string"}


class Answer(BaseModel):
    city: str
    on: date


@dataclass
class Point:
    x: int
    y: int


class Mood(Enum):
    GOOD = "good"


VALUES: dict[str, tuple[object, str]] = {
    "text": ("21 °C", "21 °C"),
    "nothing": (None, ""),
    "a dict": ({"a": [1, None]}, '{"a":[1,null]}'),
    "a list": (["ä"], '["ä"]'),
    "an empty list": ([], "[]"),
    "a number": (21.5, "21.5"),
    "no number": (float("nan"), '"NaN"'),
    "a truth": (True, "true"),
    "a pydantic model": (Answer(city="Oslo", on=date(2026, 1, 2)), '{"city":"Oslo","on":"2026-01-02"}'),
    "a dataclass": (Point(1, 2), '{"x":1,"y":2}'),
    "an enum": (Mood.GOOD, '"good"'),
    "a date": (date(2026, 1, 2), '"2026-01-02"'),
    "a set": ({1}, "[1]"),
    "text parts": ([TextPart("a"), TextPart("b")], "ab"),
    "an exception": (ValueError("no"), '"no"'),
}


@one_way
@pytest.mark.parametrize(("value", "expected"), VALUES.values(), ids=VALUES)
def test_what_a_tool_returns_is_read_as_text(way: Way, value: object, expected: str) -> None:
    with Script(call("give"), "Done."):
        seen = way.turn(AGENT, tools={"give": lambda: value})
    assert (seen.told, seen.of(ToolFinished)[0].is_error) == ([expected], False)


@one_way
@every_wire
def test_an_image_is_seen_by_the_model(way: Way, wire: str) -> None:
    image = ImagePart("aGk=", "image/png")
    with Script([call("draw"), call("draw")], "Done.") as script:
        seen = way.turn(agent_of(wire), tools={"draw": lambda: [TextPart("Here:"), image]})
    assert [message.content for message in seen.messages if message.role == "tool"] == [(TextPart("Here:"), image)] * 2
    assert json.dumps(script.requests[1]).count("aGk=") == 2


def raising(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


ERRORS: dict[str, tuple[BaseException, str]] = {
    "with words": (ValueError("no such city"), "no such city"),
    "without words": (KeyError(), "KeyError"),
    "a time-out of its own": (TimeoutError("too slow"), "too slow"),
    "with a secret": (RuntimeError("bad key sk-abcdefghijklmnop"), "bad key ••••"),
}


@one_way
@pytest.mark.parametrize(("error", "reason"), ERRORS.values(), ids=ERRORS)
@pytest.mark.spec("001 tool — one result per call", "the model reads a failure as text")
def test_a_tool_that_raises_tells_the_model_why(way: Way, error: BaseException, reason: str) -> None:
    with Script(call("fail"), "Done."):
        seen = way.turn(AGENT, tools={"fail": raising(error)})
    assert seen.told == [f"Error: Tool 'fail' failed: {reason}"]
    assert (seen.of(ToolFinished)[0].is_error, seen.result) == (True, "Done.")


@every_way
def test_a_coroutine_that_cancels_itself_is_a_tool_that_failed(way: Way) -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    with Script([call("give_up"), call("look", at="it")], "Done."):
        seen = way.turn(AGENT, tools=[give_up, look])
    assert seen.told[0].startswith("Error: Tool 'give_up' failed")
    assert (seen.told[1], seen.result) == ("saw it", "Done.")


@one_way
@every_wire
@pytest.mark.parametrize("name", ["nobody", "Look", "look "])
def test_a_tool_that_the_model_invented_is_answered_with_those_there_are(way: Way, wire: str, name: str) -> None:
    with Script([call(name, at="it"), call("look", at="it")], "Done."):
        seen = way.turn(agent_of(wire), tools=[look, look_async])
    assert seen.told == [f"Error: There is no tool '{name}'. The available tools are: look, look_async.", "saw it"]
    assert seen.tool_events == [("ToolStarted", "look"), ("ToolFinished", "look")]


ARGUMENTS: dict[str, tuple[str, str | None]] = {
    "broken": ('{"at": "th', None),
    "not JSON": ("the sky", None),
    "a list": ('["it"]', None),
    "of another type": ('{"at": 5}', None),
    "missing": ("{}", None),
    "unknown": ('{"at": "it", "loudly": true}', None),
    "no number": ('{"at": NaN}', None),
    "two objects": ('{"at": "it"}{"at": "it"}', None),
    "fenced": ('```json\n{"at": "it"}\n```', "saw it"),
    "fenced without a word": ('```\n{"at": "it"}\n```', "saw it"),
    "with blanks": (' {"at": "it"}\n', "saw it"),
}


@one_way
@every_wire
@pytest.mark.parametrize(("text", "expected"), ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.spec(
    "001 Arguments are a string until the moment of execution", "malformed arguments become an error result"
)
def test_arguments_that_cannot_be_used_are_answered_and_the_tool_does_not_run(
    way: Way, wire: str, text: str, expected: str | None
) -> None:
    with Script(ToolCall(id="a", name="look", arguments=text), "Done."):
        seen = way.turn(agent_of(wire), tools=[look])
    if expected:
        assert seen.told == [expected]
    else:
        assert seen.told[0].startswith("Error: Tool 'look' was not run: ")
        assert not seen.of(ToolStarted)
    assert seen.result == "Done."


@one_way
@pytest.mark.spec("001 Arguments are a string until the moment of execution", "arguments stay text until a tool runs")
def test_arguments_stay_the_text_that_the_model_wrote(way: Way) -> None:
    text = '{ "at":"it" }'
    with Script(ToolCall(id="a", name="look", arguments=text), "Done.") as script:
        seen = way.turn(AGENT, tools=[look])
    assert seen.messages[1].tool_calls[0].arguments == text
    assert seen.of(ToolStarted)[0].call.arguments == text
    assert calls_in("chat", script.requests[1])[0]["arguments"] == text


@one_way
@every_wire
def test_arguments_in_a_fence_stay_as_they_are_for_people(way: Way, wire: str) -> None:
    text = '```json\n{ "at":"it" }\n```'
    with Script(ToolCall(id="a", name="look", arguments=text), "Done.") as script:
        seen = way.turn(agent_of(wire), tools=[look])
    assert seen.messages[1].tool_calls[0].arguments == text
    assert seen.of(ToolStarted)[0].call.arguments == text
    assert "```json" in str(calls_in(wire, script.requests[1])[0]["arguments"])


@one_way
@every_wire
def test_a_tool_that_takes_nothing_runs_with_no_arguments_at_all(way: Way, wire: str) -> None:
    with Script(ToolCall(id="a", name="give", arguments=""), "Done."):
        assert way.turn(agent_of(wire), tools={"give": lambda: "given"}).told == ["given"]


@every_way
def test_a_tool_may_know_about_its_run(way: Way) -> None:
    known: list[ToolContext] = []

    def look(at: str, context: ToolContext) -> str:
        known.append(context)
        return at

    with Script([call("look", at="a", id="same"), call("look", at="b", id="same")], "Done.") as script:
        way.turn(AGENT, tools=[look])
    assert {(one.call_id, one.name) for one in known} == {("same", "look")}
    assert len({one.run_id for one in known}) == 1
    assert len({one.key for one in known}) == 2
    assert "context" not in json.dumps(script.requests[0]["tools"])


def test_a_partial_may_know_about_its_run_too() -> None:
    def look(glass: str, at: str, context: ToolContext) -> str:
        return f"{glass} {at} {context.name}"

    with Script(call("look", at="it"), "Done."):
        seen = Way(asynchronous=False, streamed=False).turn(AGENT, tools={"look": partial(look, "red")})
    assert seen.told == ["red it look"]


variable: ContextVar[str] = ContextVar("variable", default="nothing")


@every_way
@pytest.mark.parametrize("count", [1, 2])
def test_context_variables_reach_tools(way: Way, count: int) -> None:
    def sync_one() -> str:
        return variable.get()

    async def async_one() -> str:
        return variable.get()

    before = variable.set("something")
    try:
        with Script([call("sync_one"), call("async_one")] * count, "Done."):
            seen = way.turn(AGENT, tools=[sync_one, async_one])
    finally:
        variable.reset(before)
    assert seen.told == ["something"] * 2 * count


@tool(timeout=LONG)
def quick() -> str:
    return "quick"


@every_way
@pytest.mark.parametrize("own", [True, False], ids=["its own", "for all"])
def test_a_function_that_takes_too_long_is_left_to_itself(way: Way, own: bool) -> None:
    """It cannot be stopped; what it does later disturbs nobody."""
    ended, threads = threading.Event(), []

    @tool(timeout=0.05 if own else None)
    def sleep() -> None:
        threads.append(threading.current_thread())
        ended.wait(LONG)

    with Script([call("sleep"), call("quick")], "Done."):
        seen = way.turn(AGENT, tools=[sleep, quick], tool_timeout=None if own else 0.05)
    ended.set()
    threads[0].join(LONG)
    assert seen.told == ["Error: Tool 'sleep' failed: no result within 0.05 s", "quick"]


@every_way
@pytest.mark.parametrize("own", [True, False], ids=["its own", "for all"])
def test_a_coroutine_that_takes_too_long_is_stopped(way: Way, own: bool) -> None:
    started, stopped = threading.Event(), threading.Event()

    @tool(timeout=0.05 if own else None)
    async def sleep() -> None:
        started.set()
        try:
            await asyncio.sleep(LONG)
        finally:
            stopped.set()

    with Script([call("sleep"), call("quick")], "Done."):
        seen = way.turn(AGENT, tools=[sleep, quick], tool_timeout=None if own else 0.05)
    assert seen.told == ["Error: Tool 'sleep' failed: no result within 0.05 s", "quick"]
    assert stopped.wait(LONG) or not started.is_set()  # a busy machine may not have started it in time


@every_way
def test_the_time_of_a_tool_goes_before_that_of_the_run(way: Way) -> None:
    @tool(timeout=LONG)
    async def slow() -> str:
        await asyncio.sleep(0.1)
        return "slow"

    with Script(call("slow"), "Done."):
        assert way.turn(AGENT, tools=[slow], tool_timeout=0.01).told == ["slow"]


@one_way
def test_text_beside_calls_stays_and_the_last_answer_is_the_result(way: Way) -> None:
    with Script(answer("Let me see.", call("look", at="it")), "Done."):
        seen = way.turn(AGENT, tools=[look])
    assert [(message.role, message.text) for message in seen.messages] == [
        ("user", "Hi"),
        ("assistant", "Let me see."),
        ("tool", "saw it"),
        ("assistant", "Done."),
    ]
    assert seen.result == "Done."
