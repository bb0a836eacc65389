"""Run a page of the documentation as a reader would: save the files it shows, type its commands, compare the output.

In an output, a line `…` stands for any number of lines, and `…` inside a line for any text. A command that ends in `&`
runs in the background until the next such command, or the end of the page. Commands after it are repeated until they
print what the page says. A Python file that nothing else on its page names must run without an error.

Used by `scripts/run_tutorial.py`, `scripts/write_outputs.py` and `tests/docs`.
"""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scripts.model_server import serve_replies
from scripts.pages import REPLIES, Block, Step, get_fixtures, read_blocks, save_block, save_given

NOWHERE = 0  # the line of a command that its page does not show
_PORT = re.compile(r"(?<=127\.0\.0\.1:)(?:8000|7233)|(?<=--port )(?:8000|7233)")  # of the servers on our pages
_PRIVATE = ("ANTHROPIC_", "AZURE_", "OPENAI_", "OTEL_", "PROMPTY_")
_COMMAND_SECONDS = 120.0
_SERVER_SECONDS = 90.0


@dataclass(frozen=True)
class Outcome:
    """A console block, and what its commands printed."""

    block: Block
    outputs: list[str]

    @property
    def differences(self) -> list[tuple[Step, str]]:
        pairs = zip(self.block.steps, self.outputs, strict=True)
        return [(step, output) for step, output in pairs if not matches(step.output, output)]


def matches(expected: str, actual: str) -> bool:
    """Return whether an output is the expected one, where `…` stands for any text."""
    lines = expected.splitlines(keepends=True)
    parts = [r"(?:.*\n)*?" if line == "…\n" else re.escape(line).replace("…", ".*?") for line in lines]
    return re.fullmatch("".join(parts), actual) is not None


def run_page(page: Path, work: Path, environment: Mapping[str, str]) -> Iterator[Outcome]:
    """Save the files of a page in the folder `work` and run its commands there, in the order of the page."""
    save_given(page, work)
    replies = get_fixtures(page) / REPLIES
    with ExitStack() as stack:
        variables = dict(environment)
        if replies.is_file():
            variables |= _point_to(stack.enter_context(serve_replies(replies)))
        shell = _Shell(work, variables, stack)
        blocks = read_blocks(page)
        for block in blocks:
            save_block(replace(block, text=shell.use_port(block.text)), work)
            if block.steps:
                yield Outcome(block, [shell.run_step(step) for step in block.steps])
            if _stands_alone(block, blocks):
                command = f"python {block.title}"
                yield Outcome(Block("console", None, f"$ {command}\n", NOWHERE), [shell.run(command)])


def _stands_alone(block: Block, blocks: list[Block]) -> bool:
    """Return whether a block is a program that no command or other file of the page names."""
    if block.title is None or not block.title.endswith(".py"):
        return False
    name = re.compile(rf"\b{re.escape(Path(block.title).stem)}\b")
    return not any(name.search(other.text) for other in blocks if other is not block)


def _point_to(url: str) -> dict[str, str]:
    """Return variables that make models of OpenAI, Azure and Anthropic answer from a server on this machine."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "sk-of-a-test",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-of-a-test",
        "AZURE_OPENAI_ENDPOINT": url,
        "AZURE_OPENAI_API_KEY": "sk-of-a-test",
        "ACME_URL": f"{url}/v1",  # a provider that a page makes up
    }


class _Shell:
    """Runs commands in one folder. A free port takes the place of the one that the pages use."""

    def __init__(self, work: Path, environment: dict[str, str], stack: ExitStack) -> None:
        self._work = work
        self._where: dict[str, Any] = {"cwd": work, "env": environment, "stdin": subprocess.DEVNULL}
        self._port = _find_port()
        self._background = stack.enter_context(ExitStack())
        self._waits = False

    def use_port(self, text: str) -> str:
        return _PORT.sub(self._port, text)

    def run_step(self, step: Step) -> str:
        """Run a command. Beside a program in the background, wait until it prints what the page says."""
        end = time.monotonic() + (_SERVER_SECONDS if self._waits else 0)
        output = self.run(step.command)
        while not matches(step.output, output) and time.monotonic() < end:
            time.sleep(1)
            output = self.run(step.command)
        return output

    def run(self, command: str) -> str:
        """Run a command and return what it printed, errors included."""
        line = self.use_port(command)
        if line.endswith(" &"):
            self._background.close()
            self._waits = True
            self._background.enter_context(self._start(line.removesuffix(" &")))
            return ""
        printed: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        try:
            done = subprocess.run(  # noqa: S602  the commands of our own pages
                line, shell=True, **self._where, **printed, text=True, timeout=_COMMAND_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            output = (error.output or b"").decode(errors="replace")
            message = f"`{line}` did not end within {_COMMAND_SECONDS:.0f} s. It printed: {output!r}"
            raise TimeoutError(message) from None
        output = done.stdout.replace(self._port, "8000").replace(str(self._work), "…")
        return output if output.endswith("\n") or not output else f"{output}\n"

    @contextmanager
    def _start(self, line: str) -> Iterator[None]:
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(  # noqa: S603  the commands of our own pages
            ["/bin/sh", "-c", f"exec {line}"], **self._where, **silent
        ) as process:
            try:
                if self._port in line:
                    _wait_for(int(self._port), process)
                yield
            finally:
                process.terminate()


def _find_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _SERVER_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"nothing listens on port {port}")


def make_environment(home: Path, programs: Path | None = None) -> dict[str, str]:
    """Return the variables of a reader's shell: no key, an empty home, and the programs of an environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    folder = programs or Path(sys.executable).parent
    return {
        **kept,
        "PATH": f"{folder}{os.pathsep}{kept['PATH']}",
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8",
        "PY_COLORS": "0",
    }
