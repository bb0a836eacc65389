"""See from outside what a command does: every program that it starts, and every connection that it opens."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

NEEDED = "what a command starts is seen with strace, which is not installed; run: apt-get install strace"
SECONDS = 120
_STARTED = re.compile(r'execve\("([^"]+)".* = 0$')


class Seen(NamedTuple):
    """The programs that a command started, the connections that it opened, its exit code and its output."""

    programs: list[str]
    connections: list[str]
    code: int
    output: str


def watch(
    command: Sequence[str], folder: Path, trace: Path, *, env: Mapping[str, str] | None = None, given: bytes = b""
) -> Seen:
    """Run a command in a folder under strace. Skip the test if there is none."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip(NEEDED)
    watched = [
        strace,
        "--follow-forks",
        "--seccomp-bpf",
        "--quiet=all",
        "--trace=execve,connect",
        f"--output={trace}",
        *command,
    ]
    done = subprocess.run(  # noqa: S603  our own commands
        watched, cwd=folder, env={**os.environ, **(env or {})}, input=given, capture_output=True, timeout=SECONDS
    )
    lines = trace.read_text(errors="replace").splitlines()
    programs = [found[1] for line in lines if (found := _STARTED.search(line))]
    connections = [line for line in lines if "connect(" in line]
    return Seen(programs, connections, done.returncode, (done.stdout + done.stderr).decode(errors="replace"))
