"""Errors of an HTTP exchange. Each says whether a retry can help."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from urllib.parse import urlsplit

from prompty.errors import TIMED_OUT, ModelError
from prompty.safety.redaction import mask_secrets
from prompty.wire.json_bytes import read_bytes

MAX_MESSAGE = 2_000
_TEMPORARY = frozenset({408, 409, 425, 429})
_PERMANENT_PROBLEMS = frozenset({"insufficient_quota", "billing_not_active"})


def timeout_error() -> ModelError:
    return ModelError(TIMED_OUT, retryable=True)


def connection_error(kind: str, detail: str, *, retryable: bool = True) -> ModelError:
    shown = f"{kind}: {detail}" if detail else kind
    return ModelError(f"the connection failed: {mask_secrets(shown)}", retryable=retryable)


def answer_error(status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """Return the error for a response whose status is not 2xx."""
    if 300 <= status < 400:
        target = urlsplit(headers.get("location", "")).netloc
        return ModelError(
            f"HTTP {status}: redirects are not followed{f' (to {target})' if target else ''}", status=status
        )
    try:
        content = read_bytes(body)
    except ModelError:
        content = None
    detail = content.get("error", content) if isinstance(content, dict) else content
    text = _get_message(detail) or body.decode(errors="replace")
    message = f"HTTP {status}: {mask_secrets(text).strip()}" if text.strip() else f"HTTP {status}"
    return status_error(status, message, headers, detail)


def _get_message(detail: object) -> str:
    """Return the message of an error and its code, in any of the forms that servers use."""
    if isinstance(detail, list) and detail:  # Google's compatible endpoint answers with a list of one
        return _get_message(detail[0].get("error", detail[0]) if isinstance(detail[0], dict) else detail[0])
    if isinstance(detail, str):
        return detail
    if not isinstance(detail, dict):
        return ""
    message = next((part for name in ("message", "detail", "msg") if isinstance(part := detail.get(name), str)), "")
    code = next((part for name in ("code", "type") if isinstance(part := detail.get(name), str)), "")
    return f"{message} ({code})" if message and code and code not in message else message


def status_error(status: int, message: str, headers: Mapping[str, str], detail: object) -> ModelError:
    """Return the error for an HTTP status."""
    problems = {str(detail.get("code")), str(detail.get("type"))} if isinstance(detail, dict) else set()
    temporary = (status in _TEMPORARY or status >= 500) and _PERMANENT_PROBLEMS.isdisjoint(problems)
    retryable = temporary and headers.get("x-should-retry") != "false"
    shown = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"
    return ModelError(shown, status=status, retryable=retryable, retry_after=retry_after(headers))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds a server asks to wait, from `retry-after` (a number or a date) or `retry-after-ms`."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(milliseconds / 1000, 0)
    asked = headers.get("retry-after") or ""
    seconds = _number(asked)
    return _until(asked) if seconds is None else max(seconds, 0)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) else None


def _until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((aware - datetime.now(UTC)).total_seconds(), 0)
