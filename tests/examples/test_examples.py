"""Every example prints what its README shows, without a key, and three of them get answers of a real model, too."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from urllib.request import Request, urlopen

import pytest

from prompty import check
from scripts.pages import Step, read_blocks
from tests.real.llama import llama_server

ROOT = Path(__file__).parents[2] / "examples"
SECONDS = 60
PRIVATE = ("OPENAI_", "PROMPTY_", "MODEL", "OTEL_")
PROGRAMS = (
    "chat",
    "extract",
    "agent",
    "mcp",
    "openapi",
    "approval",
    "batch",
    "tracing",
    "variants",
    "prompt-tests",
    "test-matrix",
    "from-promptfoo",
)
SERVERS = {"openapi": ("service.py", "WEATHER_URL"), "tracing": ("collector.py", "OTEL_EXPORTER_OTLP_ENDPOINT")}
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")

Copy = Callable[[str], Path]


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """Copy an example, as a person does."""

    def copied(name: str) -> Path:
        leave = shutil.ignore_patterns("__pycache__", "*.db*")
        return Path(shutil.copytree(ROOT / name, tmp_path / name, ignore=leave))

    return copied


def read_steps(folder: Path) -> list[Step]:
    """Return the commands that a README shows, but for those that install."""
    steps = [step for block in read_blocks(folder / "README.md") for step in block.steps]
    return [step for step in steps if not step.command.startswith("pip ")]


def make_environment(**variables: str) -> dict[str, str]:
    """Return the variables of a shell that has no key."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1", **variables}


def run(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command of a README as a shell does, and return what it prints."""
    done = subprocess.run(  # noqa: S602  commands of our own pages
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{command}: {done}"
    return done.stdout


class Background:
    """A server of an example, at a port that was free."""

    def __init__(self, command: list[str], folder: Path) -> None:
        environment = make_environment(PORT="0")
        self.process = subprocess.Popen(  # noqa: S603  our own example
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._watchdog = Timer(SECONDS, self.process.kill)
        self._watchdog.start()
        self.url = self._find_url()

    def _find_url(self) -> str:
        seen = []
        for line in self.process.stdout or ():
            if found := ADDRESS.search(line):
                return found[0]
            seen.append(line)
        pytest.fail(f"the server did not start: {seen}")

    def end(self) -> str:
        """Stop the server, and return what it has printed since its address."""
        self._watchdog.cancel()
        self.process.terminate()
        return self.process.communicate(timeout=SECONDS)[0]


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[Background]:
    server = Background(command, folder)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


def play(name: str, folder: Path, environment: Mapping[str, str]) -> None:
    steps = read_steps(folder)
    assert steps
    for step in steps:
        # Calls of one answer run beside each other, so their lines have no order.
        assert sorted(run(step.command, folder, environment).splitlines()) == sorted(step.output.splitlines()), name


@pytest.mark.process
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in SERVERS])
def test_an_example_prints_what_its_readme_shows(name: str, copy: Copy) -> None:
    play(name, copy(name), make_environment())


@pytest.mark.process
@pytest.mark.parametrize("name", SERVERS)
def test_an_example_with_a_server_prints_what_its_readme_shows(name: str, copy: Copy) -> None:
    folder = copy(name)
    program, variable = SERVERS[name]
    with started([sys.executable, program], folder) as server:
        play(name, folder, make_environment(**{variable: server.url}))
        printed = server.end()
    assert printed in (folder / "README.md").read_text(encoding="utf-8")


def post(url: str, body: object) -> str:
    request = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310  a server of this test
    with urlopen(request, timeout=SECONDS) as answer:  # noqa: S310  a server of this test
        return str(answer.read().decode())


@pytest.mark.process
def test_the_web_service_streams_what_its_readme_shows(copy: Copy) -> None:
    folder = copy("web")
    asked, approved = read_steps(folder)
    with started([sys.executable, "-m", "uvicorn", "app:app", "--port", "0"], folder) as server:
        first = post(f"{server.url}/chat", {"question": "Pay my rent."})
        [approval] = re.findall('"id": "([0-9a-f]{32})"', first)
        assert first.replace(approval, "ID") == asked.output
        assert post(f"{server.url}/approvals/{approval}", {"approve": True}) == approved.output


@pytest.mark.real
@pytest.mark.parametrize("name", ["chat", "extract", "batch"])
def test_an_example_gets_answers_from_a_real_model(name: str, copy: Copy, tmp_path: Path) -> None:
    folder = copy(name)
    with llama_server(tmp_path) as url:
        environment = make_environment(MODEL="openai:tiny", OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY="none")
        [*_, step] = read_steps(folder)
        printed = run(step.command, folder, environment)
    assert "script" not in printed
    assert len(printed.splitlines()) >= 2


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.prompty")), ids=lambda file: str(file.relative_to(ROOT)))
def test_the_prompts_of_the_examples_have_no_problems(file: Path) -> None:
    assert [problem for problem in check(file) if problem.severity != "info"] == []


def test_every_example_has_a_readme_and_a_row_in_the_list() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    folders = {file.parent.name for file in ROOT.glob("*/README.md")}
    assert folders == {file.name for file in ROOT.iterdir() if file.is_dir()}
    assert {name for name in folders if f"| [{name}]({name}) |" not in page} == set()
