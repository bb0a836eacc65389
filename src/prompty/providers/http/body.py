"""Bodies of answers: decompressed as they come, and no longer than their limit."""

import zlib
from collections.abc import Iterator

from prompty.errors import ModelError

MAX_ANSWER = 64 * 1024 * 1024  # bytes of an answer, whole or streamed, after decompression
MAX_ERROR = 64 * 1024  # bytes of the body of an error; the rest is not read
_MOST_AT_ONCE = 256 * 1024  # bytes that one step of decompression may give


class Body:
    """Reads one body: `feed` takes chunks as they come and returns what they hold."""

    __slots__ = ("_left", "_unzip")

    def __init__(self, encoding: str, limit: int = MAX_ANSWER) -> None:
        self._left = limit
        self._unzip = _create_decompressor(encoding)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the content of a chunk. Raise ModelError beyond the limit, or if it cannot be decompressed."""
        if self._unzip is None:
            yield self._count(chunk)
            return
        while chunk:
            try:
                piece = self._unzip.decompress(chunk, _MOST_AT_ONCE)
            except zlib.error as error:
                raise ModelError(f"the answer cannot be decompressed: {error}", retryable=True) from None
            chunk = self._unzip.unconsumed_tail
            if piece:
                yield self._count(piece)
            elif not chunk or self._unzip.eof:
                return

    def finish(self) -> None:
        """Raise ModelError if the compressed data ends too early."""
        if self._unzip is not None and not self._unzip.eof:
            raise ModelError("the answer cannot be decompressed: it ends too early", retryable=True)

    def _count(self, piece: bytes) -> bytes:
        self._left -= len(piece)
        if self._left < 0:
            raise ModelError(f"the answer is longer than {MAX_ANSWER:,} bytes")
        return piece


def _create_decompressor(encoding: str) -> "zlib._Decompress | None":
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip"):
        return zlib.decompressobj(16 + zlib.MAX_WBITS)
    raise ModelError(f"the answer is compressed as {encoding[:20]!r}, which was not asked for")
