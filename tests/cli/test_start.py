"""Commands start quickly because they import little. Times are measured by `benchmarks.command_start`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prompty.cli.commands import COMMANDS

pytestmark = pytest.mark.process

PROMPT = """---
model: {id: gpt-6-luna, provider: openai}
inputs: {question: {kind: string}}
tools:
  - {name: look_up, kind: function, parameters: {word: {kind: string}}}
---
user:
{{ question }}
"""


def list_modules(*words: str) -> set[str]:
    """Return the modules that a command has imported when it ends."""
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    code += "; from prompty.cli import main; main()"
    done = subprocess.run(  # noqa: S603  our own command
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        env={**os.environ},
        timeout=60,
        check=True,
    )
    return set(done.stderr.split())


def test_help_imports_no_command_and_no_console() -> None:
    loaded = list_modules("--help")
    assert "prompty.cli.app" in loaded
    modules = {f"prompty.cli.{command.target.partition(':')[0]}" for command in COMMANDS.values()}
    assert loaded.isdisjoint({*modules, "rich.console", "jinja2", "yaml", "asyncio", "prompty.model.agent"})


def test_check_imports_nothing_that_only_a_call_needs(tmp_path: Path) -> None:
    prompt = tmp_path / "ask.prompty"
    prompt.write_text(PROMPT)
    loaded = list_modules("check", str(prompt))
    assert {"prompty.analysis.check", "prompty.providers.openai", "jinja2"} <= loaded
    calls = {
        "asyncio",
        "ssl",
        "httpx2",
        "openai",
        "anthropic",
        "prompty.model.event",
        "prompty.loop",
        "prompty.drivers",
    }
    others = {"prompty.cases.case_file", "prompty.pipeline.skills", "prompty.durable", "prompty.batches"}
    assert loaded.isdisjoint(calls | others)


def test_the_collector_is_on_when_a_command_runs(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "import gc\nimport prompty\nassert gc.isenabled()\n@prompty.tool\ndef f() -> str:\n    return ''\n"
    )
    prompt = tmp_path / "hi.prompty"
    prompt.write_text("---\nmodel: {id: m, provider: scripted, script: [Hi]}\n---\nuser:\nHi\n")
    list_modules("run", str(prompt), "--tools", str(tmp_path / "tools.py"), "--all-tools")
