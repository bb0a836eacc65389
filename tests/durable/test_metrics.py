"""What a worker measures, read as Prometheus reads it."""

import re
import time
from pathlib import Path

import pytest
from dbos._schemas.system_database import SystemSchema

from prompty import Paused, PromptAgent
from prompty.durable.dbos_engine import DbosEngine
from prompty.durable.metrics import (
    METRICS,
    READING_SECONDS,
    RunCount,
    WorkerMetrics,
    create_prometheus_meter,
    observe_runs,
)
from prompty.errors import ModelError
from prompty.model.message import Usage
from prompty.testing import Fault, Script, answer, call, register_script
from tests.durable.databases import Databases
from tests.durable.runs import Desk, rounds, scripted, working

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
    with working(f"sqlite:///{tmp_path}/runs.db", Desk().look) as runtime:
        runtime.metrics.attach(prometheus.meter)
        assert runtime.start(agent).result(timeout=SECONDS) == "Done."
    samples = read_samples(prometheus.scrape())
    assert samples["prompty_model_rate_limited_total"] == 1
    assert samples['prompty_tokens_total{gen_ai_token_type="input"}'] == 200
    assert samples['prompty_tokens_total{gen_ai_token_type="output"}'] == 40
    assert samples['prompty_step_duration_seconds_count{prompty_step_kind="model"}'] == 2
    assert samples['prompty_step_duration_seconds_count{prompty_step_kind="tool"}'] == 1


def test_the_queue_is_read_when_the_metrics_are() -> None:
    prometheus = create_prometheus_meter()
    found = [RunCount("waiting", 3, 12.5)]
    observe_runs(prometheus.meter, lambda: found)
    assert read_samples(prometheus.scrape()) == {
        'prompty_runs{prompty_run_state="waiting"}': 3,
        'prompty_runs_oldest_seconds{prompty_run_state="waiting"}': 12.5,
    }
    found[:] = [RunCount("paused", 1, 2.0, {"1h": 1, "older": 0})]
    time.sleep(READING_SECONDS)
    samples = read_samples(prometheus.scrape())
    assert samples['prompty_runs{prompty_run_state="paused"}'] == 1
    assert samples['prompty_runs_paused{prompty_pause_age="1h"}'] == 1
    assert samples['prompty_runs_paused{prompty_pause_age="older"}'] == 0


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
def test_paused_runs_are_counted_by_how_long_they_wait(kind: str, databases: Databases) -> None:
    with working(databases.new(kind), Desk().look) as runtime:
        assert isinstance(runtime.engine, DbosEngine)
        days = {"new": 0.0, "of today": 0.5, "of the week": 3, "old": 30, "older still": 300}
        for run_id in days:
            paused = runtime.start(scripted(rounds("look", 1, 1)), run_id=run_id, approval="always")
            assert isinstance(paused.result(timeout=SECONDS), Paused)
        workflows = SystemSchema.workflow_status
        with runtime.engine.client._sys_db.engine.begin() as connection:
            for run_id, age in days.items():
                moment = int((time.time() - age * 86_400) * 1000)
                row = workflows.update().where(workflows.c.workflow_uuid == run_id)
                connection.execute(row.values(completed_at=moment))
        [paused_runs] = [count for count in runtime.engine.count_runs() if count.state == "paused"]
    assert paused_runs.ages == {"1h": 1, "1d": 1, "7d": 1, "older": 2}
    assert paused_runs.runs == 5
