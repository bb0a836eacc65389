"""Against a real llama.cpp server, which others wrote: chat, Responses, embeddings and Anthropic Messages.

The same seed gives the same text there, so whatever differs between two ways of asking is a mistake of ours.
"""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel

from prompty import (
    Message,
    ModelError,
    ToolCall,
    assistant,
    invoke,
    invoke_async,
    load,
    prepare,
    tool_result,
    user,
)
from prompty.errors import ArgumentsError, ResultError
from prompty.events import Event, ModelReply, ModelRequested, Retry, ToolCallDelta
from prompty.model.message import Reply
from prompty.pipeline import run, run_async
from prompty.providers import register_connection
from prompty.providers.models import list_models
from prompty.tools.calls import parse_arguments
from prompty.wire.structured import StructuredResult, output_schema
from tests.real.figures import record
from tests.real.ways import (
    CALL,
    EMBEDDING,
    FAMILIES,
    REQUESTS,
    SOAK,
    Answer,
    Family,
    Options,
    Prompts,
    in_all_ways,
    reply_to,
    streamed,
    streamed_async,
)

SEEDS = range(200 if SOAK else 20)
CUTS = range(2, 120) if SOAK else range(10, 90, 11)

ADD = {
    "name": "add",
    "kind": "function",
    "description": "Adds two numbers.",
    "parameters": {"a": {"kind": "integer", "required": True}, "b": {"kind": "integer", "required": True}},
}
LONG_ENOUGH = {"maxOutputTokens": 400, "temperature": 0.8}

each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def compare(case: str, runner: asyncio.Runner, files: dict[int, Path]) -> list[Answer]:
    """Ask each file in all ways; the answers, when they are the same in all of them."""
    asked = {seed: in_all_ways(runner, path, question(seed)) for seed, path in files.items()}
    mismatches = {seed: ways for seed, ways in asked.items() if any(way != ways["sync"] for way in ways.values())}
    if SOAK:
        record(case, seeds=len(files), requests=REQUESTS * len(files), mismatches=len(mismatches))
    assert mismatches == {}
    return [ways["sync"] for ways in asked.values()]


def question(seed: int) -> dict[str, str]:
    return {"question": f"What is {seed * seed} to {seed}?"}


def must_call(family: Family, **options: object) -> dict[str, object]:
    """Options with which the model calls a tool, whatever else it says."""
    return {**LONG_ENOUGH, "additionalProperties": {"tool_choice": family.must_call}, **options}


@each_family
def test_the_same_seed_gives_the_same_answer_in_every_way(
    prompts: Prompts, runner: asyncio.Runner, family: Family, request: pytest.FixtureRequest
) -> None:
    files = {seed: prompts.write(family, seed) for seed in SEEDS}
    answers = compare(f"{request.node.callspec.id}: text", runner, files)
    assert len({answer.text for answer in answers}) > len(SEEDS) / 3
    assert all(answer.result == answer.text for answer in answers)
    assert all(answer.input_tokens > 20 and answer.output_tokens for answer in answers)
    assert {answer.finish for answer in answers} <= {"stop", "length"}


def test_the_same_texts_give_the_same_vectors_in_every_way(prompts: Prompts, runner: asyncio.Runner) -> None:
    files = {seed: prompts.write(EMBEDDING, seed) for seed in SEEDS}
    vectors: list[Any] = [answer.result for answer in compare("embedding", runner, files)]
    assert all([len(system), len(user)] == [64, 64] for system, user in vectors)
    assert all(system == vectors[0][0] for system, _ in vectors)
    assert len({tuple(user) for _, user in vectors}) == len(SEEDS)


@each_family
def test_a_call_that_must_be_made_is_the_same_one_in_every_way(
    prompts: Prompts, runner: asyncio.Runner, family: Family, request: pytest.FixtureRequest
) -> None:
    files = {seed: prompts.write(family, seed, options=must_call(family), tools=[ADD]) for seed in SEEDS}
    for answer in compare(f"{request.node.callspec.id}: a call", runner, files):
        ((name, arguments),) = answer.calls
        assert name == "add"
        assert parse_arguments(arguments).keys() == {"a", "b"}
        assert (answer.finish, answer.result) == ("tool_calls", answer.calls)


@each_family
def test_a_model_that_may_call_ends_by_itself_in_every_way(
    prompts: Prompts, runner: asyncio.Runner, family: Family, request: pytest.FixtureRequest
) -> None:
    files = {seed: prompts.write(family, seed, options=LONG_ENOUGH, tools=[ADD]) for seed in SEEDS}
    answers = compare(f"{request.node.callspec.id}: perhaps a call", runner, files)
    assert all(answer.finish == ("tool_calls" if answer.calls else "stop") for answer in answers)


def by_hand(reply: Reply) -> Message:
    """A turn as a host keeps it that knows only text and calls."""
    return assistant(reply.text, tool_calls=reply.tool_calls)


@each_family
@pytest.mark.parametrize("kept_as", [Reply.message, by_hand], ids=["as it came", "by hand"])
def test_a_call_and_its_result_go_back_to_the_model(
    prompts: Prompts, runner: asyncio.Runner, family: Family, kept_as: Callable[[Reply], Message]
) -> None:
    first = load(prompts.write(family, options=must_call(family), tools=[ADD]))
    reply = reply_to(first, prepare(first, question(0)))
    (call,) = reply.tool_calls

    path = prompts.write(family, options=LONG_ENOUGH, tools=[ADD])
    short, long = ([kept_as(reply), tool_result(call.id, "7" * length)] for length in (1, 51))
    ways = in_all_ways(runner, path, {**question(0), "since": short})
    assert all(way == ways["sync"] for way in ways.values())
    grown = streamed(path, {**question(0), "since": long})
    assert grown.input_tokens - ways["sync"].input_tokens == 50  # a digit is a token: the whole result has arrived


class Position(BaseModel, extra="forbid"):
    north: int
    east: int


class Place(BaseModel, extra="forbid"):
    """What the prompt's outputs say, as a host would write it."""

    city: str
    people: int
    coastal: bool
    size: Literal["small", "large"]
    position: Position
    mayor: str | None


# No list among them: how long one may get cannot be said in a file, and this model sometimes finds no end.
OUTPUTS = {
    "city": {"kind": "string"},
    "people": {"kind": "integer"},
    "coastal": {"kind": "boolean"},
    "size": {"kind": "string", "enumValues": ["small", "large"]},
    "position": {"kind": "object", "properties": {"north": {"kind": "integer"}, "east": {"kind": "integer"}}},
    "mayor": {"kind": "string", "required": False},
}


def test_outputs_are_json_that_fits_their_schema_in_every_way(prompts: Prompts, runner: asyncio.Runner) -> None:
    chat = FAMILIES["chat"]
    files = {seed: prompts.write(chat, seed, options=LONG_ENOUGH, outputs=OUTPUTS) for seed in SEEDS}
    fits = jsonschema_rs.Draft202012Validator(output_schema(load(files[0])) or False)
    for answer in compare("chat: outputs", runner, files):
        assert isinstance(answer.result, StructuredResult)
        assert answer.result.raw == answer.text
        fits.validate(dict(answer.result))


def test_outputs_become_the_type_that_the_caller_asks_for(prompts: Prompts, runner: asyncio.Runner) -> None:
    path = prompts.write(FAMILIES["chat"], options=LONG_ENOUGH, outputs=OUTPUTS)
    expected = Place(**invoke(path, question(0)))

    async def asynchronously() -> tuple[Place, Place]:
        whole = await invoke_async(path, question(0), output_type=Place)
        async with await invoke_async(path, question(0), output_type=Place, stream=True) as stream:
            return whole, await stream.result()

    with invoke(path, question(0), output_type=Place, stream=True) as stream:
        assert stream.result == expected
    assert invoke(path, question(0), output_type=Place) == expected
    assert runner.run(asynchronously()) == (expected, expected)


def test_the_partial_values_of_a_stream_grow_into_its_result(prompts: Prompts, runner: asyncio.Runner) -> None:
    path = prompts.write(FAMILIES["chat"], options=LONG_ENOUGH, outputs=OUTPUTS)

    async def asynchronously() -> tuple[list[object], object]:
        async with await invoke_async(path, question(0), stream=True) as stream:
            return [value async for value in stream.partials()], await stream.result()

    with invoke(path, question(0), stream=True) as stream:
        partials = list(stream.partials())
        assert partials[-1] == stream.result
    assert len(partials) > len(OUTPUTS)
    assert [list(value) for value in partials if isinstance(value, dict)][-1] == list(OUTPUTS)
    assert runner.run(asynchronously()) == (partials, partials[-1])


def test_a_number_beyond_all_floats_is_not_taken_for_infinity(prompts: Prompts) -> None:
    outputs = {"north": {"kind": "float"}, "east": {"kind": "float"}}
    for seed in SEEDS:  # among any twenty, several go beyond
        file = prompts.write(FAMILIES["chat"], seed, options=LONG_ENOUGH, outputs=outputs)
        with suppress(ResultError):
            result = invoke(file, question(seed))
            assert all(map(isfinite, result.values())), result.raw


@pytest.mark.parametrize("name", ["responses", "messages"])
def test_outputs_are_no_reason_to_be_refused_where_the_server_ignores_them(
    prompts: Prompts, runner: asyncio.Runner, name: str
) -> None:
    files = {seed: prompts.write(FAMILIES[name], seed, outputs=OUTPUTS) for seed in SEEDS}
    compare(f"{name}: outputs", runner, files)


@each_family
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_prompt_that_is_too_long_is_an_error_that_is_not_tried_again(
    prompts: Prompts, runner: asyncio.Runner, family: Family, stream: bool
) -> None:
    path = prompts.write(family)
    agent, inputs = load(path), {"question": "x y " * 3000}
    messages = prepare(agent, inputs)
    events: list[object] = []
    options: dict[str, Any] = {"stream": stream, "on_event": events.append, **CALL}

    def given_messages() -> None:
        answer = run(agent, messages, **options)
        list(answer) if stream else None

    async def given_messages_async() -> None:
        answer = await run_async(agent, messages, **options)
        [piece async for piece in answer] if stream else None

    ways: list[Callable[[], object]] = [
        lambda: streamed(path, inputs) if stream else invoke(path, inputs),
        lambda: runner.run(streamed_async(path, inputs) if stream else invoke_async(path, inputs)),
        given_messages,
        lambda: runner.run(given_messages_async()),
    ]
    for ask in ways:
        with pytest.raises(ModelError, match="exceeds the available context size") as caught:
            ask()
        assert (caught.value.status, caught.value.retryable) == (400, False)
    assert [event for event in events if isinstance(event, Retry)] == []
    assert len([event for event in events if isinstance(event, ModelRequested)]) == 2


@each_family
def test_a_call_that_the_token_limit_cut_in_two_cannot_run(prompts: Prompts, family: Family) -> None:
    whole = load(prompts.write(family, options=must_call(family), tools=[ADD]))
    (call,) = reply_to(whole, prepare(whole, question(0))).tool_calls
    halves = 0
    for limit in CUTS:
        path = prompts.write(family, options=must_call(family, maxOutputTokens=limit), tools=[ADD])
        with invoke(path, question(0), stream=True) as stream:
            events = list(stream.events())
        for result in (invoke(path, question(0)), stream.result):
            runnable = runnable_calls(result)
            assert runnable in ([], [("add", parse_arguments(call.arguments))])
        halves += any(isinstance(event, ToolCallDelta) for event in events) and not runnable
    assert halves


def runnable_calls(result: object) -> list[tuple[str, dict[str, object]]]:
    """The calls of a result that have arguments."""
    found = []
    for call in result if isinstance(result, list) else []:
        with suppress(ArgumentsError):
            found.append((call.name, parse_arguments(call.arguments)))
    return found


@pytest.fixture
def reconnecting(url: str, runner: asyncio.Runner) -> Iterator[Options]:
    """A connection that is opened for each call. The server has a thread for each open one, of which it has eight; an
    idle one keeps its thread for five seconds, and a sixteenth call waits as long."""
    options: dict[str, Any] = {"api_key": "nobody", "max_retries": 0, "default_headers": {"Connection": "close"}}
    clients = (AsyncOpenAI(base_url=f"{url}/v1", **options), AsyncAnthropic(base_url=url, **options))
    register_connection("reconnecting", *clients)
    yield {"kind": "reference", "name": "reconnecting"}
    for client in clients:
        runner.run(client.close())


@each_family
def test_sixteen_calls_at_once_each_get_their_own_answer(
    prompts: Prompts, runner: asyncio.Runner, reconnecting: Options, family: Family
) -> None:
    paths = {seed: prompts.write(family, seed, connection=reconnecting) for seed in range(16)}
    expected = [invoke(prompts.write(family, seed), question(seed)) for seed in paths]

    async def at_once() -> list[Any]:
        return await asyncio.gather(*(invoke_async(path, question(seed)) for seed, path in paths.items()))

    async def streamed_at_once() -> list[Any]:
        found = await asyncio.gather(*(streamed_async(path, question(seed)) for seed, path in paths.items()))
        return [answer.result for answer in found]

    assert len(set(expected)) > 5
    assert runner.run(at_once()) == expected
    assert runner.run(streamed_at_once()) == expected


@pytest.mark.parametrize("name", ["chat", "messages"])
def test_an_event_loop_that_has_ended_is_let_go_with_its_connections(prompts: Prompts, name: str) -> None:
    path = prompts.write(FAMILIES[name])

    async def ask() -> weakref.ref[asyncio.AbstractEventLoop]:
        await invoke_async(path, question(0))
        return weakref.ref(asyncio.get_running_loop())

    ended = [asyncio.run(ask()) for _ in range(3)]
    gc.collect()
    assert [loop() for loop in ended] == [None, None, None]


def test_the_server_lists_its_model(url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.prompty"
    file.write_text(f"---\nmodel: {{id: m, connection: {{endpoint: '{url}/v1'}}}}\n---\nuser:\nHi")
    assert len(list_models(load(file))) == 1


def test_the_server_takes_the_fields_of_its_profile(url: str, tmp_path: Path) -> None:
    """Thoughts beside a call and a limit of tokens, under the names that the profile of compatible servers has."""
    file = tmp_path / "a.prompty"
    options = "{maxOutputTokens: 3, seed: 1, frequencyPenalty: 0.1}"
    file.write_text(f"---\nmodel: {{id: m, connection: {{endpoint: '{url}/v1'}}, options: {options}}}\n---\nuser:\nHi")
    call = ToolCall(id="c" * 60, name="look", arguments="{}")
    history = [user("Look."), assistant("", tool_calls=[call], reasoning="I must look."), tool_result(call.id, "seen")]
    events: list[Event] = []
    run(load(file), history, **CALL, on_event=events.append)
    (answered,) = [event for event in events if isinstance(event, ModelReply)]
    assert answered.reply.finish_reason == "length"
    assert answered.reply.usage.output_tokens == 3
