"""What version 0.1.0 stored still loads and goes on as it did in that version: pauses, sessions, recordings, traces."""

import asyncio
import json
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from prompty import Context, Paused, PromptAgent, PromptyError, load, resume, resume_async, turn
from prompty.durable import use_result
from prompty.events import Done
from prompty.memory import SqliteMemory
from prompty.model.event import Event
from prompty.testing import Player, Recorder, Script
from prompty.viewer.page import render_page
from prompty.viewer.reader import find_traces, read_trace
from tests.artefacts.stored import OLD, TOOLS, WIRES, expected, restore_sqlite
from tests.conversations.turns import assert_history_is_legal
from tests.plain import plain

PAUSED = sorted(file.stem for file in (OLD / "paused").glob("*.json"))
OPTIONS: dict[str, Any] = {
    "fallback": {"fallbacks": ["second"], "max_retries": 0, "context_budget": Context(limit=300)}
}


def done_of(events: list[Event]) -> Done:
    [done] = [event for event in events if isinstance(event, Done)]
    return done


def test_nothing_of_the_old_version_is_missing() -> None:
    assert len(PAUSED) == 9
    assert {"approval", "decided", "partly-answered", "session", "unknown", "fallback"} < set(PAUSED)


@pytest.mark.parametrize("name", PAUSED)
def test_a_paused_value_is_read_and_stored_again(name: str) -> None:
    stored = json.loads((OLD / f"paused/{name}.json").read_text())["paused"]
    paused = Paused.from_json(stored)
    assert [
        {field: getattr(call, field) for field in ("arguments", "id", "key", "name", "needs_approval", "unknown")}
        for call in paused.pending
    ] == stored["pending"]
    assert paused.policy is None, "0.1.0 kept no policies"
    again = json.loads(json.dumps(paused.to_json()))
    assert (again["version"], Paused.from_json(again)) == (2, paused)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", PAUSED)
def test_a_paused_turn_is_resumed_to_the_end_it_had(name: str, asynchronous: bool, tmp_path: Path) -> None:
    stored = expected(f"paused/{name}.json")
    agent, paused = load(OLD / "agents" / stored["agent"]), Paused.from_json(stored["paused"])
    verdicts = [use_result(said["result"]) if isinstance(said, dict) else said for said in stored["verdicts"]]
    memory = SqliteMemory(tmp_path / "sessions.db")
    seen: list[Event] = []
    options: dict[str, Any] = {"tools": TOOLS, "on_event": seen.append, **OPTIONS.get(name, {})}
    if paused.session_id:
        options["memory"] = memory
    inputs = {"question": "?"} if stored["script"] else None
    with Script(*stored["script"]) if stored["script"] else nullcontext(), Recorder(tmp_path / "sent.jsonl") as sent:
        if asynchronous:
            result = asyncio.run(resume_async(agent, paused, verdicts, inputs, **options))
        else:
            result = resume(agent, paused, verdicts, inputs, **options)
    assert result == stored["expected"]["result"]
    assert plain(done_of(seen).messages) == stored["expected"]["messages"]
    assert [json.loads(line)["request"]["body"] for line in sent.path.read_text().splitlines()] == stored["expected"][
        "requests"
    ]
    assert_history_is_legal(done_of(seen).messages)
    if paused.session_id:
        assert [one["role"] for one in memory.load(paused.session_id)] == ["assistant", *["tool"] * 3, "assistant"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_stored_session_goes_on(wire: str, tmp_path: Path) -> None:
    restore_sqlite("sessions.sql", tmp_path / "sessions.db")
    store = SqliteMemory(tmp_path / "sessions.db")
    before = store.load(wire)
    agent = load(OLD / f"agents/picture-{wire}.prompty")
    with Script("Green.") as script:
        assert turn(agent, {"question": "And its colour?"}, tools=TOOLS, memory=store, session_id=wire) == "Green."
    assert script.requests == expected("sessions.expected.json")[wire]
    assert store.load(wire)[: len(before)] == before, "what was stored stays as it was"
    assert [message["role"] for message in store.load(wire)[len(before) :]] == ["user", "assistant"]


def played(agent: PromptAgent, **options: Any) -> dict[str, Any]:
    """One of the turns that were recorded, as the script of that version noted it."""
    seen: list[Event] = []
    question = "Quickly?" if "max_retries" in options else "What?"
    try:
        result: Any = turn(agent, {"question": question}, tools=TOOLS, on_event=seen.append, **options)
        result = result.result if "stream" in options else result
    except PromptyError as error:
        return {"error": type(error).__name__, "messages": plain(error.messages)}
    return {"result": result, "messages": plain(done_of(seen).messages)}


@pytest.mark.parametrize("real", [False, True], ids=["scripted", "provider"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_recording_plays_back(wire: str, real: bool) -> None:
    agent = load(OLD / f"agents/picture-{wire}.prompty")
    if real:
        named = {"provider": "anthropic", "api_type": "chat"} if wire == "messages" else {"provider": "openai"}
        agent = agent.model_copy(update={"model": agent.model.model_copy(update=named)})
    with Player(OLD / f"recordings/{wire}.jsonl"):
        seen = [played(agent, **options) for options in ({}, {"stream": True}, {"stream": True, "max_retries": 0})]
    assert seen == expected(f"recordings/{wire}.expected.json")


FRAME = ("name", "title", "depth", "parent", "duration", "status", "attributes", "content", "error", "usage")


@pytest.mark.parametrize("name", ["trip.tracy", "trip.jsonl"])
def test_a_trace_is_read_and_shown(name: str) -> None:
    trace = read_trace(OLD / "traces" / name)
    frames = [{field: getattr(frame, field) for field in FRAME} for frame in trace.frames]
    assert json.loads(json.dumps(frames)) == expected("traces/expected.json")[name]
    assert trace.runtime == "prompty-python 0.1.0"
    assert "invoke_agent trip" in render_page(trace)


def test_traces_are_found(tmp_path: Path) -> None:
    stems = {"trip.tracy": "trip.20261115.155635.tracy", "trip.jsonl": "trip.20261115.155640.jsonl"}
    for old, new in stems.items():
        shutil.copy(OLD / "traces" / old, tmp_path / new)
    assert [file.name for file in find_traces(tmp_path)] == [stems["trip.jsonl"], stems["trip.tracy"]]


WEIGH = "from prompty import tool\n\n@tool\ndef weigh(word: str) -> str:\n    return f'{len(word)} grams'\n"


@pytest.mark.process
def test_a_batch_that_was_killed_goes_on_with_the_rows_that_are_left(tmp_path: Path) -> None:
    shutil.copytree(OLD / "batch", tmp_path / "batch")
    (tmp_path / "weigh.py").write_text(WEIGH)
    before = (tmp_path / "batch/out.jsonl").read_bytes()
    command = [sys.executable, "-m", "prompty.cli", "batch", "ask.prompty", "rows.jsonl", "-o", "out.jsonl"]
    more = ["-t", "../weigh.py", "--json"]
    run = subprocess.run([*command, *more], cwd=tmp_path / "batch", capture_output=True, text=True, timeout=120)  # noqa: S603  our own command
    assert run.returncode == 0, run.stderr
    after = (tmp_path / "batch/out.jsonl").read_bytes()
    assert after.startswith(before)
    [line] = after.removeprefix(before).splitlines()
    assert (json.loads(line)["inputs"], json.loads(line)["result"]) == ({"word": "slow"}, "It is heavy.")
    failed = (tmp_path / "batch/out.failed.jsonl").read_bytes()
    assert failed == (OLD / "batch/out.failed.jsonl").read_bytes(), "a row that failed is not tried again"
    assert not (tmp_path / "batch/out.started").exists()
