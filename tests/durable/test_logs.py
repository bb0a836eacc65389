"""What a worker logs: which run and which call a record belongs to, and never what a run says."""

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from prompty import ToolContext, tool
from prompty.durable import Runs, Worker
from prompty.durable.logs import JsonLines, TextLines
from prompty.safety.redaction import remember_secrets
from tests.batch.folder import until
from tests.durable.runs import scripted

SECONDS = 30.0
PRIVATE = "a private word"


@tool
async def look(at: str, context: ToolContext) -> str:
    """Look at something."""
    context.logger.info("looking")
    return f"seen {at}"


@tool
def count(at: str, context: ToolContext) -> str:
    """Count on another thread."""
    context.logger.info("counting")
    return "3"


CALLS = [{"call": "look", "arguments": {"at": PRIVATE}}, {"call": "count", "arguments": {"at": PRIVATE}}]


def test_records_have_the_run_and_the_call_also_those_of_tools(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with caplog.at_level(logging.INFO, "prompty"), Worker(url, tools=[look, count]) as worker:
        for run_id in ("first", "second"):
            worker.runs.submit(scripted([CALLS, PRIVATE]), run_id=run_id, tools=["look", "count"])
            worker.runs.result(run_id, timeout=SECONDS)
        logging.getLogger("prompty").info("not of a run")
    lines = [
        json.loads(JsonLines("w").format(record)) for record in caplog.records if record.name.startswith("prompty")
    ]
    for run_id in ("first", "second"):
        own = [line for line in lines if line.get("run_id") == run_id]
        assert [line["message"] for line in own if "call" not in line] == ["The run begins.", "The run is done."]
        assert sorted((line["tool"], line["message"][:8]) for line in own if "call" in line) == [
            ("count", "The call"),
            ("count", "counting"),
            ("look", "The call"),
            ("look", "looking"),
        ]
        assert len({line["call"] for line in own if "call" in line}) == 2
    [other] = [line for line in lines if line["message"] == "not of a run"]
    assert other.keys() == {"time", "level", "logger", "message", "worker"}
    assert PRIVATE not in json.dumps(lines)


def test_a_log_line_has_no_secret_and_no_control_character() -> None:
    remember_secrets(["sk-very-secret-value"])
    record = logging.LogRecord("prompty", logging.INFO, "", 1, "key %s \x1b[31m", ("sk-very-secret-value",), None)
    record.run_id = "a\nb"
    for formatter in (JsonLines("w"), TextLines()):
        text = formatter.format(record)
        assert "sk-very" not in text
        assert "\x1b" not in text
        assert "\n" not in text


@pytest.mark.process
def test_a_worker_prints_one_json_object_per_line(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(
        "from prompty import tool\n\n@tool\nasync def look(at: str) -> str:\n    return at\n"
    )
    url = f"sqlite:///{tmp_path}/runs.db"
    runs = Runs(url)
    command = ["worker", "-t", "functions.py", "--log-format", "json", "--name", "shop", "--drain", "1"]
    process = subprocess.Popen(  # noqa: S603  our own command
        [sys.executable, "-m", "prompty.cli", *command],
        cwd=tmp_path,
        env={**os.environ, "PROMPTY_DATABASE": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        runs.submit(scripted([CALLS[:1], PRIVATE]), run_id="a", tools=["look"])
        until(lambda: runs.get("a").state == "done")
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS)
    runs.close()
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {line["run_id"] for line in lines if "run_id" in line} == {"a"}
    assert {line["worker"] for line in lines} == {"shop"}
    assert [line["tool"] for line in lines if "tool" in line] == ["look"]
    assert PRIVATE not in errors
