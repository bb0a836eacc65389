"""Answers over HTTP, in asynchronous code."""

from collections.abc import AsyncGenerator, AsyncIterator

from prompty.cancellation import CancelToken, interruptible
from prompty.drivers.deadline import Deadline, timed, within
from prompty.drivers.decoding import MALFORMED, Outcome, cut, read_reply
from prompty.errors import ModelError
from prompty.model.event import Event
from prompty.model.reply import Reply
from prompty.model.request import WireRequest
from prompty.providers import Api, AsyncBytes, AsyncTransport
from prompty.providers.listening import AsyncListeningTransport
from prompty.wire.sse import EventReader
from prompty.wire.stream import Decoder

Answers = AsyncGenerator[Event | Outcome[Reply], None]


class AsyncHttpModel:
    """A model behind a transport."""

    listening = AsyncListeningTransport

    def __init__(self, api: Api, transport: AsyncTransport, cancel: CancelToken | None = None) -> None:
        self.api, self.transport, self.cancel = api, transport, cancel

    def streams(self, request: WireRequest) -> bool:
        """Whether there is something to hear on the way to the answer."""
        return request.stream and self.api.decoder is not None

    async def reply(self, request: WireRequest, deadline: Deadline) -> Reply:
        """A whole answer. The timeout of a transport is for each piece of it, the deadline for all."""
        if deadline is None:
            sending = self.transport.send(request)
            content = await (interruptible(sending, self.cancel) if self.cancel else sending)
            return read_reply(self.api, content)
        pieces = []
        chunks = await interruptible(self.transport.stream(timed(request, deadline)), self.cancel)
        try:
            async for chunk in self._interruptible(chunks):
                pieces.append(chunk)
                within(deadline)
        finally:
            await chunks.aclose()
        return read_reply(self.api, b"".join(pieces))

    def answer(self, request: WireRequest, deadline: Deadline) -> Answers:
        """A streamed answer, its reply last."""
        assert self.api.decoder is not None  # noqa: S101  `streams` has said so
        return self._streamed(request, deadline, self.api.decoder())

    async def _streamed(self, request: WireRequest, deadline: Deadline, decoder: Decoder) -> Answers:
        reader, said = EventReader(), False
        chunks = await interruptible(self.transport.stream(timed(request, deadline)), self.cancel)
        try:
            async for chunk in self._interruptible(chunks):
                for event in reader.feed(chunk):
                    for delta in decoder.feed(event):
                        said = True
                        yield delta
                within(deadline)
            for event in reader.finish():
                for delta in decoder.feed(event):
                    said = True
                    yield delta
            yield Outcome(decoder.finish())
        except (ModelError, *MALFORMED) as error:
            raise cut(error, decoder, said) from None
        finally:
            await chunks.aclose()

    def _interruptible(self, chunks: AsyncBytes) -> AsyncIterator[bytes]:
        return aiter(chunks) if self.cancel is None else self._each(aiter(chunks), self.cancel)

    async def _each(self, chunks: AsyncIterator[bytes], cancel: CancelToken) -> AsyncIterator[bytes]:
        while True:
            try:
                chunk = await interruptible(anext(chunks), cancel)
            except StopAsyncIteration:
                return
            yield chunk
