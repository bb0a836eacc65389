"""The answers of one run of a case: from its recording, from an interrupted run, or from models.

A run plays the exchanges that it knows, and asks models for the others if it may. Every exchange counts, also those of
judges and embedding prompts. What is asked is written to a ledger, a call before it starts and an answer when it ends:
if the process is killed, the next one plays these answers, and knows which calls may be paid for twice.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any, NamedTuple, cast

from prompty.concurrency import FileLock
from prompty.errors import PromptyError, RecordingMissing, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Reply, Usage
from prompty.model.request import WireRequest
from prompty.pipeline.files import read_bytes
from prompty.pricing import get_pricer
from prompty.providers import AsyncBytes, AsyncTransport, Bytes, Provider, Transport, TransportInterceptor
from prompty.providers.wiretap import AsyncWiretapTransport, Exchange, ExchangeResult, WiretapTransport, get_base_url
from prompty.safety.redaction import Redactor, mask_secrets
from prompty.safety.write_files import append, create_folder, open_to_append, remove_open_file, replace_file
from prompty.testing.recordings import (
    Player,
    Recording,
    create_mask,
    decode_exchange,
    encode_exchange,
    hide_inputs,
    mask_request,
)
from prompty.wire.json_bytes import MALFORMED, read_reply

_SYNC_SECONDS = 1.0


class Spending:
    """The dollars that all runs have spent, with a limit. Threads share it."""

    def __init__(self, limit: Decimal | None = None, spent: Decimal = Decimal()) -> None:
        self._limit, self._spent, self._lock = limit, spent, Lock()
        self._is_unknown = False  # an answer had no price

    @property
    def is_over(self) -> bool:
        with self._lock:
            return self._limit is not None and (self._is_unknown or self._spent >= self._limit)

    def add(self, cost: Decimal | None) -> None:
        """Add the cost of an answer, or None if that is not known."""
        with self._lock:
            self._spent += cost or 0
            self._is_unknown |= cost is None

    def check(self) -> None:
        """Raise RequestError if no more calls may start: the budget is spent, or the cost of an answer is unknown."""
        if self.is_over and self._is_unknown:
            cause = "the cost of an answer is unknown: the server did not say what it used, or named an unknown model"
            raise RequestError(cause, "Omit --max-cost, or use another server.")
        if self.is_over:
            raise RequestError("the budget of --max-cost is spent", "To continue, raise it.")


class KeptAnswer(NamedTuple):
    """An exchange of an interrupted run as a line of a recording, and how long it took."""

    line: bytes
    seconds: float


class CallLedger:
    """Journal of the calls of live runs, in a file that is removed when no case is left. One process holds it.

    `interrupted` has the names of runs with a call that started and did not end, once for each. They are known until
    the file is removed, because the process that repeats a call can be killed before it reports it.
    """

    def __init__(self, path: Path) -> None:
        create_folder(path.parent)
        self.complete: bool = False
        self.spent: Decimal = Decimal()
        self._path, self._lock, self._synced = path, Lock(), time.monotonic()
        try:
            self._owner = FileLock(path)
        except BlockingIOError:
            fix = "Wait for it, test other files, or leave out --live."
            raise RequestError("another process runs these tests", fix) from None
        self._file = open_to_append(path)
        self._kept: dict[tuple[str, str | None], list[KeptAnswer]] = {}
        started: dict[str, Any] = {}
        for record in _read_records(path):
            if "started" in record:
                started[record["started"]] = record
            elif (call := started.pop(record["ended"], None)) is not None:
                self.spent += Decimal(record["cost"] or 0)
                if record["line"] is not None:
                    kept = KeptAnswer(record["line"].encode(), record["seconds"])
                    self._kept.setdefault((call["name"], call["server"]), []).append(kept)
        self.interrupted: list[str] = [str(call["name"]) for call in started.values()]

    def get_kept(self, name: str, server: str | None) -> Sequence[KeptAnswer]:
        """Return the answers that a run of this name, with a prompt for this server, has paid for."""
        return self._kept.get((name, server), ())

    def begin(self, name: str, server: str | None) -> str:
        """Write that a call starts, and return its id."""
        id = token_hex(8)
        self._append({"started": id, "name": name, "server": server})
        return id

    def end(self, id: str, line: bytes | None, seconds: float, cost: Decimal | None) -> None:
        """Write that a call has ended. Without a line, the next process repeats it."""
        text, paid = None if line is None else line.decode(), None if cost is None else str(cost)
        self._append({"ended": id, "line": text, "seconds": seconds, "cost": paid})

    def close(self) -> None:
        os.close(self._file)
        if self.complete:
            remove_open_file(self._path)  # while it is locked, so that no other process has begun to use it
        self._owner.release()

    def _append(self, record: Json) -> None:
        content = b"\n" + json.dumps(record).encode()  # newline first, so that a truncated line does not join the next
        with self._lock:
            append(self._file, content)
            if time.monotonic() - self._synced > _SYNC_SECONDS:
                os.fsync(self._file)
                self._synced = time.monotonic()


def _read_records(path: Path) -> Iterator[Any]:
    """Yield the records in a file, without truncated lines."""
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValueError):
            yield json.loads(line)


class RunAnswers(TransportInterceptor):
    """Within `with RunAnswers(…):`, the answers of one run of an agent, which the ledger knows by `name`.

    It `plays` the recording, and `asks` a model for what is neither there nor in the ledger.
    """

    def __init__(
        self,
        name: str,
        agent: PromptAgent,
        recording: Path,
        spending: Spending,
        ledger: CallLedger | None,
        *,
        plays: bool,
        asks: bool,
    ) -> None:
        self.is_live: bool = asks
        self.asked: int = 0
        self.resumed: int = 0
        self.resumed_seconds: float = 0.0
        self._run = name, getattr(agent.model.connection, "endpoint", None)
        self._spending, self._ledger = spending, ledger
        self._kept = list(ledger.get_kept(*self._run)) if ledger else []
        if asks:
            recorded = _read_lines(recording) if plays else ()
            self._player: Player = _LenientPlayer(recording, [*(kept.line for kept in self._kept), *recorded])
        else:
            self._player = Player(recording)
        self._lock, self._hidden = Lock(), Redactor()
        self._lines: list[bytes] = []
        self._calls: dict[int, tuple[str, float]] = {}  # under way, by the id of the request
        self._usage, self._embedded = Usage(), 0
        self._costs: list[Decimal | None] = []
        self._paid: list[Decimal] = []

    def transport(self, provider: Provider, agent: PromptAgent, /) -> Transport:
        inner = self._player.transport(provider, agent)
        if self.is_live:
            inner = _AskingTransport(inner, partial(provider.connect, agent), self._begin)
        return WiretapTransport(inner, partial(self._listen, provider, agent, inner))

    def transport_async(self, provider: Provider, agent: PromptAgent, /) -> AsyncTransport:
        inner = self._player.transport_async(provider, agent)
        if self.is_live:
            inner = _AsyncAskingTransport(inner, partial(provider.connect_async, agent), self._begin)
        return AsyncWiretapTransport(inner, partial(self._listen, provider, agent, inner))

    def hide(self, values: Sequence[object], /) -> None:
        hide_inputs(self._hidden, values)
        self._player.hide(values)

    def _begin(self, request: WireRequest) -> None:
        """Start to ask a model. Raise RequestError if the budget is spent."""
        self._spending.check()
        call = self._ledger.begin(*self._run) if self._ledger else ""
        with self._lock:
            self.asked += 1
            self._calls[id(request)] = call, time.perf_counter()

    def _listen(self, provider: Provider, agent: PromptAgent, inner: object, request: WireRequest) -> Exchange:
        if not self.is_live:

            def count(answer: ExchangeResult) -> None:
                self._count(_read_reply(provider, agent, request, answer), agent)

            return Exchange(count)
        mask = create_mask(agent, request, self._hidden, inner)
        recorded = mask_request(provider.key, request, mask)

        def end(answer: ExchangeResult) -> None:
            counted = _read_reply(provider, agent, request, answer)
            self._end(id(request), encode_exchange(recorded, answer, mask), counted, agent)

        return Exchange(end)

    def _end(self, request: int, line: bytes, counted: "_CountedReply | None", agent: PromptAgent) -> None:
        """End an exchange: one that was asked now, one from the ledger, or one from the recording."""
        with self._lock:
            self._lines.append(line)
            call = self._calls.pop(request, None)
            kept = None if call else next((one for one in self._kept if one.line == line), None)
            if kept:
                self._kept.remove(kept)
                self.resumed += 1
                self.resumed_seconds += kept.seconds
        cost = self._count(counted, agent, is_paid=bool(call or kept))
        if call and counted:
            self._spending.add(cost)
        if call and self._ledger:
            id, began = call
            self._ledger.end(id, line if counted else None, time.perf_counter() - began, cost)

    def _count(self, counted: "_CountedReply | None", agent: PromptAgent, *, is_paid: bool = False) -> Decimal | None:
        """Add the tokens of a reply, and return its cost. An error costs nothing."""
        if counted is None:
            return None
        cost, usage = get_pricer(agent, required=False)(counted.reply), counted.reply.usage
        with self._lock:
            self._costs.append(cost)
            if cost is not None and is_paid:
                self._paid.append(cost)
            if counted.is_embedding:
                self._embedded += usage.input_tokens or 0
            else:
                self._usage = self._usage + usage
        return cost

    @property
    def cost(self) -> float | None:
        """The cost of all answers so far in dollars, or None if the cost of one is not known."""
        known = [cost for cost in self._costs if cost is not None]
        return float(sum(known)) if known and len(known) == len(self._costs) else None

    def describe(self) -> dict[str, Any]:
        """Return the fields of a `CaseRun` about tokens and dollars."""
        return {
            "input_tokens": self._usage.input_tokens,
            "cached_tokens": self._usage.cache_read_tokens,
            "output_tokens": self._usage.output_tokens,
            "reasoning_tokens": self._usage.reasoning_tokens,
            "embedding_tokens": self._embedded or None,
            "cost": self.cost,
            "paid": float(sum(self._paid)) if self._paid else None,
            "resumed": bool(self.resumed and not self.asked),
        }

    def save(self, path: Path) -> None:
        """Write the recording, unless all of it was there before."""
        if not (self.asked or self.resumed):
            return
        create_folder(path.parent)
        replace_file(path, b"".join(self._lines))  # shared with the prompt: secrets are masked in it


def _read_lines(recording: Path) -> list[bytes]:
    try:
        return read_bytes(recording).splitlines(keepends=True) if recording.exists() else []
    except OSError as error:
        raise RequestError(f"{recording} cannot be read: {error.strerror}", "Remove it.") from None


class _CountedReply(NamedTuple):
    reply: Reply
    is_embedding: bool


def _read_reply(
    provider: Provider, agent: PromptAgent, request: WireRequest, answer: ExchangeResult
) -> _CountedReply | None:
    """Return the reply in an exchange, or None if nothing was answered. Cases do not stream."""
    if not answer.chunks or answer.error or answer.abandoned:
        return None
    chosen = provider.api_for(agent)
    others = [api for api in provider.apis.values() if api.path == request.path]
    api = chosen if chosen.path == request.path or not others else others[0]
    try:
        return _CountedReply(read_reply(api.reply, b"".join(answer.chunks)), api.operation == "embeddings")
    except PromptyError:
        return None


class _LenientPlayer(Player):
    """Plays these lines. One that cannot be read is missing."""

    def __init__(self, path: Path, lines: Iterable[bytes]) -> None:
        self._known = lines
        super().__init__(path)

    def _read(self) -> Iterator[Recording]:
        for number, line in enumerate(self._known, 1):
            with suppress(*MALFORMED):
                yield Recording(number, *decode_exchange(line))


class _Asking:
    """A transport that asks a server for answers that it does not know. It connects for the first of them."""

    def __init__(self, known: Any, connect: Callable[[], Any], begin: Callable[[WireRequest], None]) -> None:
        self._known, self._connect, self._begin = known, connect, begin
        self._live: Any = None

    @property
    def url(self) -> str:
        return get_base_url(self._live)

    def masked(self, text: str) -> str:
        masked: str = getattr(self._live, "masked", mask_secrets)(text)
        return masked

    def _ask(self, request: WireRequest) -> Any:
        self._live = self._live or self._connect()
        self._begin(request)
        return self._live


class _AskingTransport(_Asking):
    def send(self, request: WireRequest, /) -> bytes:
        with suppress(RecordingMissing):
            return cast(bytes, self._known.send(request))
        return cast(bytes, self._ask(request).send(request))

    def stream(self, request: WireRequest, /) -> Bytes:
        with suppress(RecordingMissing):
            return cast(Bytes, self._known.stream(request))
        return cast(Bytes, self._ask(request).stream(request))


class _AsyncAskingTransport(_Asking):
    async def send(self, request: WireRequest, /) -> bytes:
        with suppress(RecordingMissing):
            return cast(bytes, await self._known.send(request))
        return cast(bytes, await self._ask(request).send(request))

    async def stream(self, request: WireRequest, /) -> AsyncBytes:
        with suppress(RecordingMissing):
            return cast(AsyncBytes, await self._known.stream(request))
        return cast(AsyncBytes, await self._ask(request).stream(request))
