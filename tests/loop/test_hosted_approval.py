"""A provider that asks whether it may run a call of hosted MCP asks the gate, like a function does (K2)."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import prompty
from prompty import Guardrails, Message, Paused, ToolCall, deny, later, rewrite, user
from prompty.errors import GuardrailError, PausedRefused
from prompty.events import GatedCall, ToolFinished, ToolGated, ToolStarted
from prompty.memory import InProcessMemory
from tests import hosted
from tests.hosted import FUNCTION, Json, agent_at, answer
from tests.loop.bodies import sent
from tests.loopback import Server
from tests.ways import Way, every_way, one_way, whole_and_streamed

WIKI = {"type": "mcp", "server_label": "wiki", "server_url": "https://wiki.example/mcp"}
ASKED = [hosted.listed_tools(), hosted.asked_approval(page="Home")]
DONE = [hosted.ran_mcp(), hosted.spoken("Gone.")]

RESUME = """
import json, sys
import prompty
from prompty import Paused, PromptAgent

given = json.load(sys.stdin)
agent = PromptAgent.model_validate(given["agent"])
print(prompty.resume(agent, Paused.from_json(given["paused"]), [True]))
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def answers(server: Server) -> list[Json]:
    """All answers to requests for approval that the server got, each once."""
    found = [item for request in server.requests for item in request.body["input"] if "approve" in item]
    return [item for at, item in enumerate(found) if item not in found[:at]]


def ask(server: Server, *last: Json, streamed: bool = False) -> None:
    server.answer(answer("responses", *ASKED, streamed=streamed), answer("responses", *last or DONE, streamed=streamed))


@every_way
def test_the_gate_allows_the_call_and_the_provider_runs_it(server: Server, way: Way) -> None:
    shown: list[GatedCall] = []

    def gate(calls: Sequence[GatedCall]) -> list[bool]:
        shown.extend(calls)
        return [True for _ in calls]

    ask(server, streamed=way.streamed)
    seen = way.turn(agent_at(server, "responses", WIKI), gate=gate)
    assert seen.result == "Gone."
    assert [(call.name, call.arguments, call.needs_approval) for call in shown] == [
        ("wiki/delete", {"page": "Home"}, True)
    ]
    response = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert server.requests[1].body["input"][1:] == [*ASKED, response]
    assert not seen.of(ToolStarted)
    assert not seen.of(ToolFinished)
    assert [event.allowed for event in seen.of(ToolGated)] == [True]
    later_on = sent("responses", [*seen.messages, user("And?")])["input"][1:-1]
    assert later_on == [*ASKED, response, *DONE]


@whole_and_streamed
@pytest.mark.parametrize("verdict", [False, deny("not on Fridays")])
def test_the_gate_denies_the_call(server: Server, way: Way, verdict: object) -> None:
    ask(server, hosted.spoken("I may not."), streamed=way.streamed)
    seen = way.turn(agent_at(server, "responses", WIKI), gate=lambda calls: [verdict])
    assert seen.result == "I may not."
    [response] = answers(server)
    assert response["approve"] is False
    assert "denied" in response["reason"]
    assert verdict is False or "not on Fridays" in response["reason"]


@every_way
def test_without_a_gate_the_call_is_denied(server: Server, way: Way) -> None:
    ask(server, hosted.spoken("I may not."), streamed=way.streamed)
    assert way.turn(agent_at(server, "responses", WIKI)).result == "I may not."
    [response] = answers(server)
    assert response["approve"] is False
    assert "no gate" in response["reason"]


@one_way
def test_a_gate_that_fails_denies_the_call(server: Server, way: Way) -> None:
    def gate(calls: Sequence[GatedCall]) -> list[bool]:
        raise RuntimeError("no")

    ask(server, hosted.spoken("I may not."))
    assert way.turn(agent_at(server, "responses", WIKI), gate=gate).result == "I may not."
    assert [one["approve"] for one in answers(server)] == [False]


def pause(server: Server, **options: Any) -> Paused:
    ask(server)
    paused = prompty.turn(agent_at(server, "responses", WIKI), **options)
    assert isinstance(paused, Paused)
    assert [call.name for call in paused.pending] == ["wiki/delete"]
    assert len(server.requests) == 1
    return Paused.from_json(json.loads(json.dumps(paused.to_json())))


@pytest.mark.parametrize("verdict", [True, False])
def test_a_paused_turn_goes_on_with_the_verdict(server: Server, verdict: bool) -> None:
    paused = pause(server, gate=lambda calls: [later()])
    agent = agent_at(server, "responses", WIKI)
    assert prompty.resume(agent, paused, [verdict], gate=lambda calls: [later()]) == "Gone."
    assert [one["approve"] for one in answers(server)] == [verdict]


def test_a_policy_of_the_host_pauses_the_turn(server: Server) -> None:
    paused = pause(server, approval="always")
    assert prompty.resume(agent_at(server, "responses", WIKI), paused, [True]) == "Gone."
    assert [one["approve"] for one in answers(server)] == [True]


@pytest.mark.process
def test_a_paused_turn_is_resumed_in_another_process(server: Server) -> None:
    paused = pause(server, approval="always")
    connection = {"kind": "key", "endpoint": server.url, "apiKey": "k"}
    options = {"additionalProperties": {"tools": [WIKI]}}
    model = {"id": "m", "apiType": "responses", "connection": connection, "options": options}
    given = {"agent": {"model": model, "instructions": "user:\nHi"}, "paused": paused.to_json()}
    done = subprocess.run(  # noqa: S603  our own program
        [sys.executable, "-c", RESUME], input=json.dumps(given), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "Gone."
    assert [one["approve"] for one in answers(server)] == [True]


def test_a_pause_that_is_answered_twice_lets_the_call_run_once(server: Server) -> None:
    memory = InProcessMemory()
    paused = pause(server, approval="always", memory=memory, session_id="s")
    agent = agent_at(server, "responses", WIKI)
    assert prompty.resume(agent, paused, [True], memory=memory, session_id="s") == "Gone."
    with pytest.raises(PausedRefused, match="resumed already"):
        prompty.resume(agent, paused, [True], memory=memory, session_id="s")
    assert len(server.requests) == 2


@one_way
def test_functions_and_approvals_of_one_answer_are_answered_in_their_order(server: Server, way: Way) -> None:
    items = [hosted.reasoned("Hm."), hosted.called("look", "1"), *ASKED, hosted.called("look", "2")]
    server.answer(answer("responses", *items, streamed=False), answer("responses", *DONE, streamed=False))
    agent = agent_at(server, "responses", WIKI, tools=[FUNCTION])
    seen = way.turn(agent, tools={"look": lambda at="": f"saw {at}"}, gate=lambda calls: [True, True, False])
    assert [event.call.name for event in seen.of(ToolStarted)] == ["look"]
    sent_back = server.requests[1].body["input"][1:]
    assert sent_back[:5] == items
    assert [(one["type"], one.get("approve")) for one in sent_back[5:]] == [
        ("function_call_output", None),
        ("mcp_approval_response", True),
        ("function_call_output", None),
    ]


@one_way
def test_a_guardrail_can_deny_the_call_but_not_change_it(server: Server, way: Way) -> None:
    ask(server, hosted.spoken("I may not."))
    changing = Guardrails(tool=lambda call: rewrite({"page": "Other"}))
    way.turn(agent_at(server, "responses", WIKI), guardrails=changing, gate=lambda calls: [True for _ in calls])
    assert [one["approve"] for one in answers(server)] == [False]


@one_way
def test_a_request_with_unreadable_arguments_is_denied(server: Server, way: Way) -> None:
    broken = {**hosted.asked_approval(), "arguments": "{"}
    server.answer(
        answer("responses", broken, streamed=False), answer("responses", hosted.spoken("Well."), streamed=False)
    )
    way.turn(agent_at(server, "responses", WIKI), gate=lambda calls: [True for _ in calls])
    assert [one["approve"] for one in answers(server)] == [False]


@one_way
def test_a_turn_that_is_given_up_leaves_a_denial(server: Server, way: Way) -> None:
    def gate(calls: Sequence[GatedCall]) -> list[bool]:
        raise GuardrailError("input", "stop")

    ask(server)
    seen = way.turn(agent_at(server, "responses", WIKI), gate=gate)
    assert seen.error is not None
    left = sent("responses", [*seen.messages, user("And?")])["input"]
    assert [one["approve"] for one in left if "approve" in one] == [False]
    torn = [message for message in seen.messages if message.role != "tool"]
    repaired = sent("responses", [*torn, user("And?")])["input"]
    assert [one["approve"] for one in repaired if "approve" in one] == [False]


def test_invoke_returns_the_request_and_answers_nothing(server: Server) -> None:
    ask(server)
    [call] = prompty.invoke(agent_at(server, "responses", WIKI))
    assert isinstance(call, ToolCall)
    assert (call.name, call.asks_approval) == ("wiki/delete", True)
    assert len(server.requests) == 1


def test_other_apis_get_the_conversation_without_the_request(server: Server) -> None:
    ask(server)
    seen = prompty.turn(agent_at(server, "responses", WIKI), gate=lambda calls: [True], details=True)
    history: list[Message] = [*seen.messages, user("And?")]
    assert sent("chat", history)["messages"][1]["tool_calls"][0]["function"]["name"] == "wiki_delete"
    assert sent("messages", history)["messages"][1]["content"][0]["name"] == "wiki_delete"
