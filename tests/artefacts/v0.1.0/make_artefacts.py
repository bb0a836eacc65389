"""Write what version 0.1.0 stores, by running version 0.1.0. README.md says how to run this; no test runs it.

It is written against the public names of that version, and stays as it is when they change.
"""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import prompty
from prompty import (
    Budget,
    Context,
    Done,
    DurableRuntime,
    Guardrails,
    ImagePart,
    ModelError,
    Paused,
    PromptAgent,
    PromptyError,
    SqliteMemory,
    Tokens,
    Tracer,
    deny,
    later,
    load,
    resume,
    rewrite,
    tool,
    trace_to,
    turn,
    use_result,
    user,
)
from prompty.testing import Fault, Recorder, Script, answer, call
from prompty.viewer.reading import read_trace

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[2]))
from tests.plain import plain  # noqa: E402  the root of the repository is on the path from here on

AGENTS = HERE / "agents"
SECONDS = 60
SECRETS = {"door": "sesame-0815"}
PIXEL = b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360f8ffff3f0005fe02fea735812e0000000049454e44ae426082"
    )
).decode()


def scripted(script: list[Any], **parts: Any) -> PromptAgent:
    model = {"id": "m", "provider": "scripted", "options": {"additionalProperties": {"script": script}}}
    body = {"instructions": "system:\nBe brief.\nuser:\n{{q}}", "inputs": {"q": "Hi"}}
    return PromptAgent.model_validate({"model": model, **body, **parts})


def asked(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


@tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    if amount == 666:  # the payment in which the worker dies
        await asyncio.sleep(10 * SECONDS)
    return f"paid {amount}"


@tool(idempotent=True)
async def read(page: int) -> str:
    """Read a page, as often as one likes."""
    if page == 666:  # the page at which the worker dies
        await asyncio.sleep(10 * SECONDS)
    return f"page {page}"


TOOLS: list[Any] = [look, pay, read]


def write(name: str, value: object) -> None:
    file = HERE / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=1, ensure_ascii=True, sort_keys=True) + "\n", encoding="utf-8")


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


# Durable runs.


def worker(url: str, folder: Path, **parts: Any) -> DurableRuntime:
    memory = SqliteMemory(folder / "sessions.db")
    return DurableRuntime(url, name="worker", tools=TOOLS, memory=memory, secrets=SECRETS, **parts)


def make_runs(url: str, folder: Path) -> None:
    guardrails = Guardrails(
        input=lambda messages: True, output=lambda message: rewrite(message.text.upper()), tool=lambda seen: True
    )
    with worker(url, folder, gate=lambda calls: [True, deny("not this")], guardrails=guardrails) as runtime:
        agent = scripted([[asked("look", at="a"), asked("look", at="b")], "Done."])
        assert runtime.start(agent, run_id="guarded").result(timeout=SECONDS) == "DONE."
    with worker(url, folder) as runtime:
        make_ended_runs(runtime)
        make_paused_runs(runtime)
    make_killed_runs(url, folder)
    client = DurableRuntime(url, secrets=SECRETS)
    make_queued_runs(client)
    ended = ("guarded", "done", "streamed", "remembered", "answered", "failed", "cancelled", "steered", "paused")
    events = {run_id: [plain(event.event) for event in client.events(run_id)] for run_id in ended}
    states = {run.id: run.state for run in client.list()}
    client.close()
    write("runs/expected.json", {"states": states, "events": events})


def make_ended_runs(runtime: DurableRuntime) -> None:
    rounds = [[asked("look", at="0"), asked("pay", amount=1)], [asked("read", page=2)], "Done."]
    assert runtime.start(scripted(rounds), {"q": "Go."}, run_id="done").result(timeout=SECONDS) == "Done."
    thinking = {"text": "Let me see.", "calls": [asked("look", at="0")], "reasoning": "It may be there."}
    agent = scripted([thinking, "One two three."])
    assert runtime.start(agent, run_id="streamed", stream=True).result(timeout=SECONDS) == "One two three."
    agent = scripted([[asked("look", at="0")], "I shall remember."])
    runtime.start(agent, {"q": "Remember this."}, run_id="remembered", session_id="runs").result(timeout=SECONDS)
    run = runtime.start(scripted(rounds), run_id="answered", approval={"pay": "always"})
    paused = run.result(timeout=SECONDS)
    runtime.answer(paused, [True])
    assert run.result(timeout=SECONDS) == "Done."
    run = runtime.start(scripted([[asked("look", at=str(at))] for at in range(5)]), run_id="failed", max_iterations=2)
    try:
        run.result(timeout=SECONDS)
    except PromptyError:
        pass
    runtime.start(scripted([[asked("pay", amount=666)], "never"]), run_id="cancelled")
    until(lambda: "model:2" in dict(runtime.engine.steps("cancelled")))
    runtime.cancel("cancelled")
    until(lambda: {one.id: one.state for one in runtime.list()}["cancelled"] == "cancelled")
    runtime.start(scripted([[asked("read", page=666)], "Steered."]), run_id="steered", steering=True, tool_timeout=2)
    runtime.steer("steered", "In euros, please.")
    assert runtime.result("steered", timeout=SECONDS) == "Steered."


def make_paused_runs(runtime: DurableRuntime) -> None:
    rounds = [[asked("look", at="0"), asked("pay", amount=120), asked("pay", amount=7)], "Settled."]
    approval = {"pay": {"when": {"amount": {"minimum": 100}}}}
    paused = runtime.start(scripted(rounds), run_id="paused", approval=approval).result(timeout=SECONDS)
    assert isinstance(paused, Paused)
    options: Any = {"approval": "always", "session_id": "paused runs", "stream": True}
    paused = runtime.start(scripted(rounds), {"q": "Pay."}, run_id="paused-session", **options).result(timeout=SECONDS)
    assert isinstance(paused, Paused)


KILLED = {
    "running": ([[asked("look", at="0")], [asked("pay", amount=666), asked("look", at="1")], "Recovered."], {}),
    "running-idempotent": ([[asked("look", at="0")], [asked("read", page=666)], "Recovered."], {}),
    "running-streamed": (
        [{"text": "One moment.", "calls": [asked("look", at="0")]}, [asked("read", page=666)], "Recovered."],
        {"stream": True, "session_id": "killed runs"},
    ),
}


def make_killed_runs(url: str, folder: Path) -> None:
    process = subprocess.Popen([sys.executable, __file__, "worker", url, str(folder)])
    client = DurableRuntime(url)

    def steps(run_id: str) -> set[str]:
        known = {one.id for one in client.list()}
        return {step.name for step in client.engine.steps(run_id)} if run_id in known else set()

    until(lambda: "tool:running:2:1" in steps("running"))
    until(lambda: all(sum(name.startswith("model:") for name in steps(one)) == 2 for one in KILLED))
    time.sleep(0.5)  # now each of them is inside the tool that hangs
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    client.close()


def work(url: str, folder: Path) -> None:
    """Work on the runs that hang, until killed."""
    runtime = worker(url, folder)
    runtime.open()
    for run_id, (script, options) in KILLED.items():
        runtime.start(scripted(script), {"q": "Go."}, run_id=run_id, **options)
    signal.pause()


def make_queued_runs(client: DurableRuntime) -> None:
    rounds = [[asked("look", at="0"), asked("pay", amount=5)], "Run at last."]
    names = ["look", "pay"]
    client.start(scripted(rounds), {"q": "When you can."}, run_id="queued", tools=names, priority=3)
    # a model of which the price is known, for the budget in dollars
    priced: Any = scripted(rounds).model_dump(by_alias=True, exclude_none=True)["model"]
    priced |= {"id": "gpt-4o-mini", "connection": {"kind": "anonymous", "endpoint": "https://api.openai.com/v1"}}
    client.start(
        scripted([], model=priced),
        run_id="queued-options",
        tools=names,
        tool_execution="sequential",
        max_parallel=2,
        tool_timeout=30.0,
        max_iterations=4,
        budget=Budget(tokens=10_000, cost=Decimal("1.50"), seconds=300.0),
        max_retries=1,
        timeout=30.0,
        fallbacks=["gpt-4o"],
        context_budget=Tokens(4000),
        messages=[user("What does it look like?", ImagePart(PIXEL, "image/png", "low"))],
        session_id="queued runs",
        stream=True,
        steering=True,
    )
    inputs = {"q": "Who?", "word": SECRETS["door"]}
    sensitive = scripted(
        ["Open."],
        inputs={"q": {"kind": "string"}, "word": {"kind": "string", "sensitive": True}},
        instructions="user:\n{{q}} {{word}}",
    )
    client.start(sensitive, inputs, run_id="queued-secret")


def unknown_paused(folder: Path) -> Paused:
    """The pause of a call that had begun when its worker died, from a copy of the database."""
    with (
        closing(sqlite3.connect(folder / "runs.db")) as source,
        closing(sqlite3.connect(folder / "copy.db")) as target,
    ):
        source.backup(target)
    (folder / "copy").mkdir()
    with worker(f"sqlite:///{folder}/copy.db", folder / "copy") as runtime:
        paused = runtime.result("running", timeout=SECONDS)
    assert isinstance(paused, Paused)
    return paused


def dump_sqlite(file: Path, name: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        lines = [*connection.iterdump(), f"PRAGMA user_version = {version};"]
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_sqlite(folder: Path) -> None:
    make_runs(f"sqlite:///{folder}/runs.db", folder)
    dump_sqlite(folder / "runs.db", "runs/sqlite.sql")


def make_postgres(folder: Path) -> None:
    from tests.durable.databases import Postgres, pgexec  # noqa: PLC0415  the other parts need no server

    server = Postgres()
    server.start()
    try:
        url = server.database()
        make_runs(url, folder)
        options = ["--no-owner", "--no-privileges", "--no-comments", "--inserts", "--rows-per-insert=100", url]
        dumped = pgexec(
            "pg_dump", options, bin_path=server._server.bin_path, user=server._server.system_user, timeout=60
        )
    finally:
        server.remove()
    lines = [line for line in dumped.splitlines() if not line.startswith(("--", "\\")) and line]
    (HERE / "runs/postgresql.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")


# Paused turns.


def make_paused(folder: Path) -> None:
    agent, store = load(AGENTS / "desk.prompty"), SqliteMemory(folder / "paused.db")
    keep_paused("approval", turn(agent, tools=TOOLS, approval={"pay": "always"}), [True, False])
    guardrails = Guardrails(tool=lambda seen: seen.arguments != {"at": "the shelf"} or deny("the shelf is private"))
    decided = turn(agent, tools=TOOLS, gate=lambda calls: [True, later()], guardrails=guardrails)
    keep_paused("decided", decided, [True])
    inputs = {"question": "And again?"}
    remembered = turn(agent, inputs, tools=TOOLS, approval="always", memory=store, session_id="paused")
    keep_paused("session", remembered, [True, True, True], memory=store)
    partly = turn(agent, tools=TOOLS, approval="always")
    one = resume(agent, partly, {partly.pending[1].key: deny("not today")}, tools=TOOLS)
    assert isinstance(one, Paused)
    keep_paused("partly-answered", one, [True, True])
    keep_paused("unknown", unknown_paused(folder), [use_result("paid by hand")], load(AGENTS / "running.prompty"))
    for wire in ("chat", "responses", "messages"):
        make_reasoning_pause(wire)
    make_standing_pause()


def make_reasoning_pause(wire: str) -> None:
    """A pause after a thought: what the provider wants back with the next request is in it."""
    agent = load(AGENTS / f"picture-{wire}.prompty")
    kept = {"chat": {}, "responses": {"encrypted_content": "c2VjcmV0"}, "messages": {"signature": "signed"}}[wire]
    thought = answer("Let me see.", call("look", at="it"), reasoning="There may be more.", **kept)
    with Script(thought):
        paused = turn(agent, {"question": "What?"}, tools=TOOLS, approval="always")
    keep_paused(f"reasoning-{wire}", paused, [True], agent, script=["It is a tree."])


def make_standing_pause() -> None:
    """A pause after another model has stepped in and the conversation was cut."""
    agent = load(AGENTS / "picture-chat.prompty")
    down = Fault(ModelError("overloaded", status=529, retryable=True))
    history = [user("first " * 40), prompty.assistant("yes " * 80), user("and now?")]
    options: dict[str, Any] = {"fallbacks": ["second"], "max_retries": 0, "context_budget": Context(limit=300)}
    with Script(down, call("look", at="it")):
        paused = turn(agent, {"question": "?"}, tools=TOOLS, approval="always", messages=history, **options)
    keep_paused("fallback", paused, [True], agent, script=["It is a tree."], **options)


def keep_paused(name: str, paused: Any, verdicts: Any, agent: Any = None, script: Any = None, **options: Any) -> None:
    """Store a pause, and what this version makes of it."""
    assert isinstance(paused, Paused)
    agent = agent or load(AGENTS / "desk.prompty")
    seen: list[Any] = []
    entered = Script(*script) if script else None
    if entered:
        entered.__enter__()
    with tempfile.TemporaryDirectory() as folder, Recorder(Path(folder) / "sent.jsonl") as recorder:
        inputs = {"question": "?"} if script else None
        result = resume(agent, paused, verdicts, inputs, tools=TOOLS, on_event=seen.append, **options)
        sent = [json.loads(line)["request"]["body"] for line in recorder.path.read_text().splitlines()]
    if entered:
        entered.__exit__()
    said = [{"result": one.value} if hasattr(one, "value") else one for one in verdicts]
    [done] = [event for event in seen if isinstance(event, Done)]
    expected = {"result": result, "messages": plain(done.messages), "requests": sent}
    write(
        f"paused/{name}.json",
        {
            "agent": agent.path.name,
            "paused": paused.to_json(),
            "verdicts": said,
            "script": script,
            "expected": expected,
        },
    )


# Sessions, recordings and traces.


def make_sessions(folder: Path) -> None:
    """A session of each API: a picture, a thought, calls of which one fails, and an answer; then what comes next."""
    store, expected = SqliteMemory(folder / "store.db"), {}
    for wire in ("chat", "responses", "messages"):
        agent = load(AGENTS / f"picture-{wire}.prompty")
        kept = {"chat": {}, "responses": {"encrypted_content": "c2VjcmV0"}, "messages": {"signature": "signed"}}[wire]
        thought = answer(
            "Let me see.", call("look", at="it"), call("look", wrong=1), reasoning="It may be a tree.", **kept
        )
        with Script(thought, "It is a tree."):
            inputs = {"question": "What is this?", "picture": ImagePart(PIXEL, "image/png", "low")}
            turn(agent, inputs, tools=TOOLS, memory=store, session_id=wire)
    dump_sqlite(folder / "store.db", "sessions.sql")
    for wire in ("chat", "responses", "messages"):
        agent = load(AGENTS / f"picture-{wire}.prompty")
        with Script("Green.") as script:
            turn(agent, {"question": "And its colour?"}, tools=TOOLS, memory=store, session_id=wire)
        expected[wire] = script.requests
    write("sessions.expected.json", expected)


def make_recordings() -> None:
    """Recordings of each API: a turn with a call, the same as a stream, a failure that is tried again, and an error."""
    for wire in ("chat", "responses", "messages"):
        agent = load(AGENTS / f"picture-{wire}.prompty")
        thought = answer("Let me see.", call("look", at="it"), reasoning="It may be a tree.")
        busy = Fault(ModelError("busy", status=429, retryable=True, retry_after=0.01))
        cut = Fault(after=4, reply=answer("It is a tree."))
        file, expected = HERE / f"recordings/{wire}.jsonl", []
        with Script(thought, "It is a tree.", thought, busy, "It is a tree.", cut), Recorder(file):
            for options in ({}, {"stream": True}, {"stream": True, "max_retries": 0}):
                expected.append(recorded_turn(agent, **options))
        write(f"recordings/{wire}.expected.json", expected)


def recorded_turn(agent: PromptAgent, **options: Any) -> dict[str, Any]:
    seen: list[Any] = []
    question = "Quickly?" if "max_retries" in options else "What?"
    try:
        result = turn(agent, {"question": question}, tools=TOOLS, on_event=seen.append, **options)
        result = result.result if "stream" in options else result
    except PromptyError as error:
        return {"error": type(error).__name__, "messages": plain(error.messages)}
    [done] = [event for event in seen if isinstance(event, Done)]
    return {"result": result, "messages": plain(done.messages)}


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("there is no way")


def make_traces(folder: Path) -> None:
    """A finished trace with a call that failed and a prompt that ran as a tool; one of a killed process."""
    traces = HERE / "traces"
    traces.mkdir(exist_ok=True)
    trace_to(f"file:{folder}/traces", capture="wire")
    turn(load(AGENTS / "trip.prompty"), tools=[look, fail])
    Tracer.clear()
    process = subprocess.Popen([sys.executable, __file__, "trace", f"{folder}/traces"])
    until(lambda: any(b"execute_tool" in file.read_bytes() for file in (folder / "traces").glob("*.jsonl")))
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    expected = {}
    for file in sorted((folder / "traces").iterdir()):
        text = file.read_text(encoding="utf-8").replace(f"{HERE}/", "")
        kept = traces / f"trip{file.suffix}"
        kept.write_text(text, encoding="utf-8")
        expected[kept.name] = frames_of(kept)
    write("traces/expected.json", expected)


def frames_of(file: Path) -> Any:
    return json.loads(json.dumps([frame_of(frame) for frame in read_trace(file).frames], default=str))


def frame_of(frame: Any) -> dict[str, Any]:
    names = ("name", "title", "depth", "parent", "duration", "status", "attributes", "content", "error", "usage")
    return {name: getattr(frame, name) for name in names if hasattr(frame, name)}


WEIGH = """
import time
from prompty import tool

@tool
def weigh(word: str) -> str:
    time.sleep(600 if word == "slow" else 0)
    return f"{len(word)} grams"
"""


def make_batch(folder: Path) -> None:
    """The output of a batch that was killed: rows with results, one that failed, and one that was under way."""
    (folder / "weigh.py").write_text(WEIGH)
    out, prompt, rows = folder / "out.jsonl", HERE / "batch/ask.prompty", HERE / "batch/rows.jsonl"
    command = [sys.executable, "-m", "prompty.cli", "batch", prompt, rows, "-o", out, "-t", folder / "weigh.py"]
    process = subprocess.Popen(command)
    until(lambda: out.exists() and len(out.read_text().splitlines()) == 4)
    until(lambda: (folder / "out.failed.jsonl").read_text().endswith("\n"))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for file in folder.glob("out.*"):
        (HERE / "batch" / file.name).write_bytes(file.read_bytes())


def hang_traced(folder: str) -> None:
    trace_to(f"file:{folder}", capture="wire")

    async def hang(at: str) -> str:
        await asyncio.sleep(10 * SECONDS)
        return at

    turn(load(AGENTS / "trip.prompty"), tools={"look": hang, "fail": fail})


def main() -> None:
    assert prompty.__version__ == "0.1.0", f"{prompty.__file__} is not version 0.1.0"
    (HERE / "runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="artefacts-") as name:
        folder = Path(name)
        (folder / "postgres").mkdir()
        make_sqlite(folder)
        make_paused(folder)
        make_sessions(folder)
        make_recordings()
        make_traces(folder)
        make_batch(folder)
        make_postgres(folder / "postgres")


if __name__ == "__main__":
    commands: dict[str, Any] = {"worker": lambda url, folder: work(url, Path(folder)), "trace": hang_traced}
    commands[sys.argv[1]](*sys.argv[2:]) if len(sys.argv) > 1 else main()
