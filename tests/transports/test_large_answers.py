"""The largest answers that an API gives are read: the limits are for what no API sends."""

from collections.abc import Iterator

import pytest

from prompty import PromptAgent, invoke
from tests.loopback import Server, json_reply


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def create_agent(server: Server, **model: object) -> PromptAgent:
    connection = {"kind": "anonymous", "endpoint": f"{server.url}/v1"}
    return PromptAgent.model_validate(
        {"model": {"id": "m", "connection": connection, **model}, "instructions": "user:\nHi"}
    )


def test_many_embeddings_are_read(server: Server) -> None:
    vectors = [[(row + column) / 7 for column in range(1_536)] for row in range(131)]
    data = [{"object": "embedding", "index": row, "embedding": vector} for row, vector in enumerate(vectors)]
    server.answer(json_reply({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1}}))
    assert invoke(create_agent(server, apiType="embedding")) == vectors


def test_the_log_probabilities_of_4000_tokens_are_read(server: Server) -> None:
    token = {"token": "ha", "logprob": -0.25, "bytes": [104, 97]}
    logprobs = {"content": [{**token, "top_logprobs": [token] * 20}] * 4_000, "refusal": None}
    message = {"role": "assistant", "content": "ha" * 4_000}
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
    server.answer(json_reply({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}))
    assert invoke(create_agent(server)) == "ha" * 4_000
