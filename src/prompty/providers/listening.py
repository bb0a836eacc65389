"""Transports that let others hear what they carry."""

from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from prompty.errors import ModelError
from prompty.model.request import WireRequest
from prompty.providers import AsyncBytes, AsyncTransport, Bytes, Transport
from prompty.safety.redaction import mask_secrets

Inner = TypeVar("Inner")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """What came of a request: chunks, none if it failed before the first could come; an error after them; or the caller
    `left` before the end."""

    chunks: Sequence[bytes] | None
    error: ModelError | None = None
    left: bool = False


class Exchange:
    """A call that is being made. It is kept once, when it is over in one way or another."""

    def __init__(self, keep: Callable[[Answered], None]) -> None:
        self.chunks: list[bytes] | None = None
        self._keep = keep
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
            self._keep(Answered(chunks=chunks, error=error, left=left))

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


class Listening(Generic[Inner]):
    """What is the same for both kinds of transport; `begin` is asked for an exchange before each call."""

    def __init__(self, inner: Inner, begin: Callable[[WireRequest], Exchange]) -> None:
        self.inner, self._begin = inner, begin
        self.masked = getattr(inner, "masked", mask_secrets)


class ListeningTransport(Listening[Transport]):
    """Listens to a transport."""

    def send(self, request: WireRequest, /) -> bytes:
        exchange = self._begin(request)
        with exchange.failing():
            content = exchange.heard(self.inner.send(request))
        exchange.over()
        return content

    def stream(self, request: WireRequest, /) -> Bytes:
        exchange = self._begin(request)
        with exchange.failing():
            return HeardBytes(self.inner.stream(request), exchange)


class HeardBytes:
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


class AsyncListeningTransport(Listening[AsyncTransport]):
    """The same for async code."""

    async def send(self, request: WireRequest, /) -> bytes:
        exchange = self._begin(request)
        with exchange.failing():
            content = exchange.heard(await self.inner.send(request))
        exchange.over()
        return content

    async def stream(self, request: WireRequest, /) -> AsyncBytes:
        exchange = self._begin(request)
        with exchange.failing():
            return AsyncHeardBytes(await self.inner.stream(request), exchange)


class AsyncHeardBytes:
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
