"""The example project with sixty cases, three models and two variants, offline; and the cost of the runner."""

import json
import socket
import time
from pathlib import Path
from statistics import median
from typing import NoReturn

import pytest

import prompty
from prompty.cases.comparison import get_baseline_path, get_case_key, read_baseline
from prompty.cases.plan import get_recording_path, plan_trials
from prompty.cases.reading import read_suite
from prompty.cases.runner import Runner, RunnerOptions
from prompty.cli.test import find_test_files
from tests.machine import time_factor

EXAMPLE = Path(__file__).parents[2] / "examples" / "test-matrix"
PROMPTS, CASES, MODELS, VARIANTS = 5, 60, 3, 2
SECONDS = 5.0
MAX_BYTES = 500_000


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.timing
@pytest.mark.usefixtures("no_network")
def test_the_example_project_runs_offline_within_seconds_with_the_verdicts_of_its_baselines() -> None:
    started = time.process_time()
    suites = [read_suite(file) for file in find_test_files([EXAMPLE])]
    results = Runner(RunnerOptions()).run(list(plan_trials(suites)))
    assert time.process_time() - started < SECONDS * time_factor()
    assert (len(suites), sum(len(suite.cases) for suite in suites)) == (PROMPTS, CASES)
    assert len({result.model for result in results}) == MODELS
    assert len({result.variant for result in results}) == VARIANTS
    assert len(results) == CASES * MODELS * VARIANTS
    for suite in suites:
        own = {get_case_key(result): result.status for result in results if result.suite == suite.label}
        assert own == read_baseline(get_baseline_path(suite.path, suite.name))


def test_every_recording_of_the_example_project_belongs_to_a_case_and_all_are_small() -> None:
    trials = plan_trials(read_suite(file) for file in find_test_files([EXAMPLE]))
    expected = {get_recording_path(trial) for trial in trials if trial.case.expect.replay}
    found = set((EXAMPLE / "recordings").rglob("*.jsonl"))
    assert found == expected
    assert sum(file.stat().st_size for file in found) < MAX_BYTES


PROMPT = """\
---
name: support
model: {id: m, provider: openai}
inputs:
  customer: {kind: string}
  question: {kind: string}
  documents: {kind: array}
---
system:
You are the support of a shop for books. Answer in the language of the customer.
{% if customer %}
You talk to {{customer}}.
{% endif %}
Use only these documents:
{% for document in documents %}
## {{document.title}}
{{document.text}}
{% endfor %}
user:
{{question}}
"""


@pytest.mark.timing
def test_ten_thousand_cases_cost_at_most_half_as_much_again_as_preparing_them(tmp_path: Path) -> None:
    """Both have their inputs in memory. Chunks take turns, so that a busy machine slows both down."""
    documents = [{"title": f"Document {number}", "text": "Books are sent within two days. " * 5} for number in range(6)]
    (tmp_path / "support.prompty").write_text(PROMPT)
    (tmp_path / "rows.jsonl").write_text(
        "\n".join(
            json.dumps({"customer": "Ada", "question": f"Where is order {number}?", "documents": documents})
            for number in range(1000)
        )
    )
    (tmp_path / "support.test.yaml").write_text(
        "defaults: {expect: {render: {contains: Ada}}}\ncases: ${file:rows.jsonl}\n"
    )
    suite = read_suite(tmp_path / "support.test.yaml")
    agent, runner = prompty.load(tmp_path / "support.prompty"), Runner(RunnerOptions())
    trials = list(plan_trials([suite])) * 10
    kept, ratios = [], []
    for start in range(0, len(trials), 250):
        chunk = trials[start : start + 250]
        started = time.process_time()
        for trial in chunk:
            prompty.prepare(agent, trial.case.inputs)
        middle = time.process_time()
        kept += runner.run(chunk)
        ratios.append((time.process_time() - middle) / (middle - started))
    assert len(kept) == 10_000
    assert {result.status for result in kept} == {"passed"}
    assert median(ratios) <= 1.5 * time_factor()
