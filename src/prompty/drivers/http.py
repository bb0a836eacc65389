"""Answers over HTTP, in synchronous code: bytes of a transport become events and a reply."""

import queue
from collections.abc import Callable, Generator, Iterator

from prompty.cancellation import CancelToken
from prompty.concurrency import in_thread
from prompty.drivers.deadline import Deadline, timed, within
from prompty.drivers.decoding import MALFORMED, cut, read_reply
from prompty.errors import Cancelled, ModelError
from prompty.model.event import Event
from prompty.model.reply import Reply
from prompty.model.request import WireRequest
from prompty.providers import Api, Bytes, Transport
from prompty.providers.listening import ListeningTransport
from prompty.wire.sse import EventReader
from prompty.wire.stream import Decoder


class HttpModel:
    """A model behind a transport."""

    listening = ListeningTransport

    def __init__(self, api: Api, transport: Transport, cancel: CancelToken | None = None) -> None:
        self.api, self.transport, self.cancel = api, transport, cancel

    def answer(self, request: WireRequest, deadline: Deadline) -> Generator[Event, None, Reply]:
        if request.stream and self.api.decoder:
            return (yield from self._streamed(request, deadline, self.api.decoder()))
        return read_reply(self.api, self._whole(request, deadline))

    def _whole(self, request: WireRequest, deadline: Deadline) -> bytes:
        """A whole answer. The timeout of a transport is for each piece of it, the deadline for all."""
        if deadline is None and self.cancel is None:
            return self.transport.send(request)
        pieces = []
        chunks = self._chunks(request, deadline)
        try:
            for chunk in chunks:
                pieces.append(chunk)
                within(deadline)
        finally:
            chunks.close()
        return b"".join(pieces)

    def _streamed(self, request: WireRequest, deadline: Deadline, decoder: Decoder) -> Generator[Event, None, Reply]:
        reader, said = EventReader(), False
        chunks = self._chunks(request, deadline)
        try:
            for chunk in chunks:
                for event in reader.feed(chunk):
                    for delta in decoder.feed(event):
                        said = True
                        yield delta
                within(deadline)
            for event in reader.finish():
                for delta in decoder.feed(event):
                    said = True
                    yield delta
            return decoder.finish()
        except (ModelError, *MALFORMED) as error:
            raise cut(error, decoder, said) from None
        finally:
            chunks.close()

    def _chunks(self, request: WireRequest, deadline: Deadline) -> "Bytes | Abandonable":
        limited = timed(request, deadline)
        if self.cancel is None:
            return self.transport.stream(limited)
        return Abandonable(lambda: self.transport.stream(limited), self.cancel)


class Abandonable:
    """Bytes that another thread waits for, so that the wait can be left: nothing wakes a thread that waits for the
    beginning of an answer."""

    def __init__(self, open_bytes: Callable[[], Bytes], cancel: CancelToken) -> None:
        self._open, self._cancel = open_bytes, cancel
        self._received: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
        self._bytes: Bytes | None = None
        self._left = False
        in_thread(self._receive)

    def _receive(self) -> None:
        try:
            self._bytes = self._open()
            for chunk in self._bytes:
                self._received.put(chunk)
                if self._left:
                    break
            self._received.put(None)
        except Exception as error:  # it is raised by whoever reads
            self._received.put(error)
        finally:
            if self._bytes is not None:
                self._bytes.close()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            with self._cancel.listening(lambda: self._received.put(Cancelled(self._cancel.reason))):
                item = self._received.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                return
            yield item

    def close(self) -> None:
        """Leave the rest; the thread that receives it closes the connection."""
        self._left = True
        if self._bytes is not None:
            self._bytes.abort()
