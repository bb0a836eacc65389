"""A service that runs a turn for each of many tenants. Each has keys for a model, an MCP server and a service.

Prints how many file descriptors it had at most, and its memory after half of the tenants and at the end.

Usage: python -m tests.transports.tenants WAY TENANTS PORT...
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import prompty
from prompty.openapi import allow

AT_ONCE = 64
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Status", "version": "1"},
    "paths": {"/status": {"get": {"operationId": "get_status", "responses": {"200": {"description": "ok"}}}}},
}
PROMPT = """---
model: {{id: m, connection: {{kind: key, endpoint: "{url}/v1", apiKey: "model-{key}"}}}}
tools:
  - {{name: own, kind: mcp, serverName: own, connection: {{kind: key, endpoint: "{url}/mcp", apiKey: "mcp-{key}"}}}}
  - name: status
    kind: openapi
    specification: status.json
    connection: {{kind: key, endpoint: "{url}", apiKey: "api-{key}"}}
---
user:
Hi
"""


class Usage:
    """What this process has taken."""

    def __init__(self) -> None:
        self.descriptors = 0
        self.memory: list[int] = []

    def count(self) -> None:
        self.descriptors = max(self.descriptors, count_descriptors())

    def weigh(self) -> None:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        self.memory.append(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024)


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def run_each(prompts: list[str], usage: Usage, folder: Path) -> None:
    for number, text in enumerate(prompts):
        if number == len(prompts) // 2:
            usage.weigh()
        assert prompty.turn(prompty.loads(text, base_dir=folder)) == "Fine."
        usage.count()


async def run_at_once(prompts: list[str], usage: Usage, folder: Path) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def run_one(text: str) -> None:
        async with free:
            assert await prompty.turn_async(prompty.loads(text, base_dir=folder)) == "Fine."
            usage.count()

    half = len(prompts) // 2
    await asyncio.gather(*map(run_one, prompts[:half]))
    usage.weigh()
    await asyncio.gather(*map(run_one, prompts[half:]))
    await prompty.aclose()


if __name__ == "__main__":
    way, tenants, ports = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    allow(hosts=[f"127.0.0.1:{port}" for port in ports])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "status.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
        prompts = [
            PROMPT.format(
                url=f"http://127.0.0.1:{ports[number % len(ports)]}",
                key=f"of-tenant-{number:06}-0123456789",
            )
            for number in range(tenants)
        ]
        usage = Usage()
        if way == "sync":
            run_each(prompts, usage, Path(folder))
        else:
            asyncio.run(run_at_once(prompts, usage, Path(folder)))
        usage.weigh()
        prompty.close()
        print(  # noqa: T201  for the test that started it
            json.dumps({"descriptors": usage.descriptors, "megabytes": usage.memory, "after": count_descriptors()})
        )
