"""One owner of retries (L8): what is tried again, how often, after how long, and what is never tried again."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from prompty.errors import ModelError, StreamCut
from prompty.events import ModelFailed, ModelReply, ModelRequested, Retry
from prompty.loop.effects import CallModel, Emit, Wait
from prompty.loop.model_step import call_model
from prompty.model.message import Reply as ModelAnswer
from prompty.model.request import WireRequest
from prompty.providers.http.failures import retry_after
from tests.drivers.wires import Chat, Wire
from tests.loopback import CLOSE, RESET, Pause, Reply, Server, event, json_reply, refusing_port, stream
from tests.ways import Way

# On both of our transports.


AT_ONCE = {"retry-after": "0"}


def fine(wire: Wire, way: Way, text: str = "Hello") -> Reply:
    return stream(*wire.stream(text)) if way.streamed else json_reply(wire.whole(text))


def failed(status: int, headers: dict[str, str] | None = None, **error: object) -> Reply:
    return json_reply({"error": {"message": "no", **error}}, status, headers)


def soon() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=0.01), usegmt=True)


@pytest.mark.parametrize("headers", [AT_ONCE, {"retry-after": "0.01"}, {"retry-after-ms": "10"}], ids=str)
def test_too_many_requests_is_tried_again_when_the_server_says(
    server: Server, way: Way, wire: Wire, headers: dict[str, str]
) -> None:
    server.answer(failed(429, headers), fine(wire, way))
    seen = way.invoke(wire.agent(server))
    assert seen.result == "Hello"
    assert len(server.requests) == 2
    asked = float(headers.get("retry-after") or "0.01")
    assert [(retry.attempt, retry.seconds) for retry in seen.of(Retry)] == [(1, asked)]


def test_the_time_to_try_again_may_be_a_date(server: Server, way: Way) -> None:
    wire = Chat()
    server.answer(failed(429, {"retry-after": soon()}), fine(wire, way))
    seen = way.invoke(wire.agent(server))
    assert seen.result == "Hello"
    assert all(retry.seconds <= 0.01 for retry in seen.of(Retry))


RETRY_AFTER: dict[str, tuple[dict[str, str], float | None]] = {
    "seconds": ({"retry-after": "7"}, 7),
    "milliseconds win": ({"retry-after": "7", "retry-after-ms": "20"}, 0.02),
    "milliseconds that are no number": ({"retry-after": "7", "retry-after-ms": "soon"}, 7),
    "a moment that is past": ({"retry-after": "Fri, 01 Jan 2010 00:00:00 GMT"}, 0),
    "a date without a zone": ({"retry-after": "Fri, 01 Jan 2010 00:00:00"}, 0),
    "less than nothing": ({"retry-after": "-5"}, 0),
    "not a number": ({"retry-after": "nan"}, None),
    "milliseconds that are not a number": ({"retry-after-ms": "nan"}, None),
    "endless": ({"retry-after": "inf"}, None),
    "a date beyond all calendars": ({"retry-after": "Fri, 01 Jan 99999999999999999999 00:00:00 GMT"}, None),
    "words": ({"retry-after": "when you like"}, None),
    "empty": ({"retry-after": ""}, None),
    "nothing": ({}, None),
}


@pytest.mark.parametrize(("headers", "seconds"), RETRY_AFTER.values(), ids=RETRY_AFTER)
def test_how_long_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_time_to_wait_that_makes_no_sense_is_not_waited_for(server: Server, way: Way) -> None:
    wire = Chat()
    server.answer(failed(429, {"retry-after": "nan"}), fine(wire, way))
    assert way.invoke(wire.agent(server)).result == "Hello"


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 529])
def test_what_may_pass_is_tried_as_often_as_allowed(server: Server, way: Way, status: int) -> None:
    server.answer(failed(status, AT_ONCE))
    seen = way.invoke(Chat().agent(server), max_retries=2)
    assert isinstance(seen.error, ModelError)
    assert (seen.error.status, seen.error.retryable) == (status, True)
    assert len(server.requests) == 3
    assert [retry.attempt for retry in seen.of(Retry)] == [1, 2]


def test_each_api_is_retried_and_then_given_up(server: Server, way: Way, wire: Wire) -> None:
    server.answer(failed(503, AT_ONCE))
    error = way.invoke(wire.agent(server), max_retries=1).error
    assert isinstance(error, ModelError)
    assert error.status == 503
    assert [request.path for request in server.requests] == [wire.path] * 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_cannot_pass_is_never_tried_again(server: Server, way: Way, wire: Wire, status: int) -> None:
    server.answer(failed(status, AT_ONCE))
    error = way.invoke(wire.agent(server)).error
    assert isinstance(error, ModelError)
    assert (error.status, error.retryable) == (status, False)
    assert len(server.requests) == 1


PERMANENT: dict[str, Reply] = {
    "the quota is used up": failed(429, AT_ONCE, code="insufficient_quota", type="insufficient_quota"),
    "only the type says so": failed(429, AT_ONCE, code=None, type="insufficient_quota"),
    "billing is off": failed(429, AT_ONCE, code="billing_not_active"),
    "the server says not to": failed(503, {**AT_ONCE, "x-should-retry": "false"}),
}


@pytest.mark.parametrize("reply", PERMANENT.values(), ids=PERMANENT)
def test_what_waiting_does_not_mend_is_never_tried_again(server: Server, way: Way, reply: Reply) -> None:
    server.answer(reply)
    error = way.invoke(Chat().agent(server)).error
    assert isinstance(error, ModelError)
    assert not error.retryable
    assert len(server.requests) == 1


def test_the_sdk_retries_nothing_by_itself(server: Server, way: Way, wire: Wire) -> None:
    server.answer(failed(429, AT_ONCE))
    assert way.invoke(wire.agent(server), max_retries=0).error
    assert len(server.requests) == 1


def test_a_refused_connection_is_tried_again(way: Way, wire: Wire) -> None:
    with refusing_port() as port:
        seen = way.invoke(wire.agent(f"http://127.0.0.1:{port}"), max_retries=1)
    assert isinstance(seen.error, ModelError)
    assert (seen.error.status, seen.error.retryable) == (None, True)
    assert "connection failed" in str(seen.error)
    assert len(seen.of(Retry)) == 1


BROKEN: dict[str, Reply] = {
    "reset before the first byte": [RESET],
    "closed before the first byte": [CLOSE],
    "reset after half the headers": [b"HTTP/1.1 200 OK\r\ncontent-", Pause(0.01), RESET],
    "reset after the headers": [b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", Pause(0.01), RESET],
    "closed in the middle of the body": [b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", CLOSE],
    "not HTTP at all": [b"220 mail.example ready\r\n\r\n", CLOSE],
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_connection_that_breaks_before_a_word_is_tried_again(server: Server, way: Way, broken: Reply) -> None:
    wire = Chat()
    server.answer(broken, fine(wire, way))
    seen = way.invoke(wire.agent(server))
    assert seen.error is None
    assert seen.result == "Hello"
    assert len(server.requests) == 2


def test_a_stream_that_breaks_before_a_word_is_tried_again(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer(stream(*map(event, wire.said()), Pause(0.01), RESET), fine(wire, stream_way))
    seen = stream_way.invoke(wire.agent(server))
    assert seen.result == seen.text == "Hello"
    assert len(server.requests) == 2


@pytest.mark.parametrize("end", [RESET, CLOSE], ids=["reset", "closed"])
def test_a_stream_that_breaks_after_a_word_is_cut_and_never_tried_again(
    server: Server, stream_way: Way, wire: Wire, end: Any
) -> None:
    server.answer(stream(*map(event, wire.said("Hel", "lo")), Pause(0.01), end))
    seen = stream_way.invoke(wire.agent(server))
    assert seen.text == "Hello"
    assert isinstance(seen.error, StreamCut)
    assert isinstance(seen.error.partial, ModelAnswer)
    assert seen.error.partial.text == "Hello"
    assert not seen.error.retryable
    assert len(server.requests) == 1


def test_words_in_an_event_without_its_end_count_as_said(server: Server, stream_way: Way) -> None:
    wire = Chat()
    server.answer(stream(*map(event, wire.said()), event(wire.chunk({"content": "Hello"})).rstrip()))
    seen = stream_way.invoke(wire.agent(server))
    assert seen.text == "Hello"
    assert isinstance(seen.error, StreamCut)
    assert len(server.requests) == 1


def test_trying_again_does_not_outlast_the_time_for_the_call(server: Server, way: Way) -> None:
    server.answer(failed(429, {"retry-after": "30"}))
    error = way.invoke(Chat().agent(server), timeout=10).error
    assert isinstance(error, ModelError)
    assert (error.status, error.retry_after) == (429, 30)
    assert len(server.requests) == 1


REQUEST = WireRequest(path="/", body={}, headers={})


def effects_of(*failures: ModelError, max_retries: int = 3) -> list[object]:
    """What the loop asks for while these failures happen, and then an answer comes."""
    loop, asked = call_model(REQUEST, max_retries), []
    left = iter(failures)
    effect: object = next(loop)
    while True:
        if not (isinstance(effect, Emit) and isinstance(effect.event, ModelRequested | ModelFailed)):
            asked.append(effect)
        try:
            failure = next(left, None) if isinstance(effect, CallModel) else None
            effect = loop.throw(failure) if failure else loop.send(ModelAnswer())
        except StopIteration:
            return asked


def test_the_loop_waits_twice_as_long_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.loop.model_step.FIRST_WAIT", 3.0)
    effects = effects_of(*[ModelError("busy", retryable=True)] * 3)
    call, told = CallModel(REQUEST), [Emit(Retry(attempt, 3.0 * wait, "busy")) for attempt, wait in ((1, 1), (2, 2))]
    assert effects == [
        *(call, told[0], Wait(3.0)),
        *(call, told[1], Wait(6.0)),
        *(call, Emit(Retry(3, 8.0, "busy")), Wait(8.0)),
        *(call, Emit(ModelReply(ModelAnswer()))),
    ]


def test_the_loop_waits_as_long_as_asked_within_reason() -> None:
    asked = [ModelError("busy", retryable=True, retry_after=seconds) for seconds in (0.25, 86_400)]
    assert [effect for effect in effects_of(*asked) if isinstance(effect, Wait)] == [Wait(0.25), Wait(60.0)]
