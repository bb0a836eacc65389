"""A fleet of `examples/worker`: its processes, a model on HTTP, and a person who answers by the log of the tools."""

import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from tests.durable.own import until

EXAMPLE, JOBS = Path(__file__).parents[2] / "examples" / "worker", Path(__file__).parent / "jobs"
ROUNDS = [("look", "pay"), ("look", "pay"), ("refund",)]
LEASE, SECONDS = 4.0, 240.0
QUIET = 3.0  # seconds after which a process that was woken has finished the call that it was in
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["prompty.durable.dbos", "prompty.providers.http.client", "prompty.renderers.jinja2"])


def work(settings: dict[str, str], queue: str, concurrency: int) -> None:
    """Work until killed or terminated."""
    os.environ.update(settings)
    os.chdir(EXAMPLE)
    sys.path[:0] = [str(EXAMPLE), str(JOBS)]
    import_module("worker").work(queue, concurrency)


class Model(ThreadingHTTPServer):
    """Asks for two rounds of look and pay and for one refund, and then says `Done with NAME.`"""

    daemon_threads, request_queue_size = True, 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.is_down = False
        self.seconds = 0.2
        self.is_held = threading.Event()
        self.requests: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """Say nothing: its clients are killed."""

    def reply(self, body: Any) -> tuple[int, Any]:
        name = next(one["content"] for one in body["messages"] if one["role"] == "user")
        n = sum(one["role"] == "assistant" for one in body["messages"])
        self.requests.append(f"{name}/{n}")
        time.sleep(random.random() * self.seconds)  # noqa: S311  not for secrets
        while self.is_held.is_set():
            time.sleep(0.05)
        if self.is_down:
            return 400, {"error": {"message": "no credit", "type": "x", "code": "x"}}
        message: dict[str, object] = {"role": "assistant", "content": f"Done with {name}."}
        if n < len(ROUNDS):
            calls = [_describe_call(f"{name}/{n}/{tool}", f"c{n}{at}", tool) for at, tool in enumerate(ROUNDS[n])]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if n < len(ROUNDS) else "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return 200, {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "usage": usage,
            "choices": [choice],
        }


def _describe_call(at: str, id: str, tool: str) -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": tool, "arguments": json.dumps({"at": at})}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Model

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with suppress(ConnectionError):  # its client was killed
            status, value = self.server.reply(body)
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


class Fleet:
    """Jobs, the processes that work on them, and what they did."""

    def __init__(self, url: str, folder: Path, pace: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = folder / "log"
        self.log.touch()
        self.model = Model()
        self.settings = {
            "JOBS_DATABASE": url,
            "JOBS_LEASE": str(LEASE),
            "JOBS_TOOLS": "job_tools",
            "JOBS_LOG": str(self.log),
            "JOBS_PACE": str(pace),
            "JOBS_MODEL": f"http://127.0.0.1:{self.model.server_address[1]}/v1",
        }
        for name, value in self.settings.items():
            monkeypatch.setenv(name, value)
        monkeypatch.syspath_prepend(str(EXAMPLE))
        for name in ("jobs", "keeper"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        self.jobs = import_module("jobs")
        self.client = self.jobs.open_client()
        self.ids: list[str] = []
        self.quiet_since = 0.0  # no process is suspended, and none was woken shortly before
        self.approved: Counter[str] = Counter()
        self.asked = self.happened = self.deaths = 0
        self._answered: set[str] = set()
        self._processes: list[tuple[ForkServerProcess, str, int]] = []

    def launch(self, queue: str = "jobs", concurrency: int = 4) -> ForkServerProcess:
        process = PROCESSES.Process(target=work, args=(self.settings, queue, concurrency))
        process.start()
        self._processes.append((process, queue, concurrency))
        return process

    def replace_dead(self) -> None:
        """Start processes again that have ended, as a supervisor does."""
        for one in list(self._processes):
            if not one[0].is_alive():
                self._processes.remove(one)
                self.deaths += 1
                self.launch(*one[1:])

    def submit(self, id: str, deadline: float | None = None) -> str:
        self.ids.append(id)
        submitted: str = self.jobs.submit(self.client, str(JOBS / "refund.prompty"), {"order": id}, id, deadline)
        return submitted

    def keep_busy(self, count: int) -> None:
        """Submit jobs until so many are under way."""
        under_way = self.client.list_workflows(status=["PENDING", "ENQUEUED"], load_input=False, load_output=False)
        for _ in range(count - len(under_way)):
            self.submit(f"j{len(self.ids)}")

    def count_running(self, process: ForkServerProcess) -> int:
        found = self.client.list_workflows(name="job", status="PENDING", load_input=False, load_output=False)
        return sum(f"-{process.pid}-" in (one.executor_id or "") for one in found)

    @property
    def processes(self) -> list[ForkServerProcess]:
        return [process for process, _, _ in self._processes]

    def state(self, id: str) -> str:
        found: str = self.jobs.show(self.client, id)["state"]
        return found

    def answer_all(self) -> None:
        """Approve what waits for a person, and say of unknown calls what they have done."""
        for one in self.jobs.list_jobs(self.client, "paused", 1000):
            id = one["id"].partition("#")[0]
            if one["id"] in self._answered:
                continue
            shown = self.jobs.show(self.client, id)
            pending = shown.get("pending", [])
            is_unknown = any(call["unknown"] for call in pending)
            if not pending or (is_unknown and time.time() - self.quiet_since < QUIET):
                continue
            with suppress(SystemExit):  # its time was up
                self.jobs.answer(self.client, id, [self._decide(call) for call in pending])
                self._answered.add(one["id"])

    def _decide(self, call: Any) -> object:
        at = call["arguments"]["at"]
        if not call["unknown"]:
            self.approved[at] += 1
            return True
        self.asked += 1
        if not any(line == f"effect {at}" for line in self.lines()):
            return True
        self.happened += 1
        return {"result": "it had happened"}

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def finish(self, ids: list[str], within: float = SECONDS) -> None:
        """Answer and wait until these jobs are done."""

        def are_done() -> bool:
            self.answer_all()
            ids[:] = [id for id in ids if self.state(id) != "done"]
            time.sleep(0.3)
            return not ids

        ids = list(ids)
        try:
            until(are_done, within)
        except AssertionError as error:
            raise AssertionError({id: self.jobs.show(self.client, id) for id in ids}) from error

    def check(self) -> dict[str, int]:
        """Check that every job has its result, each payment was made once, and each refund approved once."""
        wrong = [id for id in self.ids if self.jobs.show(self.client, id)["output"] != {"result": f"Done with {id}."}]
        assert wrong == []
        effects = Counter(line.partition(" ")[2] for line in self.lines() if line.startswith("effect "))
        payments = [f"{id}/{n}/{tool}" for id in self.ids for n, tool in ((0, "pay"), (1, "pay"), (2, "refund"))]
        assert {key: effects[key] for key in payments if effects[key] != 1} == {}
        refunds = [key for key in payments if key.endswith("refund")]
        assert {key: self.approved[key] for key in refunds if self.approved[key] != 1} == {}
        looks = sum(count for key, count in effects.items() if key.endswith("look"))
        return {
            "jobs": len(self.ids),
            "payments": len(payments),
            "idempotent_calls": looks,
            "of_at_least": 2 * len(self.ids),
            "model_calls": len(self.model.requests),
            "model_calls_of_at_least": 4 * len(self.ids),
            "asked_about": self.asked,
            "of_which_had_happened": self.happened,
        }

    def close(self) -> None:
        for process in self.processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
            process.join(10)
        self.model.shutdown()
        self.model.server_close()
        self.client.destroy()


@contextmanager
def fleet_of(url: str, folder: Path, pace: float = 0.6) -> Iterator[Fleet]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        fleet = Fleet(url, folder, pace, monkeypatch)
        try:
            yield fleet
        finally:
            fleet.close()
