"""What was said, in OpenTelemetry: where the switch puts it, in the shape of the conventions; and an application that
has an OpenTelemetry of its own."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.loopback import json_reply
from tests.tracing.answers import CALLS, CHAT, MESSAGES, RESPONSES, Wire
from tests.tracing.collector import Event, Span
from tests.tracing.program import SWITCH
from tests.tracing.programs import INPUTS, Run, running, turn_of

pytestmark = pytest.mark.process

SWITCHES = {
    "NO_CONTENT": (False, False),
    "SPAN_ONLY": (True, False),
    "EVENT_ONLY": (False, True),
    "SPAN_AND_EVENT": (True, True),
    "span_only": (True, False),
    "nonsense": (False, False),
}
WIRES: dict[str, tuple[Wire, bool]] = {
    "chat": (CHAT, False),
    "responses": (RESPONSES, True),
    "anthropic": (MESSAGES, False),
}
CONTENT = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
)
DETAILS = "gen_ai.client.inference.operation.details"
SAID = [b"How is the weather?", b"Lisbon", b"sunny", b"degrees", b"Be brief about", b"rain in"]
every_wire = pytest.mark.parametrize("name", WIRES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Everything is switched on in the environment; then the program itself sets the switch otherwise."""
    wires = [
        turn_of(wire, name, streamed=streamed, plan={"asynchronous": streamed})
        for name, (wire, streamed) in WIRES.items()
    ]
    refused = json_reply({"error": {"message": "no such key"}}, 401)
    wires.append(turn_of(CHAT, "refused", streamed=False, replies=[refused]))
    switched = [turn_of(CHAT, f"s {name}", streamed=False, plan={"switch": name}) for name in (*SWITCHES, "true")]
    folder, environment = tmp_path_factory.mktemp("program"), {SWITCH: "SPAN_AND_EVENT"}
    with running(folder, [*wires, *switched], environment=environment) as done:
        yield done


def read(holder: Span | Event) -> dict[str, Any]:
    """The content in attributes, out of its JSON."""
    return {name: json.loads(holder.attributes[name]) for name in CONTENT if name in holder.attributes}


def events_of(run: Run, span: Span) -> list[Event]:
    return [event for event in run.collector.events if (event.trace, event.span) == (span.trace, span.id)]


QUESTION = {"role": "user", "parts": [{"type": "text", "content": INPUTS["question"]}]}
ASKING = {
    "role": "assistant",
    "parts": [{"type": "tool_call", "id": id, "name": name, "arguments": given} for id, name, given in CALLS],
}
RESULTS = [
    {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "call_w", "result": '{"city":"Lisbon","degrees":21}'}],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_f", "result": "rain in Porto"}]},
]
ANSWER = {"role": "assistant", "parts": [{"type": "text", "content": "It is sunny."}], "finish_reason": "stop"}


@every_wire
def test_a_call_has_what_was_said_in_the_shape_of_the_conventions(run: Run, name: str) -> None:
    first, second = (read(span) for span in run.named(name, "chat "))
    for one in (first, second):
        assert one["gen_ai.system_instructions"] == [{"type": "text", "content": "Be brief about ••••."}]
        offered = [(tool["type"], tool["name"], tool["description"]) for tool in one["gen_ai.tool.definitions"]]
        assert offered == [
            ("function", "weather", "How the weather is now."),
            ("function", "forecast", "How the weather will be."),
        ]
        assert one["gen_ai.tool.definitions"][0]["parameters"]["properties"] == {"city": {"type": "string"}}
    assert first["gen_ai.input.messages"] == [QUESTION]
    assert first["gen_ai.output.messages"] == [{**ASKING, "finish_reason": "tool_calls"}]
    assert second["gen_ai.input.messages"] == [QUESTION, ASKING, *RESULTS]
    assert second["gen_ai.output.messages"] == [ANSWER]


@every_wire
def test_a_tool_has_its_arguments_and_its_result(run: Run, name: str) -> None:
    [weather] = run.named(name, "execute_tool weather")
    [forecast] = run.named(name, "execute_tool forecast")
    assert read(weather) == {
        "gen_ai.tool.call.arguments": {"city": "Lisbon"},
        "gen_ai.tool.call.result": '{"city":"Lisbon","degrees":21}',
    }
    assert read(forecast) == {
        "gen_ai.tool.call.arguments": {"city": "Porto"},
        "gen_ai.tool.call.result": "rain in Porto",
    }


@every_wire
def test_a_call_has_an_event_with_all_that_its_span_says(run: Run, name: str) -> None:
    for span in run.named(name, "chat "):
        [event] = events_of(run, span)
        assert event.name == DETAILS
        assert event.attributes == span.attributes


def test_a_call_that_fails_has_an_event_that_says_so(run: Run) -> None:
    [span] = run.named("refused", "chat ")
    [event] = events_of(run, span)
    assert event.attributes == span.attributes
    assert event.attributes["error.type"] == "ModelError"
    assert read(event)["gen_ai.input.messages"] == [QUESTION]


@pytest.mark.parametrize(("switch", "places"), SWITCHES.items(), ids=SWITCHES)
def test_the_switch_says_where_content_goes(run: Run, switch: str, places: tuple[bool, bool]) -> None:
    name, (on_span, on_event) = f"s {switch}", places
    for span in run.named(name, "chat "):
        assert bool(read(span)) is on_span
        events = events_of(run, span)
        assert [bool(read(event)) for event in events] == ([True] if on_event else [])
        assert [event.name for event in events] == ([DETAILS] if on_event else [])
    for span in run.named(name, "execute_tool "):
        assert bool(read(span)) is on_span
    everything_else = [span for span in run.trace(name) if not span.name.startswith(("chat ", "execute_tool "))]
    assert not any(read(span) for span in everything_else)


def test_the_older_way_to_switch_content_on_puts_it_on_spans(run: Run) -> None:
    assert all(read(span) for span in run.named("s true", "chat "))
    assert all(read(span) for span in run.named("s true", "execute_tool "))


def test_a_sensitive_input_is_in_nothing_that_is_sent_however_the_switch_stands(run: Run) -> None:
    everything = b"".join(run.collector.bodies())
    assert [said for said in SAID if said not in everything] == []
    assert INPUTS["ticket"].encode() not in everything


def test_an_application_that_has_set_opentelemetry_up_gets_our_spans_in_its_own_way(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    step = turn_of(CHAT, "guest", streamed=False, plan={"inside": "request"})
    with running(tmp_path_factory.mktemp("own"), [step], own=True) as run:
        assert {span.resource["service.name"] for span in run.collector.spans} == {"the application"}
        [application] = [span for span in run.collector.spans if span.name == "request"]
        assert run.root("guest").parent == application.id
        assert len(run.named("guest", "chat ")) == 2
        assert (run.collector.points, run.collector.events) == ([], [])
