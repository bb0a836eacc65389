"""Write the figures on `docs/explanation/performance.md` and in README from `benchmarks/results`.

python -m scripts.write_performance
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "performance.md"
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
KINDS = ("stages", "calls", "turns", "tracing", "durable", "temporal")
_UNITS = {"times openai": "times the SDK", "times import openai": "times `import openai`"}


def read_soak(test: str) -> dict[str, Any]:
    """Return the figures that a test wrote when it ran at its full size."""
    figures: dict[str, Any] = json.loads((RESULTS / "soak" / f"{test}.json").read_text(encoding="utf-8"))
    return figures


def read_costs(kind: str) -> list[dict[str, Any]]:
    """Return the measured costs of one kind."""
    costs: list[dict[str, Any]] = json.loads((RESULTS / f"{kind}.json").read_text(encoding="utf-8"))["costs"]
    return costs


def write_page(page: str) -> str:
    """Return the text of the page with the current tables."""
    costs = [(cost["name"], _show(cost, "figure"), _show(cost, "limit")) for kind in KINDS for cost in read_costs(kind)]
    page = _replace(page, "costs", _draw_table(("cost", "measured", "limit"), costs))
    page = _replace(page, "temporal", _draw_table(("a step", "prompty", "the same activities by hand"), _list_steps()))
    page = _replace(page, "attacks", _draw_table(("test", "result"), _list_attacks()))
    return _replace(page, "batches", _draw_table(("test", "result"), _list_batches()))


def _list_steps() -> list[Iterable[str]]:
    times = {cost["name"].rpartition(", ")[2]: cost["seconds"] for cost in read_costs("temporal")}
    return [
        (name, *(f"{1000 * time[side]:.1f} ms" for side in ("prompty", "temporal"))) for name, time in times.items()
    ]


def _list_attacks() -> list[Iterable[str]]:
    own = [read_soak(f"workflows_with_turns_survive_kills_and_stops-{name}") for name in ("sqlite", "postgres")]
    temporal = read_soak("workflows_with_turns_survive_kills_and_stops_of_their_workers")
    return [
        *(
            (
                f"{soak['kills']} kills and {soak['stops']} stops of {what}",
                f"all {soak['payments']:,} payments made once",
            )
            for what, soak in (
                ("a program with DBOS workflows, SQLite", own[0]),
                ("a program with DBOS workflows, PostgreSQL", own[1]),
                ("Temporal workers", temporal),
            )
        ),
    ]


def _list_batches() -> list[Iterable[str]]:
    memory = read_soak("many_rows_take_no_more_memory_than_few")
    peak = memory["peak_megabytes"]
    killed = read_soak("a_batch_that_is_killed_at_random_loses_nothing_and_repeats_only_what_it_tells")
    large = read_soak("fifty_thousand_rows_fit_in_little_memory")
    apis = [
        read_soak(f"a_provider_batch_that_is_killed_at_random_pays_for_each_answer_once-{api}")
        for api in ("chat", "responses", "messages")
    ]
    (_, ours), (peer, theirs) = json.loads((RESULTS / "provider_batch_kills.json").read_text(encoding="utf-8")).items()
    return [
        (
            "peak memory of one process, scripted model",
            f"{peak['500 rows']} MB for 500 rows, {max(peak.values())} MB for {memory['rows']:,} rows",
        ),
        (
            f"{killed['rows']:,} rows in one process, killed {killed['kills']} times at random",
            f"every row once; {killed['answers_lost_with_a_process']} answers lost and paid again, "
            "all in rows marked as interrupted",
        ),
        (
            f"{large['rows']:,} rows in provider batches",
            f"{large['peak_megabytes']} MB; {large['rows_per_second_of_processor']} rows per second of processor time",
        ),
        (
            f"{apis[0]['rows']:,} rows in provider batches, killed {apis[0]['kills']} times at random",
            "answers billed, for as many results: {:,} (chat), {:,} (Responses), {:,} (Claude)".format(
                *(api["answers_billed"] for api in apis)
            ),
        ),
        (
            f"{ours['rows']:,} rows in provider batches, killed {ours['kills']} times, and the same with {peer} "
            "as its guide shows it",
            f"{ours['answers_billed']:,} answers billed; {peer} {theirs['answers_billed']:,}",
        ),
    ]


def write_readme(readme: str) -> str:
    """Return README with the current costs of a start, calls and turns."""
    date = json.loads((RESULTS / "calls.json").read_text(encoding="utf-8"))["date"]
    shares = {cost["name"]: f"{cost['figure']:.0%}".replace("%", " %") for cost in read_costs("calls")}
    turn = read_costs("turns")[0]
    [start] = [cost for cost in read_costs("stages") if cost["name"] == "fresh process: answer"]
    machine = f"Python 3.11 on Linux, two cores, {date}"
    text = f"""
Processor time of one process, compared with the `openai` SDK for the same work in the same run ({machine}):

| | prompty, as a share of the SDK |
|---|---|
| A call | {shares["call, sync"]} (async {shares["call, async"]}) |
| A streamed call | {shares["stream, sync"]} (async {shares["stream, async"]}) |
| An agent's turn with 24 tool calls | {turn["figure"] * 100:.0f} % |
| A fresh process with one answer | {start["figure"] * 100:.0f} % of `import openai` alone |

"""
    return _replace(readme, "costs", text)


def _replace(page: str, name: str, text: str) -> str:
    """Return the page with another text between the comments of this name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    return re.sub(f"(?<={re.escape(begin)}).*?(?={re.escape(end)})", lambda _: text, page, count=1, flags=re.DOTALL)


def _draw_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n" + next(lines) + "\n" + "|---" * len(head) + "|\n" + "\n".join(lines) + "\n\n"


def _show(cost: dict[str, Any], key: str) -> str:
    figure = f"{cost[key]:.3g}" if cost[key] >= 0.01 else f"{cost[key]:.1g}"
    return f"{figure} {_UNITS.get(cost['unit'], cost['unit'])}"


if __name__ == "__main__":
    PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    README.write_text(write_readme(README.read_text(encoding="utf-8")), encoding="utf-8")
