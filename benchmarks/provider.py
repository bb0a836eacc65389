"""A provider that answers with bytes it made beforehand, so that what is measured is who calls it.

It runs in a process of its own, on the last processor of the machine. The URL says what it does: with a base URL of
`…/50/0/1` it answers after 50 ms, whole; with `…/0/2000/1` at once, in 2,000 chunks; with `…/0/0/99` it waits for the
99th request and answers all of them, one after the other.

With `…/0/0/1/8/3` it calls eight tools at once, three times, and then answers. How far a turn has come it sees in the
request, whose results it counts. Each turn has a token of its own in its question. The provider writes it into all that
it says, and refuses a request that lacks a call or a result or holds one of another turn.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from typing import IO, ClassVar, NamedTuple, cast

SECONDS_APART = 0.0002
TEXT = "The TrailMaster X4 keeps out heavy rain: its seams are taped and its floor is a tub. " * 3
USAGE = {
    "prompt_tokens": 42,
    "completion_tokens": 60,
    "total_tokens": 102,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
}
NO_TURN = "turn-00000"
TOKEN = re.compile(rb"turn-\d{5}")
RESULT = b'"role":"tool"'
COMMON = {"id": "chatcmpl-1", "created": 1700000000, "model": "gpt-6-luna", "system_fingerprint": "fp_1"}


@contextmanager
def fake_provider() -> Iterator[str]:
    """Run the provider, and keep off its processor; gives the URL before the numbers."""
    here = os.sched_getaffinity(0)
    process = subprocess.Popen([sys.executable, "-m", __name__], stdout=subprocess.PIPE, text=True)
    try:
        port = cast(IO[str], process.stdout).readline()
        os.sched_setaffinity(0, here - {max(here)} or here)
        yield f"http://127.0.0.1:{int(port)}"
    finally:
        os.sched_setaffinity(0, here)
        process.terminate()
        process.communicate()


def allow_many_connections() -> None:
    """A connection is a file, and a process is allowed few of them until it asks for more."""
    _, most = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (most, most))


class Asked(NamedTuple):
    """What the path of a request says."""

    milliseconds: int
    chunks: int
    together: int
    calls: int = 0
    rounds: int = 0


Waiting = list[tuple[asyncio.Transport, bytes]]


class Connection(asyncio.Protocol):
    """One connection; its requests come one after the other."""

    waiting: ClassVar[defaultdict[tuple[bytes, int], Waiting]] = defaultdict(list)

    def __init__(self) -> None:
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        if end and len(body) == int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            self.received = b""
            self.answer(head.split(b" ", 2)[1], body)

    def answer(self, path: bytes, body: bytes) -> None:
        """A request is complete."""
        asked = Asked(*(int(part) for part in path.split(b"/") if part.isdigit()))
        results = body.count(RESULT) if asked.calls else 0
        content = turn_response(asked, body, results) if asked.calls else response(asked.chunks)
        self.waiting[path, results].append((self.transport, content))
        if len(self.waiting[path, results]) >= asked.together:
            for number, (transport, content) in enumerate(self.waiting.pop((path, results))):
                seconds = asked.milliseconds / 1000 + number * SECONDS_APART
                asyncio.get_running_loop().call_later(seconds, transport.write, content)


@cache
def response(chunks: int) -> bytes:
    """A whole answer, or one in so many chunks."""
    if chunks:
        return head("text/event-stream", "transfer-encoding: chunked") + b"".join(stream_body(chunks))
    return whole("stop", content=TEXT)


def whole(finish_reason: str, **said: object) -> bytes:
    message = {"role": "assistant", "content": None, "refusal": None, "annotations": list[object](), **said}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
    body = written({**COMMON, "object": "chat.completion", "choices": [choice], "usage": USAGE})
    return head("application/json", f"content-length: {len(body)}") + body


def turn_response(asked: Asked, body: bytes, results: int) -> bytes:
    """The next answer of a turn. Its token is in its question, in each call and in each result, once in each."""
    tokens = TOKEN.findall(body)
    if len(tokens) != 1 + 2 * results or len(set(tokens)) > 1 or results % asked.calls:
        return head("text/plain", "content-length: 0", status="400 Bad Request")
    calls = asked.calls if results < asked.calls * asked.rounds else 0
    return turn_answer(calls, results).replace(NO_TURN.encode(), tokens[0])


@cache
def turn_answer(calls: int, first: int) -> bytes:
    """So many calls, numbered from `first`, or the last answer, for a turn without a token."""
    if not calls:
        return whole("stop", content=last_words(NO_TURN))
    return whole("tool_calls", tool_calls=[call(first + number) for number in range(calls)])


def call(number: int) -> Mapping[str, object]:
    arguments = json.dumps({"city": city(NO_TURN, number)})
    return {"id": f"call_{number}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def city(token: str, number: int) -> str:
    """What a turn's call of this number asks about."""
    return f"City {number} of {token}"


def last_words(token: str) -> str:
    """What a turn ends with."""
    return f"This is {token}: {TEXT}"


def stream_body(chunks: int) -> Iterator[bytes]:
    deltas: list[Mapping[str, object]] = [{"content": f" word{number}"} for number in range(chunks)]
    events = [event(delta) for delta in [{"role": "assistant", "content": ""}, *deltas]]
    for data in [*events, event({}, "stop"), b"[DONE]"]:
        yield http_chunk(b"data: " + data + b"\n\n")
    yield http_chunk(b"")


def event(delta: Mapping[str, object], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return written({**COMMON, "object": "chat.completion.chunk", "choices": [choice]})


def head(content_type: str, length: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nx-request-id: req_1\r\n{length}\r\n\r\n".encode()


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def written(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


async def serve() -> None:
    """Print the port, and answer until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    allow_many_connections()
    asyncio.run(serve())
