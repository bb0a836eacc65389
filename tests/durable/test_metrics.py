"""What a worker measures, read as Prometheus reads it."""

import asyncio
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from prompty import PromptAgent, Usage, tool
from prompty.durable import Runs, Worker
from prompty.durable.database import RUNS
from prompty.durable.metrics import (
    METRICS,
    READING_SECONDS,
    RunCount,
    WorkerMetrics,
    create_prometheus_meter,
    observe_runs,
)
from prompty.durable.worker import WATCH_SECONDS
from prompty.errors import ModelError
from prompty.testing import Fault, Script, answer, call, register_script
from tests.batch.folder import until
from tests.durable.databases import Databases
from tests.durable.runs import Desk, scripted

SECONDS = 30


def read_samples(text: bytes) -> dict[str, float]:
    """Return the value of each sample, without what OpenTelemetry adds about itself."""
    samples = {}
    for line in text.decode().splitlines():
        if line.startswith("prompty_"):
            name, _, value = line.rpartition(" ")
            samples[re.sub(r'otel_scope_\w+="[^"]*",?', "", name).replace(",}", "}").replace("{}", "")] = float(value)
    return samples


def test_a_run_leaves_its_steps_tokens_and_refusals_in_the_metrics(tmp_path: Path) -> None:
    busy = Fault(ModelError("slow down", status=429, retryable=True, retry_after=0.01))
    usage = Usage(input_tokens=100, output_tokens=20)
    register_script(
        "metered", Script(busy, answer("", call("look", at="a"), usage=usage), answer("Done.", usage=usage))
    )
    agent = PromptAgent.model_validate(
        {"model": {"id": "metered", "provider": "scripted"}, "instructions": "user:\nHi"}
    )
    prometheus = create_prometheus_meter()
    with Worker(f"sqlite:///{tmp_path}/runs.db", tools=[Desk().look]) as worker:
        worker.metrics.attach(prometheus.meter)
        assert worker.runs.result(worker.runs.submit(agent, tools=["look"]), timeout=SECONDS) == "Done."
        with pytest.raises(ModelError):  # its script is used up
            worker.runs.result(worker.runs.submit(agent), timeout=SECONDS)
    samples = read_samples(prometheus.scrape())
    assert samples["prompty_model_rate_limited_total"] == 1
    assert samples['prompty_tokens_total{gen_ai_token_type="input"}'] == 200
    assert samples['prompty_tokens_total{gen_ai_token_type="output"}'] == 40
    assert samples['prompty_step_duration_seconds_count{prompty_step_kind="model"}'] == 2
    assert samples['prompty_step_duration_seconds_count{prompty_step_kind="tool"}'] == 1
    for outcome in ("done", "failed"):
        assert samples[f'prompty_runs_ended_total{{prompty_run_outcome="{outcome}"}}'] == 1
        assert samples[f'prompty_run_duration_seconds_count{{prompty_run_outcome="{outcome}"}}'] == 1
        assert 0 < samples[f'prompty_run_duration_seconds_sum{{prompty_run_outcome="{outcome}"}}'] < SECONDS


def test_a_run_that_is_cancelled_while_it_runs_is_counted_once(tmp_path: Path) -> None:
    begun = threading.Event()

    @tool
    async def wait() -> str:
        """Wait for nobody."""
        begun.set()
        await asyncio.sleep(SECONDS)
        return ""

    prometheus = create_prometheus_meter()
    with Worker(f"sqlite:///{tmp_path}/runs.db", tools=[wait]) as worker:
        worker.metrics.attach(prometheus.meter)
        run_id = worker.runs.submit(scripted([[{"call": "wait", "arguments": {}}], "Done."]), tools=["wait"])
        assert begun.wait(SECONDS)
        worker.runs.cancel(run_id)
        until(lambda: worker.life is not None and not worker.life.executions)
        time.sleep(WATCH_SECONDS)
    assert read_samples(prometheus.scrape())['prompty_runs_ended_total{prompty_run_outcome="cancelled"}'] == 1


def test_the_queue_is_read_when_the_metrics_are() -> None:
    prometheus = create_prometheus_meter()
    found = [RunCount("waiting", 3, 12.5)]
    observe_runs(prometheus.meter, lambda: found)
    assert read_samples(prometheus.scrape()) == {
        'prompty_runs{prompty_run_state="waiting"}': 3,
        'prompty_runs_oldest_seconds{prompty_run_state="waiting"}': 12.5,
    }
    found[:] = [RunCount("paused", 1, 2.0)]
    time.sleep(READING_SECONDS)
    assert read_samples(prometheus.scrape())['prompty_runs{prompty_run_state="paused"}'] == 1


def test_every_counter_reports_to_every_meter() -> None:
    first, second = create_prometheus_meter(), create_prometheus_meter()
    metrics = WorkerMetrics()
    metrics.count("prompty.workers.lost")  # before a meter is there, which loses it
    metrics.attach(first.meter)
    metrics.attach(second.meter)
    counters = [name for name, metric in METRICS.items() if metric.kind == "counter"]
    for name in counters:
        metrics.count(name, 2)
    for prometheus in (first, second):
        assert read_samples(prometheus.scrape()) == {f"{name.replace('.', '_')}_total": 2 for name in counters}


def test_the_reference_lists_every_metric_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(prompty[\w.]+)` \| `\w+` \| (\w+) \| (.+)\. \|$", page, re.MULTILINE)
    described = [
        (name, metric.kind, metric.description[:-1] + (f", by `{metric.attribute}`" if metric.attribute else ""))
        for name, metric in METRICS.items()
    ]
    assert rows == described


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.database)])
def test_runs_are_counted_by_state_with_the_age_of_the_oldest(kind: str, databases: Databases) -> None:
    days = {"new": 0.0, "old": 30, "older still": 300}
    with Runs(databases.new(kind)) as runs:
        for run_id, age in days.items():
            runs.submit(scripted(["Done."]), run_id=run_id)
            runs.table.change(run_id, "paused", segment=1)
            runs.table.update(run_id, since=int((time.time() - age * 86_400) * 1000))
        runs.submit(scripted(["Done."]), run_id="waiting")
        runs.submit(scripted(["Done."]), run_id="poison")
        runs.table.change("poison", "quarantined", segment=0)
        counts = {count.state: count for count in runs.count_runs()}
    assert {state: count.runs for state, count in counts.items()} == {
        "waiting": 1,
        "running": 0,
        "paused": 3,
        "quarantined": 1,
    }
    assert counts["paused"].oldest > 299 * 86_400


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.database)])
def test_a_scrape_reads_no_run_that_has_ended(kind: str, databases: Databases) -> None:
    """Its plan is that of an index by state, however many runs have ended."""
    ended = [
        {"id": f"e{n}", "prompt": "p", "state": "done", "created": n, "since": n, "segments": 1} for n in range(5000)
    ]
    with Runs(databases.new(kind)) as runs:
        runs.submit(scripted(["Done."]), run_id="waiting")
        with runs.table.engine.begin() as connection:
            connection.execute(RUNS.insert(), [{**row, "deaths": 0, "notice_attempts": 0} for row in ended])
            if kind == "postgres":
                connection.execute(sa.text("ANALYZE dbos.prompty_runs"))
        plans = []

        def explain(connection: sa.Connection, _: object, statement: str, parameters: Any, *__: object) -> None:
            if "prompty_runs" in statement and not statement.startswith("EXPLAIN"):
                prefix = "EXPLAIN" if kind == "postgres" else "EXPLAIN QUERY PLAN"
                cursor = connection.connection.cursor()
                cursor.execute(f"{prefix} {statement}", parameters)
                plans.append(str(cursor.fetchall()))

        sa.event.listen(runs.table.engine, "before_cursor_execute", explain)
        counts = {count.state: count.runs for count in runs.count_runs()}
    assert counts["waiting"] == 1
    assert len(plans) >= 3
    assert [plan for plan in plans if "prompty_runs_state" not in plan] == []
