"""Messages between storage and the wire (001), for a host that calls a model itself."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from prompty.model.citation import Citation, ProviderCall
from prompty.model.content import TextPart
from prompty.model.message import Message, Role
from prompty.pipeline.history import normalize_history, strip_reasoning
from prompty.pipeline.request import read_messages
from prompty.providers import PROVIDERS
from prompty.providers.openai import chat
from prompty.providers.profiles import GENERIC, OPENAI
from prompty.registry import DEFAULT, Registry
from prompty.wire.request import require_text

__all__ = ["Citation", "ProviderCall", "Role", "TextPart", "message_to_wire", "prepare_request_messages", "repair"]


def prepare_request_messages(
    messages: Sequence[object], provider: str = "openai", api_type: str = "chat", *, registry: Registry = DEFAULT
) -> list[Message]:
    """Return stored messages for the next request: repaired, and with reasoning only on turns that call tools.

    `messages` may be dicts in wire form. They do not change: storage keeps all reasoning.
    """
    call_ids = registry[PROVIDERS].get(provider).api(api_type).call_ids
    return strip_reasoning(normalize_history(read_messages(messages), call_ids))


def repair(
    messages: Sequence[object], provider: str = "openai", api_type: str = "chat", *, registry: Registry = DEFAULT
) -> list[Message]:
    """Return a history that an API accepts: each call with one result, in order, with unique ids.

    Every request is repaired like this. The messages passed in do not change.
    """
    return normalize_history(read_messages(messages), registry[PROVIDERS].get(provider).api(api_type).call_ids)


def message_to_wire(
    message: Message | Mapping[str, object], *, reasoning_field: str | None = "reasoning_content"
) -> dict[str, object]:
    """Return a message as JSON for chat completions.

    Local fields are omitted. Reasoning is included for turns that call tools, as `reasoning_details` or under the
    server's name for it: `reasoning_content`, `reasoning`, or None for a server that rejects it, such as OpenAI's.
    Raise RequestError for media in a message that cannot contain it.
    """
    [read] = read_messages([message])
    if read.role == "tool":
        require_text(read)
    profile = OPENAI if reasoning_field is None else replace(GENERIC, reasoning=reasoning_field)
    return chat.write_message(read, profile)
