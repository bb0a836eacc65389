"""OpenAI Images (§7.3, §8.3)."""

from collections.abc import Sequence
from typing import Any, cast

from prompty.errors import EmptyReply
from prompty.model.message import Json, Message, Reply, Usage
from prompty.model.request import Function
from prompty.providers import Api, RequestBase
from prompty.wire.json_bytes import as_count, as_mapping


def request(base: RequestBase, messages: Sequence[Message], functions: Sequence[Function]) -> Json:
    """Return the body of a request: the prompt is the text of the last user message. Chat options are not sent."""
    prompt = next((message.text for message in reversed(messages) if message.role == "user"), "")
    return {**(base.options.additional_properties or {}), "model": base.model, "prompt": prompt}


def reply(payload: Json) -> Reply:
    """Parse an answer: the URL of each image, or its base64; a single image is not in a list."""
    data = cast(dict[str, Any], payload)
    entries = data.get("data") or []
    if not entries:
        raise EmptyReply("Empty image response")
    images = [image for entry in entries if (image := entry.get("url") or entry.get("b64_json"))]
    counts = as_mapping(data.get("usage"))
    usage = Usage(
        input_tokens=as_count(counts.get("input_tokens")), output_tokens=as_count(counts.get("output_tokens"))
    )
    return Reply(value=images[0] if len(images) == 1 else images, usage=usage)


API = Api(path="/images/generations", name="images", request=request, reply=reply, operation="generate_content")
