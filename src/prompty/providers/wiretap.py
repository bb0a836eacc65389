"""Transports that record the exchanges they carry, for traces and recordings."""

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
class ExchangeResult:
    """The answer to a request. `chunks` is None if the request failed before the first one; `error` comes after them.
    It is `abandoned` if the caller stopped reading before the end."""

    chunks: Sequence[bytes] | None
    error: ModelError | None = None
    abandoned: bool = False


class Exchange:
    """A request under way. `on_end` receives its answer once, however it ends."""

    def __init__(self, on_end: Callable[[ExchangeResult], None]) -> None:
        self.chunks: list[bytes] | None = None
        self._on_end = on_end
        self._ended, self._lock = False, Lock()

    def record(self, chunk: bytes) -> bytes:
        self.chunks = self.chunks or []
        self.chunks.append(chunk)
        return chunk

    def end(self, error: ModelError | None = None, *, abandoned: bool = False) -> None:
        with self._lock:  # a stream can be aborted by another thread than its reader
            if self._ended:
                return
            self._ended = True
            chunks = None if self.chunks is None else tuple(self.chunks)
            self._on_end(ExchangeResult(chunks=chunks, error=error, abandoned=abandoned))

    @contextmanager
    def end_on_failure(self) -> Iterator[None]:
        """End the exchange if the body fails or is abandoned. Any other error is raised before anything is sent."""
        try:
            yield
        except ModelError as error:
            self.end(error)
            raise
        except (CancelledError, GeneratorExit):
            self.end(abandoned=True)
            raise


class _Wiretap(Generic[Inner]):
    """A transport with a wiretap; `begin` creates the exchange of each request."""

    def __init__(self, inner: Inner, begin: Callable[[WireRequest], Exchange]) -> None:
        self.inner, self._begin = inner, begin
        self.masked: Callable[[str], str] = getattr(inner, "masked", mask_secrets)


class WiretapTransport(_Wiretap[Transport]):
    """Records the exchanges of a transport."""

    def send(self, request: WireRequest, /) -> bytes:
        exchange = self._begin(request)
        with exchange.end_on_failure():
            content = exchange.record(self.inner.send(request))
        exchange.end()
        return content

    def stream(self, request: WireRequest, /) -> Bytes:
        exchange = self._begin(request)
        with exchange.end_on_failure():
            return _WiretapBytes(self.inner.stream(request), exchange)


class _Recorded(Generic[Inner]):
    """Base of the bytes that a wiretap records."""

    def __init__(self, inner: Inner, exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange
        exchange.chunks = []


class _WiretapBytes(_Recorded[Bytes]):
    def __iter__(self) -> Iterator[bytes]:
        with self._exchange.end_on_failure():
            for chunk in self._inner:
                yield self._exchange.record(chunk)
        self._exchange.end()

    def close(self) -> None:
        self._exchange.end(abandoned=True)
        self._inner.close()

    def abort(self) -> None:
        self._exchange.end(abandoned=True)
        self._inner.abort()


class AsyncWiretapTransport(_Wiretap[AsyncTransport]):
    """Records the exchanges of an async transport."""

    async def send(self, request: WireRequest, /) -> bytes:
        exchange = self._begin(request)
        with exchange.end_on_failure():
            content = exchange.record(await self.inner.send(request))
        exchange.end()
        return content

    async def stream(self, request: WireRequest, /) -> AsyncBytes:
        exchange = self._begin(request)
        with exchange.end_on_failure():
            return _AsyncWiretapBytes(await self.inner.stream(request), exchange)


class _AsyncWiretapBytes(_Recorded[AsyncBytes]):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        with self._exchange.end_on_failure():
            async for chunk in self._inner:
                yield self._exchange.record(chunk)
        self._exchange.end()

    async def aclose(self) -> None:
        self._exchange.end(abandoned=True)
        await self._inner.aclose()


def get_base_url(transport: object) -> str:
    """Return the URL that a transport sends to, or an empty text if it does not say."""
    while isinstance(transport, _Wiretap):
        transport = transport.inner
    url: str = getattr(transport, "url", "")
    return url
