"""Keys that no definition knows: nothing reads them, so they are probably misspelt."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from prompty.analysis.definition_sites import places
from prompty.errors import Problem
from prompty.pipeline.source_map import Source


def unknown_keys(data: Mapping[str, Any], source: Source) -> list[Problem]:
    """A warning for each key nothing reads, with the nearest one that something does."""
    return list(_problems(data, source))


def _problems(data: Mapping[str, Any], source: Source) -> Iterator[Problem]:
    for place in places(data):
        known = [field.alias or name for name, field in place.definition.model_fields.items()]
        for name in place.value:
            if name not in known:
                yield _problem((*place.keys, name), known, source)


def _problem(keys: tuple[str | int, ...], known: list[str], source: Source) -> Problem:
    name = str(keys[-1])
    near = nearest(name, known)
    fix = f"Did you mean `{near}`? " if near else ""
    if keys[:2] == ("model", "options"):
        code, what = "unknown-option", f"unknown option `{name}`"
        fix += "Options of one provider go under `additionalProperties:`."
    else:
        code, what = "unknown-key", f"unknown key `{name}`"
        fix += "It is kept in `metadata`." if len(keys) == 1 else "It has no effect here."
    return source.at_key(keys, code, what, fix, severity="warning", on_key=True)


def nearest(name: str, known: list[str]) -> str | None:
    """The known name that reads most like this one, whatever its case and underscores."""
    plain = {candidate.lower().replace("_", ""): candidate for candidate in known}
    found = get_close_matches(name.lower().replace("_", ""), plain, 1)
    return plain[found[0]] if found else None
