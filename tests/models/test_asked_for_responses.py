"""A server that asks for Responses in its refusal gets the request there, once, if the file leaves the choice to us
(M2). A refusal that stays comes with our fix (M3).
"""

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prompty import ModelError, PromptAgent, loads
from prompty.errors import PromptyWarning
from prompty.events import FellBack
from prompty.memory import InProcessMemory
from prompty.registry import DEFAULT
from tests.internet import Arrival, Internet, Response
from tests.servers.rules import ONLY_RESPONSES, TOOLS_OR_NONE, Answer
from tests.servers.rules_over_http import TODAY, answer, serve_rules
from tests.servers.rules_server import RulesServer
from tests.ways import Seen, Way, every_way, one_way, sync_and_async, whole_and_streamed

MODEL = "gpt-6-nova"  # which has no row
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
REFUSALS = {"400": TOOLS_OR_NONE, "404": ONLY_RESPONSES}
every_refusal = pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
OTHER_REFUSAL = Answer(400, "Unsupported parameter: 'stop' is not supported with this model.", "stop", "unsupported")
BROKEN = Response(500, {}, b'{"error": {"message": "The server had an error.", "type": "server_error"}}')


def look(at: str) -> str:
    return f"a lamp at {at}"


def wait(seconds: int) -> str:
    return f"waited {seconds} seconds"


def load(model: str = MODEL, parts: str = "", body: str = "user:\nWhere is my lamp?") -> PromptAgent:
    return loads(f"---\nname: lamp\nmodel: {{id: {model}{parts}}}\n---\n{body}")


class OpenAI:
    """A server that refuses a model on some paths, and answers on all others. `refused` counts the refusals."""

    def __init__(self, internet: Internet, server: RulesServer) -> None:
        self.internet, self.server, self.refused = internet, server, 0
        self.rules: dict[tuple[str, str], Answer | Response] = {}
        internet.answer = self._respond

    def refuse(self, refusal: Answer | Response, *paths: str, model: str = MODEL) -> None:
        self.rules |= {(model, path): refusal for path in paths}

    def _respond(self, arrival: Arrival) -> Response:
        refusal = self.rules.get((json.loads(arrival.body)["model"], arrival.path))
        if refusal is None:
            return answer(self.server, arrival)
        self.refused += 1
        if isinstance(refusal, Response):
            return refusal
        text = refusal.text.replace("{model}", MODEL)
        error = {"message": text, "type": "invalid_request_error", "param": refusal.param, "code": refusal.code}
        return Response(refusal.status, {"Content-Type": "application/json"}, json.dumps({"error": error}).encode())

    @property
    def paths(self) -> list[str]:
        return [arrival.path for arrival in self.internet.arrivals]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(arrival.body) for arrival in self.internet.arrivals]


@pytest.fixture
def openai(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAI]:
    monkeypatch.setattr(DEFAULT, "warned", set())
    server = RulesServer(today=TODAY)
    with serve_rules(server, tmp_path, monkeypatch) as internet:
        yield OpenAI(internet, server)
    assert server.refusals == []


def run(call: Callable[..., Seen], *arguments: Any, **options: Any) -> tuple[Seen, list[str]]:
    """Return what was seen, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PromptyWarning)
        seen = call(*arguments, **options)
    return seen, [str(warning.message) for warning in caught]


@every_way
@every_refusal
def test_a_call_is_repeated_on_responses_with_one_warning(openai: OpenAI, way: Way, refusal: Answer) -> None:
    openai.refuse(refusal, CHAT)
    seen, said = run(way.invoke, load())
    assert (seen.error, seen.result) == (None, f"{MODEL} says hello.")
    assert openai.paths == [CHAT, RESPONSES]
    assert openai.bodies[1]["input"] == [{"role": "user", "content": "Where is my lamp?"}]
    assert openai.bodies[1]["store"] is False
    assert "include" not in openai.bodies[1]  # nothing is known about what the model has to include
    (warning,) = said
    assert warning.startswith("lamp: requests go to the Responses API, because the server asked for it: ")
    assert "v1/responses" in warning


@every_way
@every_refusal
def test_later_rounds_of_a_turn_go_to_responses_at_once(openai: OpenAI, way: Way, refusal: Answer) -> None:
    openai.refuse(refusal, CHAT)
    seen, said = run(way.turn, load(), tools=[look, wait], sendable=False)
    assert (seen.error, seen.result) == (None, f"{MODEL} says hello.")
    assert seen.told == ["a lamp at text", "waited 1 seconds"]
    assert openai.paths == [CHAT, RESPONSES, RESPONSES, RESPONSES]
    assert len(said) == 1
    kinds = [item.get("type", item.get("role")) for item in openai.bodies[3]["input"]]
    assert kinds == ["user", *["function_call", "function_call_output"] * 2]


@sync_and_async
def test_a_second_turn_asks_again_but_does_not_warn_again(openai: OpenAI, way: Way) -> None:
    openai.refuse(TOOLS_OR_NONE, CHAT)
    session: dict[str, Any] = {"tools": [look], "memory": InProcessMemory(), "session_id": "ada", "sendable": False}
    warned = [run(way.turn, load(), **session) for _ in range(2)]
    assert [(seen.error, len(said)) for seen, said in warned] == [(None, 1), (None, 0)]
    assert openai.paths == [CHAT, RESPONSES, RESPONSES] * 2


@sync_and_async
def test_options_that_responses_does_not_have_are_left_out(openai: OpenAI, way: Way) -> None:
    openai.refuse(TOOLS_OR_NONE, CHAT)
    agent = load(parts=", options: {seed: 7, maxOutputTokens: 50}")
    seen, said = run(way.invoke, agent)
    assert seen.error is None
    chat, responses = openai.bodies
    assert (chat["seed"], chat["max_completion_tokens"]) == (7, 50)
    assert "seed" not in responses
    assert responses["max_output_tokens"] == 50
    assert [text.split("`")[1] for text in said if "` is not sent" in text] == ["seed"]


@every_way
@every_refusal
def test_a_written_api_is_obeyed(openai: OpenAI, way: Way, refusal: Answer) -> None:
    openai.refuse(refusal, CHAT)
    seen, said = run(way.turn, load(parts=", apiType: chat"), tools=[look], sendable=False)
    assert isinstance(seen.error, ModelError)
    assert (seen.error.status, said, openai.paths) == (refusal.status, [], [CHAT])


@every_way
@every_refusal
def test_a_request_is_repeated_once_only(openai: OpenAI, way: Way, refusal: Answer) -> None:
    openai.refuse(refusal, CHAT, RESPONSES)
    seen, said = run(way.turn, load(), tools=[look], sendable=False)
    assert isinstance(seen.error, ModelError)
    assert (seen.error.status, len(said), openai.paths) == (refusal.status, 1, [CHAT, RESPONSES])


@every_way
def test_another_refusal_is_not_repeated(openai: OpenAI, way: Way) -> None:
    openai.refuse(OTHER_REFUSAL, CHAT)
    seen, said = run(way.invoke, load())
    assert isinstance(seen.error, ModelError)
    assert (seen.error.status, said, openai.paths) == (400, [], [CHAT])


@sync_and_async
def test_a_server_without_responses_is_not_asked_there(openai: OpenAI, way: Way) -> None:
    path = "/v1/chat/completions"
    openai.refuse(TOOLS_OR_NONE, path)
    seen, said = run(way.invoke, load(), model=f"mistral:{MODEL}")
    assert isinstance(seen.error, ModelError)
    assert (seen.error.status, said, openai.paths) == (400, [], [path])


@every_way
@every_refusal
def test_responses_is_tried_before_a_fallback(openai: OpenAI, way: Way, refusal: Answer) -> None:
    openai.refuse(refusal, CHAT)
    seen, said = run(way.turn, load(), tools=[look], fallbacks=["gpt-5.4-mini"], sendable=False)
    assert (seen.error, seen.result, seen.of(FellBack)) == (None, f"{MODEL} says hello.", [])
    assert openai.paths == [CHAT, RESPONSES, RESPONSES]
    assert len(said) == 1


@every_way
def test_a_fallback_starts_with_its_own_api(openai: OpenAI, way: Way) -> None:
    openai.refuse(TOOLS_OR_NONE, CHAT)
    openai.refuse(BROKEN, RESPONSES)
    options: dict[str, Any] = {"fallbacks": ["gpt-5.4-mini"], "max_retries": 0, "sendable": False}
    seen, said = run(way.turn, load(), tools=[look], **options)
    assert (seen.error, seen.result) == (None, "gpt-5.4-mini says hello.")
    assert [event.model for event in seen.of(FellBack)] == ["gpt-5.4-mini"]
    assert openai.paths == [CHAT, RESPONSES, CHAT, CHAT]
    assert len(said) == 1


@sync_and_async
def test_a_fallback_may_be_asked_for_responses_itself(openai: OpenAI, way: Way) -> None:
    openai.refuse(BROKEN, CHAT, model="gpt-5.4-mini")
    openai.refuse(ONLY_RESPONSES, CHAT)
    options: dict[str, Any] = {"fallbacks": [MODEL], "max_retries": 0, "sendable": False}
    seen, said = run(way.turn, load("gpt-5.4-mini"), tools=[look], **options)
    assert (seen.error, seen.result) == (None, f"{MODEL} says hello.")
    assert openai.paths == [CHAT, CHAT, RESPONSES, RESPONSES]
    assert len(said) == 1


PREFILL = "user:\nAs JSON.\nassistant:\n{"
# A prompt whose model refuses something that is sent as written, the model's answer, and our fix.
FIXES: dict[str, tuple[PromptAgent, str, list[str]]] = {
    "stop": (
        load("gpt-5-mini", ", options: {stopSequences: [end]}"),
        "'stop' is not supported with this model",
        ["stop: gpt-5-mini refuses it. Remove it."],
    ),
    "a written API": (
        load("gpt-6-luna", ", apiType: chat"),
        "use /v1/responses or set reasoning_effort to 'none'",
        ["tools: gpt-6-luna refuses these tools on chat. Write `apiType: responses`."],
    ),
    "a prefill": (
        load("claude-opus-5-5", ", provider: anthropic", PREFILL),
        "does not support assistant message prefill",
        ["messages: claude-opus-5-5 refuses a conversation that ends with an assistant message.", "End it with a user"],
    ),
    "an effort": (
        load("gpt-5-mini", ", apiType: responses, options: {reasoningEffort: xhigh}"),
        "'xhigh' is not supported with the 'gpt-5-mini' model",
        ["reasoning.effort: gpt-5-mini has no reasoning effort 'xhigh'", "Write one of minimal, low, medium, high."],
    ),
    "a forced tool": (
        load("claude-opus-5-5", ", provider: anthropic, options: {additionalProperties: {tool_choice: {type: any}}}"),
        'tool_choice: type "tool" and "any" are not supported for this model',
        ["tool_choice: claude-opus-5-5 refuses a forced tool. Write `tool_choice: {type: auto}`."],
    ),
}


@every_way
@pytest.mark.parametrize(("agent", "cause", "fixes"), FIXES.values(), ids=FIXES)
def test_a_refusal_of_a_model_with_a_row_has_our_fix(
    agent: PromptAgent, cause: str, fixes: list[str], way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RulesServer(today=TODAY)
    with serve_rules(server, tmp_path, monkeypatch) as internet:
        seen = way.turn(agent, tools=[look], sendable=False)
    assert isinstance(seen.error, ModelError)
    assert (seen.error.status, len(internet.arrivals), len(server.refusals)) == (400, 1, 1)
    assert cause in seen.error.cause
    for fix in fixes:
        assert fix in seen.error.fix
    assert seen.error.fix in str(seen.error)


@one_way
def test_a_refusal_of_a_model_without_a_row_has_no_fix(openai: OpenAI, way: Way) -> None:
    openai.refuse(OTHER_REFUSAL, CHAT)
    seen, _ = run(way.invoke, load())
    assert isinstance(seen.error, ModelError)
    assert seen.error.fix == ""


@whole_and_streamed
def test_a_refusal_on_responses_gets_the_fixes_for_responses(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server asked for Responses, and refuses there what the model with a row refuses."""
    with serve_rules(RulesServer(today=TODAY), tmp_path, monkeypatch) as internet:
        monkeypatch.setattr(DEFAULT, "warned", set())
        openai = OpenAI(internet, RulesServer(today=TODAY))
        openai.refuse(TOOLS_OR_NONE, CHAT, model="gpt-5-mini")
        seen, _ = run(way.invoke, load("gpt-5-mini", ", options: {reasoningEffort: xhigh}"))
    assert isinstance(seen.error, ModelError)
    assert [arrival.path for arrival in internet.arrivals] == [CHAT, RESPONSES]
    assert seen.error.url == "https://api.openai.com/v1/responses"
    assert "reasoning.effort: gpt-5-mini has no reasoning effort 'xhigh'" in seen.error.fix
