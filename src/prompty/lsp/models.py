"""Model ids for completion and hover, from the facts about models."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from prompty.providers.facts import find_facts, read_package_facts

_SKIPPED = ("ended", "invalid-id")
_SHOWN = ("status", "ends", "replacement", "max_output", "thinks", "effort_default", "temperature", "apis")
_GROUP = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)(\??)")


def list_model_ids() -> dict[str, dict[str, str]]:
    """Return the ids that are not ended, by host, with a note: when each ends."""
    models: dict[str, dict[str, str]] = {}
    for row in read_package_facts()["rows"]:
        ids = [*row.get("ids", ()), *_expand(row.get("match", "").strip("^$"))]
        for id in ids:
            facts = find_facts(row["host"], id)
            status = facts.find("status")[0] if facts else None
            if facts and status not in _SKIPPED:
                ends = facts.find("ends")[0]
                models.setdefault(row["host"], {})[id] = f"ends {ends}" if ends else status or ""
    return models


def _expand(pattern: str) -> Iterator[str]:
    """Yield the ids that a pattern of words, groups and options stands for. Other patterns have none."""
    group = _GROUP.search(pattern)
    if group is None:
        plain = pattern.replace("\\.", ".")
        if plain and not re.search(r"[\\*+?\[\]()|]", plain):
            yield plain
        return
    inner = [one for part in _split(group[1]) for one in _expand(part)]
    before, after = pattern[: group.start()], pattern[group.end() :]
    for middle, rest in product([*inner, *([""] if group[2] else [])], _expand(after) if after else [""]):
        start = before.replace("\\.", ".")
        if not re.search(r"[\\*+?\[\]()|]", start):
            yield start + middle + rest


def _split(alternatives: str) -> list[str]:
    """Split alternatives at the bars outside of groups."""
    parts, depth = [""], 0
    for character in alternatives:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def describe_model(host: str, id: str) -> str:
    """Return the facts of a model as a Markdown list, or nothing."""
    facts = find_facts(host, id)
    if facts is None:
        return ""
    lines: list[str] = []
    for name in _SHOWN:
        value: Any = facts.find(name)[0]
        if value is not None:
            shown = ", ".join(value) if isinstance(value, list) else f"{value:,}" if isinstance(value, int) else value
            lines.append(f"- {name.replace('_', ' ')}: {shown}")
    return f"**{id}** ({host})\n\n" + "\n".join(lines) if lines else ""
