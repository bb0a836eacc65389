"""The version of this checkout does what version 0.1.0 did: results, requests, events and spans of the same scenes."""

import io
import json
import os
import subprocess
import sys
import tarfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.differential.compare import Known, compared

COMMIT = "7046df2fbb9bfd773f227267bf8ff135de1340b1"
ROOT = Path(__file__).parents[2]
SECONDS = 120
_LEFT_OUT = ("PROMPTY_", "OPENAI_", "ANTHROPIC_", "AZURE_")


def old_sources(folder: Path) -> Path:
    """Take the sources of version 0.1.0 from the history."""
    git = ["git", "-C", str(ROOT), "archive", COMMIT, "src"]
    try:
        packed = subprocess.run(git, capture_output=True, check=True, timeout=SECONDS).stdout  # noqa: S603  our own history
    except (OSError, subprocess.CalledProcessError):
        missing = (
            f"The history has no commit {COMMIT}, so there is nothing to compare with. Fetch it: git fetch --unshallow"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def started(sources: Path) -> "subprocess.Popen[str]":
    """Play the scenes in an interpreter that imports the package from these sources."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
    environment = {**kept, "PYTHONPATH": os.pathsep.join([str(sources), str(ROOT)])}
    command = [sys.executable, "-m", "tests.differential.scenes"]
    return subprocess.Popen(  # noqa: S603  our own code
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def shown(process: "subprocess.Popen[str]", sources: Path) -> dict[str, Any]:
    stdout, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, stderr
    output = json.loads(stdout)
    assert Path(output["package"]).is_relative_to(sources), "another version of the package was imported"
    scenes: dict[str, Any] = output["scenes"]
    return scenes


@pytest.mark.process
def test_every_scene_is_the_same_as_in_version_0_1_0(tmp_path: Path) -> None:
    places = [old_sources(tmp_path), ROOT / "src"]
    processes = [started(place) for place in places]
    old, new = [shown(process, place) for process, place in zip(processes, places, strict=True)]
    assert len(old) > 200
    found = compared(old, new)
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:200])


# The comparison itself.

STEP: dict[str, Any] = {
    "verb": "turn",
    "events": [],
    "heard": [{"type": "IterationStarted", "iteration": 1}, {"type": "RunFailed", "error": "why"}],
    "error": {"type": "ModelError", "text": "why", "status": 500},
}
SPAN = {"name": "turn", "error": ["ModelError", "why"], "attributes": {"a": 1}, "inside": []}
SCENE: dict[str, Any] = {"steps": [STEP], "requests": [{"model": "m"}], "spans": [SPAN]}


def changed(**parts: Any) -> dict[str, Any]:
    return {"scene": {**deepcopy(SCENE), **parts}}


CHANGES: dict[str, dict[str, Any]] = {
    "a request": {"requests": [{"model": "n"}]},
    "the number of requests": {"requests": []},
    "the type of an error": {"steps": [{**STEP, "error": {"type": "RequestError", "text": "why", "status": 500}}]},
    "a field of an error": {"steps": [{**STEP, "error": {"type": "ModelError", "text": "why", "status": 400}}]},
    "an event that is missing": {"steps": [{**STEP, "heard": STEP["heard"][1:]}]},
    "a result": {"steps": [{**STEP, "result": 5}]},
    "an attribute of a span": {"spans": [{**SPAN, "attributes": {}}]},
    "a span inside": {"spans": [{**SPAN, "inside": [SPAN]}]},
    "the type of a span's error": {"spans": [{**SPAN, "error": None}]},
}


@pytest.mark.parametrize("parts", CHANGES.values(), ids=CHANGES)
def test_a_change_is_a_difference(parts: dict[str, Any]) -> None:
    assert compared(changed(), changed(**parts), ()) != []


MEANT: dict[str, dict[str, Any]] = {
    "nothing": {},
    "an added event": {"steps": [{**STEP, "heard": [*STEP["heard"], {"type": "ModelRequested"}]}]},
    "an added event of a child": {
        "steps": [{**STEP, "heard": [*STEP["heard"], {"type": "Nested", "event": {"type": "ModelFailed"}}]}]
    },
    "the words of an error": {"steps": [{**STEP, "error": {"type": "ModelError", "text": "how", "status": 500}}]},
    "the words of a span's error": {"spans": [{**SPAN, "error": ["ModelError", "how"]}]},
}


@pytest.mark.parametrize("parts", MEANT.values(), ids=MEANT)
def test_what_may_change_is_no_difference(parts: dict[str, Any]) -> None:
    assert compared(changed(), changed(**parts), ()) == []


def test_a_known_difference_is_none_until_it_is_out_of_date() -> None:
    known = (Known("sce*", "requests", "a reason"),)
    assert compared(changed(), changed(requests=[]), known) == []
    [complaint] = compared(changed(), changed(), known)
    assert "nothing differs any more" in complaint
    assert compared(changed(), changed(spans=[]), known) != []


def test_a_scene_that_only_one_version_has_is_a_difference() -> None:
    assert compared(changed(), {}, ()) == ["scene: only one version has this scene"]
