"""What the batch APIs of providers have in common: a client, a spool of requests, and the outcomes of rows.

Each API has the same verbs. `create` is the only one that costs money, so it is never repeated. `upload` sends the
requests if the API wants them in a file, and `discard` deletes that file, so that no batch can be made of it any more.
`find` looks for the batch of a chunk in the account. `get` returns a batch that has ended, and `read` the outcomes of
its rows in any order; a row without one was not run.
"""

import json
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from prompty.batches.provider.journal import Chunk
from prompty.errors import ModelError
from prompty.model.message import Json
from prompty.model.request import WireRequest
from prompty.providers import Transport
from prompty.wire.json_bytes import as_object, read_bytes

_TIMEOUT = 60.0
TRANSFER_TIMEOUT = 1800.0  # seconds for an upload, or for the results of a batch
MAX_RESULTS = 4 * 1024**3  # bytes
CLOCK_SKEW = 600.0  # seconds by which our clock and the provider's may differ
_BLOCK = 256 * 1024


class Spool:
    """A request body in a temporary file: a head, lines with a separator between them, and a tail."""

    def __init__(self, head: bytes, separator: bytes, tail: bytes) -> None:
        self._file: IO[bytes] = TemporaryFile()  # noqa: SIM115  closed by `close`
        self._head, self._separator, self._tail = head, separator, tail
        self._length = len(head) + len(tail)
        self._file.write(head)
        self.rows: list[str] = []

    def add(self, row: str, line: bytes) -> None:
        separator = self._separator if self.rows else b""
        self._file.write(separator + line)
        self._length += len(separator) + len(line)
        self.rows.append(row)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while block := self._file.read(_BLOCK):
            yield block
        yield self._tail

    def close(self) -> None:
        self._file.close()


class RowOutcome(NamedTuple):
    """What became of one row: a `payload`, an `error`, or neither if the provider did not run it."""

    row: str
    payload: Json | None = None
    error: ModelError | None = None


class BatchState(NamedTuple):
    """A batch that has ended. `is_limited` says that the provider's queue had no room for it."""

    payload: dict[str, Any]
    is_limited: bool = False


class Search(NamedTuple):
    """The result of a search for a chunk: its batch, or whether one that has not ended may be it."""

    batch: str | None = None
    is_open: bool = False


class Client:
    """JSON requests to the batch API of one endpoint."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, path: str) -> dict[str, Any]:
        return self._send(WireRequest(path=path, body={}, headers={}, method="GET", timeout=_TIMEOUT))

    def post(self, path: str, body: Json, headers: Any = None) -> dict[str, Any]:
        return self._send(WireRequest(path=path, body=body, headers=headers or {}, timeout=_TIMEOUT))

    def send_spool(self, path: str, spool: Spool, headers: Any) -> dict[str, Any]:
        return self._send(WireRequest(path=path, body={}, headers=headers, content=spool, timeout=TRANSFER_TIMEOUT))

    def delete(self, path: str) -> None:
        self._send(WireRequest(path=path, body={}, headers={}, method="DELETE", timeout=_TIMEOUT))

    def read_lines(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a JSONL file. It is downloaded first, because rows take longer than their bytes."""
        request = WireRequest(
            path=path, body={}, headers={}, method="GET", timeout=TRANSFER_TIMEOUT, max_answer=MAX_RESULTS
        )
        with TemporaryFile() as file:
            stream = self._transport.stream(request)
            try:
                for block in stream:
                    file.write(block)
            finally:
                stream.close()
            file.seek(0)
            for line in file:
                if line.strip():
                    yield as_object(read_bytes(line))

    def _send(self, request: WireRequest) -> dict[str, Any]:
        return as_object(read_bytes(self._transport.send(request)))


def make_custom_id(nonce: str, row: str) -> str:
    """Return the id of a request: at most 64 characters, and unique in the account."""
    return f"{nonce}_{row}"


def split_custom_id(custom_id: object, chunk: Chunk) -> str | None:
    """Return the row of a request in a chunk, or None if it belongs to another."""
    nonce, _, row = str(custom_id).partition("_")
    return row if nonce == chunk.nonce else None


def quote_id(id: str) -> str:
    """Return an id for a URL. It came from a server, so it may hold anything."""
    return quote(id, safe="")


def make_error(status: int | None, detail: object) -> ModelError:
    """Return the error of a row that the provider answered with a status."""
    temporary = status is None or status in (408, 409, 429) or status >= 500
    message = detail.get("message") if isinstance(detail, dict) else detail
    text = message if isinstance(message, str) else json.dumps(detail)[:2000]
    shown = text if status is None else f"HTTP {status}: {text}"
    return ModelError(shown, status=status, retryable=temporary)
