"""Write what the package reads of facts/models.yaml: src/prompty/providers/model_facts.json.

A fact that is official or measured, and not too old, may change a request. Anything less sure becomes a hint (M4).
"""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from prompty.providers.facts import VALUES
from scripts.verify_model_facts import check, is_old, load

TARGET = Path(__file__).parents[1] / "src" / "prompty" / "providers" / "model_facts.json"
SURE = ("official", "measured")


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
    """Return True if a fact may change a request."""
    return fact["confidence"] in SURE and not is_old(data, fact)


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
