"""Transports over chunks that are available at once, without a network."""

from collections.abc import AsyncGenerator, Callable, Generator

from prompty.model.request import WireRequest
from prompty.providers import AsyncBytes, Bytes

Chunks = Generator[bytes, None, None]


class LocalTransport:
    """Transport over chunks that are available at once."""

    def __init__(self, get_chunks: Callable[[WireRequest], Chunks]) -> None:
        self._get_chunks = get_chunks

    def send(self, request: WireRequest, /) -> bytes:
        return b"".join(self._get_chunks(request))

    def stream(self, request: WireRequest, /) -> Bytes:
        return LocalBytes(self._get_chunks(request))


class LocalBytes:
    """Byte stream over chunks that are available at once."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks

    def __iter__(self) -> Chunks:
        return self._chunks

    def close(self) -> None:
        self._chunks.close()

    def abort(self) -> None:
        pass


class AsyncLocalTransport:
    """Async counterpart of `LocalTransport`."""

    def __init__(self, get_chunks: Callable[[WireRequest], Chunks]) -> None:
        self._get_chunks = get_chunks

    async def send(self, request: WireRequest, /) -> bytes:
        return b"".join(self._get_chunks(request))

    async def stream(self, request: WireRequest, /) -> AsyncBytes:
        return _iterate(self._get_chunks(request))


async def _iterate(chunks: Chunks) -> AsyncGenerator[bytes, None]:
    for chunk in chunks:
        yield chunk
