"""Do what README says about a first answer, in a fresh environment, and compare what is printed with README.

    python -m scripts.first_answer

The first `console` block of that section installs from the folder of the checkout. The others run in an empty folder.
The last one asks llama.cpp, so its answer is the model's own and is not compared.
"""

import os
import re
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.real.llama import llama_server, why_not

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SECTION = re.compile(r"^## Get a first answer\n(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
LLAMA_PORT = 8080  # where the profile `llama.cpp` looks for a server
PORT_SECONDS = 60.0


class Step(NamedTuple):
    """A command in README, and what README says that it prints."""

    command: str
    output: str


def read_steps(readme: str) -> list[list[Step]]:
    """Return the commands of each console block of the section."""
    section = SECTION.search(readme)
    if section is None:
        sys.exit("README has no section 'Get a first answer'")
    return [[Step(*found) for found in COMMAND.findall(block)] for block in BLOCK.findall(section[1])]


def run_step(step: Step, folder: Path, environment: dict[str, str]) -> tuple[str, float]:
    """Run a command as a shell does. Return what it printed and the seconds that it took."""
    start = time.monotonic()
    done = subprocess.run(  # noqa: S602  the commands of our own README
        step.command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - start
    print(f"$ {step.command}\n{done.stdout}", end="")
    if done.returncode or done.stderr:
        sys.exit(f"the command failed with {done.returncode}:\n{done.stderr}")
    return done.stdout, seconds


def make_environment(folder: Path) -> dict[str, str]:
    """Create a virtual environment, and return the variables of a shell in which it is active."""
    venv.create(folder, with_pip=True)
    private = ("PYTHONPATH", "OPENAI_", "PROMPTY_", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    return {
        **kept,
        "PATH": f"{folder / 'bin'}{os.pathsep}{kept['PATH']}",
        "PIP_QUIET": "2",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONIOENCODING": "utf-8",
    }


def wait_for_port(port: int) -> None:
    """Wait until nothing listens at a port of this machine."""
    end = time.monotonic() + PORT_SECONDS
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(1)
    sys.exit(f"port {port} is taken: stop what listens there")


def main() -> None:
    """Run the section, and fail if README prints anything else."""
    install, scripted, real = read_steps(README.read_text(encoding="utf-8"))
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        environment = make_environment(folder / "venv")
        work = folder / "empty"
        work.mkdir()
        results = [run_step(step, ROOT, environment) for step in install]
        results += [run_step(step, work, environment) for step in scripted]
        for step, (output, _) in zip([*install, *scripted], results, strict=True):
            if output != step.output:
                sys.exit(f"README says that this is printed:\n{step.output}")
        if reason := why_not():
            if os.environ.get("CI"):
                sys.exit(reason)
            print(f"not run: {real[0].command} ({reason})")
        else:
            wait_for_port(LLAMA_PORT)
            with llama_server(folder, LLAMA_PORT):
                answers = [run_step(step, work, environment) for step in real]
            if any(scripted[-1].output in output for output, _ in answers):
                sys.exit("the answer came from the script, not from llama.cpp")
    seconds = ", ".join(f"{seconds:.1f}" for _, seconds in results)
    total = sum(seconds for _, seconds in results)
    print(f"{len(results)} commands to the first answer: {total:.1f} seconds ({seconds}). README prints the same.")


if __name__ == "__main__":
    main()
