"""No answer takes more memory or more time than it was given, whatever the server does."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.loopback import Forever, Reply, Server, event, reply
from tests.machine import time_factor

pytestmark = [pytest.mark.process, pytest.mark.timing]
PROGRAM = Path(__file__).with_name("hostile_bodies.py")
SECONDS = 1.0
LATE = 0.5
MEGABYTES = 200
OK, FAILED = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 500 No\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
WORD = event({"choices": [{"index": 0, "delta": {"content": "ha"}}]})


def chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def pack(*parts: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return b"".join(map(packer.compress, parts)) + packer.flush()


@pytest.fixture(scope="module")
def hostile() -> dict[str, Reply]:
    bomb = pack(b'{"text": "', *[b" " * 1_000_000] * 300)
    packed = {"content-encoding": "gzip"}
    events = {**packed, "content-type": "text/event-stream"}
    names = b",".join(b'"%07x":0' % number for number in range(1_100_000))
    return {
        "packed": reply(bomb, headers={"content-encoding": "gzip"}),
        "packed error": reply(bomb, 500, {"content-encoding": "gzip"}),
        "endless body": [OK + CHUNKED, Forever(chunk(b" " * 1_000_000), 0)],
        "endless error": [FAILED + CHUNKED, Forever(chunk(b" " * 1_000_000), 0)],
        "endless events": [OK + b"content-type: text/event-stream\r\n" + CHUNKED, Forever(chunk(WORD * 100), 0)],
        "headers in drops": [OK, Forever(b"x-more: header\r\n", 0.1)],
        "endless 100 Continue": [Forever(b"HTTP/1.1 100 Continue\r\n\r\n", 0.01)],
        "error in drops": [FAILED + b"content-length: 1000000\r\n\r\n", Forever(b"x", 0.1)],
        "body in drops": [OK + b"content-length: 1000000\r\n\r\n", Forever(b" ", 0.1)],
        "headers in drops, budget": [OK, Forever(b"x-more: header\r\n", 0.1)],
        "error in drops, budget": [FAILED + b"content-length: 1000000\r\n\r\n", Forever(b"x", 0.1)],
        "packed objects": reply(pack(b'{"x":[', *[b"{}," * 100_000] * 67, b"{}]}"), headers=packed),
        "packed lists": reply(pack(b'{"x":[', *[b"[]," * 100_000] * 67, b"[]]}"), headers=packed),
        "packed names": reply(pack(b"{", names, b"}"), headers=packed),
        "packed empty lines": reply(pack(b"\n" * 4_000_000), headers=events),
        "packed comments": reply(pack(b":\n" * 2_000_000), headers=events),
        "packed events": reply(pack(b"data: {}\n\n" * 400_000), headers=events),
    }


@pytest.mark.parametrize("way", ["sync", "sync stream", "async", "async stream"])
def test_a_hostile_answer_takes_no_more_memory_or_time_than_allowed(way: str, hostile: dict[str, Reply]) -> None:
    environment = {**os.environ, "HOSTILE_SECONDS": str(SECONDS)}
    with Server() as server:
        server.answer(*hostile.values())
        names = ",".join(name.replace(",", "") for name in hostile)
        command = [sys.executable, str(PROGRAM), server.url, way, names]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)  # noqa: S603  our own program
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ends) == len(hostile), done.stderr
    late = [end for end in ends if end["seconds"] > (SECONDS + LATE) * time_factor()]
    large = [end for end in ends if end["megabytes"] > MEGABYTES]
    answered = [end for end in ends if end["told"].startswith("answer")]
    assert (late, large, answered) == ([], [], [])
