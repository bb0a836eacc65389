"""Batch APIs of OpenAI and Anthropic on loopback that bill whether or not anybody polls.

A batch runs and is billed once it is created, even if the client that asked for it is dead. Each key is an account.
"""

import asyncio
import json
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.loopback import Pause, Reply, Request, Server, json_reply, reply

QUESTION = re.compile(r"question ([\w.-]+)")
CUSTOM_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
Fields = dict[str, Any]


@dataclass
class Faults:
    """Shares of rows that fail, of batches that expire with rows left, and of files that are refused. `before` and
    `after` are the longest seconds before and after a create takes effect, `work` those of a batch, and `lag` the
    seconds until a batch is in the list. `creates` are the statuses of the next creates."""

    bad: float = 0.0
    retryable: float = 0.0
    expire: float = 0.0
    limited: float = 0.0
    before: float = 0.0
    after: float = 0.0
    work: float = 0.0
    lag: float = 0.0
    creates: list[int] = field(default_factory=list)
    refused_line: int | None = None


@dataclass
class Made:
    """A batch of an account, and what became of it. `rows` are its custom ids and request bodies."""

    id: str
    account: str
    rows: list[tuple[str, Fields]]
    path: str
    file: str = ""
    metadata: Fields | None = None
    at: float = 0.0
    status: str = "in_progress"
    errors: list[Fields] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    results: list[Fields] = field(default_factory=list)


class Billing(Server):
    """`billed` counts the answers of each row by its id, and `live` those of calls outside of batches."""

    def __init__(self, faults: Faults | None = None, *, seed: int = 3) -> None:
        super().__init__()
        self.faults = faults or Faults()
        self.billed: Counter[str] = Counter()
        self.live: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.paths: list[str] = []
        self.last = ""
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, Made] = {}
        self.chance = random.Random(seed)  # noqa: S311  not for secrets

    def next_reply(self, request: Request) -> Reply:
        url = urlsplit(request.path)
        path, query = url.path.removeprefix("/v1"), dict(parse_qsl(url.query))
        steps = [unquote(step) for step in path.strip("/").split("/")]
        account = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers["x-api-key"]
        self.last = f"{request.method} {'/'.join('id' if '-' in step else step for step in steps)}"
        self.seen[self.last] += 1
        self.paths.append(request.path)
        self.has_changed()
        match request.method, steps:
            case "POST", ["files"]:
                return self._upload(request)
            case "DELETE", ["files", file]:
                found = self.files.pop(file, None)
                return json_reply({"id": file, "deleted": found is not None}, 200 if found is not None else 404)
            case "GET", ["files", file, "content"]:
                return reply(self.files[file]) if file in self.files else _refuse(404, "no such file")
            case ("POST", ["batches"]) | ("POST", ["messages", "batches"]):
                return self._create(request, account, is_messages=steps[0] == "messages")
            case ("GET", ["batches"]) | ("GET", ["messages", "batches"]):
                return self._list(account, query)
            case _, (["batches", id, *rest] | ["messages", "batches", id, *rest]):
                made = self.batches.get(id)
                if made is None or made.account != account:
                    return _refuse(404, "no such batch")
                return self._answer_batch(made, rest)
        return self._answer_live(path, request)

    def _upload(self, request: Request) -> Reply:
        boundary = request.headers["content-type"].partition("boundary=")[2].encode()
        parts = request.content.split(b"--" + boundary)
        content = next(part for part in parts if b"filename=" in part).partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        file = f"file-{self.chance.randbytes(6).hex()}"
        self.files[file] = content
        return json_reply({"id": file, "object": "file", "purpose": "batch", "bytes": len(content)})

    def _create(self, request: Request, account: str, *, is_messages: bool) -> Reply:
        status = self.faults.creates.pop(0) if self.faults.creates else 200
        if 400 <= status < 500:
            return json_reply({"error": {"message": "no more batches"}}, status, {"retry-after": "0"})
        made = self._read_batch(request.body, account, is_messages=is_messages)
        if made is None:
            return _refuse(400, "the batch is invalid")
        before, after = self.chance.random() * self.faults.before, self.chance.random() * self.faults.after
        if status == 200 or self.chance.random() < 0.5:  # of failures nobody knows if they took effect
            asyncio.get_running_loop().call_later(before, self._begin, made)
        answer = json_reply(self._show(made), status) if status == 200 else _refuse(status, "oh")
        return [Pause(before + after), *answer]

    def _read_batch(self, body: Fields, account: str, *, is_messages: bool) -> Made | None:
        id = f"{'msgbatch' if is_messages else 'batch'}-{self.chance.randbytes(6).hex()}"
        if is_messages:
            rows = [(entry["custom_id"], entry["params"]) for entry in body["requests"]]
            made = Made(id, account, rows, "/v1/messages")
        else:
            if body["input_file_id"] not in self.files or body["completion_window"] != "24h":
                return None
            entries = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
            if any((entry["method"], entry["url"]) != ("POST", body["endpoint"]) for entry in entries):
                return None
            rows = [(entry["custom_id"], entry["body"]) for entry in entries]
            made = Made(id, account, rows, body["endpoint"], body["input_file_id"], body.get("metadata"))
        ids = [id for id, _ in rows]
        is_valid = len(set(ids)) == len(ids) and all(map(CUSTOM_ID.fullmatch, ids))
        return made if is_valid and not any("stream" in body for _, body in rows) else None

    def _begin(self, made: Made) -> None:
        """Create a batch, which from now on runs by itself."""
        if not made.path.endswith("messages") and made.file not in self.files:
            return  # its file was deleted before
        made.at = time.time()
        self.batches[made.id] = made
        asyncio.get_running_loop().call_later(self.chance.random() * self.faults.work, self._finish, made)

    def _finish(self, made: Made, *, cancelled: bool = False) -> None:
        if made.status != "in_progress":
            return
        faults, is_openai = self.faults, not made.path.endswith("messages")
        if is_openai and faults.refused_line is not None:
            error = {"code": "invalid_request", "message": "this line is invalid", "line": faults.refused_line}
            made.status, made.errors, faults.refused_line = "failed", [error], None
            return
        if is_openai and self.chance.random() < faults.limited:
            made.status, made.errors = "failed", [{"code": "token_limit_exceeded", "message": "enqueued tokens"}]
            return
        expires = cancelled or self.chance.random() < faults.expire
        for id, body in made.rows:
            chance = self.chance.random()
            left_out = "batch_cancelled" if cancelled else "batch_expired"
            if expires and self.chance.random() < 0.4:
                self._add_result(made, id, None, left_out)
            elif chance < faults.bad:
                self._add_result(made, id, 400, "bad")
            elif chance < faults.bad + faults.retryable:
                self._add_result(made, id, 500, "again")
            else:
                self.billed[id.partition("_")[2]] += 1
                self._add_result(made, id, 200, build_answer(made.path, body))
        self.chance.shuffle(made.results)
        made.status = "cancelled" if cancelled else "expired" if expires else "completed"
        if is_openai:
            self._write_files(made)

    def _write_files(self, made: Made) -> None:
        """Write answers and errors to files of their own, as OpenAI does."""
        lines: dict[str, list[str]] = {"output_file_id": [], "error_file_id": []}
        for line in made.results:
            is_answer = line["response"] is not None and line["response"]["status_code"] == 200
            lines["output_file_id" if is_answer else "error_file_id"].append(json.dumps(line))
        for name, found in lines.items():
            if found:
                made.files[name] = file = f"file-{self.chance.randbytes(6).hex()}"
                self.files[file] = "\n".join(found).encode()

    def _add_result(self, made: Made, id: str, status: int | None, found: Any) -> None:
        if made.path.endswith("messages"):
            kind = {200: "succeeded", None: "canceled" if found == "batch_cancelled" else "expired"}.get(
                status, "errored"
            )
            error = {"type": "invalid_request_error" if status == 400 else "overloaded_error", "message": str(found)}
            extra = {"message": found} if status == 200 else {"error": {"error": error}} if kind == "errored" else {}
            made.results.append({"custom_id": id, "result": {"type": kind, **extra}})
        elif status is None:
            made.results.append({"custom_id": id, "response": None, "error": {"code": found, "message": "not run"}})
        else:
            body = found if status == 200 else {"error": {"message": found}}
            response = {"status_code": status, "body": body}
            made.results.append({"custom_id": id, "response": response, "error": None})

    def _list(self, account: str, query: dict[str, str]) -> Reply:
        now = time.time()
        found = [made for made in self.batches.values() if made.account == account and made.at < now - self.faults.lag]
        found.sort(key=lambda made: -made.at)
        after = query.get("after") or query.get("after_id")
        if after:
            found = found[[made.id for made in found].index(after) + 1 :]
        limit = int(query["limit"])
        return json_reply({"data": [self._show(made) for made in found[:limit]], "has_more": len(found) > limit})

    def _answer_batch(self, made: Made, rest: list[str]) -> Reply:
        if rest == ["cancel"]:
            self._finish(made, cancelled=True)
        if rest == ["results"]:
            return reply("\n".join(map(json.dumps, made.results)).encode())
        return json_reply(self._show(made))

    def _show(self, made: Made) -> Fields:
        if not made.path.endswith("messages"):
            return {
                "id": made.id,
                "object": "batch",
                "endpoint": made.path,
                "completion_window": "24h",
                "status": made.status,
                "created_at": int(made.at),
                "input_file_id": made.file,
                "metadata": made.metadata,
                "errors": {"data": made.errors} if made.errors else None,
                "request_counts": {"total": len(made.rows), "completed": 0, "failed": 0},
                **made.files,
            }
        is_ended = made.status != "in_progress"
        counts = Counter(line["result"]["type"] for line in made.results)
        kinds = ("succeeded", "errored", "canceled", "expired")
        return {
            "id": made.id,
            "type": "message_batch",
            "processing_status": "ended" if is_ended else "in_progress",
            "request_counts": {
                "processing": 0 if is_ended else len(made.rows),
                **{kind: counts[kind] if is_ended else 0 for kind in kinds},
            },
            "created_at": datetime.fromtimestamp(made.at, UTC).isoformat(),
        }

    def _answer_live(self, path: str, request: Request) -> Reply:
        self.live[find_question(request.body)] += 1
        return json_reply(build_answer(f"/v1{path}", request.body))


def find_question(body: Fields) -> str:
    found = QUESTION.search(json.dumps(body))
    return found[1] if found else ""


def build_answer(path: str, body: Fields) -> Fields:
    """Return the answer of a model to a request, in the form of its API."""
    text = f"answer {find_question(body)}"
    match path.rpartition("/")[2]:
        case "completions":
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage: Fields = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
            return {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]} | {
                "choices": [choice],
                "usage": usage,
            }
        case "responses":
            content = [{"type": "output_text", "text": text, "annotations": []}]
            item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
            details: Fields = {
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            }
            usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, **details}
            return {"id": "r", "object": "response", "created_at": 1, "model": body["model"]} | {
                "status": "completed",
                "output": [item],
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
                "usage": usage,
            }
        case "embeddings":
            data = [{"object": "embedding", "index": 0, "embedding": [float(len(text)), 1.0]}]
            return {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 10}}
    content = [{"type": "text", "text": text}]
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {"id": "m", "type": "message", "role": "assistant", "model": body["model"]} | {
        "content": content,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def _refuse(status: int, message: str) -> Reply:
    return json_reply({"error": {"message": message}}, status)
