"""Whatever a prompt says and whatever was said before, the request is one that its API takes (W2-W10, W15)."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from prompty.model.tool import FunctionTool
from prompty.providers.anthropic import messages
from prompty.providers.fitting import fit_request
from prompty.providers.openai import chat, embeddings, images, responses
from prompty.wire.structured import build_function
from tests.legality import assert_legal
from tests.strategies import agents, histories

pytestmark = pytest.mark.slow

APIS = {
    "chat": chat.API,
    "responses": responses.API,
    "messages": messages.API,
    "embedding": embeddings.API,
    "image": images.API,
}
EXAMPLES = 2000 if os.environ.get("PROMPTY_SOAK") else 200


@pytest.mark.parametrize("name", APIS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_request_is_legal_with_and_without_a_stream(name: str, data: st.DataObject) -> None:
    api = APIS[name]
    agent = data.draw(agents(name))
    history = data.draw(histories(name, api))
    functions = [build_function(tool) for tool in agent.tools if isinstance(tool, FunctionTool)]
    body = api.request(fit_request(agent, api), history, functions)
    assert_legal(name, body)
    if api.decoder:
        streamed = api.stream_body(body)
        assert streamed["stream"] is True
        assert_legal(name, streamed)


TEXT = {"role": "user", "content": "Hi"}
BLOCKS = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "t", "input": {}}]}
ILLEGAL: dict[str, tuple[str, dict[str, Any]]] = {
    "an unknown field": ("chat", {"messages": [TEXT], "wrong": 1}),
    "an unknown field of a message": ("chat", {"messages": [{**TEXT, "wrong": 1}]}),
    "an unknown field of a part": (
        "chat",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "wrong": 1}]}]},
    ),
    "a wrong role": ("chat", {"messages": [{**TEXT, "role": "critic"}]}),
    "no content": ("chat", {"messages": [{"role": "user", "content": []}]}),
    "a call without a result": (
        "chat",
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}}],
                },
                TEXT,
            ]
        },
    ),
    "a tool of two layers": (
        "responses",
        {"input": [TEXT], "tools": [{"type": "function", "function": {"name": "t"}}]},
    ),
    "a tool that leaves strict out": (
        "responses",
        {"input": [TEXT], "tools": [{"type": "function", "name": "t", "parameters": {}}]},
    ),
    "an output without its call": (
        "responses",
        {"input": [TEXT, {"type": "function_call_output", "call_id": "a", "output": ""}]},
    ),
    "an option of chat": ("embedding", {"input": "Hi", "temperature": 1}),
    "another option of chat": ("image", {"prompt": "Hi", "temperature": 1}),
    "no max_tokens": ("messages", {"messages": [BLOCKS]}),
    "an unknown field of a block": (
        "messages",
        {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "wrong": 1}]}]},
    ),
    "two user turns": ("messages", {"max_tokens": 9, "messages": [BLOCKS, BLOCKS]}),
    "the assistant first": ("messages", {"max_tokens": 9, "messages": [{**BLOCKS, "role": "assistant"}, BLOCKS]}),
    "a tool use without a result": ("messages", {"max_tokens": 9, "messages": [BLOCKS, CALL, BLOCKS]}),
    "blank text": (
        "messages",
        {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]},
    ),
}


@pytest.mark.parametrize(("name", "body"), ILLEGAL.values(), ids=ILLEGAL)
def test_what_an_api_refuses_is_noticed(name: str, body: dict[str, Any]) -> None:
    with pytest.raises((ValueError, AssertionError)):
        assert_legal(name, {"model": "m", **body})
