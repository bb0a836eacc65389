"""Convert the names and options of models, and the tools and shapes that belong to them."""

import re
from typing import Any

from prompty.cases.imports.templates import to_mapping
from prompty.model.message import Json
from prompty.providers.profiles import get_profile
from prompty.safety.origins import parse_origin
from prompty.v1.properties import translate_function, translate_object

_ID = re.compile(r"[A-Za-z0-9][\w./:@+-]*")
_HOST = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+")
_SAME = ("openai", "anthropic", "azure", "ollama", "groq", "mistral", "openrouter", "deepseek", "cerebras", "vllm")
_PREFIXES = {"azureopenai": "azure", "google": "gemini", "mistral-ai": "mistral", **{name: name for name in _SAME}}
# What may follow a prefix: APIs for chats, and others.
_CHATS = ("chat", "messages", "responses")
_OTHERS = re.compile(
    r"(completion|embeddings?|image|assistant|realtime|moderation|video)(:|$)|claude-(agent|code)|codex"
)
_OPTIONS = {
    **{name.lower(): name for name in ("temperature", "topP", "topK", "frequencyPenalty", "presencePenalty", "seed")},
    **dict.fromkeys(("maxtokens", "maxcompletiontokens", "maxoutputtokens"), "maxOutputTokens"),
    "stop": "stopSequences",
}
_WHOLE = ("maxOutputTokens", "topK", "seed")


def convert_model(id: object) -> tuple[str, str | None] | None:
    """Return `provider:id` and an API type for `openai:chat:gpt-6-luna`, or None if it is code, a URL or not ours."""
    prefix, _, rest = re.sub(r"^([\w-]+)/", r"\1:", id if isinstance(id, str) else "").partition(":")
    kind, _, name = rest.partition(":")
    rest = name if kind in _CHATS else rest
    if prefix not in _PREFIXES or _OTHERS.match(rest) or not _ID.fullmatch(rest):
        return None
    return f"{_PREFIXES[prefix]}:{rest}", "responses" if kind == "responses" else None


def build_model(name: str, api_type: str | None, host: object = None) -> dict[str, Any]:
    """Return `model:` of a prompt. A known server gets its provider and its address, `host` is that of Azure."""
    provider, _, id = name.partition(":")
    found: dict[str, Any] = {"provider": provider, "id": id, **({"apiType": api_type} if api_type else {})}
    profile = get_profile(provider) if provider not in ("openai", "anthropic", "azure") else None
    if profile is not None:
        origin = parse_origin(profile.base_url)
        is_open = profile.key is None or (origin is not None and origin.is_loopback)
        access = {"kind": "anonymous"} if is_open else {"kind": "key", "apiKey": f"${{env:{profile.key}}}"}
        found |= {"provider": profile.provider, "connection": {**access, "endpoint": profile.base_url}}
    elif provider == "azure" and isinstance(host, str) and _HOST.fullmatch(host):
        access = {"kind": "key", "apiKey": "${env:AZURE_OPENAI_API_KEY}"}
        found["connection"] = {**access, "endpoint": f"https://{host}"}
    return found


def convert_option(name: str, value: object) -> tuple[str, object] | None:
    """Return the name and the value of a model option, or None if it has no counterpart."""
    ours = _OPTIONS.get(name.replace("_", "").lower())
    if ours == "stopSequences":
        texts = value if isinstance(value, list) else [value]
        return (ours, texts) if texts and all(isinstance(text, str) and "${" not in text for text in texts) else None
    is_number = isinstance(value, int if ours in _WHOLE else int | float) and not isinstance(value, bool)
    return (ours, value) if ours is not None and is_number else None


def convert_tools(tools: object) -> list[Json] | None:
    """Convert functions as OpenAI or Anthropic take them. Return None if a tool cannot express one of them."""
    found: list[Json | None] = []
    for entry in tools if isinstance(tools, list) else [None]:
        tool = dict(to_mapping(entry))
        if "input_schema" in tool:
            function = {"parameters": tool.pop("input_schema"), **tool}
            tool = {"type": "function", "function": {key: function[key] for key in function if key != "type"}}
        found.append(translate_function(tool))
    kept = [tool for tool in found if tool is not None and "${" not in str(tool)]
    return kept if len(kept) == len(found) else None


def convert_shape(data: object) -> Json | None:
    """Convert a JSON Schema, or one as OpenAI takes it, to `outputs:`. Return None if they cannot express all of it."""
    schema = to_mapping(data)
    while isinstance(inner := schema.get("json_schema", schema.get("schema")), dict):
        schema = inner
    outputs = translate_object(schema, strict=True)
    return outputs if outputs and "${" not in str(outputs) else None
