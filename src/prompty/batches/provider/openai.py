"""OpenAI's batches of chat, Responses and Embeddings requests: an uploaded file, and a batch that names it.

The batch carries the chunk's nonce in its metadata. A server that drops the metadata still names the file.
"""

from collections.abc import Iterator, Sequence
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
from prompty.errors import ModelError
from prompty.model.message import Json
from prompty.model.request import WireRequest
from prompty.wire.json_bytes import write_bytes

_ENDED = ("completed", "failed", "expired", "cancelled")
_NOT_RUN = ("batch_expired", "batch_cancelled")
_LIMITED = "token_limit_exceeded"
_FILE_GONE = ("input_file_not_found", "invalid_file")
_METADATA = "prompty"


class OpenAIBatches:
    """`/files` and `/batches`. `path` is that of the API whose requests are in the file."""

    max_rows = 50_000
    max_bytes = 190_000_000  # OpenAI takes 200 MB

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._endpoint = client, f"/v1{path}"

    def open_spool(self, nonce: str) -> Spool:
        part = "--{0}\r\ncontent-disposition: form-data; name={1}\r\n{2}\r\n"
        purpose = part.format(nonce, '"purpose"', "") + "batch\r\n"
        file = part.format(nonce, f'"file"; filename="{nonce}.jsonl"', "content-type: application/jsonl\r\n")
        return Spool((purpose + file).encode(), b"\n", f"\r\n--{nonce}--\r\n".encode())

    def write_line(self, custom_id: str, request: WireRequest) -> bytes:
        return write_bytes({"custom_id": custom_id, "method": "POST", "url": self._endpoint, "body": request.body})

    def upload(self, nonce: str, spool: Spool) -> str:
        headers = {"content-type": f"multipart/form-data; boundary={nonce}"}
        return str(self._client.send_spool("/files", spool, headers)["id"])

    def create(self, chunk: Chunk, spool: Spool, request: WireRequest) -> str:
        body: Json = {
            "input_file_id": chunk.file,
            "endpoint": self._endpoint,
            "completion_window": "24h",
            "metadata": {_METADATA: chunk.nonce},
        }
        return str(self._client.post("/batches", body, request.headers)["id"])

    def find(self, chunk: Chunk, known: Sequence[str]) -> Search:
        after = ""
        while True:
            page = self._client.get(f"/batches?limit=100{after}")
            for entry in page["data"]:
                metadata = entry.get("metadata") or {}
                if metadata.get(_METADATA) == chunk.nonce or entry.get("input_file_id") == chunk.file:
                    return Search(str(entry["id"]))
            if not page.get("has_more") or page["data"][-1]["created_at"] < chunk.at - CLOCK_SKEW:
                return Search()
            after = f"&after={quote_id(str(page['data'][-1]['id']))}"

    def get(self, batch: str) -> BatchState | None:
        found = self._client.get(f"/batches/{quote_id(batch)}")
        if found["status"] not in _ENDED:
            return None
        return BatchState(found, is_limited=any(error.get("code") == _LIMITED for error in _list_errors(found)))

    def read(self, chunk: Chunk, state: BatchState) -> Iterator[RowOutcome]:
        for name in ("output_file_id", "error_file_id"):
            if file := state.payload.get(name):
                for line in self._client.read_lines(f"/files/{quote_id(str(file))}/content"):
                    row = split_custom_id(line.get("custom_id"), chunk)
                    if row is not None:
                        yield _read_outcome(row, line)
        if state.payload["status"] == "failed":
            yield from _read_refusal(chunk, _list_errors(state.payload))

    def cancel(self, batch: str) -> None:
        self._client.post(f"/batches/{quote_id(batch)}/cancel", {})

    def discard(self, chunk: Chunk) -> None:
        try:
            self._client.delete(f"/files/{quote_id(chunk.file)}")
        except ModelError as error:
            if error.status != 404:
                raise


def _list_errors(batch: dict[str, Any]) -> list[dict[str, Any]]:
    return (batch.get("errors") or {}).get("data") or []


def _read_outcome(row: str, line: dict[str, Any]) -> RowOutcome:
    response, error = line.get("response"), line.get("error")
    if response is None:
        if isinstance(error, dict) and error.get("code") in _NOT_RUN:
            return RowOutcome(row)
        return RowOutcome(row, error=make_error(None, error))
    status, body = response.get("status_code"), response.get("body")
    if status == 200 and isinstance(body, dict):
        return RowOutcome(row, payload=body)
    return RowOutcome(row, error=make_error(status, body.get("error", body) if isinstance(body, dict) else body))


def _read_refusal(chunk: Chunk, errors: list[dict[str, Any]]) -> Iterator[RowOutcome]:
    """Yield the rows that made OpenAI refuse a file. An error without a line concerns all of them, unless it is one
    that passes."""
    for error in errors:
        line, code = error.get("line"), error.get("code")
        if isinstance(line, int) and 0 < line <= len(chunk.rows):
            yield RowOutcome(chunk.rows[line - 1], error=make_error(400, error))
        elif line is None and code != _LIMITED and code not in _FILE_GONE:
            yield from (RowOutcome(row, error=make_error(400, error)) for row in chunk.rows)
