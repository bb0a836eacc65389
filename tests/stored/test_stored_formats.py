"""Today's readers read what each release has stored, and what the script writes today."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from dbos import DBOS, DBOSPortableJSONSerializer

from prompty import Paused, resume, turn
from prompty.batches.ledger import Ledger
from prompty.batches.local import LocalBatch
from prompty.batches.provider.journal import Journal
from prompty.cases.comparison import read_baseline
from prompty.durable.dbos import answer
from prompty.memory import SqliteMemory
from prompty.providers.keys import KeyFile
from prompty.testing import Player, Script
from prompty.tools.mcp import Pins
from prompty.viewer.trace import read_trace
from scripts.write_stored_formats import ACCOUNT, QUESTION, STARTED_ROW, batch_job, look, run_desk, write_formats
from tests.durable.own import launched

pytestmark = pytest.mark.database

RELEASES = sorted(folder for folder in Path(__file__).parent.iterdir() if (folder / "desk.prompty").exists())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    write_formats(folder)
    return folder


@pytest.fixture(params=[None, *RELEASES], ids=lambda release: release.name if release else "now")
def folder(request: pytest.FixtureRequest, written: Path, tmp_path: Path) -> Path:
    """A copy of the files of a release, or of those that are written now."""
    return shutil.copytree(request.param or written, tmp_path / "stored")


def test_a_pause_is_resumed(folder: Path) -> None:
    paused = Paused.from_json(json.loads((folder / "paused.json").read_text()))
    assert [(call.name, call.arguments) for call in paused.pending] == [("look", {"at": "the box"})]
    with Script("Green.") as script:
        assert resume(folder / "desk.prompty", paused, [True], QUESTION, tools=[look]) == "Green."
    assert [message["role"] for message in script.requests[0]["messages"]] == ["system", "user", "assistant", "tool"]


def test_a_session_goes_on(folder: Path) -> None:
    memory = SqliteMemory(folder / "sessions.db")
    with Script("Heavy.") as script:
        turn(folder / "desk.prompty", {"question": "How heavy?"}, tools=[look], memory=memory, session_id="desk")
    sent = [message["content"] for message in script.requests[0]["messages"]]
    assert sent == ["Be brief.", *QUESTION.values(), "Let me see.", "seen the box", "Green.", "How heavy?"]


def test_a_recording_is_played(folder: Path) -> None:
    with Player(folder / "recording.jsonl"):
        assert turn(folder / "desk.prompty", QUESTION, tools=[look]) == "Green."


def test_traces_are_read(folder: Path) -> None:
    finished, running = read_trace(folder / "finished.jsonl"), read_trace(folder / "running.jsonl")
    assert (finished.root.status, running.root.status) == ("ok", "unfinished")
    assert [trace.count("execute") for trace in (finished, running)] == [2, 1]


def test_a_batch_repeats_no_row_that_it_has(folder: Path) -> None:
    job = batch_job(folder)
    with Ledger(job.output) as ledger, Script() as script:
        assert list(ledger.index.list_interrupted()) == [STARTED_ROW]
        assert asyncio.run(LocalBatch(job, ledger).run())
    assert script.requests == []


def test_a_provider_batch_knows_its_account_and_its_chunks(folder: Path) -> None:
    journal = Journal(folder / "provider-batch.jsonl")
    assert journal.is_bound_to(ACCOUNT)
    assert not journal.is_bound_to(replace(ACCOUNT, secrets=("another-key",)))
    assert journal.lost == [["lost"]]
    chunks = [(chunk.rows, chunk.file, chunk.batch) for chunk in journal.chunks.values()]
    assert chunks == [(["created"], "file-created", "batch-created"), (["intended"], "file-intended", None)]
    journal.close()


def test_a_workflow_that_waits_is_answered_and_goes_on(folder: Path) -> None:
    with launched(f"sqlite:///{folder}/turns.db", run_desk, serializer=DBOSPortableJSONSerializer()) as program:
        assert [call.name for call in program.pause("paused").pending] == ["look"]
        answer(DBOS, "paused", [True])
        assert program.result("paused") == "Green."


def test_a_baseline_is_read(folder: Path) -> None:
    assert read_baseline(folder / "desk.baseline.json") == {"is green": "passed", "is heavy [m]": "failed"}


def test_keys_are_read(folder: Path) -> None:
    folder.chmod(0o700)
    (folder / "keys.json").chmod(0o600)  # git keeps no such mode
    assert KeyFile(folder / "keys.json").read("openai") == "a-key-that-opens-nothing"


def test_pinned_mcp_tools_are_read(folder: Path) -> None:
    assert Pins("library", folder / "mcp-pins.json").find_changed({"search": "c", "lend": "b"}) == {"search"}
