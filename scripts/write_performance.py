"""Write the costs on `docs/explanation/performance.md` and in README from `benchmarks/results`.

python -m scripts.write_performance
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "performance.md"
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
KINDS = ("stages", "calls", "turns", "tracing", "durable", "temporal")
_COSTS = re.compile(r"(?<=<!-- costs -->\n).*?(?=<!-- end of costs -->)", re.DOTALL)
_UNITS = {"times openai": "times the SDK", "times import openai": "times `import openai`"}


def read_costs(kind: str) -> list[dict[str, Any]]:
    """Return the measured costs of one kind."""
    costs: list[dict[str, Any]] = json.loads((RESULTS / f"{kind}.json").read_text(encoding="utf-8"))["costs"]
    return costs


def write_page(page: str) -> str:
    """Return the text of the page with the current table."""
    rows = ["| cost | measured | limit |", "|---|---|---|"]
    for kind in KINDS:
        rows += [f"| {cost['name']} | {_show(cost, 'figure')} | {_show(cost, 'limit')} |" for cost in read_costs(kind)]
    return _COSTS.sub(lambda _: "\n" + "\n".join(rows) + "\n\n", page)


def write_readme(readme: str) -> str:
    """Return README with the current costs of calls, turns and imports."""
    date = json.loads((RESULTS / "calls.json").read_text(encoding="utf-8"))["date"]
    shares = {cost["name"]: f"{cost['figure']:.0%}".replace("%", " %") for cost in read_costs("calls")}
    turn, fresh = read_costs("turns")[0], read_costs("stages")[0]["seconds"]
    prompty, openai = [(fresh[name] - fresh["bare interpreter"]) * 1000 for name in ("import prompty", "import openai")]
    machine = f"Python 3.11 on Linux, two cores, {date}"
    text = f"""
Processor time of one process, compared with the `openai` SDK for the same work in the same run ({machine}):

| | prompty, as a share of the SDK |
|---|---|
| A call | {shares["call, sync"]} (async {shares["call, async"]}) |
| A streamed call | {shares["stream, sync"]} (async {shares["stream, async"]}) |
| An agent's turn with 24 tool calls | {turn["figure"] * 100:.0f} % |

`import prompty` adds {max(prompty, 0.1):.1f} ms to a bare interpreter, and `import openai` adds {openai:.0f} ms.

"""
    return _COSTS.sub(lambda _: text, readme)


def _show(cost: dict[str, Any], key: str) -> str:
    figure = f"{cost[key]:.3g}" if cost[key] >= 0.01 else f"{cost[key]:.1g}"
    return f"{figure} {_UNITS.get(cost['unit'], cost['unit'])}"


if __name__ == "__main__":
    PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    README.write_text(write_readme(README.read_text(encoding="utf-8")), encoding="utf-8")
