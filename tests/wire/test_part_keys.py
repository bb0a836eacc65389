"""Keys of a content part that are not ours cross the wire as they are, and are stored with the part (001)."""

from typing import Any

import pytest

from prompty import Message, PromptAgent
from prompty.errors import RequestError
from prompty.messages import TextPart
from prompty.model.content import FilePart, ImagePart
from prompty.pipeline import run
from prompty.testing import Script

CACHED = {"cache_control": {"type": "ephemeral"}}
PNG = "data:image/png;base64,AAAA"
PARTS: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "text": (
        {"type": "text", "text": "x", **CACHED},
        {
            "chat": {"type": "text", "text": "x", **CACHED},
            "responses": {"type": "input_text", "text": "x", **CACHED},
            "messages": {"type": "text", "text": "x", **CACHED},
        },
    ),
    "image": (
        {"type": "image_url", "image_url": {"url": PNG}, **CACHED},
        {
            "chat": {"type": "image_url", "image_url": {"url": PNG}, **CACHED},
            "responses": {"type": "input_image", "image_url": PNG, "detail": "auto", **CACHED},
            "messages": {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                **CACHED,
            },
        },
    ),
    "file": (
        {"type": "file", "file": {"file_id": "file-1"}, **CACHED},
        {
            "chat": {"type": "file", "file": {"file_id": "file-1"}, **CACHED},
            "responses": {"type": "input_file", "file_id": "file-1", **CACHED},
            "messages": {"type": "document", "source": {"type": "file", "file_id": "file-1"}, **CACHED},
        },
    ),
}


def sent(api: str, *parts: object, role: str = "user") -> dict[str, Any]:
    """Return the body of a request with one message of these parts, and a question after it."""
    agent = PromptAgent.model_validate({"model": {"id": "m", "provider": "scripted", "apiType": api}})
    with Script("Yes.") as script:
        run(agent, [{"role": role, "content": list(parts)}, {"role": "user", "content": "?"}])
    return script.requests[0]


def content(api: str, part: object) -> Any:
    body = sent(api, part)
    return (body["input"] if api == "responses" else body["messages"])[0]["content"]


@pytest.mark.spec("001 user and system", "a system message is text, a user's is text or parts, which cross as they are")
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize("name", PARTS)
@pytest.mark.spec("001 user and system", "keys of a part that prompty does not know cross too")
def test_keys_that_are_not_ours_cross_as_they_are(name: str, api: str) -> None:
    part, wire = PARTS[name]
    assert content(api, part)[0] == wire[api]


def test_our_own_keys_win_over_keys_of_the_part() -> None:
    part = TextPart("x", extra={"type": "image_url", "text": "y", "z": 1})
    assert content("chat", part) == [{"type": "text", "text": "x", "z": 1}]


@pytest.mark.parametrize("name", PARTS)
def test_keys_of_parts_are_stored_and_read_again(name: str) -> None:
    message = Message.from_json({"role": "user", "content": [PARTS[name][0], "and more"]})
    assert message.content[0].extra == CACHED
    assert Message.from_json(message.to_json()) == message
    alone = Message("user", message.content[:1])
    assert Message.from_json(alone.to_json()) == alone
    assert hash(message) is not None


def test_instructions_with_such_keys_are_blocks_for_anthropic() -> None:
    part = {"type": "text", "text": "Be brief.", **CACHED}
    assert sent("messages", part, role="system")["system"] == [part]
    assert sent("messages", {"type": "text", "text": "Be brief."}, role="system")["system"] == "Be brief."


@pytest.mark.spec("001 user and system", "a system message is text, a user's is text or parts, which cross as they are")
def test_a_file_with_a_url_is_read_in_the_form_of_the_document() -> None:
    part = {"type": "file", "file": {"url": "https://x.example/a.pdf"}}
    assert Message.from_json({"role": "user", "content": [part]}).content == (FilePart("https://x.example/a.pdf"),)
    assert content("responses", part) == [{"type": "input_file", "file_url": "https://x.example/a.pdf"}]
    with pytest.raises(RequestError, match="a file is given as a URL"):
        content("chat", part)


def test_a_part_without_such_keys_looks_and_compares_as_before() -> None:
    assert repr(TextPart("x")) == "TextPart(value='x')"
    assert TextPart("x") == TextPart("x") != TextPart("x", extra={"z": 1})
    assert repr(TextPart("x", extra={"z": 1})) == "TextPart(value='x', extra={'z': 1})"
    assert repr(ImagePart("u")) == "ImagePart(value='u', media_type=None, detail=None)"
