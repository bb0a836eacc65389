"""What calls keep open is closed by `close`, by `aclose`, by the end of a registry, and quietly if one is dropped.

A program of its own counts its descriptors and threads, because those of other tests come and go.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.tiers import ROOT
from tests.transports.test_tenants import serving

WAYS = ("close", "aclose", "registry", "registry_async", "dropped", "dropped_async", "other_loop", "fork")


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
def test_everything_is_closed(way: str) -> None:
    with serving() as ports:
        command = [sys.executable, "-W", "error", "-m", "tests.transports.closing", way, ports[0]]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603  our own program
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["open"]["sockets"] >= 2  # a model's and an MCP server's
    assert told["closed"]["sockets"] == 0
    assert told["closed"]["tasks"] == told["start"]["tasks"]
    if not way.startswith(("registry", "dropped")):  # all registries share the threads
        assert told["closed"]["threads"] == told["start"]["threads"]
