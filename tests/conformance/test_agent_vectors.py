"""The public vectors for the agent loop, against a server that answers with their bytes (V1 says how they are read).

A vector is waived only by name, with the number of the decision that contradicts it; what happens instead is checked.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from prompty import (
    CancelToken,
    Guardrails,
    Message,
    PromptAgent,
    Steering,
    ToolContext,
    deny,
    turn,
    turn_async,
)
from prompty.errors import Cancelled, GuardrailError, IterationsExceeded, PromptyError
from prompty.events import Done, Event, GatedCall, MessagesChanged, RunCancelled, ToolFinished, ToolStarted
from tests.conformance.test_vectors import Vector, vectors
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.loopback import Server, json_reply

SUMMARY = "its summary is prose in a system message; ours is a user message that begins with a mark"
WAIVED = {
    "tool_not_registered_error": "L5: an invented name is an error result, and the model answers it",
    "context_trim_basic": f"listed under the public vectors: {SUMMARY}",
    "context_preserves_system_messages": f"listed under the public vectors: {SUMMARY}",
}

EVENTS = {
    ToolStarted: "tool_call_start",
    ToolFinished: "tool_result",
    MessagesChanged: "messages_updated",
    RunCancelled: "cancelled",
    Done: "done",
}
ERRORS = {
    "CancelledError": Cancelled,
    "Agent loop exceeded 10 iterations": IterationsExceeded,
    "GuardrailError": GuardrailError,
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        close_clients()


@dataclass
class Play:
    """One vector, played: what its tools were called with, and what happened."""

    vector: Vector
    executed: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    cancel: CancelToken = field(default_factory=CancelToken)
    steering: Steering = field(default_factory=Steering)
    denied: list[str] = field(default_factory=list)

    def function(self, name: str, behaviour: str) -> Callable[..., object]:
        results = {
            entry["tool_call_id"]: entry["result"]
            for step in self.vector["sequence"]
            for entry in step.get("tool_results", [])
        }

        def called(context: ToolContext, **arguments: object) -> object:
            self.executed.append((name, arguments))
            if behaviour.startswith("raises"):
                raise RuntimeError("Weather service unavailable")
            return results[context.call_id]

        async def called_async(context: ToolContext, **arguments: object) -> object:
            await asyncio.sleep(0)
            return called(context, **arguments)

        return called_async if self.vector["name"].startswith("async") else called

    def agent(self, server: Server) -> PromptAgent:
        answers = [json_reply(step["llm_response"]) for step in self.vector["sequence"]]
        if self.vector["name"] == "tool_not_registered_error":
            answers.append(json_reply(Chat().whole("Sorry.")))
        server.answer(*answers)
        return Chat().agent(server, tools=self.vector["input"]["tools"])

    def hear(self, event: Event) -> None:
        self.events.append(event)
        point = self.vector["input"].get("cancel", {}).get("cancelled_at")
        if (point == "before_iteration_2" and isinstance(event, MessagesChanged)) or (
            point == "after_tool_0" and isinstance(event, ToolFinished)
        ):
            self.cancel.cancel()
        for message in self.vector["input"].get("steering", {}).get("messages", []):
            if isinstance(event, ToolFinished):
                self.steering.send(message["text"])

    def guardrails(self) -> Guardrails | None:
        told = self.vector["input"].get("guardrails")
        if told is None:
            return None

        def tool(call: GatedCall) -> object:
            rule = told.get("tool", {})
            if call.name not in rule.get("deny_tools", []):
                return True
            self.denied.append(call.name)
            return deny(rule["reason"])

        def said(kind: str) -> object:
            rule = told.get(kind, {"action": "allow"})
            return rule["action"] == "allow" or deny(rule["reason"])

        return Guardrails(input=lambda _: said("input"), output=lambda _: said("output"), tool=tool)

    def options(self) -> dict[str, Any]:
        given = self.vector["input"]
        if given.get("cancel", {}).get("cancelled_at") == "before_iteration":
            self.cancel.cancel()
        return {
            "inputs": given.get("parent_inputs"),
            "messages": given["messages"],
            "tools": {name: self.function(name, told) for name, told in given["tool_functions"].items()},
            "tool_execution": "parallel" if given.get("parallel_tool_calls") else "sequential",
            "cancel": self.cancel if given.get("cancel") else None,
            "steering": self.steering if given.get("steering") else None,
            "guardrails": self.guardrails(),
            "context_budget": given.get("context_budget"),
            "on_event": self.hear,
        }

    def messages(self) -> list[dict[str, Any]]:
        """The conversation at the end, as the vectors write it."""
        done = next(event for event in self.events if isinstance(event, Done))
        return [as_vector(message) for message in done.messages]


def as_vector(message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {"role": message.role, "content": message.text}
    return {**shown, "metadata": message.metadata} if message.metadata else shown


def check_result(play: Play, result: object, server: Server) -> None:
    expected = play.vector["expected"]
    assert result == expected["result"]
    assert play.denied == expected.get("denied_tools", [])
    assert len(server.requests) == expected["iterations"]
    messages = play.messages()
    if "message_sequence" in expected:
        assert messages[: len(expected["message_sequence"])] == expected["message_sequence"]
    if "assistant_tool_calls_message" in expected:
        assert expected["assistant_tool_calls_message"] in messages
    if told := expected.get("tool_result_message"):
        assert {**told, "content": told["content"][0]["text"]} in messages
    if "tool_execution_order" in expected:
        assert [message["metadata"]["tool_call_id"] for message in messages if message["role"] == "tool"] == [
            call["id"] for call in play.vector["sequence"][0]["expected_tool_calls"]
        ]
        assert sorted(name for name, _ in play.executed) == sorted(expected["tool_execution_order"])


def check_calls(play: Play) -> None:
    """What ran is what the model asked for, with what the host put in, less what a guardrail denied."""
    asked = [
        (call["name"], {**call["arguments"], **step.get("expected_execution_args", {}).get(call["name"], {})})
        for step in play.vector["sequence"]
        for call, _ in zip(step.get("expected_tool_calls") or [], step.get("tool_results", []), strict=False)
        if call["name"] not in play.denied
    ]
    assert sorted(play.executed, key=str) == sorted(asked[: play.vector["expected"].get("tools_executed")], key=str)


def check_events(play: Play) -> None:
    expected = [event["type"] for event in play.vector["expected"]["events"] if event["type"] != "status"]
    assert [EVENTS[type(event)] for event in play.events if type(event) in EVENTS] == expected


def check_error(play: Play, error: PromptyError, server: Server) -> None:
    expected = play.vector["expected"]
    assert isinstance(error, ERRORS[expected["error"]])
    assert len(server.requests) == expected["iterations"]
    if isinstance(error, IterationsExceeded):
        assert str(error).partition("\n")[0] == expected["error"]
    if isinstance(error, GuardrailError):
        assert error.reason == expected["error_reason"]


def check_waived(play: Play, result: object, server: Server) -> None:
    """What happens where we differ."""
    sent = server.requests[0].body["messages"]
    if "context_budget" not in play.vector["input"]:
        assert "get_weather" in server.requests[1].body["messages"][-1]["content"]
        return
    assert result == play.vector["expected"]["result"]
    expected = play.vector["expected"]["trimmed_messages"]
    [summary] = [message for message in sent if message["content"].startswith("[Summary of earlier conversation]")]
    assert summary["role"] == "user"
    assert "User asked" in summary["content"]
    assert [message for message in sent if message["role"] == "system"] == [
        message for message in expected if message["role"] == "system" and "[Summary" not in message["content"]
    ]
    assert sent[-1] == expected[-1]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("vector", vectors("agent"))
def test_agent(
    vector: Vector, asynchronous: bool, server: Server, record_property: Callable[[str, object], None]
) -> None:
    play = Play(vector)
    agent, options = play.agent(server), play.options()
    try:
        result = asyncio.run(turn_async(agent, **options)) if asynchronous else turn(agent, **options)
    except PromptyError as error:
        check_error(play, error, server)
        if not isinstance(error, IterationsExceeded):
            check_calls(play)
    else:
        if vector["name"] in WAIVED:
            record_property("waived", f"{vector['name']} ({WAIVED[vector['name']]})")
            check_waived(play, result, server)
            return
        check_result(play, result, server)
        check_calls(play)
    if "events" in vector["expected"]:
        check_events(play)
