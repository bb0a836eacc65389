"""`prompty batch --provider-batch`, with a deadline, cancelled and interrupted."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batch.billing import Billing
from tests.batch.folder import SECONDS, Said, numbers_of, until
from tests.batch.test_provider_batch import Rows

pytestmark = pytest.mark.process
SMALL = json.dumps({"grace": 1.0, "poll": 0.05})


class Command(Rows):
    def start(self, *words: str) -> "subprocess.Popen[str]":
        self.job()
        place = [str(self.prompt), str(self.rows), "-o", str(self.out), "--json"]
        command = [sys.executable, "-m", "tests.batch.provider_process", SMALL, "batch", *place, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603  our own code

    def say(self, *words: str, code: int = 0) -> Said:
        process = self.start(*words)
        stdout, stderr = process.communicate(timeout=SECONDS)
        assert process.returncode == code, stderr
        return Said(stdout, stderr)


@pytest.fixture
def provider() -> Iterator[Billing]:
    with Billing() as server:
        yield server


@pytest.fixture
def command(tmp_path: Path, provider: Billing) -> Command:
    made = Command(tmp_path, provider)
    made.write(20)
    return made


def test_rows_left_at_the_deadline_run_live(command: Command, provider: Billing) -> None:
    provider.faults.work = 1000
    said = command.say("--provider-batch", "--deadline", "1s")
    assert "The deadline has passed" in said.stderr
    summary = said.summary
    assert (summary["done"], summary["failed"], summary["left"], summary["complete"]) == (20, 0, 0, True)
    assert numbers_of(command.results) == list(range(1, 21))
    assert provider.billed.total() + provider.live.total() == 20
    assert provider.live
    assert not command.journal.exists()


def test_a_stopped_batch_goes_on_at_the_provider_until_it_is_cancelled(command: Command, provider: Billing) -> None:
    provider.faults.work = 1000
    process = command.start("--provider-batch")
    until(lambda: bool(provider.batches))
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "--cancel ends them" in stderr
    assert not provider.billed
    said = command.say("--provider-batch", "--cancel", code=130)
    assert said.summary["done"] == provider.billed.total() == len(command.results) < 20
    provider.faults.work = 0
    assert command.say("--provider-batch").summary["complete"]
    assert provider.billed.total() == 20


MISTAKES: dict[str, tuple[list[str], str]] = {
    "a deadline without a batch": (["--deadline", "6h"], "--deadline is for rows that a provider runs"),
    "a budget": (["--provider-batch", "--max-cost", "5"], "--max-cost has no effect on rows that a provider runs"),
}


@pytest.mark.parametrize(("words", "cause"), MISTAKES.values(), ids=MISTAKES)
def test_options_that_do_not_fit_are_refused(words: list[str], cause: str, command: Command, provider: Billing) -> None:
    process = command.start(*words)
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode not in (0, 130)
    assert cause in " ".join(stderr.split())
    assert not provider.seen
