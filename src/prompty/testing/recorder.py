"""Records what goes over the wire, of every provider."""

import os
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from prompty.errors import ModelError
from prompty.model.agent import PromptAgent
from prompty.providers import AsyncBytes, AsyncTransport, Bytes, Provider, Tap, Transport, WireRequest
from prompty.testing.exchange import Answered, Asked, Mask, asked, line_of, masking
from prompty.tracing.redaction import masked_text

Inner = TypeVar("Inner")


class Recorder(Tap):
    """Within `with Recorder(path):` every exchange with a model is written to a file, as soon as it is over.

    The first one replaces the file. Secrets are masked before anything is written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._begun, self._lock = False, Lock()

    def transport(self, provider: Provider, agent: PromptAgent, /) -> Transport:
        return RecordingTransport(self, provider.key, agent, provider.transport(agent))

    def transport_async(self, provider: Provider, agent: PromptAgent, /) -> AsyncTransport:
        return AsyncRecordingTransport(self, provider.key, agent, provider.transport_async(agent))

    def keep(self, line: bytes) -> None:
        """Write a line at the end of the file, which nobody else may read."""
        with self._lock:
            if not self._begun:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.unlink(missing_ok=True)
                self._begun = True
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(line)


class Exchange:
    """A call that is being made. It is kept once, when it is over in one way or another."""

    def __init__(self, request: Asked, mask: Mask, keep: Callable[[bytes], None]) -> None:
        self.chunks: list[bytes] | None = None
        self._request, self._mask, self._keep = request, mask, keep
        self._is_over, self._lock = False, Lock()

    def heard(self, chunk: bytes) -> bytes:
        self.chunks = self.chunks or []
        self.chunks.append(chunk)
        return chunk

    def over(self, error: ModelError | None = None, *, left: bool = False) -> None:
        with self._lock:  # a stream may be aborted by another thread than the one that reads it
            if self._is_over:
                return
            self._is_over = True
            chunks = None if self.chunks is None else tuple(self.chunks)
            self._keep(line_of(self._request, Answered(chunks=chunks, error=error, left=left), self._mask))

    @contextmanager
    def failing(self) -> Iterator[None]:
        """What fails in here, or is left, ends the exchange. Other errors come before anything is sent."""
        try:
            yield
        except ModelError as error:
            self.over(error)
            raise
        except (CancelledError, GeneratorExit):
            self.over(left=True)
            raise


class Recording(Generic[Inner]):
    """What is the same for both kinds of transport."""

    def __init__(self, recorder: Recorder, provider: str, agent: PromptAgent, inner: Inner) -> None:
        self._recorder, self._provider, self._agent, self._inner = recorder, provider, agent, inner
        self.masked: Mask = getattr(inner, "masked", masked_text)

    def _begin(self, request: WireRequest) -> Exchange:
        mask = masking(self._agent, request, self._inner)
        return Exchange(asked(self._provider, request, mask), mask, self._recorder.keep)


class RecordingTransport(Recording[Transport]):
    """Listens to a transport."""

    def send(self, request: WireRequest, /) -> bytes:
        exchange = self._begin(request)
        with exchange.failing():
            content = exchange.heard(self._inner.send(request))
        exchange.over()
        return content

    def stream(self, request: WireRequest, /) -> Bytes:
        exchange = self._begin(request)
        with exchange.failing():
            return RecordedBytes(self._inner.stream(request), exchange)


class RecordedBytes:
    """Listens to a stream."""

    def __init__(self, inner: Bytes, exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange
        exchange.chunks = []

    def __iter__(self) -> Iterator[bytes]:
        with self._exchange.failing():
            for chunk in self._inner:
                yield self._exchange.heard(chunk)
        self._exchange.over()

    def close(self) -> None:
        self._exchange.over(left=True)
        self._inner.close()

    def abort(self) -> None:
        self._exchange.over(left=True)
        self._inner.abort()


class AsyncRecordingTransport(Recording[AsyncTransport]):
    """The same for async code."""

    async def send(self, request: WireRequest, /) -> bytes:
        exchange = self._begin(request)
        with exchange.failing():
            content = exchange.heard(await self._inner.send(request))
        exchange.over()
        return content

    async def stream(self, request: WireRequest, /) -> AsyncBytes:
        exchange = self._begin(request)
        with exchange.failing():
            return AsyncRecordedBytes(await self._inner.stream(request), exchange)


class AsyncRecordedBytes:
    """The same for async code."""

    def __init__(self, inner: AsyncBytes, exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange
        exchange.chunks = []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with self._exchange.failing():
            async for chunk in self._inner:
                yield self._exchange.heard(chunk)
        self._exchange.over()

    async def aclose(self) -> None:
        self._exchange.over(left=True)
        await self._inner.aclose()
