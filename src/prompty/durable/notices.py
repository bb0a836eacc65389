"""Notices of a worker: tell a service that a run has paused, failed or is quarantined, so that nobody has to look.

A notice is due in the row of its run, from the transaction that changes the state, so it survives the worker, and any
worker with the webhook sends it. It names the calls that wait and the kind of an error, but nothing of what a run says:
that is for `Runs.result`. A service that fails is asked again a few times, and no run waits for it.
"""

import hmac
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from logging import Logger, getLogger
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import sqlalchemy as sa

from prompty.concurrency import in_thread
from prompty.durable.database import RUNS, RunTable
from prompty.errors import ModelError, PromptyError, RequestError
from prompty.model.message import Json
from prompty.model.paused import Paused
from prompty.model.request import WireRequest
from prompty.providers.endpoint import Endpoint, create_endpoint
from prompty.providers.http.transports import open_transport
from prompty.safety.origins import parse_origin
from prompty.safety.redaction import mask_url

if TYPE_CHECKING:
    from prompty.durable.runs import Runs

ATTEMPTS = 8
RETRY_SECONDS = 10.0  # the waits between attempts double: twenty minutes in all
LOOK_SECONDS = 1.0
SEND_SECONDS = 5.0
SENDERS = 8
logger: Logger = getLogger("prompty")


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that gets a POST when a run pauses, fails or is quarantined: https, or http to this machine. With a
    `secret`, the header `Prompty-Signature` is `t=TIME,v1=HMAC`: SHA-256 in hexadecimal over the time, a dot, and the
    body."""

    url: str
    secret: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        origin = parse_origin(self.url)
        if origin is None or (origin.scheme != "https" and not origin.is_loopback):
            raise RequestError(
                f"the webhook {mask_url(self.url)!r} is not an https URL", "Write it like https://host/runs."
            )

    def create_endpoint(self) -> tuple[Endpoint, str]:
        """Return the endpoint and the path to post to."""
        parts = urlsplit(self.url)
        base = parts._replace(path="", fragment="").geturl()
        signature = None if self.secret is None else Signature(self.secret)
        secrets = () if self.secret is None else (self.secret,)
        return create_endpoint(base, {}, credential=signature, secrets=secrets), parts.path or "/"


@dataclass(frozen=True, slots=True)
class Signature:
    """Signs each request with a shared secret."""

    secret: str = field(repr=False)

    def is_ready(self) -> bool:
        return True

    def headers(self, method: str, url: str, headers: Mapping[str, str], body: bytes, /) -> Mapping[str, str]:
        moment = str(int(time.time()))
        signed = hmac.new(self.secret.encode(), f"{moment}.".encode() + body, sha256).hexdigest()
        return {"prompty-signature": f"t={moment},v1={signed}"}


class Notice(NamedTuple):
    """A change of state that a service is to be told. `since` is in milliseconds since 1970."""

    run_id: str
    state: str
    prompt: str
    tenant: str | None
    since: int
    attempts: int

    @property
    def key(self) -> str:
        """Key that all attempts have in common, and no other notice has."""
        return sha256(f"{self.run_id} {self.state} {self.since}".encode()).hexdigest()


def claim_notices(table: RunTable, count: int) -> list[Notice]:
    """Return notices that are due. Nobody else gets them until it is time for the next attempt."""
    column = RUNS.c
    now = sa.select(table.now).scalar_subquery()  # once, so that an index finds what is before it
    due = sa.select(column.id).where(column.notice_due <= now).order_by(column.notice_due).limit(count)
    claimed = due.with_for_update(skip_locked=True).cte()  # where there are rows to lock; SQLite has one writer
    pause = sa.literal(int(RETRY_SECONDS * 1000), sa.BigInteger).bitwise_lshift(column.notice_attempts)
    change = (
        RUNS.update()
        .where(column.id.in_(sa.select(claimed.c.id)))
        .values(notice_due=now + pause, notice_attempts=column.notice_attempts + 1)
        .returning(column.id, column.state, column.prompt, column.tenant, column.since, column.notice_attempts)
    )
    return table.transact(lambda connection: [Notice(*row) for row in connection.execute(change)])


def settle_notice(table: RunTable, notice: Notice) -> None:
    """Forget a notice, but not the one of a later change."""
    same = RUNS.update().where(RUNS.c.id == notice.run_id, RUNS.c.since == notice.since)
    table.transact(lambda connection: connection.execute(same.values(notice_due=None)))


class Notices:
    """Notes changes of this process, and sends what is due, from `start` to `stop`. Senders work at the same time, so
    that an answer which takes long holds up no other notice."""

    def __init__(self, webhook: Webhook, runs: "Runs") -> None:
        self._endpoint, self._path = webhook.create_endpoint()
        self._address = mask_url(webhook.url)
        with open_transport(self._endpoint):  # it says now what is not installed
            pass
        self._runs = runs
        runs.table.notifies = True  # from now on, changes of this process are noted
        self._stopping = threading.Event()
        self._threads: list[Future[None]] = []

    def start(self) -> None:
        """Begin to look for what is due."""
        self._threads.append(in_thread(self._look))

    def stop(self) -> None:
        """Stop. What is not sent by then is sent later, or by another worker."""
        self._stopping.set()
        wait(self._threads, SEND_SECONDS)

    def _look(self) -> None:
        """Give each notice that is due to a sender of its own, as long as there are fewer than `SENDERS`."""
        while not self._stopping.wait(LOOK_SECONDS):
            self._threads = [thread for thread in self._threads if not thread.done()]
            for notice in self._claim(SENDERS + 1 - len(self._threads)):  # this thread is one of them
                self._threads.append(in_thread(partial(self._work, notice)))

    def _work(self, notice: Notice | None) -> None:
        """Send a notice, and others as long as there are any."""
        while notice is not None and not self._stopping.is_set():
            try:
                self._deliver(notice)
            except Exception as error:  # whatever the database raises; the notice is due again later
                logger.warning("A notice of the run '%s' failed: %s", notice.run_id, type(error).__name__)
            notice = next(iter(self._claim(1)), None)

    def _claim(self, count: int) -> list[Notice]:
        try:
            return claim_notices(self._runs.table, count) if count > 0 else []
        except Exception as error:  # whatever the database raises
            logger.warning("No notices can be read: %s", type(error).__name__)
            return []

    def _deliver(self, notice: Notice) -> None:
        """Send a notice. One that fails is due again, until there were `ATTEMPTS`."""
        try:
            body = self._describe(notice)
            headers = {"idempotency-key": notice.key}
            request = WireRequest(path=self._path, body=body, headers=headers, timeout=SEND_SECONDS)
            with open_transport(self._endpoint) as transport:  # notices are rare
                transport.send(request)
        except TimeoutError:
            return  # the state is not the engine's yet
        except ModelError as error:
            if error.retryable and notice.attempts < ATTEMPTS:
                return
            reason = f"HTTP {error.status}" if error.status else "no connection"
            text = "The webhook %s was not told that the run '%s' is %s: %s."
            logger.warning(text, self._address, notice.run_id, notice.state, reason, extra={"run_id": notice.run_id})
        settle_notice(self._runs.table, notice)

    def _describe(self, notice: Notice) -> Json:
        """Return what is safe in the log of a service. Raise TimeoutError if it comes too early."""
        calls: list[Json] = []
        error = None
        if notice.state != "quarantined":
            try:
                outcome = self._runs.result(notice.run_id, timeout=0)
            except PromptyError as problem:
                error = type(problem).__name__
            else:
                pending = outcome.pending if isinstance(outcome, Paused) else ()
                calls = [{"name": call.name, "unknown": call.unknown} for call in pending]
        return {
            "event": f"run.{notice.state}",
            "run": notice.run_id,
            "prompt": notice.prompt,
            "tenant": notice.tenant,
            "since": datetime.fromtimestamp(notice.since / 1000, UTC).isoformat(timespec="milliseconds"),
            "calls": calls,
            "error": error,
        }
