"""Agent turns against a real llama.cpp server: three tools, a model that writes nonsense, and histories that must stay
such that the server, and everybody else, takes them.

Each seed gives two turns. In the first the model must call tools, and never comes to an end by itself. The second goes
on from what the first left, and there the model does what it likes.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from prompty import (
    Message,
    PromptAgent,
    PromptyError,
    Stop,
    ToolCall,
    assistant,
    load,
    tool_result,
    turn,
    turn_async,
    user,
)
from prompty.errors import ArgumentsError, IterationsExceeded
from prompty.events import (
    Done,
    Event,
    IterationStarted,
    MessagesChanged,
    ModelReply,
    Retry,
    RunFailed,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from prompty.messages import repair
from prompty.pipeline.request import build_request
from prompty.providers import PROVIDERS
from prompty.providers.fitting import fit_request
from prompty.registry import DEFAULT
from prompty.tools.calls import parse_arguments
from tests.drivers.clients import close_clients
from tests.legality import assert_legal
from tests.real.figures import record
from tests.real.ways import FAMILIES, SOAK, Family, Prompts
from tests.ways import WAYS as MODES, Way as Mode

SEEDS = range(200 if SOAK else 20)
# For most calls. What is cut off is no call, except in the Responses API of this server: it says that all is complete.
LONG_ENOUGH = {"maxOutputTokens": 150, "temperature": 0.8}
FREELY = {"maxOutputTokens": 60, "temperature": 0.8, "additionalProperties": {"cache_prompt": True}}
UNKNOWN_ELSEWHERE = ("seed", "cache_prompt")  # options of this server
CITIES = ["Oslo", "Lima", "Atlantis"]

TOOLS = [
    {
        "name": "add",
        "kind": "function",
        "description": "Adds two numbers.",
        "parameters": {"a": {"kind": "integer", "required": True}, "b": {"kind": "integer", "required": True}},
    },
    {
        "name": "weather",
        "kind": "function",
        "description": "Tells the weather.",
        "parameters": {"city": {"kind": "string", "required": True, "enumValues": CITIES}},
    },
    {
        "name": "note",
        "kind": "function",
        "description": "Writes something down.",
        "parameters": {"text": {"kind": "string", "required": True}},
    },
]


def add(a: int, b: int) -> int:
    return a + b


async def weather(city: str) -> str:
    if city == "Atlantis":
        raise LookupError("it has sunk")
    return f"Sunny in {city}"


def note(text: str) -> list[str]:
    return [text, text[::-1]]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """This server hangs up after each stream while it says it will not, and the next call is made twice."""
    monkeypatch.setattr("prompty.loop.model_step.FIRST_WAIT", 0.01)


@dataclass(frozen=True)
class Ended:
    """A turn that is over: by itself, or because it had too many rounds."""

    events: tuple[Event, ...]
    messages: tuple[Message, ...]
    done: Done | None

    @property
    def replies(self) -> list[ModelReply]:
        return [event for event in self.events if isinstance(event, ModelReply)]


@dataclass(frozen=True)
class Way:
    """An API of the server, and how it is called."""

    name: str
    family: Family
    mode: Mode
    runner: asyncio.Runner

    def turn(self, path: Path, inputs: dict[str, str] | None = None, **options: Any) -> Ended:
        """Run a turn to its end. Any error but too many rounds is one of the server, or ours."""
        heard: list[Event] = []
        given = {"tools": [add, weather, note], "on_event": heard.append, **options}
        try:
            seen = self._seen(path, inputs, given)
        except IterationsExceeded as error:
            assert isinstance(heard[-1], RunFailed)
            return Ended(tuple(heard), error.messages, None)
        assert seen == (heard if self.mode.streamed else [])
        (done,) = [event for event in heard if isinstance(event, Done)]
        return Ended(tuple(heard), done.messages, done)

    def _seen(self, path: Path, inputs: dict[str, str] | None, options: dict[str, Any]) -> list[Event]:
        """The events of a stream, where there is one."""
        if self.mode.asynchronous:
            return self.runner.run(self._seen_async(path, inputs, options))
        if not self.mode.streamed:
            turn(path, inputs, **options)
            return []
        with turn(path, inputs, stream=True, **options) as stream:
            return list(stream.events())

    async def _seen_async(self, path: Path, inputs: dict[str, str] | None, options: dict[str, Any]) -> list[Event]:
        if not self.mode.streamed:
            await turn_async(path, inputs, **options)
            return []
        async with await turn_async(path, inputs, stream=True, **options) as stream:
            return [event async for event in stream.events()]


def seeds_of(mode: Mode) -> Sequence[int]:
    """All of them in a long run; else every mode has its share."""
    return SEEDS if SOAK else SEEDS[MODES.index(mode) :: len(MODES)]


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_turns_leave_histories_that_can_be_gone_on_from(
    prompts: Prompts, runner: asyncio.Runner, name: str, mode: Mode
) -> None:
    way = Way(name, FAMILIES[name], mode, runner)
    problems: dict[int, str] = {}
    turns: list[Ended] = []
    for seed in seeds_of(mode):
        try:
            turns += two_turns(way, prompts, seed)
        except (AssertionError, PromptyError) as error:
            problems[seed] = f"{type(error).__name__}: {error}"
    requests = sum(len(one.replies) for one in turns)
    if SOAK:
        record(f"{name}: turns, {mode}", seeds=len(SEEDS), requests=requests, mismatches=len(problems))
    assert problems == {}
    assert calls_run(turns) > len(seeds_of(mode)) / 2


def two_turns(way: Way, prompts: Prompts, seed: int) -> list[Ended]:
    """A turn with calls, which ends by a condition or by an error, and one that follows it."""
    forced = {"tool_choice": way.family.must_call, "cache_prompt": True}
    path = prompts.write(way.family, seed, options={**LONG_ENOUGH, "additionalProperties": forced}, tools=TOOLS)
    ending: dict[str, Any] = {"stop": Stop.steps(1)} if seed % 3 else {"max_iterations": 1}
    first = way.turn(path, {"question": f"What is {seed * seed} to {seed}?"}, **ending)
    check(way, path, first)
    path = prompts.write(way.family, seed, options=FREELY, tools=TOOLS)
    second = way.turn(path, messages=[*first.messages, user("And now?")], max_iterations=3)
    assert second.messages[: len(first.messages)] == first.messages
    check(way, path, second)
    return [first, second]


def calls_run(turns: list[Ended]) -> int:
    return sum(isinstance(event, ToolFinished) for one in turns for event in one.events)


def check(way: Way, path: Path, ended: Ended) -> None:
    check_events(ended)
    check_history(ended)
    check_next_request(way, load(path), ended.messages)


def check_events(ended: Ended) -> None:
    """What is told about a turn is what has happened, and in the order of its happening."""
    first, *events = ended.events
    assert isinstance(first, RunStarted)
    retries = [event.reason for event in events if isinstance(event, Retry)]
    assert all("connection failed" in reason for reason in retries), retries
    rounds = rounds_of(events)
    for number, told in enumerate(rounds, 1):
        assert told[0] == IterationStarted(number)
        check_round(told, streamed=any(isinstance(event, TextDelta) for event in events))
    grown = [event.messages for event in events if isinstance(event, MessagesChanged)]
    for shorter, longer in pairwise([*grown, ended.messages]):
        assert longer[: len(shorter)] == shorter
    if ended.done:
        tokens = [event.reply.usage.output_tokens or 0 for event in ended.replies]
        assert (ended.done.iterations, ended.done.usage.output_tokens) == (len(rounds), sum(tokens))


def rounds_of(events: list[Event]) -> list[list[Event]]:
    starts = [position for position, event in enumerate(events) if isinstance(event, IterationStarted)]
    return [events[start:end] for start, end in pairwise([*starts, len(events)])]


def check_round(told: list[Event], *, streamed: bool) -> None:
    """One answer, and its calls: each begins and ends once, in their order, unless the round was one too many."""
    (answered,) = [event for event in told if isinstance(event, ModelReply)]
    reply = answered.reply
    assert not [event for event in told[: told.index(answered)] if isinstance(event, ToolStarted | ToolFinished)]
    if streamed:
        assert "".join(event.text for event in told if isinstance(event, TextDelta)) == reply.text
    begun = [event.call for event in told if isinstance(event, ToolStarted)]
    ended = [event.call for event in told if isinstance(event, ToolFinished)]
    too_many = isinstance(told[-1], RunFailed)
    assert begun == [call for call in reply.tool_calls if not too_many and expected_result(call)]
    assert sorted(call.id for call in ended) == sorted(call.id for call in begun)
    assert reply.finish_reason in ("tool_calls" if reply.tool_calls else "stop", "length")


def check_history(ended: Ended) -> None:
    """Each call has its own result, in order, directly after the answer that made it."""
    have_run = {event.call.id for event in ended.events if isinstance(event, ToolFinished)}
    made = [call for event in ended.replies for call in event.reply.tool_calls]
    rest = list(ended.messages)
    while rest:
        message = rest.pop(0)
        assert message.role != "tool", "a result without a call"
        for call in message.tool_calls:
            result = rest.pop(0)
            assert (result.role, result.tool_call_id) == ("tool", call.id)
            if call.id in have_run:
                assert result.text == expected_result(call)
            elif call in made:
                assert result.text.startswith(f"Error: Tool '{call.name}' was not run: ")
    told = [call for message in ended.messages for call in message.tool_calls]
    assert told[len(told) - len(made) :] == made


def expected_result(call: ToolCall) -> str | None:
    """What its tool gives; nothing for half a call, which does not run."""
    try:
        arguments: dict[str, Any] = parse_arguments(call.arguments)
    except ArgumentsError:
        return None
    match call.name:
        case "add":
            return str(arguments["a"] + arguments["b"])
        case "weather" if arguments["city"] == "Atlantis":
            return "Error: Tool 'weather' failed: it has sunk"
        case "weather":
            return f"Sunny in {arguments['city']}"
    return to_json(note(**arguments)).decode()


def check_next_request(way: Way, agent: PromptAgent, messages: Sequence[Message]) -> None:
    """What a turn leaves has its calls and results in order, and is what the API's own document and types allow."""
    family = way.family
    assert outline(repair(messages, family.provider, family.api_type)) == outline(messages)
    api = DEFAULT[PROVIDERS].get(family.provider).api(family.api_type)
    history = [*map(with_plain_ids, messages), user("And now?")]
    body = build_request(agent, history, fit_request(agent, api), stream=way.mode.streamed).body
    assert_legal(way.name, {name: value for name, value in body.items() if name not in UNKNOWN_ELSEWHERE})


def outline(messages: Sequence[Message]) -> list[object]:
    return [(one.role, one.tool_call_id, [call.id for call in one.tool_calls]) for one in messages]


def with_plain_ids(message: Message) -> Message:
    """This server's ids may begin with a digit, which APIs take and `assert_legal` does not."""
    if message.tool_call_id:
        return replace(message, tool_call_id=f"id_{message.tool_call_id}")
    return replace(message, tool_calls=tuple(replace(call, id=f"id_{call.id}") for call in message.tool_calls))


HALF = '{"a": 1, "b'


@pytest.mark.parametrize("name", FAMILIES)
def test_a_turn_goes_on_after_a_call_whose_arguments_were_cut_off(prompts: Prompts, name: str) -> None:
    """A model may write anything, and this server answers 500 to a history with arguments that are not JSON."""
    call = ToolCall(id="call_1", name="add", arguments=HALF)
    history = [user("What is 1 and 2?"), assistant(tool_calls=[call]), tool_result("call_1", "Error: not JSON")]
    path = prompts.write(FAMILIES[name], options=FREELY, tools=TOOLS)
    for mode in MODES:
        close_clients()  # a connection on which this server has streamed may be one that it hangs up
        with asyncio.Runner() as runner:
            way = Way(name, FAMILIES[name], mode, runner)
            ended = way.turn(path, messages=[*history, user("And now?")], max_iterations=1, max_retries=0)
        assert ended.messages[1].tool_calls[0].arguments == HALF  # what is kept is what the model wrote
