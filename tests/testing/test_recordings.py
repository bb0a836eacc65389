"""Recordings: what went over the wire once is answered again, without key, client or network."""

import asyncio
import contextvars
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prompty import (
    CancelToken,
    ModelError,
    PromptAgent,
    PromptyError,
    invoke,
    invoke_async,
    turn,
    turn_async,
    user,
)
from prompty.drivers.target import ProviderExecutor
from prompty.errors import Cancelled, EmptyReply, StreamCut
from prompty.events import Retry
from prompty.model.message import Json
from prompty.model.request import WireRequest
from prompty.pipeline.request import build_request
from prompty.providers import PROVIDERS, register_provider
from prompty.providers.fitting import fit_request
from prompty.providers.wiretap import ExchangeResult
from prompty.registry import DEFAULT
from prompty.safety.redaction import MASK
from prompty.testing import Player, Recorder, RecordingMissing, Script, answer, call
from prompty.testing.recordings import decode_exchange, encode_exchange, mask_request
from tests.drivers.clients import close_clients
from tests.drivers.wires import KEY, WIRES, Chat, Wire
from tests.loopback import CLOSE, RESET, Hold, Server, event, json_reply, stream
from tests.strategies import json_objects
from tests.ways import WAYS, Way

# On both of our transports.


every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
every_mode = pytest.mark.parametrize("way", WAYS, ids=str)
every_stream = pytest.mark.parametrize("way", [way for way in WAYS if way.streamed], ids=str)

LOOK = {"name": "look", "kind": "function", "parameters": [{"name": "at", "kind": "string"}]}
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recordings" / "one.jsonl"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        close_clients()


def scripted(text: str = "Hi", api_type: str = "chat", **parts: Any) -> PromptAgent:
    model = {"id": "m", "provider": "scripted", "apiType": api_type, **parts.pop("model", {})}
    return PromptAgent.model_validate({"model": model, "instructions": f"user:\n{text}", "tools": [LOOK], **parts})


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def request_of(agent: PromptAgent, *, streamed: bool = True) -> WireRequest:
    api = DEFAULT[PROVIDERS].get(agent.model.provider).api(agent.model.api_type)
    return build_request(agent, [user("Hi")], fit_request(agent, api), stream=streamed)


def chunks_of(agent: PromptAgent, request: WireRequest) -> list[bytes]:
    """The bytes of an answer, chunk by chunk."""
    received = DEFAULT[PROVIDERS].get(agent.model.provider).transport_for(agent).stream(request)
    try:
        return list(received)
    finally:
        received.close()


def once(hold: Hold, act: Callable[[], None]) -> threading.Thread:
    """Act when the server has come to a point."""

    def work() -> None:
        if hold.reached.wait(5):
            act()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def answers(wire: Wire, way: Way, text: str) -> Any:
    return stream(*wire.stream(*text.split(" "))) if way.streamed else json_reply(wire.whole(text))


@every_wire
@every_mode
def test_what_a_server_said_is_said_again_without_it(wire: Wire, way: Way, server: Server, path: Path) -> None:
    server.answer(answers(wire, way, "Hello Zoë 👋"), answers(wire, way, "Once more"))
    with Recorder(path):
        live = way.invoke_often(2, wire.agent(server))
    with Player(path):
        played = way.invoke_often(2, wire.agent(NOWHERE))
    assert [seen.error for seen in live] == [None, None]
    assert [seen.outcome for seen in played] == [seen.outcome for seen in live]
    assert len(server.requests) == 2


@every_wire
def test_chunks_are_the_same_bytes_also_where_one_ends_within_a_character(
    wire: Wire, server: Server, path: Path
) -> None:
    content = b"".join(wire.stream("Zoë 👋", "\x00\xff"))
    middle = content.find("👋".encode()) if "👋".encode() in content else 7
    pieces = [content[start:end] for start, end in pairwise((0, middle + 1, middle + 3, len(content)))]
    holds = [Hold(), Hold()]
    server.answer(stream(pieces[0], holds[0], pieces[1], holds[1], pieces[2]))
    agent, live = wire.agent(server), []
    with Recorder(path):
        received = DEFAULT[PROVIDERS].get(wire.provider).transport_for(agent).stream(request_of(agent))
        for chunk, hold in zip(received, [*holds, None], strict=True):
            live.append(chunk)
            if hold:
                hold.release()
        received.close()
    assert live == pieces
    with Player(path):
        assert chunks_of(agent, request_of(agent)) == pieces


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_turn_with_tools_is_played(asynchronous: bool, streamed: bool, path: Path) -> None:
    looked: list[str] = []

    def look(at: str) -> str:
        looked.append(at)
        return f"{at} is blue"

    def take() -> object:
        if asynchronous:
            return asyncio.run(take_async())
        if not streamed:
            return turn(scripted(), tools=[look])
        with turn(scripted(), tools=[look], stream=True) as events:
            return [*events, events.result]

    async def take_async() -> object:
        if not streamed:
            return await turn_async(scripted(), tools=[look])
        async with await turn_async(scripted(), tools=[look], stream=True) as events:
            return [*[text async for text in events], await events.result()]

    with Script([call("look", at="the sky"), call("look", at="the sea")], "All is blue."), Recorder(path):
        live = take()
    with Player(path):
        assert take() == live
    assert sorted(looked) == ["the sea", "the sea", "the sky", "the sky"]
    assert [line["request"]["provider"] for line in lines_of(path)] == ["scripted", "scripted"]


def test_sync_and_async_share_recordings_and_so_do_calls_with_and_without_a_deadline(path: Path) -> None:
    with Script("one", "two", "three", "four"), Recorder(path):
        for timeout in (None, 30, 30, None):
            invoke(scripted(), timeout=timeout)
    with Player(path):
        assert [invoke(scripted()), invoke(scripted(), timeout=30)] == ["one", "two"]
        assert asyncio.run(invoke_async(scripted(), timeout=30)) == "three"
        assert asyncio.run(invoke_async(scripted())) == "four"


def test_an_executor_of_a_provider_is_recorded_and_played(path: Path) -> None:
    with Script("Hello", "There"), Recorder(path):
        live = [ProviderExecutor().execute(scripted(), [user("Hi")])]
        live.append(asyncio.run(ProviderExecutor().execute_async(scripted(), [user("Hi")])))
    with Player(path):
        assert asyncio.run(ProviderExecutor().execute_async(scripted(), [user("Hi")])) == live[0]
        assert ProviderExecutor().execute(scripted(), [user("Hi")]) == live[1]


@every_mode
def test_a_played_retry_does_not_wait(way: Way, server: Server, path: Path) -> None:
    wire = Chat()
    server.answer(json_reply({}, 429, {"retry-after-ms": "10"}), answers(wire, way, "Now then"))
    with Recorder(path):
        way.invoke(wire.agent(server))
    text = path.read_text()
    assert '"retry_after":0.01' in text
    path.write_text(text.replace('"retry_after":0.01', '"retry_after":30.0'))
    started = time.monotonic()
    with Player(path):
        played = way.invoke(wire.agent(NOWHERE))
    assert time.monotonic() - started < 10
    assert [retry.seconds for retry in played.of(Retry)] == [30.0]


@every_wire
@every_mode
def test_an_error_is_played_and_so_is_the_retry_after_it(wire: Wire, way: Way, server: Server, path: Path) -> None:
    busy = json_reply({"error": {"message": "busy"}}, 429, {"retry-after-ms": "10"})
    server.answer(busy, answers(wire, way, "Now then"), json_reply({"error": {"message": "never"}}, 400))
    with Recorder(path):
        live = way.invoke_often(2, wire.agent(server))
    with Player(path):
        played = way.invoke_often(2, wire.agent(NOWHERE))
    assert played[0].outcome == live[0].outcome
    assert live[0].result == ("Nowthen" if way.streamed else "Now then")
    assert len(played[0].of(Retry)) == 1
    for seen in (live[1], played[1]):
        assert isinstance(seen.error, ModelError)
        assert (type(seen.error), seen.error.status, seen.error.retryable) == (ModelError, 400, False)
    assert live[1].cause == played[1].cause
    assert lines_of(path)[0]["answer"]["error"]["retry_after"] == 0.01


@every_wire
@every_stream
@pytest.mark.parametrize("end", [RESET, CLOSE], ids=["reset", "closed"])
def test_a_stream_that_broke_breaks_again(wire: Wire, way: Way, end: Any, server: Server, path: Path) -> None:
    words = [event(item) for item in wire.said("It", " was")]
    hold = Hold()
    server.answer(stream(*words, hold, end))
    release = once(hold, hold.release)
    with Recorder(path):
        live = way.invoke(wire.agent(server))
    release.join()
    with Player(path):
        played = way.invoke(wire.agent(NOWHERE))
    assert isinstance(live.error, StreamCut)
    assert isinstance(played.error, StreamCut)
    assert (played.cause, played.error.partial) == (live.cause, live.error.partial)
    assert played.outcome == live.outcome


def test_errors_are_kept_with_their_kind_and_where_they_came(path: Path) -> None:
    request, plain = mask_request("p", WireRequest(path="/x", body={}, headers={}), str), str
    cases = [
        ExchangeResult(chunks=None, error=ModelError("no", status=503, retryable=True, retry_after=1.5)),
        ExchangeResult(chunks=[], error=EmptyReply("nothing in it")),
        ExchangeResult(chunks=[b"a"], error=StreamCut("cut")),
        ExchangeResult(chunks=[b"a"], abandoned=True),
    ]
    read = [decode_exchange(encode_exchange(request, case, plain))[1] for case in cases]
    assert [(case.chunks, case.abandoned) for case in read] == [(case.chunks, case.abandoned) for case in cases]
    assert [type(case.error) for case in read] == [ModelError, EmptyReply, ModelError, type(None)]
    for before, after in zip(cases[:3], read[:3], strict=True):
        assert before.error
        assert after.error
        names = ("args", "status", "retryable", "retry_after")
        assert [getattr(after.error, name) for name in names] == [getattr(before.error, name) for name in names]


def test_what_a_caller_left_is_kept_as_far_as_it_came(path: Path) -> None:
    def first_word(agent: PromptAgent) -> object:
        with invoke(agent, stream=True) as words:
            return next(iter(words))

    async def first_word_async(agent: PromptAgent) -> object:
        async with await invoke_async(agent, stream=True) as words:
            return await anext(aiter(words))

    with Script("It is warm.", "It was cold."), Recorder(path):
        assert [first_word(scripted()), asyncio.run(first_word_async(scripted()))] == ["It ", "It "]
    assert [line["answer"]["abandoned"] for line in lines_of(path)] == [True, True]
    with Player(path):
        assert first_word(scripted()) == "It "
        with pytest.raises(RecordingMissing, match=r"line 2 of .* ends after \d chunks: its stream was closed early"):
            list(invoke(scripted(), stream=True))


class TellingRecorder(Recorder):
    """Says when it has written something: what is left behind is written by its own thread."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.written = threading.Event()

    def append_line(self, line: bytes) -> None:
        super().append_line(line)
        self.written.set()


def test_a_turn_that_was_cancelled_while_it_waited_is_kept(server: Server, path: Path) -> None:
    token, hold = CancelToken(), Hold()
    server.answer(stream(*[event(item) for item in Chat().said("It")], hold))
    cancelling = once(hold, token.cancel)
    with TellingRecorder(path) as recorder, pytest.raises(Cancelled):
        turn(Chat().agent(server), cancel=token, stream=True).result  # noqa: B018  reading the result is what runs it
    cancelling.join()
    assert recorder.written.wait(5)
    [line] = lines_of(path)
    assert line["answer"]["abandoned"]


PLANTED = [f"planted{word}4711" for word in ("key", "header", "body", "user", "password", "query", "nested", "shape")]
IN_KEY, IN_HEADER, IN_BODY, IN_USER, IN_PASSWORD, IN_QUERY, IN_NESTED, IN_SHAPE = PLANTED


@pytest.fixture
def leaky(server: Server, monkeypatch: pytest.MonkeyPatch) -> PromptAgent:
    """A prompt with secrets in all places."""
    openai = DEFAULT[PROVIDERS].get("openai")
    api = replace(openai.api("chat"), headers=lambda _: {"X-Access-Token": f"Bearer {IN_HEADER}"})
    monkeypatch.setitem(DEFAULT[PROVIDERS]._loaded, "leaky", replace(openai, key="leaky", apis={"chat": api}))
    place = server.url.removeprefix("http://")
    endpoint = f"http://{IN_USER}:{IN_PASSWORD}@{place}/v1?access_token={IN_QUERY}"
    extra = {"password": IN_BODY, "metadata": {"credentials": [{"value": IN_NESTED}]}}
    model = {
        "id": "m",
        "provider": "leaky",
        "connection": {"kind": "key", "endpoint": endpoint, "apiKey": IN_KEY},
        "options": {"additionalProperties": extra},
    }
    told = f"Use sk-{IN_SHAPE}, {IN_KEY} and http://me:{IN_SHAPE}@there"
    return PromptAgent.model_validate({"model": model, "instructions": f"user:\n{told}"})


@every_mode
def test_no_secret_is_in_a_recording_whoever_repeats_it(
    leaky: PromptAgent, way: Way, server: Server, path: Path
) -> None:
    known = [secret for secret in PLANTED if secret not in (IN_BODY, IN_NESTED, IN_SHAPE)]
    echo = " ".join([*known, f"sk-{IN_SHAPE}"])
    content = b"".join(Chat().stream(echo))
    pieces = [content[start : start + 10] for start in range(0, len(content), 10)]
    told = stream(*pieces) if way.streamed else json_reply(Chat().whole(echo))
    server.answer(told, json_reply({"error": {"message": echo}}, 400))
    with Recorder(path):
        live = way.invoke_often(2, leaky)
    sent = server.requests[0]
    assert all(secret.encode() in sent.content for secret in (IN_BODY, IN_NESTED, IN_SHAPE))
    assert sent.headers["x-access-token"] == f"Bearer {IN_HEADER}"
    assert sent.headers["authorization"].startswith("Basic ")  # what stands in the URL comes before the key
    assert IN_QUERY in sent.path
    assert live[0].result == echo
    written = path.read_bytes()
    assert [secret for secret in PLANTED if secret.encode() in written] == []
    with Player(path):
        played = way.invoke_often(2, leaky)
    assert played[0].result == " ".join([MASK] * (len(known) + 1))
    assert played[1].cause.removeprefix("HTTP 400: ") == " ".join([MASK] * (len(known) + 1))


def test_a_key_of_the_environment_is_masked_too(server: Server, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    server.answer(json_reply(Chat().whole(f"You are {KEY}")))
    agent = PromptAgent.model_validate({"model": {"id": "m", "provider": "openai"}, "instructions": f"user:\n{KEY}"})
    with Recorder(path):
        assert invoke(agent) == f"You are {KEY}"
    assert KEY.encode() not in path.read_bytes()


def test_a_file_is_private_also_where_another_was(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("of old")
    path.chmod(0o666)
    with Script("a", "b"), Recorder(path):
        invoke(scripted())
        assert path.stat().st_mode & 0o777 == 0o600
        assert len(lines_of(path)) == 1
        invoke(scripted())
    assert [line["version"] for line in lines_of(path)] == [1, 1]
    assert path.read_bytes().endswith(b"}\n")


@pytest.mark.process
def test_playing_needs_no_key_and_loads_no_client(path: Path) -> None:
    with Script("Hello"), Recorder(path):
        invoke(scripted())
    code = f"""
import sys
from prompty import PromptAgent, invoke
from prompty.testing import Player
model = {{"id": "m", "provider": "openai", "connection": {{"kind": "key"}}}}
agent = {{"model": model, "instructions": "user:\\nHi", "tools": [{LOOK!r}]}}
with Player({str(path)!r}):
    assert invoke(PromptAgent.model_validate(agent)) == "Hello"
assert not {{"openai", "httpx2", "anthropic"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)  # noqa: S603  our own code


def missed(player: Player, agent: PromptAgent, **options: Any) -> str:
    with player, pytest.raises(RecordingMissing) as caught:
        invoke(agent, **options)
    assert not isinstance(caught.value, ModelError | LookupError | ValueError)  # which are tried again, or malformed
    return str(caught.value)


def recorded(path: Path, *agents: PromptAgent) -> Player:
    with Script(*["ok"] * len(agents)), Recorder(path):
        for agent in agents:
            invoke(agent)
    return Player(path)


def test_a_miss_shows_the_most_similar_recording_and_where_it_differs(path: Path) -> None:
    near = scripted("How warm is it in Paris?", model={"options": {"temperature": 0.5}})
    far = scripted("Hello", tools=[])
    asked_for = scripted("How warm is it in Oslo?", model={"options": {"temperature": 0.5}})
    assert missed(recorded(path, far, near), asked_for) == (
        f"no recording in {path} matches this request\n"
        "    The most similar recording is line 2. The first difference is in messages[0].content:\n"
        '      recorded: "How warm is it in Paris?"\n'
        '      actual:   "How warm is it in Oslo?"\n'
        f"    To record it again, run `pytest --prompty-live`, or make the call within `with Recorder('{path}'):`."
    )


MISSES = {
    "a value that is new": (
        scripted(model={"options": {"temperature": 1}}),
        "temperature:\n      recorded: nothing\n      actual:   1",
    ),
    "a value that is gone": (
        scripted(tools=[]),
        'tools[0].function.name:\n      recorded: "look"\n      actual:   nothing',
    ),
    "another API": (
        scripted(api_type="responses"),
        "the path:\n      recorded: /chat/completions\n      actual:   /resp",
    ),
    "long texts": (scripted("x" * 500 + "y" * 500), f'"Hi"\n      actual:   "{"x" * 79}…\n'),
}


@pytest.mark.parametrize(("agent", "shown"), MISSES.values(), ids=MISSES)
def test_a_miss_shows_what_is_there_on_one_side_only(agent: PromptAgent, shown: str, path: Path) -> None:
    assert shown in missed(recorded(path, scripted()), agent)


def test_long_texts_are_shown_where_they_part(path: Path) -> None:
    player = recorded(path, scripted(f"{'x' * 500} Paris {'y' * 500}"))
    shown = missed(player, scripted(f"{'x' * 500} Oslo {'y' * 500}"))
    assert f"recorded: …{'x' * 39} Paris yyy" in shown
    assert f"actual:   …{'x' * 39} Oslo yyy" in shown


def test_a_miss_shows_no_secret(path: Path) -> None:
    shown = missed(recorded(path, scripted("Hi sk-abcdefghijkl")), scripted("Hello sk-mnopqrstuvwx"))
    assert "abcdefgh" not in shown
    assert "mnopqrst" not in shown


def test_equal_requests_are_answered_once_each_and_a_miss_is_not_tried_again(path: Path) -> None:
    player = recorded(path, scripted())
    with player:
        assert invoke(scripted()) == "ok"
    shown = missed(player, scripted(), max_retries=5)
    assert "is left for this request: each is played once" in shown
    assert "first difference is in stream:\n      recorded: false\n      actual:   true" in missed_stream(player)


def missed_stream(player: Player) -> str:
    with player, pytest.raises(RecordingMissing) as caught:
        list(invoke(scripted(), stream=True))
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "does not exist"),
        ("", "is empty"),
        ("\n{", "line 2 of .* cannot be read"),
        ("[]", "line 1 of .* cannot be read"),
        ('{"version": 2}', "it has version 2, but this release reads version 1"),
        ('{"version": 1, "answer": {"chunks": [5], "error": null, "abandoned": false}}', "line 1 of .* cannot be read"),
    ],
)
def test_a_file_that_cannot_be_played_says_so(content: str | None, cause: str, path: Path) -> None:
    path.parent.mkdir()
    if content is not None:
        path.write_text(content)
    with pytest.raises(RecordingMissing, match=f"(?s){cause}.*with Recorder"), Player(path):
        invoke(scripted())


def test_a_recording_belongs_to_its_context(path: Path) -> None:
    player = recorded(path, *[scripted()] * 3)
    outcomes: dict[str, object] = {}

    def ask(name: str) -> None:
        try:
            outcomes[name] = invoke(scripted())
        except PromptyError as error:
            outcomes[name] = type(error)

    with player:
        context = contextvars.copy_context()
        threads = [
            threading.Thread(target=lambda: context.run(ask, "copied")),
            threading.Thread(target=lambda: contextvars.Context().run(ask, "other")),
        ]
        for thread in threads:
            thread.start()
            thread.join()

        async def both() -> list[Any]:
            return list(await asyncio.gather(invoke_async(scripted()), asyncio.create_task(invoke_async(scripted()))))

        assert asyncio.run(both()) == ["ok", "ok"]
    ask("after")
    assert outcomes == {"copied": "ok", "other": ModelError, "after": ModelError}


def test_exchanges_at_once_are_whole_lines(path: Path) -> None:
    async def many() -> list[Any]:
        return await asyncio.gather(*(invoke_async(scripted(f"number {number}")) for number in range(50)))

    echo: Callable[[WireRequest], Any] = lambda request: answer(str(request.body["messages"]) * 500)  # noqa: E731  an item
    with Script(*[echo] * 50), Recorder(path):
        live = asyncio.run(many())
    assert len(lines_of(path)) == 50
    with Player(path):
        assert asyncio.run(many()) == live


@given(chunks=st.lists(st.binary() | st.text().map(str.encode)), body=json_objects)
def test_a_line_gives_back_what_was_written(chunks: list[bytes], body: Json) -> None:
    request = mask_request("p", WireRequest(path="/x", body=body, headers={"a": "b"}, stream=True), str)
    line = encode_exchange(request, ExchangeResult(chunks=chunks), str)
    assert line.count(b"\n") == 1
    read, told = decode_exchange(line)
    assert (read, read.key, told) == (request, request.key, ExchangeResult(chunks=chunks))


def test_providers_of_the_host_are_recorded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register_provider("hosted", replace(DEFAULT[PROVIDERS].get("scripted"), key="hosted"))
    try:
        agent = scripted(model={"provider": "hosted"})
        with Script("Hello"), Recorder(path):
            invoke(agent)
        with Player(path):
            assert invoke(agent) == "Hello"
    finally:
        DEFAULT[PROVIDERS].unregister("hosted")
    assert lines_of(path)[0]["request"]["provider"] == "hosted"
