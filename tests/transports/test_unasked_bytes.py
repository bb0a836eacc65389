"""Bytes that a server sends after an answer never become the answer of the next call.

Such a connection is closed, and one whose answer ends where it should is kept.
"""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import h11
import pytest

from prompty import PromptAgent, invoke, invoke_async
from prompty.errors import ModelError
from prompty.providers.http.network import Unread
from tests.drivers.clients import close_clients
from tests.loopback import Hold, Pause, Reply, Server, event
from tests.transports.subject import Subject, create_agent
from tests.transports.tls import serve_tls

OK = b"HTTP/1.1 200 OK\r\n"
JSON = b"content-type: application/json\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
Frame = Callable[[bytes], bytes]


def write_content(text: str, *, streamed: bool) -> bytes:
    """A chat answer of this text, whole or as events."""
    choice = {"index": 0, "finish_reason": "stop"}
    if not streamed:
        return json.dumps({"choices": [{**choice, "message": {"role": "assistant", "content": text}}]}).encode()
    return event({"choices": [{**choice, "delta": {"content": text}}]}) + event("[DONE]")


def whole(content: bytes, head: bytes = OK) -> bytes:
    return head + JSON + b"content-length: %d\r\n\r\n" % len(content) + content


def chunks(content: bytes, end: bytes = b"0\r\n\r\n", size: int = 20) -> bytes:
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + end


def chunked(content: bytes, end: bytes = b"0\r\n\r\n", head: bytes = OK) -> bytes:
    return head + CHUNKED + b"\r\n" + chunks(content, end)


def packed(content: bytes, frame: Frame) -> bytes:
    return frame(gzip.compress(content)).replace(b"\r\n", b"\r\ncontent-encoding: gzip\r\n", 1)


POISON = whole(b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "Poison."}}]}')
EARLY = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# Answers that end where they should.
FRAMES: dict[str, Frame] = {
    "length": whole,
    "chunks": chunked,
    "one chunk": lambda content: OK + CHUNKED + b"\r\n" + chunks(content, size=10**6),
    "chunks with trailers": lambda content: chunked(content, b"0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n"),
    "chunks with extensions": lambda content: chunked(content, b"0;last=yes\r\n\r\n"),
    "chunks of zeros": lambda content: chunked(content, b"0000\r\n\r\n"),
    "chunks with a blank": lambda content: chunked(content, b"0  \r\n\r\n"),
    "sizes with zeros": lambda content: chunked(content).replace(b"14\r\n", b"0014\r\n"),
    "packed": lambda content: packed(content, whole),
    "packed chunks": lambda content: packed(content, chunked),
    "early hints": lambda content: EARLY + whole(content),
    "early hints and chunks": lambda content: EARLY + EARLY + chunked(content),
    "continue": lambda content: CONTINUE + whole(content),
    "both framings": lambda content: chunked(content, head=OK + b"content-length: 5\r\n"),
    "lines without returns": lambda content: (
        whole(b"").replace(b"\r\n", b"\n").replace(b": 0\n", b": %d\n" % len(content)) + content
    ),
    "empty lines in the body": lambda content: whole(content + b"\n\n\r\n\r\n"),
    "empty lines in chunks": lambda content: chunked(content + b"\n\n\r\n\r\n"),
    "a large answer": lambda content: whole(content + b"\n" * 100_000),
    "many chunks": lambda content: chunked(content + b"\n" * 10_000),
}

# What a server adds to an answer.
ADDED: dict[str, bytes] = {
    "an answer": POISON,
    "an answer in chunks": chunked(b'{"choices": [{"message": {"content": "Poison."}}]}'),
    "two answers": POISON * 2,
    "a long answer": POISON + b" " * 100_000,
    "a letter": b"H",
    "half of a status line": b"HTTP/1.",
    "a status line": OK,
    "half of the headers": OK + b"x-merged: yes\r\ncontent-",
    "headers that want the next answer as their body": OK + b"content-length: 60\r\n\r\n",
    "headers that want everything as their body": OK + b"\r\n",
    "a chunked answer without its end": chunked(b"Poison.", end=b""),
    "an answer before the last": CONTINUE,
    "early hints": EARLY,
    "an empty line": b"\r\n",
    "empty lines and an answer": b"\r\n\r\n" + POISON,
    "a newline": b"\n",
    "a zero": b"0",
    "another last chunk": b"0\r\n\r\n",
    "a NUL": b"\0",
    "text": b"Poison.",
    "a brace": b"}",
}

# Answers that are failures, or have no body.
OTHERS: dict[str, bytes] = {
    "500": whole(b'{"error": {"message": "no"}}', b"HTTP/1.1 500 No\r\n"),
    "429 in chunks": chunked(b'{"error": {"message": "no"}}', head=b"HTTP/1.1 429 No\r\n"),
    "401 with a long body": whole(b" " * 100_000, b"HTTP/1.1 401 No\r\n"),
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "204 with a length": b"HTTP/1.1 204 No Content\r\ncontent-length: 7\r\n\r\n",
    "304": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "302": b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
    "101": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "an empty body": whole(b""),
    "no chunks": chunked(b""),
    "not JSON": whole(b"no"),
    "an unknown encoding": whole(b"no", OK + b"content-encoding: br\r\n"),
    "not gzip": whole(b"no", OK + b"content-encoding: gzip\r\n"),
    "HTTP/1.0": whole(b"{}", b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n"),
}


def list_shapes(*, streamed: bool) -> dict[str, Reply]:
    """All shapes of an answer and something after it, which comes in the same packet or in others."""
    content = write_content("First.", streamed=streamed)
    shapes: dict[str, Reply] = {f"length, {added}": [whole(content) + bad] for added, bad in ADDED.items()}
    shapes |= {f"chunks, {added}": [chunked(content) + bad] for added, bad in ADDED.items()}
    shapes |= {f"{name}, an answer": [frame(content) + POISON] for name, frame in FRAMES.items()}
    shapes |= {f"{name}, an answer": [other + POISON] for name, other in OTHERS.items()}
    apart = [Pause(0.005)]
    for name, frame in (("length", whole), ("chunks", chunked)):
        answer = frame(content)
        shapes |= {
            f"{name}, an answer later": [answer, *apart, POISON],
            f"{name}, half an answer later": [answer, *apart, POISON[:30]],
            f"{name}, half an answer with it and half later": [answer + POISON[:30], *apart, POISON[30:]],
            f"{name} in two packets, an answer": [answer[:-3], *apart, answer[-3:] + POISON],
            f"{name} from its headers on, an answer": [answer[:40], *apart, answer[40:] + POISON],
        }
    return shapes


def call(agent: PromptAgent, *, streamed: bool) -> object:
    return "".join(map(str, invoke(agent, stream=True, max_retries=0))) if streamed else invoke(agent, max_retries=0)


async def call_async(agent: PromptAgent, *, streamed: bool) -> object:
    if streamed:
        return "".join([str(text) async for text in await invoke_async(agent, stream=True, max_retries=0)])
    return await invoke_async(agent, max_retries=0)


@pytest.fixture
def agent(server: Server) -> Iterator[PromptAgent]:
    yield Subject("httpx2").agent(server.url)
    close_clients()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_no_byte_after_an_answer_becomes_part_of_the_next(
    agent: PromptAgent, server: Server, way: str, *, streamed: bool
) -> None:
    good = [whole(write_content("Second.", streamed=streamed))]
    shapes = list_shapes(streamed=streamed)
    assert len(shapes) > 60

    def run() -> dict[str, object]:
        answers = {}
        for name, shape in shapes.items():
            server.answer(shape, good)
            with suppress(ModelError):
                assert call(agent, streamed=streamed) in ("First.", ""), name
            assert server.wait_until(lambda: server.busy == 0), name
            answers[name] = call(agent, streamed=streamed)
        return answers

    async def run_async() -> dict[str, object]:
        answers = {}
        for name, shape in shapes.items():
            server.answer(shape, good)
            with suppress(ModelError):
                assert await call_async(agent, streamed=streamed) in ("First.", ""), name
            assert await asyncio.to_thread(server.wait_until, lambda: server.busy == 0), name
            answers[name] = await call_async(agent, streamed=streamed)
        return answers

    answers = run() if way == "sync" else asyncio.run(run_async())
    assert answers == dict.fromkeys(shapes, "Second.")


@pytest.mark.parametrize("way", ["sync", "async"])
def test_no_byte_after_an_answer_becomes_part_of_the_answer_to_another_key(server: Server, way: str) -> None:
    """All keys share the connections to an origin."""
    agents = [create_agent(server.url, f"sk-of-user-{number}") for number in (1, 2)]
    good = [whole(write_content("Second.", streamed=False))]
    shapes = list_shapes(streamed=False)

    async def run() -> dict[str, object]:
        answers = {}
        for name, shape in shapes.items():
            server.answer(shape, good)
            for agent in agents:
                with suppress(ModelError):
                    answers[name] = (
                        await call_async(agent, streamed=False) if way == "async" else call(agent, streamed=False)
                    )
                assert await asyncio.to_thread(server.wait_until, lambda: server.busy == 0), name
        return answers

    assert asyncio.run(run()) == dict.fromkeys(shapes, "Second.")
    close_clients()


@pytest.mark.parametrize("way", ["sync", "async"])
def test_what_follows_a_stream_that_was_left_is_not_read(agent: PromptAgent, server: Server, way: str) -> None:
    """A stream that ends before its last byte was read has an unknown rest."""
    words = event({"choices": [{"index": 0, "delta": {"content": "First."}}]})
    good = [whole(write_content("Second.", streamed=False))]

    def leave() -> object:
        with invoke(agent, stream=True) as answer:
            assert next(iter(answer)) == "First."
        return invoke(agent, max_retries=0)

    async def leave_async() -> object:
        async with await invoke_async(agent, stream=True) as answer:
            assert await anext(aiter(answer)) == "First."
        return await invoke_async(agent, max_retries=0)

    for rest in ([POISON], [b"0\r\n\r\n" + POISON], [Hold()]):
        server.answer([OK + CHUNKED + b"\r\n" + chunks(words, end=b"", size=1000), *rest], good)
        assert (leave() if way == "sync" else asyncio.run(leave_async())) == "Second."


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_an_answer_that_ends_where_it_should_keeps_its_connection(
    agent: PromptAgent, server: Server, way: str, *, streamed: bool
) -> None:
    content = write_content("Fine.", streamed=streamed)
    replies: list[Reply] = [[frame(content)] for frame in FRAMES.values()]
    for frame in (whole, chunked):
        answer = frame(content)
        replies += [[answer[:cut], Pause(0.002), answer[cut:]] for cut in (1, 15, 40, 60, len(answer) - 3)]

    async def run() -> list[object]:
        return [await call_async(agent, streamed=streamed) for _ in replies]

    server.answer(*replies)
    answers = asyncio.run(run()) if way == "async" else [call(agent, streamed=streamed) for _ in replies]
    assert answers == ["Fine."] * len(replies)
    assert server.accepted == 1


def parse(packets: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Give packets to h11 as a connection does. Return the bytes after a response: those it got, and all others."""
    unread, waiting = Unread(), [packet for packet in packets if packet]
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
    parser.send(h11.EndOfMessage())
    while True:
        match parser.next_event():
            case h11.Response(headers=headers):
                unread.expect_body({name.decode().lower(): value.decode() for name, value in headers})
            case h11.EndOfMessage():
                unread.expect_headers()
                rest = b"".join(iter(lambda: unread.take(1000), b""))
                return parser.trailing_data[0], rest + b"".join(waiting)
            case h11.NEED_DATA:
                if not unread:
                    unread.add(waiting.pop(0))
                parser.receive_data(unread.take(64 * 1024))


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_the_parser_never_gets_a_byte_beyond_a_response_however_it_is_cut(frame: Frame) -> None:
    answer = frame(b'{"a": "b\\n\\n"}\n0\n\n00')
    wire = answer + POISON
    if len(answer) > 5_000:
        cuts = [[wire]]
    else:
        cuts = [[wire[:at], wire[at:]] for at in range(len(answer))]
        cuts += [[wire[start : start + size] for start in range(0, len(wire), size)] for size in (1, 2, 3, 7)]
    for packets in cuts:
        assert parse(packets) == (b"", POISON), packets


@pytest.mark.parametrize("cut", [4200, 4201, 6000, 6001])
def test_a_size_with_a_long_extension_that_comes_in_parts_moves_no_end(cut: int) -> None:
    answer = chunked(b"Hello.").replace(b"6\r\n", b"6;%b\r\n" % (b"f;" * 3000), 1)  # a size, wherever it is cut
    wire = answer + POISON
    assert parse([wire[:cut], wire[cut:]]) == (b"", POISON)


def test_chunks_are_handed_out_as_they_came_whatever_is_in_them() -> None:
    body = chunks(b"0\r\n\r\n00\n" * 1000, end=b"")
    packets = [body[start : start + 500] for start in range(0, len(body), 500)]
    unread = Unread()
    unread.expect_body({"transfer-encoding": "chunked"})
    for packet in packets:
        unread.add(packet)
        assert unread.take(64 * 1024) == packet
        assert not unread


CONTENT = write_content("First.", streamed=False)
FIRST, SECOND = (whole(write_content(text, streamed=False)) for text in ("First.", "Second."))
LONG_FIRST = whole(write_content("First.", streamed=False) + b" " * 60_000)
EDGE_FIRST = whole(b"".ljust(64_000 - len(whole(b" " * 60_000)) + 60_000)[len(CONTENT) :] + CONTENT)
TLS_SHAPES: dict[str, Sequence[bytes]] = {
    "in the same record": [FIRST + POISON],
    "in a record of its own": [FIRST, POISON],
    "half in each": [FIRST + POISON[:30], POISON[30:]],
    "after a long answer": [LONG_FIRST, POISON],
    "far behind": [LONG_FIRST, POISON, b" " * 60_000],
    # anyio takes 64 KiB from a socket at a time: these are the records of the answer and the beginning of another.
    "beyond what is decrypted at a time": [EDGE_FIRST, POISON + b" " * (16_000 - len(POISON))],
    "in many small records": [FIRST, *[POISON[at : at + 1] for at in range(len(POISON))]],
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("shape", TLS_SHAPES.values(), ids=TLS_SHAPES)
def test_no_record_after_an_answer_is_read_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, shape: Sequence[bytes]
) -> None:
    with serve_tls(tmp_path, [shape, [SECOND]]) as (url, certificate, _):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        agent = Subject("httpx2").agent(url)

        async def twice() -> list[object]:
            return [await invoke_async(agent, max_retries=0) for _ in range(2)]

        answers = asyncio.run(twice()) if way == "async" else [invoke(agent, max_retries=0) for _ in range(2)]
    assert answers == ["First.", "Second."]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_an_encrypted_connection_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    with serve_tls(tmp_path, [[FIRST], [FIRST[:50], FIRST[50:]], [SECOND]]) as (url, certificate, requests):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        agent = Subject("httpx2").agent(url)

        async def several() -> list[object]:
            return [await invoke_async(agent, max_retries=0) for _ in range(4)]

        answers = asyncio.run(several()) if way == "async" else [invoke(agent, max_retries=0) for _ in range(4)]
    assert answers == ["First.", "First.", "Second.", "Second."]
    assert requests == [4]
