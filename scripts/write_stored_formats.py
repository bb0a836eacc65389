"""Write what the package stores into a folder, one file of each kind, for the tests of later releases.

    python -m scripts.write_stored_formats tests/stored/0.2.0

The commit that tags a release runs it. `tests/stored` reads the files of every release, and those that are written now.
"""

import asyncio
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dbos import DBOSPortableJSONSerializer

from prompty import ModelError, Paused, PromptAgent, load, tool, trace_to, turn
from prompty.batches.job import BatchJob
from prompty.batches.ledger import Ledger
from prompty.batches.local import LocalBatch
from prompty.batches.provider.journal import End, Journal
from prompty.cases.comparison import write_baseline
from prompty.durable.dbos import turn as durable_turn
from prompty.memory import SqliteMemory
from prompty.providers.endpoint import Endpoint
from prompty.providers.keys import KeyFile
from prompty.testing import Fault, Recorder, Script, answer, call
from prompty.tools.mcp import Pins
from prompty.tracing import Tracer
from prompty.wire.json_bytes import write_bytes
from tests.durable.own import launched

PROMPT = """\
---
name: desk
model: {id: m, provider: scripted}
inputs: {question: {kind: string, required: true}}
---
system:
Be brief.
user:
{{question}}
"""
QUESTION = {"question": "What colour is it?"}
ROWS = b'{"question": "What colour is it?"}\n{"question": "How heavy is it?"}\n'
STARTED_ROW = "0" * 32  # its process died
ACCOUNT = Endpoint(base_url="https://api.openai.com/v1", secrets=("a-key-that-opens-nothing",))


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def _look() -> Any:
    return answer("Let me see.", call("look", at="the box"), reasoning="They want a colour.")


def write_pause(folder: Path) -> None:
    with Script(_look()):
        paused = turn(folder / "desk.prompty", QUESTION, tools=[look], approval="always")
    assert isinstance(paused, Paused)  # noqa: S101  every call needs approval
    (folder / "paused.json").write_bytes(write_bytes(paused.to_json()))


def write_session(folder: Path) -> None:
    memory = SqliteMemory(folder / "sessions.db")
    with Script(_look(), "Green."):
        turn(folder / "desk.prompty", QUESTION, tools=[look], memory=memory, session_id="desk")


def write_recording(folder: Path) -> None:
    busy = Fault(ModelError("busy", status=429, retryable=True, retry_after=0.001))
    with Script(_look(), busy, "Green."), Recorder(folder / "recording.jsonl"):
        turn(folder / "desk.prompty", QUESTION, tools=[look])


def write_traces(folder: Path) -> None:
    """Write the trace of a turn that has ended, and of one whose process died while a tool ran."""
    with TemporaryDirectory() as traces:

        @tool(name="look")
        def look_and_die(at: str) -> str:
            [lines] = Path(traces).glob("*.jsonl")
            shutil.copy(lines, folder / "running.jsonl")
            return look(at)

        trace_to(f"file:{traces}")
        try:
            with Script(_look(), "Green."):
                turn(folder / "desk.prompty", QUESTION, tools=[look_and_die])
        finally:
            Tracer.clear()
        [finished] = Path(traces).glob("*.jsonl")
        shutil.copy(finished, folder / "finished.jsonl")


def batch_job(folder: Path) -> BatchJob:
    """Return the batch over `rows.jsonl`."""
    return BatchJob(
        agent=load(folder / "desk.prompty"),
        rows=folder / "rows.jsonl",
        numbers=range(1, 3),
        output=folder / "batch.jsonl",
        tools=[],
        price=lambda _: None,
        max_concurrency=1,
    )


def write_batch(folder: Path) -> None:
    """Write the ledger of a batch with a row that succeeded, one that failed, and one that was interrupted."""
    (folder / "rows.jsonl").write_bytes(ROWS)
    job = batch_job(folder)
    with Ledger(job.output) as ledger, Script("Green.", Fault(ModelError("no such model", status=404))):
        asyncio.run(LocalBatch(job, ledger).run())
        ledger.begin(STARTED_ROW)


def write_provider_batch(folder: Path) -> None:
    """Write the journal of a provider batch with a chunk in each state."""
    journal = Journal(folder / "provider-batch.jsonl")
    journal.bind(ACCOUNT)
    ends: tuple[End, ...] = ("collected", "lost")
    for how in ends:
        journal.end(journal.begin([how], f"file-{how}", how), how)
    journal.add_batch(journal.begin(["created"], "file-created", "created"), "batch-created")
    journal.begin(["intended"], "file-intended", "intended")
    journal.close()


async def run_desk() -> Any:
    """A workflow that is a turn."""
    asked = [{"call": "look", "arguments": {"at": "the box"}}]
    return await durable_turn(_scripted([asked, "Green."]), tools=[look], approval="always")


def write_workflow(folder: Path) -> None:
    """Write a database of DBOS with a workflow that waits for an approval."""
    with launched(f"sqlite:///{folder}/turns.db", run_desk, serializer=DBOSPortableJSONSerializer()) as program:
        program.start("run_desk", id="paused")
        program.pause("paused")


def _scripted(script: list[Any]) -> PromptAgent:
    model = {"id": "m", "provider": "scripted", "script": script}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nWhat colour is it?"})


def write_baseline_and_keys(folder: Path) -> None:
    KeyFile(folder / "keys.json").write("openai", "a-key-that-opens-nothing")
    write_baseline(folder / "desk.baseline.json", {"is green": "passed", "is heavy [m]": "failed"})


def write_mcp_pins(folder: Path) -> None:
    pins = Pins("library", folder / "mcp-pins.json")
    pins.find_changed({"search": "a", "lend": "b"})
    pins.find_changed({"search": "c"})


WRITERS: list[Callable[[Path], None]] = [
    *(write_pause, write_session, write_recording, write_traces, write_batch, write_provider_batch, write_workflow),
    *(write_baseline_and_keys, write_mcp_pins),
]


def write_formats(folder: Path) -> None:
    """Write all files into a folder that has none of them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "desk.prompty").write_text(PROMPT, encoding="utf-8", newline="\n")
    for write in WRITERS:
        write(folder)


if __name__ == "__main__":
    write_formats(Path(sys.argv[1]))
