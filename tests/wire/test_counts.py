"""Token counts as a server sends them: whole numbers count, and whatever else stands there is unknown."""

from typing import Any

import pytest

from prompty import Usage
from prompty.providers import Api
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, embeddings, images, responses

CHAT = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
MESSAGE = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
OUTPUT = {"status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}]}
EMBEDDING = {"data": [{"embedding": [0.5]}]}
IMAGE = {"data": [{"url": "https://a.example/i.png"}]}

WIRES: dict[str, tuple[Api, dict[str, Any], str]] = {
    "chat": (chat.API, CHAT, "prompt_tokens"),
    "responses": (responses.API, OUTPUT, "input_tokens"),
    "messages": (messages.API, MESSAGE, "input_tokens"),
    "embeddings": (embeddings.API, EMBEDDING, "prompt_tokens"),
    "images": (images.API, IMAGE, "input_tokens"),
}
COUNTS: list[tuple[Any, int | None]] = [(7, 7), (7.0, 7), (0, 0), (None, None)]
COUNTS += [(odd, None) for odd in ("7", [7], {"a": 7}, True, -1, 1.5, float("inf"), float("nan"))]


@pytest.mark.parametrize(("api", "answer", "name"), WIRES.values(), ids=WIRES)
@pytest.mark.parametrize(("sent", "counted"), COUNTS, ids=[repr(sent) for sent, _ in COUNTS])
def test_a_count_that_is_no_whole_number_is_unknown(
    api: Api, answer: dict[str, Any], name: str, sent: Any, counted: int | None
) -> None:
    usage = api.reply({**answer, "usage": {name: sent}}).usage
    assert usage == Usage(input_tokens=counted)
    assert usage + usage == Usage(input_tokens=None if counted is None else 2 * counted)


@pytest.mark.parametrize(("api", "answer", "name"), WIRES.values(), ids=WIRES)
@pytest.mark.parametrize("usage", ["7", 7, [7], True], ids=repr)
def test_a_usage_that_is_no_object_is_unknown(api: Api, answer: dict[str, Any], name: str, usage: Any) -> None:
    assert api.reply({**answer, "usage": usage}).usage == Usage()
