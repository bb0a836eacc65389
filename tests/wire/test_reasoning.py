"""Where thoughts go back: one table, and the file's own word (L6)."""

from typing import Any

import pytest

from prompty import Message, PromptAgent, ToolCall, assistant, tool_result, user
from prompty.model.message import Json
from prompty.providers.fitting import fit_request
from prompty.providers.openai import PROVIDER
from prompty.providers.openai.chat import ChatDecoder, reply
from prompty.providers.profiles import find_profile

SERVERS = {
    "https://api.openai.com/v1": None,
    "https://eu.api.openai.com/v1": None,
    "https://x.openai.azure.com/openai/v1": None,
    "https://api.mistral.ai/v1": None,
    "https://api.cerebras.ai/v1": None,
    "https://api.groq.com/openai/v1": "reasoning",
    "https://openrouter.ai/api/v1": "reasoning",
    "https://api.deepseek.com": "reasoning_content",
    "https://dashscope.aliyuncs.com/compatible-mode/v1": "reasoning_content",
    "https://notopenai.com/v1": "reasoning_content",
    "http://localhost:8080/v1": "reasoning_content",
}
CALL: Json = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SIGNED: Json = {**CALL, "extra_content": {"google": {"thought_signature": "signed"}}}


THOUGHT = [
    user("Hi"),
    assistant("", tool_calls=[ToolCall.from_wire(CALL)], reasoning="hm"),
    tool_result("c", "x"),
]


def request(agent: PromptAgent, messages: list[Message]) -> Any:
    """Return the body of a request to the server that an agent names."""
    return PROVIDER.api_for(agent).request(fit_request(agent, PROVIDER.api_for(agent)), messages, [])


def agent_at(endpoint: str, **parts: Any) -> PromptAgent:
    model = {"id": "m", "connection": {"kind": "anonymous", "endpoint": endpoint}}
    return PromptAgent.model_validate({"model": model, **parts})


@pytest.mark.spec("001 Interleaved Thinking", "flat thoughts go back as reasoning_content")
@pytest.mark.parametrize(("endpoint", "field"), SERVERS.items(), ids=list(SERVERS))
def test_each_server_has_its_field(endpoint: str, field: str | None) -> None:
    assert find_profile(endpoint).reasoning == field


@pytest.mark.parametrize(
    ("told", "field"), {"reasoning": "reasoning", "none": None, "nonsense": "reasoning_content"}.items()
)
def test_a_file_can_say_it_itself(told: str, field: str | None) -> None:
    body = request(agent_at("http://localhost/v1", metadata={"reasoning": told}), THOUGHT)
    thoughts = {name: value for name, value in body["messages"][1].items() if name.startswith("reasoning")}
    assert thoughts == ({field: "hm"} if field else {})


@pytest.mark.spec("001 Interleaved Thinking", "flat thoughts go back as reasoning_content")
def test_thoughts_go_under_the_name_the_server_takes() -> None:
    body = request(agent_at("https://api.groq.com/openai/v1"), THOUGHT)
    assert body["messages"][1]["reasoning"] == "hm"
    assert "reasoning_content" not in body["messages"][1]


@pytest.mark.parametrize(
    ("endpoint", "sent"),
    [("https://generativelanguage.googleapis.com/v1beta/openai", SIGNED), ("https://api.openai.com/v1", CALL)],
)
def test_what_stands_beside_a_call_goes_back_with_it(endpoint: str, sent: Json) -> None:
    answer: Json = {
        "choices": [{"message": {"role": "assistant", "tool_calls": [SIGNED]}, "finish_reason": "tool_calls"}]
    }
    decoder = ChatDecoder()
    decoder.feed({"choices": [{"index": 0, "delta": {"tool_calls": [{**SIGNED, "index": 0}]}}]})
    decoder.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    assert decoder.finish() == reply(answer)
    body = request(agent_at(endpoint), [user("Hi"), reply(answer).message(), tool_result("c", "x")])
    assert body["messages"][1]["tool_calls"] == [sent]
