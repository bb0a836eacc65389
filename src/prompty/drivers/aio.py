"""Does what a loop asks for, in asynchronous code. The twin of `sync`: what decides is the same generator."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import uniform
from typing import TypeVar, cast

from prompty.drivers.deadline import Deadline, timed, within
from prompty.drivers.decoding import MALFORMED, Outcome, cut, read_reply, without_secrets
from prompty.errors import ModelError, PromptyError
from prompty.loop.effects import CallModel, Effect, Emit, Loop, Wait
from prompty.model.event import Event
from prompty.model.reply import Reply
from prompty.providers import Api, AsyncTransport, WireRequest
from prompty.wire.sse import EventReader
from prompty.wire.stream import Decoder

T = TypeVar("T")


class AsyncDriver:
    """Performs effects against one transport."""

    def __init__(self, api: Api, transport: AsyncTransport, deadline: Deadline = None) -> None:
        self.api, self.transport, self.deadline = api, transport, deadline

    async def run(self, loop: Loop[T]) -> AsyncGenerator[Event | Outcome[T], None]:
        """Drive a loop to its end: yields what happens, and its outcome last."""
        answer: object = None
        failure: PromptyError | None = None
        try:
            while True:
                try:
                    effect = loop.throw(failure) if failure else loop.send(answer)
                except StopIteration as end:
                    yield Outcome(cast(T, end.value))
                    return
                answer = failure = None
                try:
                    match effect:
                        case CallModel(request) if request.stream and self.api.decoder:
                            async with aclosing(self._stream(request, self.api.decoder())) as items:
                                async for item in items:
                                    if isinstance(item, Outcome):
                                        answer = item.value
                                    else:
                                        yield item
                        case Emit(event):
                            yield event
                        case _:
                            answer = await self._perform(effect)
                except PromptyError as error:
                    failure = without_secrets(error, self.transport)
        finally:
            loop.close()

    async def _perform(self, effect: Effect[object]) -> object:
        """Do what has an answer and nothing on the way to it."""
        match effect:
            case CallModel(request) if self.deadline is None:
                return read_reply(self.api, await self.transport.send(request))
            case CallModel(request):
                return read_reply(self.api, await self._received(request))
            case Wait(seconds):
                await asyncio.sleep(within(self.deadline, uniform(seconds, seconds * 1.25)))  # noqa: S311  not for secrets
                return None
        raise TypeError(f"no driver for {type(effect).__name__}")

    async def _received(self, request: WireRequest) -> bytes:
        """A whole answer. The timeout of a transport is for each piece of it, the deadline for all."""
        pieces = []
        chunks = await self.transport.stream(timed(request, self.deadline))
        try:
            async for chunk in chunks:
                pieces.append(chunk)
                within(self.deadline)
        finally:
            await chunks.aclose()
        return b"".join(pieces)

    async def _stream(self, request: WireRequest, decoder: Decoder) -> AsyncGenerator[Event | Outcome[Reply], None]:
        reader, said = EventReader(), False
        chunks = await self.transport.stream(timed(request, self.deadline))
        try:
            async for chunk in chunks:
                for event in reader.feed(chunk):
                    for delta in decoder.feed(event):
                        said = True
                        yield delta
                within(self.deadline)
            for event in reader.finish():
                for delta in decoder.feed(event):
                    said = True
                    yield delta
            yield Outcome(decoder.finish())
        except (ModelError, *MALFORMED) as error:
            raise cut(error, decoder, said) from None
        finally:
            await chunks.aclose()
