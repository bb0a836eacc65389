"""Convert the names and options of models."""

import re
from collections.abc import Mapping
from typing import NamedTuple

_ID = re.compile(r"[A-Za-z0-9][\w./:@+-]*")
# Prefixes of promptfoo, with the prefix of ours, and the words that may follow it.
_PREFIXES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "openai": ("openai", ("chat", "responses")),
    "anthropic": ("anthropic", ("messages",)),
    "ollama": ("ollama", ("chat",)),
    "google": ("gemini", ()),
    "groq": ("groq", ()),
    "mistral": ("mistral", ()),
    "openrouter": ("openrouter", ()),
    "deepseek": ("deepseek", ()),
    "cerebras": ("cerebras", ()),
    "vllm": ("vllm", ()),
}
# What may follow a prefix and is not the id of a model that chats.
_OTHER_KINDS = frozenset(
    {"completion", "embedding", "embeddings", "image", "assistant", "realtime", "agents", "moderation", "transcription"}
    | {"claude-agent-sdk", "claude-code", "codex-sdk", "chatkit", "video"}
)
_PUBLISHERS = {"openai": "openai", "anthropic": "anthropic", "deepseek": "deepseek", "mistral-ai": "mistral"}
OPTION_NAMES = {
    "temperature": "temperature",
    "max_tokens": "maxOutputTokens",
    "maxTokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "maxCompletionTokens": "maxOutputTokens",
    "max_output_tokens": "maxOutputTokens",
    "top_p": "topP",
    "topP": "topP",
    "top_k": "topK",
    "frequency_penalty": "frequencyPenalty",
    "frequencyPenalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
    "presencePenalty": "presencePenalty",
    "seed": "seed",
    "stop": "stopSequences",
}
_WHOLE = frozenset({"maxOutputTokens", "topK", "seed"})


class ImportedModel(NamedTuple):
    """A model as `provider:id`, and its API type if it is not the usual one."""

    name: str
    api_type: str | None = None


def convert_promptfoo_model(id: str) -> ImportedModel | None:
    """Convert `openai:chat:gpt-6-luna`. Return None for a provider that is code, a URL or not one of ours."""
    prefix, _, rest = id.partition(":")
    if prefix not in _PREFIXES:
        return None
    ours, kinds = _PREFIXES[prefix]
    kind, _, name = rest.partition(":")
    if kind in kinds:
        rest = name
    elif kind in _OTHER_KINDS:
        return None
    if not _ID.fullmatch(rest):
        return None
    return ImportedModel(f"{ours}:{rest}", "responses" if kind == "responses" and kind in kinds else None)


def convert_github_model(id: str) -> ImportedModel | None:
    """Convert `openai/gpt-6-luna`. Return None for a publisher that is no provider of ours."""
    publisher, _, name = id.partition("/")
    if publisher not in _PUBLISHERS or not _ID.fullmatch(name):
        return None
    return ImportedModel(f"{_PUBLISHERS[publisher]}:{name}")


def convert_option(name: str, value: object) -> tuple[str, object] | None:
    """Return the name and the value of a model option, or None if it has no counterpart."""
    ours = OPTION_NAMES.get(name)
    if ours is None or isinstance(value, bool):
        return None
    if ours == "stopSequences":
        texts = value if isinstance(value, list) else [value]
        return (ours, texts) if texts and all(isinstance(text, str) and "${" not in text for text in texts) else None
    if not isinstance(value, int | float) or (ours in _WHOLE and not isinstance(value, int)):
        return None
    return ours, value
