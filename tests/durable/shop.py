"""The outside of the kill tests: processes to be killed, a person who answers, and what the log of effects proves."""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from prompty import Message, Paused, PromptAgent, load
from prompty.durable import Runs, RunSummary, use_result
from prompty.durable.runs import VERSION, WORKFLOW
from prompty.events import Done
from prompty.memory import SqliteMemory
from tests.conversations.turns import assert_history_is_legal
from tests.durable.runs import scripted
from tests.durable.worker import CALLS, ROUNDS, Job, note, script, work
from tests.loopback import Reply, Request, Server, json_reply

SECONDS = 60
KEY = "PROMPTY_SHOP_KEY"
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.durable.worker"])
_BARE: Any = {"load_input": False, "load_output": False}


class Model(Server):
    """A model over HTTP that asks each run for its payments, and notes `asked RUN/ROUND`."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def next_reply(self, request: Request) -> Reply:
        messages = request.body["messages"]
        run_id = next(message["content"] for message in messages if message["role"] == "user")
        number = sum(message["role"] == "assistant" for message in messages)
        note(self._log, f"asked {run_id}/model:{number + 1}")
        said = script(run_id)[number]
        message: dict[str, object] = {"role": "assistant", "content": said}
        if not isinstance(said, str):
            calls = [
                {
                    "id": f"call_{number}_{at}",
                    "type": "function",
                    "function": {"name": call["call"], "arguments": json.dumps(call["arguments"])},
                }
                for at, call in enumerate(said)
            ]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        reason = "stop" if isinstance(said, str) else "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return json_reply({"id": "r", "object": "chat.completion", "model": "m", "choices": [choice]})


def http_agent(folder: Path, url: str) -> PromptAgent:
    """An agent whose model is at this URL. Its key is in the environment of every worker."""
    os.environ.setdefault(KEY, "sk-shop")
    path = folder / "shop.prompty"
    connection = f"{{kind: key, endpoint: '{url}/v1', apiKey: '${{env:{KEY}}}'}}"
    model = f"model:\n  id: m\n  provider: openai\n  connection: {connection}\n"
    path.write_text(f"---\nname: shop\n{model}inputs:\n  q: run\n---\nsystem:\nBe brief.\nuser:\n{{{{q}}}}\n")
    return load(path)


class Shop:
    """Runs of payments in a database, and the log of what was really paid. With a `model`, it is asked over HTTP."""

    def __init__(self, url: str, folder: Path, pace: float = 0.01, model: Model | None = None) -> None:
        self.url, self.pace = url, pace
        self.log, self.sessions = folder / "log", folder / "sessions.db"
        self.log.touch()
        self.client = Runs(url)
        self.started: list[str] = []
        self.asked: set[str] = set()
        self.retries_quarantined = False
        self._agent = None if model is None else http_agent(folder, model.url)
        self._processes: list[ForkServerProcess] = []

    def worker(self, name: str = "worker", **job: Any) -> ForkServerProcess:
        """A process that works. One that is to die by itself is not waited for."""
        process = self.begin_worker(name, **job)
        if job.keys().isdisjoint({"dies_at", "stops_at"}):
            self.wait_for_worker(process, name)
        return process

    def begin_worker(self, name: str, **job: Any) -> ForkServerProcess:
        told = {"url": self.url, "name": name, "log": self.log, "sessions": self.sessions, "pace": self.pace, **job}
        note(self.log, f"start {name}")
        process = PROCESSES.Process(target=work, args=(Job(**told),))
        process.start()
        self._processes.append(process)
        return process

    def wait_for_worker(self, process: ForkServerProcess, name: str) -> None:
        """Wait until a worker is open. If it does not come to that, show why."""

        def is_open() -> bool:
            lines = self.lines()
            last = max(at for at, line in enumerate(lines) if line == f"start {name}")
            return f"open {name}" in lines[last:]

        try:
            until(lambda: is_open() or not process.is_alive())
            assert process.is_alive()
        except AssertionError as error:
            if process.is_alive():
                os.kill(process.pid or 0, signal.SIGUSR1)
                time.sleep(0.5)
            raise AssertionError(self.log.with_name("stderr").read_text()[-10_000:]) from error

    def start(self, run_id: str, *, remembered: bool = True) -> None:
        """Leave a run for the workers."""
        self.started.append(run_id)
        session = run_id if remembered else None
        agent = self._agent or scripted(script(run_id))
        inputs = {"q": run_id} if self._agent else None
        self.client.submit(agent, inputs, run_id=run_id, tools=["pay", "look"], session_id=session)

    def runs(self) -> list[RunSummary]:
        return self.client.list()

    def have_settled(self) -> bool:
        """Whether every run is done, or waits for a person."""
        return all(run.state in ("done", "paused") for run in self.runs())

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def effects(self) -> dict[str, list[str]]:
        """What each call has done, as often as it did."""
        found: dict[str, list[str]] = {}
        for line in self.lines():
            kind, _, rest = line.partition(" ")
            if kind == "effect":
                key, _, result = rest.partition(" ")
                found.setdefault(key, []).append(result)
        return found

    def counts(self) -> dict[str, int]:
        """How much has happened in all."""
        begun = sum(line.startswith("begin ") for line in self.lines())
        return {"runs": len(self.started), "calls_begun": begun, "calls_done": len(self.effects())}

    def left_by(self, worker: str) -> dict[str, int]:
        """The workflows that a worker which died had under way, and how many steps of each were kept."""
        client = self.client.client
        running = client.list_workflows(name=WORKFLOW, app_version=VERSION, status="PENDING", **_BARE)
        ids = [one.workflow_id for one in running if (one.executor_id or "").rpartition("~")[0] == worker]
        return {id: len(client.list_workflow_steps(id, load_output=False)) for id in ids}

    def have_gone_on(self, left: dict[str, int]) -> bool:
        """Whether all of them have got further, or to an end."""
        return all(self.has_gone_on(id, steps) for id, steps in left.items())

    def has_gone_on(self, id: str, steps: int) -> bool:
        client = self.client.client
        [status] = client.list_workflows(workflow_ids=[id], **_BARE)
        is_ended = status.status not in ("PENDING", "ENQUEUED")
        return is_ended or len(client.list_workflow_steps(id, load_output=False)) > steps

    def find_zombie_requests(self) -> list[str]:
        """Requests to the model that were made after the answer to them was kept."""
        kept: set[str] = set()
        found: list[str] = []
        for line in self.lines():
            kind, _, rest = line.partition(" ")
            if kind == "kept":
                kept.add(rest)
            elif kind == "asked" and rest in kept:
                found.append(rest)
        return found

    def answer_all(self) -> int:
        """Be the person who looks what has happened, and says so: runs that wait are answered by the log."""
        if self.retries_quarantined:
            for run in self.client.list("quarantined"):
                self.client.retry(run.id)
        waiting = [run for run in self.runs() if run.state == "paused"]
        for run in waiting:
            paused = self.client.result(run.id)
            assert isinstance(paused, Paused)
            self.answer(paused)
        return len(waiting)

    def answer(self, paused: Paused) -> None:
        assert_history_is_legal([Message.from_json(message) for message in paused.messages])
        effects = self.effects()
        for call in paused.pending:
            assert call.unknown
            assert call.name == "pay", "what may be repeated is repeated, and nobody is asked"
        self.asked |= {call.key for call in paused.pending}
        self.client.answer(paused, [self._verdict(effects.get(call.key)) for call in paused.pending])

    @staticmethod
    def _verdict(done: list[str] | None) -> object:
        return use_result(done[0]) if done else True

    def finish(self, within: float = SECONDS) -> None:
        """Answer whatever waits until every run is done."""

        def done() -> bool:
            self.answer_all()
            return all(run.state == "done" for run in self.runs())

        until(done, within)

    def check(self) -> None:
        """What must hold, however often workers were killed."""
        effects = self.effects()
        self.check_nothing_is_repeated(effects)
        for run_id in self.started:
            assert self.client.result(run_id, timeout=SECONDS) == f"Done with {run_id}."
            *_, last = self.client.events(run_id)
            assert isinstance(last.event, Done)
            self.check_history(run_id, last.event.messages)
            stored = [Message.from_json(message) for message in SqliteMemory(self.sessions).load(run_id)]
            if stored:
                self.check_history(run_id, stored)

    def check_nothing_is_repeated(self, effects: dict[str, list[str]]) -> None:
        """No payment twice, and nothing at all begins after its result was kept."""
        paid = {key: done for key, done in effects.items() if done[0].startswith("paid")}
        assert {key: done for key, done in paid.items() if len(done) != 1} == {}
        assert len(paid) == len(self.started) * ROUNDS * CALLS // 2
        unknown = {line.partition(":")[2] for line in self.lines() if line.startswith("unknown ")}
        assert unknown == self.asked
        kept: set[str] = set()
        for line in self.lines():
            kind, _, rest = line.partition(" ")
            if kind == "kept":
                kept.add(rest.removeprefix("tool:"))
            elif kind == "begin":
                assert rest not in kept, f"{line} after its result was kept"

    def check_history(self, run_id: str, messages: Any) -> None:
        """The history of the undisturbed run: every call with its one result, in order."""
        said: list[Message] = [message for message in messages if message.role != "system"]
        round_roles = ["assistant", *["tool"] * CALLS]
        assert [message.role for message in said] == ["user", *round_roles * ROUNDS, "assistant"]
        words = ["paid", "seen", "paid", "seen"]
        wanted = [f"{words[at]} {n}/{at}" for n in range(ROUNDS) for at in range(CALLS)]
        assert [message.text for message in said if message.role == "tool"] == wanted
        assert said[-1].text == f"Done with {run_id}."
        assert_history_is_legal(said)

    def close(self) -> None:
        for process in self._processes:
            if process.is_alive():
                kill(process)
        self.client.close()


def kill(process: ForkServerProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(SECONDS)


def until(holds: Callable[[], bool], within: float = SECONDS) -> None:
    """Wait for something, but not forever."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
