"""Write the table of costs on `docs/explanation/performance.md` from `benchmarks/results`.

python -m scripts.write_performance
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "performance.md"
RESULTS = ROOT / "benchmarks" / "results"
KINDS = ("stages", "calls", "turns", "tracing", "durable", "temporal")
_TABLE = re.compile(r"(?<=<!-- costs -->\n).*?(?=<!-- end of costs -->)", re.DOTALL)
_UNITS = {"times openai": "times the SDK", "times import openai": "times `import openai`"}


def write_costs(page: str) -> str:
    """Return the text of the page with the current table."""
    rows = ["| cost | measured | limit |", "|---|---|---|"]
    for kind in KINDS:
        costs = json.loads((RESULTS / f"{kind}.json").read_text(encoding="utf-8"))["costs"]
        rows += [f"| {cost['name']} | {_show(cost, 'figure')} | {_show(cost, 'limit')} |" for cost in costs]
    return _TABLE.sub(lambda _: "\n" + "\n".join(rows) + "\n\n", page)


def _show(cost: dict[str, Any], key: str) -> str:
    figure = f"{cost[key]:.3g}" if cost[key] >= 0.01 else f"{cost[key]:.1g}"
    return f"{figure} {_UNITS.get(cost['unit'], cost['unit'])}"


if __name__ == "__main__":
    PAGE.write_text(write_costs(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
