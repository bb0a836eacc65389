"""Very many calls are in flight at once: the server answers none before it has all of them. Or with very many keys."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.soak import SOAK, Keep
from tests.transports.subject import Subject
from tests.transports.test_exchanges import skip_if_exempt

ROOT = Path(__file__).parents[2]
CALLS = 10_000 if SOAK else 1_000
MOST_MEGABYTES = {"httpx2": 350} if SOAK else {"httpx2": 150, "sdk": 300}


@pytest.fixture(autouse=True)
def time_limit() -> None:
    """Have no limit of a test beside that of the program, because a server needs a minute to hear all the calls."""


@contextmanager
def provider() -> Iterator[str]:
    """Start a provider in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.provider"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  our own program
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


@pytest.mark.process
def test_very_many_calls_wait_for_their_answers_at_once(subject: Subject, keep: Keep) -> None:
    if CALLS > 1_000:
        skip_if_exempt(subject, "very many connections")
    with provider() as url:
        command = [sys.executable, "-m", "tests.transports.crowd", subject.name, f"{url}/0/0/{CALLS}", str(CALLS)]
        done = subprocess.run(  # noqa: S603  our own program
            command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    keep(**told)
    assert told["answered"] == CALLS
    assert told["megabytes"] < MOST_MEGABYTES[subject.name]


@pytest.mark.process
@pytest.mark.nightly
@pytest.mark.parametrize("way", ["sync", "async"])
def test_five_thousand_keys_need_a_hundred_descriptors(way: str, keep: Keep) -> None:
    with provider() as url:
        command = [sys.executable, "-m", "tests.transports.many_keys", way, f"{url}/0/0/1", "5000"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)  # noqa: S603  our own program
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    keep(**told)
    assert told["descriptors"] <= 100
