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
    page = _replace(page, "attacks", _draw_table(("attack", "SQLite", "PostgreSQL"), _list_attacks()))
    page = _replace(page, "ended runs", _draw_table(("query", "SQLite", "PostgreSQL"), _list_queries()))
    return _replace(page, "batches", _draw_table(("test", "result"), _list_batches()))


def _list_steps() -> list[Iterable[str]]:
    times = {cost["name"].rpartition(", ")[2]: cost["seconds"] for cost in read_costs("temporal")}
    return [
        (name, *(f"{1000 * time[side]:.1f} ms" for side in ("prompty", "temporal"))) for name, time in times.items()
    ]


def _list_attacks() -> list[Iterable[str]]:
    workers, poison, innocent, outages, own = (
        [read_soak(f"{test}-{database}") for database in ("sqlite", "postgres")]
        for test in (
            "workers_without_names_take_over_from_each_other",
            "one_run_that_kills_its_workers_is_quarantined_and_its_neighbours_finish",
            "no_innocent_run_is_quarantined_however_many_workers_are_killed",
            "one_command_continues_all_runs_that_failed_in_an_outage",
            "workflows_with_turns_survive_kills_and_stops",
        )
    )
    takeover = "{median:.1f} s and {longest:.1f} s"
    return [
        (
            f"{workers[0]['kills']} kills and {workers[0]['stops']} stops of workers",
            *(f"all {soak['runs']} runs right" for soak in workers),
        ),
        (
            "takeover after a kill, median and longest",
            *(takeover.format(**soak["takeovers_after_kill"]) for soak in workers),
        ),
        (
            "takeover after a stop, median and longest",
            *(takeover.format(**soak["takeovers_after_stop"]) for soak in workers),
        ),
        (
            f"time of other runs next to one that kills {poison[0]['deaths']} workers, and without it",
            *(f"{soak['seconds']:.0f} s and {soak['undisturbed_seconds']:.0f} s" for soak in poison),
        ),
        (
            f"{innocent[0]['kills']} kills, and no run at fault",
            *(f"none of {soak['runs']} runs quarantined" for soak in innocent),
        ),
        (
            f"the model is down for {outages[0]['outage_seconds']:.0f} s, and one command continues what failed",
            *(f"{soak['failed']} runs done after {soak['all_done_seconds']:.0f} s" for soak in outages),
        ),
        (
            f"{own[0]['kills']} kills and {own[0]['stops']} stops of a program with its own DBOS workflows",
            *(f"all {soak['payments']:,} payments made once" for soak in own),
        ),
    ]


def _list_queries() -> list[Iterable[str]]:
    names = ("sqlite", "stock-postgres")
    soaks = [read_soak(f"many_ended_runs_are_listed_shown_counted_and_pruned-{name}") for name in names]
    queries = {
        "`runs list`": "list",
        "`list --state paused`": "list_paused",
        "`list --state failed`": "list_failed",
        "`list --tenant`": "list_tenant",
        "`show`": "show",
        "a scrape of `/metrics`": "scrape",
        "the first chunk of `prune --older-than --prompt`": "first_chunk_of_prune",
    }
    return [
        *((query, *(f"{1000 * soak['seconds'][key]:.1f} ms" for soak in soaks)) for query, key in queries.items()),
        ("workflows deleted per second", *(f"{soak['pruned_per_second']:,}" for soak in soaks)),
        (
            "slowest turn of a worker, alone and during pruning",
            *(f"{soak['slowest_turn_alone']:.2f} s and {soak['slowest_turn_beside_pruning']:.2f} s" for soak in soaks),
        ),
    ]


def _list_batches() -> list[Iterable[str]]:
    memory = read_soak("many_rows_take_no_more_memory_than_few")
    peak = memory["peak_megabytes"]
    shared = read_soak("two_workers_of_which_one_is_killed_finish_every_row_once")
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
            f"{shared['rows']:,} rows, two workers on PostgreSQL, one killed; answers of 0.5 s, 1 % 429, 1 % 500",
            f"{shared['seconds']} s; every row once; {shared['requests']:,} requests; "
            f"{shared['told_as_interrupted']} rows interrupted, {shared['answered_twice']} of them answered twice",
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
