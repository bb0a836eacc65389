"""Provider batches, killed at random moments and started again: each answer that was billed is in the output."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from tests.batch.billing import Billing, Faults
from tests.batch.folder import SECONDS, numbers_of
from tests.batch.test_provider_batch import Rows
from tests.soak import SOAK, Keep

KILLS = 50 if SOAK else 3
ROWS = 48 * KILLS
CHUNK = 24
REQUESTS = 14  # of a process at most, before it is killed: a chunk takes about six
FAULTS: dict[str, Any] = {
    "bad": 0.01,
    "retryable": 0.03,
    "expire": 0.15,
    "limited": 0.03,
    "before": 0.15,
    "after": 0.15,
    "work": 1.0,
}
pytestmark = pytest.mark.process


class Killed:
    """A batch whose process is killed again and again, after a random number of requests and a random time."""

    def __init__(self, path: Path, provider: Billing, wire: str, *, grace: float, seed: int) -> None:
        self.rows = Rows(path, provider, wire)
        self.rows.write(ROWS)
        self.rows.job()
        self.provider = provider
        self.chance = random.Random(seed)  # noqa: S311  not for secrets
        self.moments: Counter[str] = Counter()
        settings = json.dumps({"grace": grace, "poll": 0.05, "rows": CHUNK})
        place = [str(self.rows.prompt), str(self.rows.rows), "-o", str(self.rows.out), "--provider-batch"]
        self.command = [sys.executable, "-m", "tests.batch.provider_process", settings, "batch", *place]

    def start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: S603  our own code

    def kill(self) -> bool:
        """Start the batch and kill it. Return False if it ended before, as it may on a busy machine."""
        provider, process = self.provider, self.start()
        wanted = len(provider.paths) + self.chance.randint(0, REQUESTS)
        end = time.monotonic() + SECONDS
        while process.poll() is None and len(provider.paths) <= wanted and time.monotonic() < end:
            time.sleep(0.002)
        time.sleep(self.chance.random() * 0.2)
        self.moments[provider.last] += 1
        process.kill()
        _, stderr = process.communicate()
        has_ended = process.returncode == 0 or (process.returncode == 1 and b"--retry-failed" in stderr)
        assert has_ended or process.returncode == -SIGKILL, stderr.decode()
        return not has_ended

    def finish(self) -> None:
        process = self.start()
        _, stderr = process.communicate(timeout=1200)
        assert process.returncode in (0, 1), stderr.decode()

    def figures(self) -> dict[str, Any]:
        """Check the output against the bill."""
        results, failures, billed = self.rows.results, self.rows.failures, self.provider.billed
        assert numbers_of([*results, *failures]) == list(range(1, ROWS + 1))
        assert all(line["result"] == f"answer {line['inputs']['q']}" for line in results)
        assert {line["id"] for line in results} == set(billed)
        twice = {id for id, count in billed.items() if count > 1}
        told = {line["id"] for line in results if line.get("interrupted")}
        assert twice <= told
        return {
            "rows": ROWS,
            "answers_billed": billed.total(),
            "results": len(results),
            "failed": len(failures),
            "paid_twice": len(twice),
            "told_as_interrupted": len(told),
            "batches": len(self.provider.batches),
            "last_request_before_a_kill": dict(self.moments.most_common()),
        }


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_a_provider_batch_that_is_killed_at_random_pays_for_each_answer_once(
    wire: str, tmp_path: Path, keep: Keep
) -> None:
    with Billing(Faults(**FAULTS)) as provider:
        killed = Killed(tmp_path, provider, wire, grace=2.0, seed=7)
        kills = sum(killed.kill() for _ in range(KILLS))
        killed.finish()
        figures = killed.figures()
    keep(kills=kills, **figures)
    assert kills
    assert figures["paid_twice"] == 0
    assert figures["answers_billed"] == figures["results"]


@pytest.mark.nightly
@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_a_list_that_lags_and_creates_that_fail_cost_nothing_twice(wire: str, tmp_path: Path, keep: Keep) -> None:
    with Billing(Faults(**FAULTS, lag=4.0)) as provider:
        killed = Killed(tmp_path, provider, wire, grace=6.0, seed=8)
        kills = 0
        for _ in range(KILLS):
            if killed.chance.random() < 0.3:
                provider.faults.creates = [killed.chance.choice([429, 500, 503]), 200]
            kills += killed.kill()
        killed.finish()
        figures = killed.figures()
    keep(kills=kills, **figures)
    assert kills
    assert figures["paid_twice"] == 0
    assert figures["answers_billed"] == figures["results"]
