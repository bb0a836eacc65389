"""A folder with a prompt and its test file, for tests of `prompty test`."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prompty.cases.plan import plan_trials
from prompty.cases.reading import Suite, read_suite
from prompty.cases.results import TrialResult
from prompty.cases.runner import Runner, RunnerOptions
from prompty.cases.trial import Mode

LIVE = Mode(level="live", live=True)
RECORD = Mode(level="live", live=True, record=True)
RECORD_MISSING = Mode(record=True)

GREET = """\
---
name: greet
model:
  id: gpt-test
  provider: openai
  options: {temperature: 0.2, topK: 3}
inputs:
  name: {kind: string}
---
system:
You greet people.
user:
Greet {{name}}.
"""


def write_suite(folder: Path, cases: str, prompt: str = GREET, name: str = "greet") -> Suite:
    """Write a prompt and its test file, and read them."""
    (folder / f"{name}.prompty").write_text(prompt, encoding="utf-8")
    file = folder / f"{name}.test.yaml"
    file.write_text(textwrap.dedent(cases), encoding="utf-8")
    return read_suite(file)


def run_suites(*suites: Suite, models: Sequence[str] = (), **options: Any) -> list[TrialResult]:
    """Run all cases of some suites with these options of a runner."""
    runner = Runner(RunnerOptions(**options))
    return runner.run(list(plan_trials(suites, models=models)))


def run_only_case(folder: Path, cases: str, prompt: str = GREET, **options: Any) -> TrialResult:
    """Run the only case of a file."""
    [result] = run_suites(write_suite(folder, cases, prompt), **options)
    return result
