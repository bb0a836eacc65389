"""A provider that is down while runs are under way: they fail, and one command continues all of them after it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prompty.durable import Runs
from tests.batch.folder import until
from tests.durable.databases import Databases
from tests.loopback import Reply, Request, Server, json_reply
from tests.soak import SOAK, Keep

pytestmark = pytest.mark.process
RUNS = 200 if SOAK else 20
WORKERS = 2
OUTAGE_SECONDS = 600.0 if SOAK else 4.0
SECONDS = 1800.0 if SOAK else 300.0
ROUNDS = 3
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
RUN = re.compile(r"order (\d+)")
PROMPT = """\
---
model:
  id: gpt-4o-mini
  provider: openai
  connection: {{kind: key, endpoint: "{url}/v1", apiKey: sk-of-the-outage-0001}}
tools:
  - name: pay
    kind: function
    parameters: {{order: {{kind: string}}, round: {{kind: integer}}}}
inputs:
  order: {{kind: string}}
---
user:
Pay for order {{{{order}}}}.
"""
TOOLS = """\
import os
from prompty import tool

@tool
async def pay(order: str, round: int) -> str:
    file = os.open(os.environ["LEDGER"], os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.write(file, f"{order}/{round}\\n".encode())
    os.close(file)
    return "paid"
"""


class Provider(Server):
    """Asks for `ROUNDS` payments of each order, one after the other, and then says that it is done. While it is `down`,
    and for the first request of each second order, it answers 503. `answered` counts what would have to be paid for."""

    def __init__(self) -> None:
        super().__init__()
        self.down = threading.Event()
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def next_reply(self, request: Request) -> Reply:
        messages = request.body["messages"]
        found = RUN.search(json.dumps(messages))
        assert found
        order, round = found[1], sum(message["role"] == "tool" for message in messages)
        self.asked[call := f"{order}/{round}"] += 1
        stumbles = int(order) % 2 == 0 and round == 0 and self.asked[call] == 1
        if self.down.is_set() or stumbles:
            return json_reply({"error": {"message": "overloaded"}}, 503, {"retry-after": "0.05"})
        self.answered[call] += 1
        message: dict[str, object] = {"role": "assistant", "content": f"Done with order {order}."}
        if round < ROUNDS:
            arguments = json.dumps({"order": order, "round": round})
            function = {"name": "pay", "arguments": arguments}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call-{call}", "type": "function", "function": function}],
            }
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return json_reply(
            {"id": "1", "object": "chat.completion", "model": "gpt-4o-mini", "choices": [choice], "usage": USAGE}
        )


@contextmanager
def working(folder: Path, url: str) -> Iterator[None]:
    """Workers as processes of their own, until the end of the block."""
    command = [sys.executable, "-m", "prompty.cli", "worker", "-t", "functions.py", "--drain", "1"]
    environment = {**os.environ, "PROMPTY_DATABASE": url, "LEDGER": str(folder / "ledger")}
    started = []
    try:
        for _ in range(WORKERS):
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)  # noqa: S603  our own command
            started.append(process)
        for process in started:
            assert process.stdout is not None
            assert "working on" in process.stdout.readline()
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.communicate(timeout=60)


def count_states(runs: Runs) -> Counter[str]:
    return Counter(run.state for run in runs.list())


def run_command(url: str, *words: str) -> str:
    command = [sys.executable, "-m", "prompty.cli", *words, "--database", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout  # noqa: S603  our own command


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])
def test_one_command_continues_all_runs_that_failed_in_an_outage(
    kind: str, databases: Databases, tmp_path: Path, keep: Keep
) -> None:
    url = databases.new(kind)
    (tmp_path / "functions.py").write_text(TOOLS)
    prompt = tmp_path / "pay.prompty"
    with Provider() as provider, Runs(url) as runs:
        prompt.write_text(PROMPT.format(url=provider.url))
        ids = [runs.submit(prompt, {"order": str(number)}, run_id=f"order-{number}") for number in range(RUNS)]
        with working(tmp_path, url):
            until(lambda: len(provider.answered) > RUNS, SECONDS)  # half of them have paid, some more than once
            provider.down.set()
            begun = time.monotonic()
            until(lambda: count_states(runs).keys() <= {"failed", "done"}, SECONDS)
            time.sleep(max(OUTAGE_SECONDS - (time.monotonic() - begun), 0))
            failed = count_states(runs)["failed"]
            assert failed > RUNS / 2
            paid_before = provider.answered.total()
            provider.down.clear()

            begun = time.monotonic()
            said = run_command(url, "runs", "retry", "--state", "failed")
            command_seconds = time.monotonic() - begun
            assert said == f"{failed} runs continued\n"
            for run_id in ids:
                assert runs.result(run_id, timeout=SECONDS) == f"Done with {run_id.replace('-', ' ')}."
            seconds = time.monotonic() - begun
    calls = [f"{number}/{round}" for number in range(RUNS) for round in range(ROUNDS + 1)]
    assert provider.answered == Counter(calls), "each answer is paid for once, and stored"
    ledger = Counter((tmp_path / "ledger").read_text().split())
    assert ledger == Counter(call for call in calls if not call.endswith(f"/{ROUNDS}")), "each order is paid once"
    keep(
        runs=RUNS,
        outage_seconds=OUTAGE_SECONDS,
        failed=failed,
        answers_before=paid_before,
        answers=provider.answered.total(),
        requests_refused=provider.asked.total() - provider.answered.total(),
        command_seconds=round(command_seconds, 2),
        all_done_seconds=round(seconds, 2),
    )
