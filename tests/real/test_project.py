"""The example project with sixty cases, three models and two variants: live, and recorded from a llama.cpp server."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.real.seeds import serve_seeds

EXAMPLE = Path(__file__).parents[2] / "examples" / "test-matrix"
MODELS = [f"openai:smollm2-seed-{number}" for number in (1, 2, 3)]
RESULTS = 360
SECONDS = 300


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy the project, without what an earlier run left."""
    leave = shutil.ignore_patterns("recordings", "*.baseline.json")
    return Path(shutil.copytree(EXAMPLE, tmp_path / "project", ignore=leave))


def run(project: Path, url: str, *words: str) -> list[dict[str, Any]]:
    """Run `prompty test` with the models of a server, and return its results."""
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "none",
        "XDG_STATE_HOME": str(project.parent / "state"),
    }
    command = [sys.executable, "-m", "prompty.cli", "test", "--json", *words]
    done = subprocess.run(  # noqa: S603  our own command
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    assert len(results) == RESULTS
    return results


def list_verdicts(results: list[dict[str, Any]]) -> list[object]:
    """Return what must be the same in two runs: the verdict and the answer of each result."""
    names = ("suite", "case", "variant", "model", "status")
    return [[*(result[name] for name in names), result["runs"][0]["answer"]] for result in results]


def test_the_project_runs_live_and_its_recordings_repeat_every_verdict(project: Path, url: str) -> None:
    """The made-up model writes nonsense, so cases fail. But each gets an answer, and offline the same one."""
    with serve_seeds(url) as models:
        live = run(project, models, "--live")
        recorded = run(project, models, "--record")
    assert {result["status"] for result in live} == {"passed", "failed"}
    assert {result["status"] for result in recorded} == {"passed", "failed"}
    answers = {model: [one["runs"][0]["answer"] for one in live if one["model"] == model] for model in MODELS}
    assert answers[MODELS[0]] != answers[MODELS[1]] != answers[MODELS[2]]
    assert list_verdicts(run(project, "http://127.0.0.1:9")) == list_verdicts(recorded)
