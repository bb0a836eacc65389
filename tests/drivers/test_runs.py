"""One way to run: `invoke` is the loop without tools, spans follow the events, and nothing is left open."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from prompty import (
    Budget,
    CancelToken,
    Guardrails,
    Message,
    PromptAgent,
    PromptyError,
    Registry,
    deny,
    invoke,
    invoke_async,
    rewrite,
    turn,
    turn_async,
    user,
)
from prompty.errors import ArgumentsError, BudgetSpent, Cancelled, GuardrailError, ModelError, ResultError, ToolError
from prompty.events import Done, Event, FellBack, IterationStarted, ModelFailed, ModelReply, ModelRequested, RunStarted
from prompty.pipeline import run
from prompty.testing import Fault, Script, answer, call
from prompty.tools.toolbox import TOOLS
from prompty.tracing import Span, Tracer, trace_to
from prompty.viewer import read_trace


def agent(**keys: Any) -> PromptAgent:
    model = {"id": "m", "provider": "scripted"}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", **keys})


LOOK = {"name": "look", "kind": "function", "parameters": {"at": {"kind": "string"}}}


def test_invoke_tells_the_events_of_a_run() -> None:
    events: list[Event] = []
    with Script("Hello"):
        assert invoke(agent(), on_event=events.append) == "Hello"
    assert [type(event) for event in events] == [RunStarted, IterationStarted, ModelRequested, ModelReply, Done]


def test_the_attempts_of_a_call_have_its_number_and_the_next_call_another() -> None:
    events: list[Event] = []
    with Script(Fault(ModelError("busy", status=503, retryable=True, retry_after=0)), call("look", at="me"), "Done."):
        turn(agent(), tools=[look], on_event=events.append)
    requested = [(event.call, event.attempt) for event in events if isinstance(event, ModelRequested)]
    assert requested == [(1, 1), (1, 2), (2, 1)]
    assert [(event.call, event.final) for event in events if isinstance(event, ModelFailed)] == [(1, False)]


def look(at: str) -> str:
    """Look."""
    return f"saw {at}"


def test_invoke_returns_calls_without_running_them_and_needs_no_handlers() -> None:
    events: list[Event] = []
    with Script(call("look", at="me")):
        [asked] = invoke(agent(tools=[LOOK]), on_event=events.append)
    assert asked.name == "look"
    [done] = [event for event in events if isinstance(event, Done)]
    assert list(done.messages[-1].tool_calls) == [asked]


def test_invoke_makes_no_repair_round() -> None:
    outputs = {"outputs": {"n": {"kind": "integer"}}}
    with Script("no JSON") as script, pytest.raises(ResultError):
        invoke(agent(**outputs))
    assert len(script.requests) == 1


def test_invoke_can_be_cancelled() -> None:
    token = CancelToken()
    token.cancel("enough")
    with Script("never"), pytest.raises(Cancelled, match="enough"):
        invoke(agent(), cancel=token)


def test_invoke_falls_back() -> None:
    events: list[Event] = []
    with Script(Fault(ModelError("no", status=401)), "Hello"):
        assert invoke(agent(), fallbacks=["other"], on_event=events.append) == "Hello"
    assert [event.model for event in events if isinstance(event, FellBack)] == ["other"]


def test_invoke_asks_the_guardrails_of_input_and_output() -> None:
    with Script("Hello"), pytest.raises(GuardrailError):
        invoke(agent(), guardrails=Guardrails(input=lambda _: deny("no")))
    with Script("Hello"):
        assert invoke(agent(), guardrails=Guardrails(output=lambda _: rewrite("Goodbye"))) == "Goodbye"


def test_invoke_has_a_budget_of_time() -> None:
    with Script("never"), pytest.raises(BudgetSpent):
        invoke(agent(), budget=Budget(seconds=0))


@pytest.mark.spec("000 §7.1.5", "`stream` among the additional properties passes through")
def test_the_caller_and_not_the_file_chooses_whether_a_call_streams() -> None:
    told = agent(model={"id": "m", "provider": "scripted", "options": {"additionalProperties": {"stream": True}}})
    with Script("Done.") as script:
        assert invoke(told) == "Done."
    assert "stream" not in script.requests[0]


@pytest.mark.spec("001 How a Turn Interleaves", "a stored conversation is sent as it is")
def test_run_repairs_a_history_before_it_is_sent() -> None:
    history = [user("Hi"), {"role": "assistant", "tool_calls": [wire_call("a"), wire_call("b")]}, wire_result("b")]
    with Script("Done.") as script:
        assert run(agent(), [*history, user("And?")]) == "Done."
    sent = script.requests[0]["messages"]
    assert [(message["role"], message.get("tool_call_id")) for message in sent] == [
        ("user", None),
        ("assistant", None),
        ("tool", "a"),
        ("tool", "b"),
        ("user", None),
    ]


def wire_call(id: str) -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}}


def wire_result(id: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": id, "content": "seen"}


def test_a_tool_that_ran_and_raised_an_error_of_ours_is_not_reported_as_not_run() -> None:
    ran = []

    def pay() -> str:
        """Pay."""
        ran.append(True)
        raise ToolError("the bank is closed", "Come back later.")

    async def pay_later() -> str:
        """Pay later."""
        ran.append(True)
        raise ArgumentsError("the bank is closed")

    with Script([call("pay"), call("pay_later")], "Done.") as script:
        turn(agent(), tools=[pay, pay_later])
    with Script([call("pay"), call("pay_later")], "Done.") as script_async:
        asyncio.run(turn_async(agent(), tools=[pay, pay_later]))
    assert len(ran) == 4
    for request in (script.requests[1], script_async.requests[1]):
        told = [message["content"] for message in request["messages"] if message["role"] == "tool"]
        assert all("failed: the bank is closed" in text and "not run" not in text for text in told)


class Sink:
    """Counts spans."""

    content, wire, immediate = True, False, True

    def __init__(self) -> None:
        self.open: list[str] = []
        self.ended_spans: list[Span] = []

    def started(self, span: Span, /) -> None:
        self.open.append(span.name)

    def ended(self, span: Span, /) -> None:
        self.open.remove(span.name)
        self.ended_spans.append(span)


@pytest.fixture
def sink() -> Any:
    one = Sink()
    Tracer.add("counting", one)
    yield one
    Tracer.remove("counting")


WAYS = {"invoke": invoke, "turn": turn}


@pytest.mark.parametrize("start", WAYS.values(), ids=WAYS)
def test_a_stream_that_is_never_read_leaves_no_span_open(sink: Sink, start: Any) -> None:
    with Script(*["Hello"] * 3):
        start(agent(), stream=True).close()
        dropped = start(agent(), stream=True)
        del dropped
        gc.collect()
    assert sink.open == []


def test_an_async_stream_that_is_never_read_leaves_no_span_open(sink: Sink) -> None:
    async def main() -> None:
        with Script("Hello", "Hello"):
            await (await invoke_async(agent(), stream=True)).aclose()
            await (await turn_async(agent(), stream=True)).aclose()

    asyncio.run(main())
    assert sink.open == []


def test_streams_that_are_never_read_leave_no_file_descriptor_and_no_orphan(tmp_path: Path) -> None:
    trace_to(f"file:{tmp_path}")
    try:
        with Script(*["Hello"] * 41):
            turn(agent(), stream=True).close()
            before = len(list(Path("/proc/self/fd").iterdir()))
            for _ in range(40):
                turn(agent(), stream=True).close()
            assert len(list(Path("/proc/self/fd").iterdir())) <= before
        assert {read_trace(file).root.finished for file in tmp_path.glob("*.jsonl")} == {True}
    finally:
        Tracer.clear()


def test_an_error_of_the_file_or_its_inputs_is_raised_at_the_call_also_for_a_stream(sink: Sink) -> None:
    needs = agent(inputs={"q": {"kind": "string", "required": True}})
    for start in WAYS.values():
        with pytest.raises(PromptyError, match="q"):
            start(needs, stream=True)  # type: ignore[operator]  # one of two functions
    assert sink.open == []


def test_a_span_that_nobody_sees_has_the_whole_interface_of_a_span() -> None:
    with Tracer.start("mine") as span:
        span.record("key", "value")
        span.set_attributes({"a": 1})
        span.add_usage({"input_tokens": 1})
        span.hide(["secret"])
        assert (span.attributes, span.content, span.usage, span.error) == ({}, {}, {}, None)
        assert span.name == ""
        assert span.parent is None


def test_the_events_of_a_run_have_the_conversation(sink: Sink) -> None:
    with Script(answer("Hm", call("look", at="me")), "Done."):
        events: list[Event] = []
        turn(agent(), tools=[look], on_event=events.append)
    [done] = [event for event in events if isinstance(event, Done)]
    assert all(isinstance(message, Message) for message in done.messages)
    assert {span.name for span in sink.ended_spans} >= {"turn", "execute", "execute_tool", "prepare", "process"}


def test_a_run_looks_names_up_in_the_registry_it_is_given() -> None:
    own = Registry()
    own[TOOLS].register("look", look)
    with Script(call("look", at="me"), "Done."):
        assert turn(agent(tools=[LOOK]), registry=own) == "Done."
    with pytest.raises(ToolError, match="look"):
        turn(agent(tools=[LOOK]))
