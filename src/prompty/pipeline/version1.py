"""Recognise files of Prompty v1, most of those in the wild, and say what is old about them."""

from collections.abc import Iterator, Mapping
from typing import Any

from prompty.errors import Problem
from prompty.pipeline.source import KeyPath, Source

_MODEL_KEYS = {
    "api": "Write `apiType:` under `model:`.",
    "configuration": "Write `id:`, `provider:` and `connection:` under `model:`.",
    "parameters": "Write `options:` under `model:` (`max_tokens` is `maxOutputTokens` there).",
}


def version1_signs(data: Mapping[str, Any], source: Source) -> list[Problem]:
    """One warning for each part of a file that v1 had and v2 reads differently."""
    return [
        source.at_key(
            keys,
            "version-1",
            f"`{keys[-1]}` is Prompty v1 and has no effect",
            fix,
            severity="warning",
            on_key=True,
        )
        for keys, fix in _signs(data)
    ]


def _signs(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    model = data.get("model")
    if isinstance(model, dict):
        for key, fix in _MODEL_KEYS.items():
            if key in model:
                yield ("model", key), fix
    if "sample" in data:
        yield ("sample",), "Write a `default:` or an `example:` on each input."
    for group in ("inputs", "outputs"):
        entries = data.get(group)
        if isinstance(entries, dict):
            for name, entry in entries.items():
                if isinstance(entry, dict) and "type" in entry and "kind" not in entry:
                    yield (
                        (group, name, "type"),
                        "Write `kind:` instead of `type:` (`number` is `float` there).",
                    )
