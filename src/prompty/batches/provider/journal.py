"""Journal of a provider batch: an append-only file next to the output that names each chunk before it is created.

An intent is on disk before the request that costs money. A chunk with an intent and without a batch may exist at the
provider or not; one with a batch exists, until its results are in the output.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from prompty.errors import RequestError
from prompty.providers.endpoint import Endpoint
from prompty.safety.write_files import append, open_to_append

End = Literal["collected", "refused", "lost"]


@dataclass(slots=True)
class Chunk:
    """Rows in one batch of the provider. `file` is their uploaded input, `at` the time of the intent, and `batch` the
    provider's id. It is None until the create has been answered, or its batch found."""

    nonce: str
    rows: list[str]
    file: str
    at: float
    batch: str | None = None
    is_cancelled: bool = False


class Journal:
    """The chunks of a batch. `chunks` are those that are not over, `lost` the rows of those that never showed up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks: dict[str, Chunk] = {}
        self.lost: list[list[str]] = []
        self.batches: list[str] = []
        self.started: float = time.time()
        self.account: str | None = None
        self._file = open_to_append(path)
        try:
            for entry in _read(self._file, path):
                self._take(entry)
        except BaseException:
            self.close()
            raise

    def bind(self, endpoint: Endpoint) -> None:
        """Record the account that all chunks from now on belong to."""
        salt = secrets.token_hex(8)
        self._put({"account": _fingerprint(endpoint, salt), "at": self.started})
        _sync_folder(self.path)

    def is_bound_to(self, endpoint: Endpoint) -> bool:
        """Return True if the chunks belong to this key at this server."""
        return self.account == _fingerprint(endpoint, (self.account or "").partition(":")[0])

    def begin(self, rows: list[str], file: str, nonce: str) -> Chunk:
        """Record that a chunk is about to be created."""
        self._put({"intent": nonce, "rows": rows, "file": file, "at": time.time()})
        return self.chunks[nonce]

    def add_batch(self, chunk: Chunk, id: str) -> None:
        """Record that the provider has created a chunk."""
        self._put({"batch": chunk.nonce, "id": id})

    def end(self, chunk: Chunk, how: End) -> None:
        """Record that a chunk needs no more attention."""
        self._put({"over": chunk.nonce, "how": how})

    def close(self) -> None:
        os.close(self._file)

    def _put(self, entry: dict[str, Any]) -> None:
        append(self._file, json.dumps(entry).encode() + b"\n")
        os.fsync(self._file)
        self._take(entry)

    def _take(self, entry: dict[str, Any]) -> None:
        match entry:
            case {"account": str(account), "at": float(at)}:
                self.account, self.started = account, at
            case {"intent": str(nonce), "rows": list(rows), "file": str(file), "at": float(at)}:
                self.chunks[nonce] = Chunk(nonce, rows, file, at)
            case {"batch": str(nonce), "id": str(id)} if nonce in self.chunks:
                self.chunks[nonce].batch = id
                self.batches.append(id)
            case {"over": str(nonce), "how": str(how)} if nonce in self.chunks:
                chunk = self.chunks.pop(nonce)
                if how == "lost":
                    self.lost.append(chunk.rows)
            case _:
                raise _unreadable(self.path)


def _read(journal: int, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal. A last line that was cut off is removed: what it announced was never sent."""
    with os.fdopen(os.dup(journal), "rb") as lines:
        whole = 0
        for line in lines:
            if not line.endswith(b"\n"):
                os.ftruncate(journal, whole)
                return
            whole += len(line)
            try:
                yield json.loads(line)
            except ValueError:
                raise _unreadable(path) from None


def _unreadable(path: Path) -> RequestError:
    return RequestError(f"'{path}' is not the journal of a provider batch", "Move it, or write to another output.")


def _fingerprint(endpoint: Endpoint, salt: str) -> str:
    """Return a salted hash of a server and the key for it, which does not reveal the key."""
    account = json.dumps([salt, endpoint.base_url, sorted(set(endpoint.secrets))])
    return f"{salt}:{sha256(account.encode()).hexdigest()}"


def _sync_folder(path: Path) -> None:
    """Make sure that a new file is still there after a crash of the machine."""
    if os.name == "nt":  # Windows cannot open folders
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
