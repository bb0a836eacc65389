"""Does what a loop asks for, in synchronous code."""

import time
from collections.abc import Generator
from random import uniform
from typing import TypeVar, cast

from prompty.drivers.deadline import Deadline, timed, within
from prompty.drivers.decoding import MALFORMED, cut, read_reply, without_secrets
from prompty.errors import ModelError, PromptyError
from prompty.loop.effects import CallModel, Effect, Emit, Loop, Wait
from prompty.model.event import Event
from prompty.model.reply import Reply
from prompty.providers import Api, Transport, WireRequest
from prompty.wire.sse import EventReader

T = TypeVar("T")


class SyncDriver:
    """Performs effects against one transport."""

    def __init__(self, api: Api, transport: Transport, deadline: Deadline = None) -> None:
        self.api, self.transport, self.deadline = api, transport, deadline

    def run(self, loop: Loop[T]) -> Generator[Event, None, T]:
        """Drive a loop to its end: yields what happens, returns its result."""
        answer: object = None
        failure: PromptyError | None = None
        try:
            while True:
                try:
                    effect = loop.throw(failure) if failure else loop.send(answer)
                except StopIteration as end:
                    return cast(T, end.value)
                answer = failure = None
                try:
                    answer = yield from self._perform(effect)
                except PromptyError as error:
                    failure = without_secrets(error, self.transport)
        finally:
            loop.close()

    def _perform(self, effect: Effect[object]) -> Generator[Event, None, object]:
        match effect:
            case CallModel(request) if request.stream:
                return (yield from self._stream(request))
            case CallModel(request):
                return self._send(request)
            case Wait(seconds):
                time.sleep(within(self.deadline, uniform(seconds, seconds * 1.25)))  # noqa: S311  not for secrets
                return None
            case Emit(event):
                yield event
                return None
        raise TypeError(f"no driver for {type(effect).__name__}")

    def _send(self, request: WireRequest) -> Reply:
        return read_reply(self.api, self._received(request))

    def _received(self, request: WireRequest) -> bytes:
        """A whole answer. The timeout of a transport is for each piece of it, the deadline for all."""
        if self.deadline is None:
            return self.transport.send(request)
        pieces = []
        chunks = self.transport.stream(timed(request, self.deadline))
        try:
            for chunk in chunks:
                pieces.append(chunk)
                within(self.deadline)
        finally:
            chunks.close()
        return b"".join(pieces)

    def _stream(self, request: WireRequest) -> Generator[Event, None, Reply]:
        if self.api.decoder is None:
            return self._send(request)
        decoder, reader, said = self.api.decoder(), EventReader(), False
        chunks = self.transport.stream(timed(request, self.deadline))
        try:
            for chunk in chunks:
                for event in reader.feed(chunk):
                    for delta in decoder.feed(event):
                        said = True
                        yield delta
                within(self.deadline)
            for event in reader.finish():
                for delta in decoder.feed(event):
                    said = True
                    yield delta
            return decoder.finish()
        except (ModelError, *MALFORMED) as error:
            raise cut(error, decoder, said) from None
        finally:
            chunks.close()
