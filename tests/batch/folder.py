"""A folder with a prompt, rows and the output of a batch, and the command as a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

PROMPT = """\
---
name: ask
model:
  id: gpt-4o-mini
  provider: openai
  connection: {{kind: key, endpoint: "{url}/v1", apiKey: sk-of-the-batch-0001}}
inputs:
  q: {{kind: string, required: true}}
{more}---
user:
question {{{{q}}}}
"""
Process = subprocess.Popen[str]
SECONDS = 120


class Folder:
    def __init__(self, path: Path, url: str, more: str = "") -> None:
        self.path = path
        self.prompt, self.rows, self.out = path / "ask.prompty", path / "rows.jsonl", path / "out.jsonl"
        self.failed, self.journal = path / "out.failed.jsonl", path / "out.started"
        self.prompt.write_text(PROMPT.format(url=url, more=more))

    def write_rows(self, rows: Iterable[object]) -> None:
        with self.rows.open("w") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")

    def command(self, *words: str) -> list[str]:
        place = [str(self.prompt), str(self.rows), "-o", str(self.out)]
        return [sys.executable, "-m", "prompty.cli", "batch", *place, *words]

    def start(self, *words: str) -> Process:
        return subprocess.Popen(  # noqa: S603  our own code
            self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *words: str, code: int = 0) -> "Said":
        process = self.start("--json", *words)
        stdout, stderr = process.communicate(timeout=SECONDS)
        assert process.returncode == code, stderr
        return Said(stdout, stderr)

    def results(self) -> list[dict[str, Any]]:
        return lines_of(self.out)

    def failures(self) -> list[dict[str, Any]]:
        return lines_of(self.failed)


class Said:
    """What a command has printed."""

    def __init__(self, stdout: str, stderr: str) -> None:
        self.stdout, self.stderr = stdout, stderr

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout)
        return found


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def numbers_of(lines: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(line["row"] for line in lines)


def until(holds: Callable[[], bool], within: float = SECONDS) -> None:
    """Wait for something, but not forever."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
