"""Webhook of a worker: tells a service that a run has paused, so that nobody has to look.

A notice is a timer beside the pause, so it survives the worker, and any worker with the webhook sends it. It says which
calls wait, but not with what arguments: those are for `runtime.result`. A service that fails is asked again a few
times, and the run never waits for it. Used by `durable.runtime`, on a thread of its own.
"""

import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from logging import Logger, getLogger
from urllib.parse import urlsplit

from prompty.durable.engine import Engine, Status
from prompty.durable.outcome import get_outcome
from prompty.durable.runs import get_run_id, get_segment_ids
from prompty.durable.timers import Timer, Timers
from prompty.errors import ModelError, RequestError, RunRefused
from prompty.model.message import Json
from prompty.model.paused import Paused
from prompty.model.request import WireRequest
from prompty.providers.endpoint import Endpoint, create_endpoint
from prompty.providers.http.transports import open_transport
from prompty.safety.origins import parse_origin
from prompty.safety.redaction import mask_url

ATTEMPTS = 8  # the waits between them double: twenty minutes in all
NOTICE_SECONDS = 1.0  # until a pause is stored
SEND_SECONDS = 5.0
LIMIT = 100
logger: Logger = getLogger("prompty")


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that gets a POST when a run pauses: https, or http to this machine. With a `secret`, the header
    `Prompty-Signature` is `t=TIME,v1=HMAC`: SHA-256 in hexadecimal over the time, a dot, and the body."""

    url: str
    secret: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        origin = parse_origin(self.url)
        if origin is None or (origin.scheme != "https" and not origin.is_loopback):
            raise RequestError(
                f"the webhook {mask_url(self.url)!r} is not an https URL", "Write it like https://host/paused."
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


class PauseNotices:
    """Notices of pauses, from the moment at which a run pauses until the webhook has accepted them."""

    def __init__(self, webhook: Webhook, engine: Engine, timers: Timers) -> None:
        self._endpoint, self._path = webhook.create_endpoint()
        self._address = mask_url(webhook.url)
        with open_transport(self._endpoint):  # it says now what is not installed
            pass
        self._engine, self._timers = engine, timers

    def note(self, id: str) -> None:
        """Note that a workflow is about to end in a pause."""
        self._timers.set(Timer(id, "notice"), self._timers.read_clock() + NOTICE_SECONDS)

    def deliver(self) -> None:
        """Send the notices that are due."""
        for claim in self._timers.claim(("notice",), LIMIT):
            if self._is_settled(claim.timer.id, claim.attempts):
                self._timers.drop(claim.timer)

    def _is_settled(self, id: str, attempts: int) -> bool:
        """Send a notice, if the run still waits. Return False to try again later."""
        status = self._find_pause(id)
        try:
            outcome = None if status is None else get_outcome(status)
        except RunRefused:
            return attempts >= ATTEMPTS
        if status is None or not isinstance(outcome, Paused):
            return status is None or outcome is not None
        try:
            self._send(id, describe_pause(status, outcome))
        except ModelError as error:
            if error.retryable and attempts < ATTEMPTS:
                return False
            reason = f"HTTP {error.status}" if error.status else "no connection"
            run_id = get_run_id(id)
            text = "The webhook %s was not told that the run '%s' is paused: %s."
            logger.warning(text, self._address, run_id, reason, extra={"run_id": run_id})
        return True

    def _find_pause(self, id: str) -> Status | None:
        """Return the workflow, unless somebody has answered it."""
        ids = get_segment_ids(self._engine, get_run_id(id))
        return self._engine.wait(id, 0) if ids and ids[-1] == id else None

    def _send(self, id: str, notice: Json) -> None:
        key = sha256(id.encode()).hexdigest()
        request = WireRequest(path=self._path, body=notice, headers={"idempotency-key": key}, timeout=SEND_SECONDS)
        with open_transport(self._endpoint) as transport:  # pauses are rare
            transport.send(request)


def describe_pause(status: Status, paused: Paused) -> Json:
    """Return the notice of a pause: what is safe to show to whoever reads the log of a service."""
    calls: list[Json] = [{"name": call.name, "unknown": call.unknown} for call in paused.pending]
    return {
        "event": "run.paused",
        "run": paused.run_id,
        "prompt": status.prompt,
        "paused": None if status.ended is None else status.ended.isoformat(),
        "calls": calls,
    }
