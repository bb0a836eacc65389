"""What a collector of OpenTelemetry gets of agents: spans in the names of the conventions, and metrics.

The program runs in a process of its own, traced the way a user does it: `PROMPTY_TRACE=otel` and the address of the
collector. What was said is in no attribute here; `test_opentelemetry_content` switches it on.
"""

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from prompty.version import __version__
from tests.loopback import json_reply
from tests.tracing.answers import ANSWERED_BY, CHAT, EMBEDDING, FIRST_WORD_AFTER, IMAGE, MESSAGES, RESPONSES, Chat, Wire
from tests.tracing.collector import Point, Span
from tests.tracing.programs import BODY, INPUTS, Run, Step, running, turn_of

pytestmark = pytest.mark.process

FIRST = "gen_ai.response.time_to_first_chunk"
SAMPLING = {"temperature": 0.5, "topP": 0.75, "maxOutputTokens": 100}
SAMPLED = {
    "gen_ai.request.temperature": 0.5,
    "gen_ai.request.top_p": 0.75,
    "gen_ai.request.max_tokens": 100,
}
PENALTIES = {"frequencyPenalty": 0.25, "presencePenalty": -0.5, "seed": 7, "stopSequences": ["END", "STOP"], "topK": 5}
PENALISED = {
    "gen_ai.request.frequency_penalty": 0.25,
    "gen_ai.request.presence_penalty": -0.5,
    "gen_ai.request.seed": 7,
    "gen_ai.request.stop_sequences": ["END", "STOP"],
}
ABOUT = {"description": "Tells the weather.", "metadata": {"version": 2.1}}
SLOW = json_reply({"error": {"message": "too many"}}, 503, {"retry-after-ms": "20"})
NO_KEY = json_reply({"error": {"message": "no such key", "code": "invalid_api_key"}}, 401)
BROKEN = Chat([("call_b", "broken", {"city": "Atlantis"})])
ASKING_A_CHILD = Chat([("call_c", "helper", {"question": "Where?"})])
CHILD: dict[str, Any] = {"tools": [{"name": "helper", "kind": "prompty", "path": "helper.prompty", "mode": "agentic"}]}
LATER = {"asynchronous": True}

TURNS: dict[str, tuple[Wire, bool, dict[str, Any]]] = {
    "chat whole": (CHAT, False, SAMPLED | PENALISED),
    "chat stream async": (CHAT, True, {}),
    "responses whole async": (RESPONSES, False, {}),
    "responses stream": (RESPONSES, True, SAMPLED),
    "anthropic whole": (
        MESSAGES,
        False,
        SAMPLED | {"gen_ai.request.top_k": 5, "gen_ai.request.stop_sequences": ["END", "STOP"]},
    ),
    "anthropic stream async": (MESSAGES, True, {}),
}
every_turn = pytest.mark.parametrize("name", TURNS)


def prompt(name: str) -> dict[str, Any]:
    """The prompt of a span: its name, and the hash of its text."""
    return {"gen_ai.prompt.name": name, "gen_ai.prompt.version": sha256(BODY.encode()).hexdigest()}


def call(name: str, *replies: Any, **parts: Any) -> Step:
    """One call without a loop."""
    plan = {"inputs": INPUTS, **parts.pop("plan", {})}
    return Step(name=name, how="invoke", replies=replies, plan=plan, **{"model": {}, **parts})


def steps() -> list[Step]:
    helper = Step(name="helper", replies=[], model={}, frontmatter={"inputs": {"question": ""}}, body="user:\nHm?")
    _, said = CHAT.replies(streamed=False)
    everything = SAMPLING | PENALTIES
    return [
        turn_of(
            CHAT, "chat whole", streamed=False, options=everything, frontmatter=ABOUT, plan={"session": "session-1"}
        ),
        turn_of(CHAT, "chat stream async", streamed=True, plan=LATER),
        turn_of(RESPONSES, "responses whole async", streamed=False, plan=LATER),
        turn_of(RESPONSES, "responses stream", streamed=True, options=everything),
        turn_of(MESSAGES, "anthropic whole", streamed=False, options=everything),
        turn_of(MESSAGES, "anthropic stream async", streamed=True, plan=LATER),
        call("embedding", json_reply(EMBEDDING), model={"apiType": "embedding", "options": everything}),
        call("image", json_reply(IMAGE), model={"apiType": "image"}),
        call("json", said, frontmatter={"outputs": {"sky": {"kind": "string"}}}),
        call("azure", said, model={"provider": "azure"}, base=""),
        call("retried", SLOW, SLOW, said),
        call("given up", SLOW, plan={"inputs": INPUTS, "options": {"max_retries": 1}}),
        turn_of(CHAT, "refused", streamed=False, replies=[NO_KEY]),
        turn_of(BROKEN, "broken tool", streamed=False, plan={"tools": ["broken"]}),
        turn_of(CHAT, "inside", streamed=False, plan={"inside": "request of a user"}),
        turn_of(CHAT, "inside async", streamed=False, plan={"inside": "request of another user", **LATER}),
        turn_of(CHAT, "left", streamed=True, plan={"leave": True}),
        turn_of(
            ASKING_A_CHILD,
            "parent",
            streamed=False,
            replies=[json_reply(ASKING_A_CHILD.asking()), said, said],
            plan={"tools": ()},
            frontmatter=CHILD,
            children=[helper],
        ),
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with running(tmp_path_factory.mktemp("program"), steps()) as done:
        yield done


def test_a_traced_program_does_what_it_does_and_says_nothing_of_it(run: Run) -> None:
    before, *reports = run.errors.split("The tool 'broken' raised.\n")  # the log of the program itself
    assert before == ""
    assert all(report.startswith("Traceback") and report.endswith("no Atlantis\n") for report in reports)
    assert {run.results[name] for name in TURNS} == {"It is sunny."}
    assert run.results["embedding"] == [0.5, 0.25]
    assert run.results["refused"].startswith("ModelError")


def test_every_span_is_of_our_scope_and_names_its_version_of_the_conventions(run: Run) -> None:
    ours = {span.scope for span in run.collector.spans} - {("application", "", "")}
    assert ours == {("prompty", __version__, "https://opentelemetry.io/schemas/1.41.0")}


def shape(spans: list[Span]) -> Counter[tuple[str, str, str]]:
    """Each span by its name, its kind and the name of its parent."""
    names = {span.id: span.name for span in spans}
    return Counter((span.name, span.kind, names.get(span.parent, "")) for span in spans)


@every_turn
def test_the_spans_of_a_turn_are_a_tree_under_the_agent(run: Run, name: str) -> None:
    root = f"invoke_agent {name}"
    expected = {
        (root, "INTERNAL", ""): 1,
        ("load", "INTERNAL", root): 1,
        ("prepare", "INTERNAL", root): 1,
        ("connect", "INTERNAL", root): 1,
        ("render", "INTERNAL", "prepare"): 1,
        ("parse", "INTERNAL", "prepare"): 1,
        ("chat asked-model", "CLIENT", root): 2,
        ("execute_tool weather", "INTERNAL", root): 1,
        ("execute_tool forecast", "INTERNAL", root): 1,
        ("query of the database", "INTERNAL", "execute_tool weather"): 1,
        ("request to the service", "INTERNAL", "execute_tool forecast"): 1,
        ("process", "INTERNAL", root): 2,
    }
    assert shape(run.trace(name)) == expected


def usage(figures: Any) -> dict[str, Any]:
    return {f"gen_ai.usage.{name}": number for name, number in figures.items()}


@every_turn
@pytest.mark.spec("000 §7.1.8", "a call is a span with the attributes of generative AI")
def test_a_call_to_a_model_has_every_attribute_of_the_conventions_and_no_other(run: Run, name: str) -> None:
    wire, streamed, options = TURNS[name]
    for number, span in enumerate(run.named(name, "chat ")):
        said = {key: value for key, value in span.attributes.items() if key != FIRST}
        assert said == {
            **prompt(name),
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": wire.provider,
            "prompty.provider": wire.provider,
            "gen_ai.request.model": "asked-model",
            "gen_ai.output.type": "text",
            "gen_ai.response.id": f"reply_{number}",
            "gen_ai.response.model": ANSWERED_BY,
            "gen_ai.response.finish_reasons": [("tool_calls", "stop")[number]],
            "server.address": "127.0.0.1",
            "server.port": run.ports[name],
            **options,
            **({"gen_ai.request.stream": True} if streamed else {}),
            **({"gen_ai.conversation.id": "session-1"} if name == "chat whole" else {}),
            **usage(wire.figures[number]),
        }
        assert (span.status, span.message) == ("UNSET", "")


@every_turn
def test_a_stream_says_when_its_first_word_came_and_a_whole_answer_does_not(run: Run, name: str) -> None:
    _, streamed, _ = TURNS[name]
    for span in run.named(name, "chat "):
        if streamed:
            assert FIRST_WORD_AFTER <= span.attributes[FIRST] <= span.seconds
        else:
            assert FIRST not in span.attributes


@every_turn
def test_a_turn_says_which_agent_of_which_file_it_is_and_what_its_calls_used_in_all(run: Run, name: str) -> None:
    wire, _, _ = TURNS[name]
    first, second = wire.figures
    about = {
        "gen_ai.agent.description": "Tells the weather.",
        "gen_ai.agent.version": "2.1",
        "gen_ai.conversation.id": "session-1",
    }
    assert run.root(name).attributes == {
        **prompt(name),
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": name,
        "prompty.operation": "turn",
        "prompty.sha256": run.digests[name],
        **(about if name == "chat whole" else {}),
        **usage({key: first[key] + second[key] for key in first}),
    }


@every_turn
def test_a_tool_says_what_it_is_and_which_call_it_answers(run: Run, name: str) -> None:
    described = {"weather": ("How the weather is now.", "call_w"), "forecast": ("How the weather will be.", "call_f")}
    for tool, (description, call_id) in described.items():
        [span] = run.named(name, f"execute_tool {tool}")
        assert span.attributes == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.description": description,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call_id,
        }
        assert span.status == "UNSET"


@pytest.mark.spec("000 §7.2", "the span of an embeddings call says so")
def test_an_embedding_is_a_call_of_its_own_operation_without_the_options_of_a_chat(run: Run) -> None:
    [span] = run.named("embedding", "embeddings ")
    assert (span.name, span.kind, span.parent) == ("embeddings asked-model", "CLIENT", run.root("embedding").id)
    assert span.attributes == {
        **prompt("embedding"),
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "openai",
        "prompty.provider": "openai",
        "gen_ai.request.model": "asked-model",
        "gen_ai.response.model": ANSWERED_BY,
        "gen_ai.usage.input_tokens": 6,
        "server.address": "127.0.0.1",
        "server.port": run.ports["embedding"],
    }


def test_an_image_is_a_call_of_its_own_operation(run: Run) -> None:
    [span] = run.named("image", "generate_content ")
    assert (span.name, span.kind, span.parent) == ("generate_content asked-model", "CLIENT", run.root("image").id)
    assert span.attributes == {
        **prompt("image"),
        "gen_ai.operation.name": "generate_content",
        "gen_ai.provider.name": "openai",
        "prompty.provider": "openai",
        "gen_ai.request.model": "asked-model",
        "gen_ai.output.type": "image",
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 1056,
        "server.address": "127.0.0.1",
        "server.port": run.ports["image"],
    }


@pytest.mark.spec("000 §7.1.8", "the provider of a span is the file's key")
def test_a_prompt_with_outputs_asks_for_json_and_azure_has_the_name_of_the_conventions(run: Run) -> None:
    [asked] = run.named("json", "chat ")
    assert asked.attributes["gen_ai.output.type"] == "json"
    [asked] = run.named("azure", "chat ")
    assert asked.attributes["gen_ai.provider.name"] == "azure.ai.openai"
    assert asked.attributes["prompty.provider"] == "azure"


def test_an_invocation_is_the_root_of_its_call_and_has_its_usage(run: Run) -> None:
    root = run.root("image")
    assert (root.name, root.kind, root.parent) == ("invoke image", "INTERNAL", "")
    assert root.attributes == {
        **prompt("image"),
        "gen_ai.agent.name": "image",
        "prompty.sha256": run.digests["image"],
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 1056,
    }


def test_one_span_covers_a_call_with_all_its_tries(run: Run) -> None:
    [span] = run.named("retried", "chat ")
    assert span.attributes["prompty.attempts"] == 3
    assert (span.status, span.attributes.get("error.type")) == ("UNSET", None)
    assert span.attributes["gen_ai.response.id"] == "reply_1"
    assert span.seconds >= 0.04  # it waited twice as long as it was asked to


@pytest.mark.parametrize(
    ("name", "attempts", "message"), [("refused", None, "no such key"), ("given up", 2, "too many")]
)
def test_a_call_that_fails_says_so_and_so_does_what_it_is_part_of(
    run: Run, name: str, attempts: int | None, message: str
) -> None:
    [span] = run.named(name, "chat ")
    assert span.attributes.get("prompty.attempts") == attempts
    for failed in (span, run.root(name)):
        assert failed.status == "ERROR"
        assert failed.attributes["error.type"] == "ModelError"
        assert message in failed.message
    assert "gen_ai.response.id" not in span.attributes


def test_a_tool_that_fails_says_so_and_the_turn_goes_on(run: Run) -> None:
    [span] = run.named("broken tool", "execute_tool ")
    assert (span.status, span.attributes["error.type"]) == ("ERROR", "ToolError")
    assert "there is no Atlantis" in span.message
    assert run.root("broken tool").status == "UNSET"
    assert run.results["broken tool"] == "It is sunny."


@pytest.mark.parametrize(
    ("name", "outside"), [("inside", "request of a user"), ("inside async", "request of another user")]
)
def test_the_application_s_own_span_is_the_parent_of_ours(run: Run, name: str, outside: str) -> None:
    [application] = [span for span in run.collector.spans if span.name == outside]
    assert run.root(name).parent == application.id
    assert run.root(name).trace == application.trace
    assert application.parent == ""


def test_a_stream_that_its_reader_leaves_is_no_failure_but_says_so(run: Run) -> None:
    assert run.results["left"] == "left"
    [span] = [span for span in run.named("left", "chat ") if "gen_ai.response.id" not in span.attributes]
    for one in (span, run.root("left")):
        assert one.attributes["prompty.abandoned"] is True
        assert one.status == "UNSET"


def test_a_prompt_that_another_calls_is_inside_its_tool_and_counts_for_both(run: Run) -> None:
    spans = run.trace("parent")
    [tool] = [span for span in spans if span.name == "execute_tool helper"]
    [child] = [span for span in spans if span.name == "invoke_agent helper"]
    assert child.parent == tool.id
    assert tool.parent == run.root("parent").id
    assert tool.attributes["gen_ai.tool.type"] == "extension"
    asked, said = (figures["output_tokens"] for figures in CHAT.figures)
    assert child.attributes["gen_ai.usage.output_tokens"] == said
    assert run.root("parent").attributes["gen_ai.usage.output_tokens"] == asked + said + said


def test_nothing_that_was_said_is_sent_unless_somebody_switches_it_on(run: Run) -> None:
    everything = b"".join(run.collector.bodies())
    for said in ("How is the weather?", "ticket-of-Ada-77", "Lisbon", "sunny", "degrees", "Be brief", "rain in"):
        assert said.encode() not in everything
    assert run.collector.events == []


def points(run: Run, name: str, metric: str) -> list[Point]:
    """What a metric says about the calls to the server of a step."""
    return [
        point
        for point in run.collector.points
        if point.metric == metric and point.attributes["server.port"] == run.ports[name]
    ]


@pytest.mark.parametrize("name", [*TURNS, "embedding", "image"])
def test_the_duration_of_every_call_is_measured(run: Run, name: str) -> None:
    calls = [span for span in run.trace(name) if span.kind == "CLIENT"]
    [point] = points(run, name, "gen_ai.client.operation.duration")
    assert (point.count, point.unit) == (len(calls), "s")
    assert point.sum == pytest.approx(sum(span.seconds for span in calls), abs=1e-6)
    assert point.bounds == tuple(0.01 * 2**power for power in range(14))
    shared = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "server.address", "server.port")
    of_the_span = {key: calls[0].attributes[key] for key in shared}
    model = {} if name == "image" else {"gen_ai.response.model": ANSWERED_BY}
    assert point.attributes == of_the_span | model


@every_turn
def test_tokens_are_measured_by_their_type(run: Run, name: str) -> None:
    wire, _, _ = TURNS[name]
    found = points(run, name, "gen_ai.client.token.usage")
    measured = {point.attributes["gen_ai.token.type"]: (point.count, point.sum) for point in found}
    assert measured == {
        kind: (2, sum(figures[f"{kind}_tokens"] for figures in wire.figures)) for kind in ("input", "output")
    }
    assert {point.unit for point in found} == {"{token}"}
    assert {point.bounds for point in found} == {tuple(4.0**power for power in range(14))}


@every_turn
def test_the_time_to_the_first_word_is_measured_of_streams(run: Run, name: str) -> None:
    _, streamed, _ = TURNS[name]
    found = points(run, name, "gen_ai.client.operation.time_to_first_chunk")
    assert [point.count for point in found] == ([2] if streamed else [])
    if streamed:
        assert found[0].sum == pytest.approx(sum(span.attributes[FIRST] for span in run.named(name, "chat ")))


@pytest.mark.parametrize("name", ["refused", "given up"])
def test_the_duration_of_a_call_that_failed_is_measured_apart(run: Run, name: str) -> None:
    [point] = points(run, name, "gen_ai.client.operation.duration")
    assert point.attributes["error.type"] == "ModelError"
    assert points(run, name, "gen_ai.client.token.usage") == []
