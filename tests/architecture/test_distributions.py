"""A release holds the files that we mean to publish, and its metadata names what it installs."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from prompty.safety.yaml import read_yaml
from prompty.version import __version__
from scripts.check_dist import BESIDE_SOURCES, METADATA, find_surprises, list_tracked, read_sdist, read_wheel

ROOT = Path(__file__).parents[2]
SOURCES = {"src/prompty/__init__.py", "src/prompty/py.typed", "src/prompty_runtime/command.py"}
WHEEL = {name.removeprefix("src/") for name in SOURCES} | {f"dist-info/{name}" for name in METADATA}
SDIST = SOURCES | BESIDE_SOURCES
PINNED = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8").replace("\\\n", "").splitlines()


def test_the_files_of_the_repository_are_no_surprise() -> None:
    assert find_surprises(WHEEL, SDIST, SOURCES) == []


@pytest.mark.parametrize(
    ("wheel", "sdist", "tracked", "sentence"),
    [
        ({"prompty/.env"}, set(), set(), "the wheel has prompty/.env, which is not a file of the repository"),
        ({"tests/x.py"}, set(), set(), "the wheel has tests/x.py, which is not a file of the repository"),
        (set(), {"tests/x.py"}, set(), "the sdist has tests/x.py, which is not a file of the repository"),
        (set(), set(), {"src/prompty/x.py"}, "the wheel lacks prompty/x.py"),
        (set(), set(), {"schemas/x.json"}, "the sdist lacks schemas/x.json"),
    ],
)
def test_a_surprise_is_named(wheel: set[str], sdist: set[str], tracked: set[str], sentence: str) -> None:
    assert sentence in find_surprises(WHEEL | wheel, SDIST | sdist, SOURCES | tracked)


@pytest.mark.process
def test_a_wheel_and_an_sdist_hold_the_tracked_files_and_their_metadata(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)  # noqa: S603  our own package
    [wheel], [sdist] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    assert find_surprises(read_wheel(wheel), read_sdist(sdist), list_tracked(ROOT, "src", "schemas")) == []
    with zipfile.ZipFile(wheel) as archive:
        metadata = HeaderParser().parsestr(archive.read(f"prompty_runtime-{__version__}.dist-info/METADATA").decode())
    with tarfile.open(sdist) as archive:
        assert archive.getnames()[0].startswith(f"prompty_runtime-{__version__}/")
    assert (metadata["Name"], metadata["Version"]) == ("prompty-runtime", __version__)
    assert metadata.get_all("Import-Name") == ["prompty", "prompty_runtime"]
    assert metadata["License-Expression"] == "MIT"


def test_every_dependency_has_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"], *(name for names in project["optional-dependencies"].values() for name in names)]
    assert len(named) > 20
    assert [name for name in named if "<" not in name and not name.startswith("prompty-runtime[")] == []


def test_every_tool_of_the_groups_is_pinned() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    named = {re.split(r"[\[<>=!~ ]", tool)[0] for tools in groups.values() for tool in tools if isinstance(tool, str)}
    pinned = {canonicalize_name(line.partition("==")[0]) for line in PINNED}
    assert {name for name in named if canonicalize_name(name) not in pinned} == set(), "run make pin"


def test_every_pinned_version_has_hashes_and_setup_requires_them() -> None:
    assert len(PINNED) > 150
    assert [
        line for line in PINNED if not re.fullmatch(r"\S+==\S+( ;[^\\]+?)?( +--hash=sha256:[0-9a-f]{64})+", line)
    ] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--require-hashes --requirement requirements/dev.txt" in makefile


def test_the_job_that_builds_a_release_installs_nothing_but_pinned_files() -> None:
    """The list of parts comes from another job, and what later jobs download must be what was built."""
    workflow: Any = read_yaml((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))[0]
    jobs = workflow["jobs"]
    commands = {name: [step.get("run", "") for step in job.get("steps", ())] for name, job in jobs.items()}
    assert [name for name, run in commands.items() if "make sbom" in run] == ["sbom"]
    assert [name for name, run in commands.items() if "make dist" in run] == ["build"]
    for name, job in jobs.items():
        downloads = [
            step for step in job.get("steps", ()) if step.get("with", {}).get("name") == "dist" and name != "build"
        ]
        compared = [step for step in job.get("steps", ()) if "needs.build.outputs.sums" in str(step.get("env"))]
        assert len(downloads) == len(compared), name
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nsbom: setup\n")[2].partition("\n\n")[0]
    assert "--only-binary :all:" in recipe


def test_the_changelog_has_a_section_for_the_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
