"""OpenAI Embeddings (§7.2, §8.2)."""

from collections.abc import Sequence
from typing import Any, cast

from prompty.errors import EmptyReply, RequestError
from prompty.model.content import TextPart
from prompty.model.message import Json, Message, Reply, Usage
from prompty.model.request import Function
from prompty.providers import Api, RequestBase
from prompty.wire.json_bytes import as_count, as_mapping


def request(base: RequestBase, messages: Sequence[Message], functions: Sequence[Function]) -> Json:
    """Return the body of a request: one text is a string, several are an array. Chat options are not sent."""
    texts = [part.value for message in messages for part in message.content if isinstance(part, TextPart)]
    if not texts:
        raise RequestError("there is no text to embed", "Write some text in the body of the prompt.")
    body = {"model": base.model, "input": texts[0] if len(texts) == 1 else texts}
    return {**(base.options.additional_properties or {}), **body}


def reply(payload: Json) -> Reply:
    """Parse an answer: one vector, or a list of them in the order of the texts."""
    data = cast(dict[str, Any], payload)
    entries = sorted(data.get("data") or [], key=lambda entry: entry.get("index") or 0)
    if not entries:
        raise EmptyReply("Empty embedding response")
    vectors = [entry["embedding"] for entry in entries]
    usage = Usage(input_tokens=as_count(as_mapping(data.get("usage")).get("prompt_tokens")))
    return Reply(value=vectors[0] if len(vectors) == 1 else vectors, usage=usage, model=data.get("model"))


API = Api(path="/embeddings", name="embeddings", request=request, reply=reply, operation="embeddings")
