"""Anthropic's Message Batches: requests in the body, and neither a name nor metadata to find a batch by.

A batch that may be ours has the right age and number of requests. The proof is in its results, whose custom ids begin
with the chunk's nonce, so the search waits until it has ended.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from prompty.batches.provider.batch_api import (
    CLOCK_SKEW,
    BatchState,
    Client,
    RowOutcome,
    Search,
    Spool,
    make_error,
    quote_id,
    split_custom_id,
)
from prompty.batches.provider.journal import Chunk
from prompty.model.request import WireRequest
from prompty.wire.json_bytes import write_bytes

_PATH = "/v1/messages/batches"
_PERMANENT = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}


class AnthropicBatches:
    """`/v1/messages/batches`."""

    max_rows = 100_000
    max_bytes = 245_000_000  # Anthropic takes 256 MB

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nonces: dict[str, str] = {}  # of batches whose results were looked at

    def open_spool(self, nonce: str) -> Spool:
        return Spool(b'{"requests":[', b",", b"]}")

    def write_line(self, custom_id: str, request: WireRequest) -> bytes:
        return write_bytes({"custom_id": custom_id, "params": request.body})

    def upload(self, nonce: str, spool: Spool) -> str:
        return ""

    def create(self, chunk: Chunk, spool: Spool, request: WireRequest) -> str:
        return str(self._client.send_spool(_PATH, spool, request.headers)["id"])

    def find(self, chunk: Chunk, known: Sequence[str]) -> Search:
        after, is_open = "", False
        while True:
            page = self._client.get(f"{_PATH}?limit=1000{after}")
            recent = [entry for entry in page["data"] if _read_time(entry) >= chunk.at - CLOCK_SKEW]
            for entry in recent:
                id = str(entry["id"])
                if id in known or sum(entry["request_counts"].values()) != len(chunk.rows):
                    continue
                if entry["processing_status"] != "ended":
                    is_open = True
                elif self._find_nonce(id) == chunk.nonce:
                    return Search(id)
            if len(recent) < len(page["data"]) or not page.get("has_more"):
                return Search(is_open=is_open)
            after = f"&after_id={quote_id(str(page['data'][-1]['id']))}"

    def _find_nonce(self, id: str) -> str:
        if id not in self._nonces:
            first = next(self._client.read_lines(f"{_PATH}/{quote_id(id)}/results"), {})
            self._nonces[id] = str(first.get("custom_id")).partition("_")[0]
        return self._nonces[id]

    def get(self, batch: str) -> BatchState | None:
        found = self._client.get(f"{_PATH}/{quote_id(batch)}")
        return BatchState(found) if found["processing_status"] == "ended" else None

    def read(self, chunk: Chunk, state: BatchState) -> Iterator[RowOutcome]:
        for line in self._client.read_lines(f"{_PATH}/{quote_id(str(state.payload['id']))}/results"):
            row = split_custom_id(line.get("custom_id"), chunk)
            if row is not None:
                yield _read_outcome(row, line.get("result") or {})

    def cancel(self, batch: str) -> None:
        self._client.post(f"{_PATH}/{quote_id(batch)}/cancel", {})

    def discard(self, chunk: Chunk) -> None:
        """Do nothing: there is no file."""


def _read_time(entry: dict[str, Any]) -> float:
    return datetime.fromisoformat(entry["created_at"]).timestamp()


def _read_outcome(row: str, result: dict[str, Any]) -> RowOutcome:
    """Read a result: `succeeded`, `errored`, or `canceled` or `expired`, which was not run."""
    if result.get("type") == "succeeded":
        return RowOutcome(row, payload=result["message"])
    if result.get("type") != "errored":
        return RowOutcome(row)
    detail = (result.get("error") or {}).get("error") or {}
    return RowOutcome(row, error=make_error(_PERMANENT.get(str(detail.get("type")), 529), detail))
