"""A process with many tenants, each with keys for a model, an MCP server and an OpenAPI service, stays small."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.soak import SOAK, Keep
from tests.tiers import ROOT
from tests.transports.tenants import AT_ONCE

TENANTS, ORIGINS = (1_000, 10) if SOAK else (80, 4)
# In turn, those of the 64 sessions that are kept. At once, each of 64 tenants can be connected to all three servers.
MOST_DESCRIPTORS = {"sync": 110, "async": 3 * AT_ONCE + 20}
MOST_GROWTH = 40  # megabytes from half of the tenants to all of them: each that kept something would add half of one


@pytest.fixture(autouse=True)
def time_limit() -> None:
    """Have no limit of a test beside that of the program."""


@contextmanager
def serving() -> Iterator[list[str]]:
    """Start servers in a process of their own, and return their ports."""
    command = [sys.executable, "-m", "tests.transports.tenant_servers", str(ORIGINS)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  our own program
        assert process.stdout
        try:
            yield process.stdout.readline().split()
        finally:
            process.terminate()


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("way", ["sync", "async"])
def test_many_tenants_need_few_descriptors(way: str, keep: Keep) -> None:
    with serving() as ports:
        command = [sys.executable, "-m", "tests.transports.tenants", way, str(TENANTS), *ports]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1_200, check=False)  # noqa: S603  our own program
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    keep(**told)
    assert told["descriptors"] <= MOST_DESCRIPTORS[way]
    assert told["after"] <= 15  # what the interpreter and the event loops of the process have
    half, end = told["megabytes"]
    assert end - half <= MOST_GROWTH
