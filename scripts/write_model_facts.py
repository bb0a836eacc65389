"""Check facts/models.yaml, and write what the package reads of it: src/prompty/providers/model_facts.json.

A fact that is official or measured, and not too old, may change a request. Anything less sure becomes a hint.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from prompty.providers.facts import VALUES

ROOT = Path(__file__).parents[1]
FILE = ROOT / "facts" / "models.yaml"
TARGET = ROOT / "src" / "prompty" / "providers" / "model_facts.json"
CONFIDENCE = ("unknown", "secondary", "measured", "official")  # weakest first

Words = Annotated[str, Field(max_length=160)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Source(_Strict):
    kind: Literal["secondary", "measured", "official"]
    date: date
    date_is: Literal["collected"] | None = None
    url: Annotated[str, Field(pattern="^https://")] | None = None
    package: str | None = None
    file: str | None = None
    about: Words | None = None


class _Sourced(_Strict):
    value: Any
    source: Annotated[list[str], Field(min_length=1)]
    date: date
    date_is: Literal["collected"] | None = None
    note: Words | None = None


class Fact(_Sourced):
    confidence: Literal["unknown", "secondary", "measured", "official"]


class Choice(_Sourced):
    choice: Literal["ours"]


class Row(_Strict):
    host: str
    match: Annotated[str, Field(pattern=r"^\^.*\$$")] | None = None
    ids: list[str] | None = None
    examples: Annotated[list[str], Field(min_length=1)]
    facts: dict[str, Fact]


class FactsFile(_Strict):
    version: Literal[2] = Field(alias="schema")
    checked: date
    sources: dict[str, Source]
    hosts: dict[str, dict[str, Fact]]
    models: list[Row]
    choices: dict[str, Choice]


def load(path: Path = FILE) -> dict[str, Any]:
    data: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return data


def check(path: Path = FILE) -> list[str]:
    """Return the problems of the file. Raise `ValidationError` if it has another shape."""
    data = FactsFile.model_validate(load(path))
    problems = []
    for row in data.models:
        where = f"{row.host}:{row.examples[0]}"
        if (row.match is None) == (row.ids is None):
            problems.append(f"{where}: needs match or ids, not both")
        problems += [f"{where}.{name}: {problem}" for name, fact in row.facts.items() for problem in _find(data, fact)]
        wrong = [name for name, fact in row.facts.items() if name in VALUES and not _is_allowed(name, fact.value)]
        problems += [f"{where}.{name}: value {row.facts[name].value!r} is not allowed" for name in wrong]
        status, ends = row.facts.get("status"), row.facts.get("ends")
        if status and ends and status.value != ("ended" if ends.value <= data.checked else "deprecated"):
            problems.append(f"{where}: ends {ends.value}, but its status is {status.value}")
    for host, facts in data.hosts.items():
        problems += [f"{host}.{name}: {problem}" for name, fact in facts.items() for problem in _find(data, fact)]
    return problems


def _find(data: FactsFile, fact: Fact) -> Iterator[str]:
    if missing := [key for key in fact.source if key not in data.sources]:
        yield f"no source {', '.join(missing)}"
        return
    first = data.sources[fact.source[0]]
    if (fact.date, fact.date_is) != (first.date, first.date_is):
        yield "date is not that of its first source"
    if CONFIDENCE.index(fact.confidence) > CONFIDENCE.index(first.kind):
        yield f"{fact.confidence} is more than its first source can carry"
    if (fact.value == "unknown") != (fact.confidence == "unknown"):
        yield "value and confidence must both be unknown, or neither"


def _is_allowed(name: str, value: object) -> bool:
    allowed = VALUES[name]
    if isinstance(allowed, type):
        return isinstance(value, allowed)
    return set(value) <= set(allowed) if isinstance(value, list) else value in (*allowed, "unknown")


def build() -> dict[str, Any]:
    """Return the data: rows with only the facts that the package reads."""
    data = load()
    rows = []
    for row in data["models"]:
        facts = {name: fact for name, fact in row["facts"].items() if name in VALUES}
        known = {name: fact for name, fact in facts.items() if is_sure(data, fact)}
        hints = {name: fact["value"] for name, fact in facts.items() if name not in known}
        entry: dict[str, Any] = {key: row[key] for key in ("host", "match", "ids") if key in row}
        entry |= {"facts": {name: fact["value"] for name, fact in known.items()}, "hints": hints}
        if known or hints:
            rows.append({name: value for name, value in entry.items() if value})
    choices = {name: choice["value"] for name, choice in data["choices"].items()}
    return {"checked": data["checked"], "choices": choices, "rows": rows}


def is_sure(data: Mapping[str, Any], fact: Mapping[str, Any]) -> bool:
    """Return True if a fact may change a request: it is official or measured, and not older than `max_age_months`."""
    checked, written = data["checked"], fact["date"]
    months = 12 * (checked.year - written.year) + checked.month - written.month
    limit = data["choices"]["max_age_months"]["value"]
    return fact["confidence"] in ("official", "measured") and (months, checked.day) <= (limit, written.day)


def write() -> str:
    """Return the text of the file: one row per line, so that a change shows as one."""
    data = build()
    head = {name: value for name, value in data.items() if name != "rows"}
    lines = ",\n".join(_dump(row) for row in data["rows"])
    return f'{_dump(head)[:-1]},"rows":[\n{lines}\n]}}\n'


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=date.isoformat)


if __name__ == "__main__":
    if problems := check():
        raise SystemExit("\n".join(problems))
    TARGET.write_text(write(), encoding="utf-8")
