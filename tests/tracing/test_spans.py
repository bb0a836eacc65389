"""Which spans there are, inside of what, and what they say."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from dbos import DBOS

from prompty import (
    ModelError,
    PromptAgent,
    invoke,
    invoke_async,
    load,
    loads,
    tool,
    trace,
    turn,
    turn_async,
    user,
)
from prompty.pipeline import executor_of, processor_of, run
from prompty.testing import Fault, Script, answer, call
from prompty.tracing import Tracer, names
from prompty.tracing.spans import NULL_SPAN, begin, is_tracing
from tests.conversations.turns import scripted
from tests.durable.own import launched
from tests.durable.runs import Desk, rounds, scripted as durable
from tests.tracing.watching import Seen, watching
from tests.ways import Way, sync_and_async

PREPARED: Any = ("prepare", [("render", []), ("parse", [])])
CONNECTED: Any = ("connect", [])
ASKED: Any = (("execute", []), ("process", []))
TOOL = {"name": "look", "kind": "function", "parameters": [{"name": "city", "kind": "string"}]}


@pytest.fixture
def seen() -> Iterator[Seen]:
    with watching() as one:
        yield one
        one.assert_complete()


@tool
def look(city: str) -> str:
    """Look outside."""
    return f"sunny in {city}"


def agent(**parts: Any) -> PromptAgent:
    return scripted(name="weather", tools=[TOOL], **parts)


def test_nothing_is_seen_or_made_while_nobody_listens() -> None:
    Tracer.clear()
    with begin("render") as span:
        assert span is NULL_SPAN
        assert not is_tracing()
    with Script("Hello."):
        assert invoke(scripted()) == "Hello."


@pytest.mark.spec("002 §8", "whatever is executed is processed")
@pytest.mark.spec("002 §8", "process and process_async are spans")
@pytest.mark.spec("000 §7.1.8", "the executor emits an execute span")
@sync_and_async
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_call_is_one_tree(seen: Seen, way: Way, stream: bool) -> None:
    options: Any = {"stream": stream}

    async def in_async_code() -> object:
        result: Any = await invoke_async(scripted(), {"q": "Hi"}, **options)
        return await result.result() if stream else result

    with Script("Hello."):
        if way.asynchronous:
            result = asyncio.run(in_async_code())
        else:
            said: Any = invoke(scripted(), {"q": "Hi"}, **options)
            result = said.result if stream else said
    assert result == "Hello."
    assert seen.trees() == [("invoke", [PREPARED, CONNECTED, ("execute", []), ("process", [])])]
    assert seen.one("invoke").content["result"] == "Hello."
    assert seen.one("invoke").usage == seen.one("execute").usage


def test_a_prompt_that_is_loaded_for_a_call_is_loaded_inside_of_it(seen: Seen, tmp_path: Any) -> None:
    (tmp_path / "hello.prompty").write_text("---\nmodel: {id: m, provider: scripted}\n---\nuser:\nHi")
    with Script("Hello."):
        invoke(tmp_path / "hello.prompty")
    assert seen.trees() == [("invoke", [("load", []), PREPARED, CONNECTED, ("execute", []), ("process", [])])]
    assert seen.one("invoke").title.startswith("invoke")


@sync_and_async
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_turn_is_one_tree_with_its_tools(seen: Seen, way: Way, stream: bool) -> None:
    async def streamed() -> object:
        return await (await turn_async(agent(), tools=[look], stream=True)).result()

    with Script([call("look", city="Paris"), call("look", city="Rome")], "Sunny."):
        if not stream:
            result = way.turn(agent(), tools=[look]).result
        else:
            result = asyncio.run(streamed()) if way.asynchronous else turn(agent(), tools=[look], stream=True).result
    assert result == "Sunny."
    tools: Any = [("execute_tool", []), ("execute_tool", [])]
    assert seen.trees() == [("turn", [PREPARED, CONNECTED, *ASKED, *tools, *ASKED])]
    assert [span.content["inputs"] for span in seen.named("execute_tool")] == [{"city": "Paris"}, {"city": "Rome"}]
    assert [span.content["result"] for span in seen.named("execute_tool")] == ["sunny in Paris", "sunny in Rome"]
    asked = [span.usage["input_tokens"] for span in seen.named("execute")]
    assert seen.one("turn").usage["input_tokens"] == sum(asked)


@sync_and_async
def test_retries_are_one_span(seen: Seen, way: Way) -> None:
    down = Fault(ModelError("overloaded", status=529, retryable=True, retry_after=0))
    with Script(down, down, "Hello."):
        way.turn(scripted())
    span = seen.one("execute")
    assert span.attributes[names.ATTEMPTS] == 3
    assert span.error is None
    assert span.content["result"]["content"] == "Hello."


@sync_and_async
def test_a_call_that_fails_is_a_span_that_failed_and_so_is_its_turn(seen: Seen, way: Way) -> None:
    with Script(Fault(ModelError("no such model", status=404))):
        result = way.turn(scripted())
    assert isinstance(result.error, ModelError)
    assert [span.error and span.error[0] for span in (seen.one("execute"), seen.one("turn"))] == ["ModelError"] * 2


@sync_and_async
def test_a_tool_that_fails_is_a_span_that_failed_and_the_turn_goes_on(seen: Seen, way: Way) -> None:
    def broken(city: str) -> str:
        raise RuntimeError(f"no window to {city}")

    with Script(call("look", city="Paris"), "Sorry."):
        way.turn(agent(), tools={"look": broken})
    assert seen.one("execute_tool").error == ("ToolError", "Error: Tool 'look' failed: no window to Paris")
    assert seen.one("turn").error is None


@sync_and_async
def test_spans_of_parallel_tools_are_inside_their_own_call(seen: Seen, way: Way) -> None:
    here = threading.Barrier(3, timeout=10)

    def look_closely(city: str) -> str:
        with Tracer.start(f"in {city}"):
            here.wait()
            return city

    with Script([call("look", city=city) for city in ("Paris", "Rome", "Oslo")], "Sunny."):
        way.turn(agent(), tools={"look": look_closely})
    for span in seen.named("execute_tool"):
        [inner] = [one.name for one in seen.begun if one.parent is span]
        assert inner == f"in {span.content['inputs']['city']}"


def test_turns_at_once_do_not_mix(seen: Seen) -> None:
    async def one(number: int) -> None:
        await turn_async(agent(), {"q": f"turn {number}"}, tools={"look": later_look})

    async def later_look(city: str) -> str:
        await asyncio.sleep(0.001 * (len(city) % 3))
        with Tracer.start(city):
            return city

    async def all_of_them() -> None:
        with Script(*([answers] * 100)):
            await asyncio.gather(*(one(number) for number in range(50)))

    def answers(request: Any) -> Any:
        said = request.body["messages"]
        question = next(message["content"] for message in said if message["role"] == "user")
        return answer("Done.") if said[-1]["role"] == "tool" else call("look", city=question)

    asyncio.run(all_of_them())
    assert len(seen.trees()) == 50
    for root in seen.named("turn"):
        inside = [span for span in seen.begun if span.trace is root.trace]
        [inner] = [span for span in inside if span.parent and span.parent.name == "execute_tool"]
        assert inner.name == root.content["inputs"]["q"]


def test_a_stream_that_is_left_ends_its_spans(seen: Seen) -> None:
    with Script("One two three four."), invoke(scripted(), stream=True) as stream:
        next(iter(stream))
    assert seen.one("execute").attributes[names.ABANDONED] is True
    assert seen.one("invoke").error is None


def test_a_result_that_does_not_fit_is_an_error_of_the_call(seen: Seen) -> None:
    with Script("no number"), pytest.raises(Exception, match="int"):
        invoke(scripted(), output_type=int)
    assert seen.one("execute").error is None
    assert seen.one("invoke").error is not None


def test_a_prompt_inside_another_is_inside_its_call(seen: Seen, tmp_path: Any) -> None:
    head = "---\nname: {name}\nmodel: {{id: m, provider: scripted}}\n{tools}---\nuser:\nHi"
    (tmp_path / "child.prompty").write_text(head.format(name="child", tools=""))
    tools = "tools: [{name: ask, kind: prompty, path: child.prompty}]\n"
    (tmp_path / "parent.prompty").write_text(head.format(name="parent", tools=tools))
    with Script(call("ask"), "From the child.", "Done."):
        turn(tmp_path / "parent.prompty")
    child = seen.one("invoke")
    assert child.title == "invoke child"
    assert child.parent is seen.one("execute_tool")
    assert seen.named("turn")[0].usage["output_tokens"] == sum(
        one.usage["output_tokens"] for one in seen.named("execute")
    )


@pytest.mark.spec("000 §7.1.8", "the executor emits an execute span")
@pytest.mark.spec("002 §8", "process and process_async are spans")
def test_the_parts_of_the_documents_are_spans_of_their_own(seen: Seen) -> None:
    one = scripted()

    async def in_async_code() -> object:
        raw = await executor_of(one).execute_async(one, [user("Hi")])
        return await processor_of(one).process_async(one, raw)

    with Script("One.", "Two.", "Three."):
        raw = executor_of(one).execute(one, [user("Hi")])
        assert processor_of(one).process(one, raw) == "One."
        assert asyncio.run(in_async_code()) == "Two."
        assert run(one, [user("Hi")]) == "Three."
    assert [tree[0] for tree in seen.trees()] == ["execute", "process", "execute", "process", "run"]
    assert seen.named("execute")[0].attributes[names.RESPONSE_FINISH_REASONS] == ["stop"]


def test_what_is_shown_is_how_it_was_then(seen: Seen) -> None:
    values = [1]
    with Tracer.start("mine") as span:
        span.record("values", values)
        values.append(2)
    assert seen.one("mine").content == {"values": [1]}


@trace
def plain(first: int, *rest: int, password: str = "", **others: int) -> int:
    return first + sum(rest)


@trace(name="renamed")
async def coroutine(first: int) -> int:
    await asyncio.sleep(0)
    with Tracer.start("inner"):
        return first


@trace
def generator(count: int) -> Iterator[int]:
    for number in range(count):
        with Tracer.start("step"):
            pass
        yield number


@trace
async def async_generator(count: int) -> Any:
    for number in range(count):
        with Tracer.start("step"):
            pass
        yield number


def test_functions_of_ones_own_show_in_every_form(seen: Seen) -> None:
    async def both() -> list[int]:
        return [await coroutine(5), *[number async for number in async_generator(2)]]

    assert plain(1, 2, 3, password="hunter22") == 6
    assert list(generator(2)) == [0, 1]
    assert asyncio.run(both()) == [5, 0, 1]
    steps: Any = [("step", []), ("step", [])]
    assert seen.trees() == [
        ("plain", []),
        ("generator", steps),
        ("renamed", [("inner", [])]),
        ("async_generator", steps),
    ]
    assert seen.one("plain").content["inputs"] == {"first": 1, "rest": [2, 3], "password": "••••"}
    assert seen.one("plain").content["result"] == 6
    assert seen.one("plain").content["signature"].endswith("test_spans.plain")


def test_a_function_that_raises_shows_its_error_and_a_generator_that_is_left_ends(seen: Seen) -> None:
    with pytest.raises(TypeError):
        plain("1")  # type: ignore[arg-type]  # it raises
    next(items := generator(5))
    del items
    assert seen.one("plain").error is not None
    assert seen.one("generator").duration is not None


def test_a_factory_opens_a_span_by_its_name_and_gets_keys_and_values() -> None:
    told: list[Any] = []

    class Opened:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> Any:
            return lambda key, value: told.append((self.name, key, value))

        def __exit__(self, *_: object) -> None:
            told.append((self.name, "over", None))

    Tracer.add("mine", Opened)
    try:
        with Tracer.start("outer") as span, Tracer.start("inner") as inner:
            inner.record("answer", 42)
            span.record("question", "?")
        Tracer.flush()
    finally:
        Tracer.clear()
    assert ("inner", "answer", 42) in told
    assert ("outer", "question", "?") in told
    assert [entry for entry in told if entry[1] == "over"] == [("inner", "over", None), ("outer", "over", None)]


def test_sinks_can_be_removed_and_added_under_names() -> None:
    first, second = Seen(), Seen()
    Tracer.add("first", first)
    Tracer.add("second", second)
    with Tracer.start("one"):
        Tracer.remove("first")
        with Tracer.start("two"):
            pass
    with Tracer.start("three"):
        pass
    Tracer.clear()
    assert [span.name for span in first.begun] == ["one", "two"], "what began with a sink ends with it"
    assert [span.name for span in second.begun] == ["one", "two", "three"]


def test_loading_is_a_span_that_says_which_file(seen: Seen, tmp_path: Any) -> None:
    (tmp_path / "a.prompty").write_text("user:\nHi")
    load(tmp_path / "a.prompty")
    loads("user:\nHi")
    assert seen.trees() == [("load", []), ("load", [])]
    assert seen.named("load")[0].content["inputs"]["path"].endswith("a.prompty")


@pytest.mark.database
def test_a_durable_turn_is_one_tree_too(seen: Seen, tmp_path: Any) -> None:
    desk = Desk()
    with launched(f"sqlite:///{tmp_path}/own.db") as program:
        agent = durable(rounds("look", 1, 2))
        assert program.start_turn(agent, {"q": "Where?"}, tools=[desk.look]).get_result() == "Done."
        [intent] = [step for step in DBOS.list_workflow_steps("mine") if step["function_name"].startswith("intent:")]
    tools: Any = [("execute_tool", []), ("execute_tool", [])]
    [tree] = [tree for tree in seen.trees() if tree[0] == "turn"]
    assert tree == ("turn", [PREPARED, CONNECTED, *ASKED, *tools, *ASKED])
    assert intent["function_name"] == f"intent:{seen.one('turn').attributes[names.RUN_ID]}:1:0"
    assert seen.one("turn").content["result"] == "Done."
