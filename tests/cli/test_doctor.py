"""`prompty doctor`: in this environment, and in fresh ones that share the package `prompty` with a distribution of
that name."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from prompty.cli.doctor import print_findings
from tests.loopback import Server, json_reply

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
OTHER = "prompty"  # the distribution with the name of our package
KEY = "sk-nobody-should-see-this"


def run(*command: str | Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return subprocess.run(  # noqa: S603  our own command
        [*map(str, command)],
        capture_output=True,
        text=True,
        env={**environment, "PYTHONIOENCODING": "utf-8", **env},
        timeout=300,
        check=False,
        cwd=cwd,
    )


def doctor(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "prompty", "doctor", *arguments, cwd=cwd, **env)


# Keys, endpoints and extras.


def test_a_sound_environment_has_no_problems(tmp_path: Path) -> None:
    done = doctor(cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("prompty-runtime ")
    assert done.stdout.endswith("no problems\n")


def test_only_all_lists_the_extras_that_are_not_installed(capsys: pytest.CaptureFixture[str]) -> None:
    report: dict[str, Any] = {
        "versions": {},
        "extras": {"openai": [], "otel": ["opentelemetry-sdk"]},
        "keys": [],
        "variables": [],
    }
    report |= {"servers": [], "problems": []}
    print_findings(report, everything=False)
    assert capsys.readouterr().out.startswith("extras: openai (--all lists the others)\nkeys: none")
    print_findings(report, everything=True)
    lacking = "    otel lacks opentelemetry-sdk: pip install 'path/to/prompty-python[otel]'\n"
    assert capsys.readouterr().out.startswith(f"extras: openai\n{lacking}keys: none")


def test_keys_are_named_with_their_places_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"GROQ_API_KEY={KEY}\n")
    stored = subprocess.run(
        [sys.executable, "-m", "prompty", "keys", "set", "mistral"], input=KEY, text=True, check=True, timeout=60
    )
    assert stored.returncode == 0
    set_here = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"https://user:{KEY}@host.example"}
    done = doctor("--json", cwd=tmp_path, **set_here)
    report = json.loads(done.stdout)
    assert report["keys"] == [
        {"name": "openai", "place": "environment variable OPENAI_API_KEY"},
        {"name": "groq", "place": f"GROQ_API_KEY in {tmp_path / '.env'}"},
        {"name": "mistral", "place": str(Path(os.environ["XDG_CONFIG_HOME"]) / "prompty" / "keys")},
    ]
    assert "OPENAI_BASE_URL" in report["variables"]
    assert KEY not in done.stdout + done.stderr + doctor(cwd=tmp_path, **set_here).stdout


def test_a_file_of_keys_that_others_can_read_is_a_problem_with_its_command(tmp_path: Path) -> None:
    file = Path(os.environ["XDG_CONFIG_HOME"]) / "prompty" / "keys"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    file.chmod(0o644)
    done = doctor(cwd=tmp_path)
    assert done.returncode == 1
    assert f"problem: {file} is not read, because other users can read it\n    Run: chmod 700" in done.stdout
    subprocess.run(["/bin/sh", "-c", done.stdout.partition("Run: ")[2].splitlines()[0]], check=True)  # noqa: S603  our own advice
    assert doctor(cwd=tmp_path).returncode == 0


def test_servers_are_asked_only_on_request(tmp_path: Path) -> None:
    with Server() as server:
        server.answer(json_reply({"data": [{"id": "m"}]}), json_reply({"error": {"message": f"no {KEY}"}}, 401))
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{server.url}/v1"}
        assert doctor(cwd=tmp_path, **env).returncode == 0
        assert server.accepted == 0
        assert "openai: reachable, 1 models" in doctor("--connect", cwd=tmp_path, **env).stdout
        refused = doctor("--connect", cwd=tmp_path, **env)
    assert refused.returncode == 1
    assert "problem: openai: " in refused.stdout
    assert KEY not in refused.stdout


# Two distributions with one package.


def write_wheel(folder: Path) -> Path:
    """Write a distribution of the same name as the other one: a package that fails, and a command."""
    files = {
        "prompty/__init__.py": "from prompty.memory import NothingOfThatName\n",
        "prompty/cli/__init__.py": "def main(): raise SystemExit('another command')\n",
        "prompty-99.dist-info/METADATA": "Metadata-Version: 2.1\nName: prompty\nVersion: 99\n",
        "prompty-99.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "prompty-99.dist-info/entry_points.txt": "[console_scripts]\nprompty = prompty.cli:main\n",
    }
    hashes = {
        name: urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=") for name, text in files.items()
    }
    record = [f"{name},sha256={hashes[name]},{len(text)}" for name, text in files.items()]
    wheel = folder / "prompty-99-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr("prompty-99.dist-info/RECORD", "\n".join([*record, "prompty-99.dist-info/RECORD,,", ""]))
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this project."""
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, PYTHONPATH="")
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module", params=["of this test", "of the package index"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the other distribution."""
    folder = tmp_path_factory.mktemp("other")
    if request.param == "of this test":
        return write_wheel(folder)
    done = run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, OTHER)
    if done.returncode:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{OTHER} cannot be downloaded: {done.stderr}")
    [downloaded] = folder.glob("*.whl")
    return downloaded


class Environment:
    """A fresh environment, with the dependencies of this one."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self.folder = folder
        [site] = folder.glob("lib/python*/site-packages")
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return run(self.bin / str(command[0]), *command[1:], cwd=self.folder, PYTHONPATH="")

    def install(self, wheel: Path) -> None:
        done = self.run("python", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel)
        assert done.returncode == 0, done.stderr

    def uninstall(self, name: str) -> None:
        assert self.run("python", "-m", "pip", "uninstall", "--quiet", "-y", name).returncode == 0

    def doctor(self) -> subprocess.CompletedProcess[str]:
        """Run the command, or its module if the command belongs to the other distribution."""
        script = self.bin / "prompty"
        if script.exists() and "prompty_runtime" in script.read_text():
            return self.run("prompty", "doctor")
        return self.run("python", "-m", "prompty_runtime", "doctor")

    def take_advice(self, done: subprocess.CompletedProcess[str]) -> None:
        """Run the command that the doctor recommends, and see that it was right."""
        advice = (done.stdout + done.stderr).partition("Run: ")[2].splitlines()[0]
        assert run("/bin/sh", "-c", advice, PYTHONPATH="").returncode == 0, advice
        cured = self.run("prompty", "doctor")
        assert (cured.returncode, cured.stderr) == (0, "")
        assert cured.stdout.endswith("no problems\n")


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    yield Environment(tmp_path / "environment")
    shutil.rmtree(tmp_path / "environment", ignore_errors=True)


@pytest.mark.nightly
def test_the_other_distribution_installed_before_ours(environment: Environment, wheel: Path, other: Path) -> None:
    environment.install(other)
    environment.install(wheel)
    done = environment.doctor()
    assert done.returncode == 1
    assert "installs the package `prompty`, too" in done.stdout
    assert "uninstalling it alone would delete files of ours" in done.stdout
    environment.take_advice(done)


@pytest.mark.nightly
def test_the_other_distribution_installed_after_ours(environment: Environment, wheel: Path, other: Path) -> None:
    environment.install(wheel)
    assert environment.doctor().returncode == 0
    environment.install(other)
    done = environment.doctor()
    assert done.returncode == 1
    assert "has overwritten or removed" in done.stderr
    assert "pip uninstall -y prompty && " in done.stderr
    environment.take_advice(done)


@pytest.mark.nightly
def test_the_other_distribution_uninstalled_after_ours(environment: Environment, wheel: Path, other: Path) -> None:
    environment.install(other)
    environment.install(wheel)
    environment.uninstall("prompty")
    done = environment.doctor()
    assert done.returncode == 1
    assert "are missing or changed, for example" in done.stderr
    environment.take_advice(done)


@pytest.mark.nightly
def test_any_command_names_the_problem_if_the_package_cannot_start(
    environment: Environment, wheel: Path, tmp_path: Path
) -> None:
    environment.install(wheel)
    environment.install(write_wheel(tmp_path))
    done = environment.run("python", "-m", "prompty_runtime", "--version")
    assert done.returncode == 1
    assert "problem: prompty 99 has overwritten or removed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_a_script_called_like_the_package_is_named(environment: Environment, wheel: Path) -> None:
    environment.install(wheel)
    (environment.folder / "prompty.py").write_text("")
    done = environment.run("python", "-m", "prompty_runtime", "doctor")
    assert done.returncode == 1
    assert f"`import prompty` finds {environment.folder / 'prompty.py'}" in done.stderr
    assert "Rename that file or folder" in done.stderr


def test_the_metadata_declare_the_names_that_are_imported(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    assert [line for line in lines if line.startswith("Import-Name")] == [
        "Import-Name: prompty",
        "Import-Name: prompty_runtime",
    ]
