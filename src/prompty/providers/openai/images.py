"""OpenAI Images (§7.3, §8.3)."""

from collections.abc import Sequence
from typing import Any, cast

from prompty.errors import EmptyReply
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message, Usage
from prompty.model.reply import Reply
from prompty.model.request import Function
from prompty.providers import Api, turn_messages


def request(agent: PromptAgent, messages: Sequence[Message], functions: Sequence[Function]) -> Json:
    """The text of the last user message is the prompt; chat options do not cross (W8)."""
    prompt = next((message.text for message in reversed(messages) if message.role == "user"), "")
    return {**(agent.model.options.additional_properties or {}), "model": agent.model.id, "prompt": prompt}


def reply(payload: Json) -> Reply:
    """A URL where there is one, else base64; one as itself, several as a list."""
    data = cast(dict[str, Any], payload)
    entries = data.get("data") or []
    if not entries:
        raise EmptyReply("Empty image response")
    found = [image for entry in entries if (image := entry.get("url") or entry.get("b64_json"))]
    used = data.get("usage") or {}
    usage = Usage(input_tokens=used.get("input_tokens"), output_tokens=used.get("output_tokens"))
    return Reply(value=found[0] if len(found) == 1 else found, usage=usage)


API = Api(
    path="/images/generations", request=request, reply=reply, tool_messages=turn_messages, operation="generate_content"
)
