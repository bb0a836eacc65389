"""Log records of a worker, with the run and the call that they belong to.

`follow` sets them for everything that is logged inside, by tools as well. Every record of the
loggers below gets the fields `run_id`, `call` and `tool`, which are None outside of a run. They hold nothing of what a
run says. Used by `durable.worker`, `durable.performer` and `prompty worker --log-format`.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible

LogFormat = Literal["text", "json"]
LOGGERS = ("prompty", "prompty.tools", "prompty.tracing")
FIELDS = ("run_id", "call", "tool")
_NOTHING: Mapping[str, str] = {}
_current: ContextVar[Mapping[str, str]] = ContextVar("current", default=_NOTHING)


@contextmanager
def follow(**fields: str) -> Iterator[None]:
    """Set some of the `FIELDS`."""
    token = _current.set({**_current.get(), **fields})
    try:
        yield
    finally:
        with suppress(ValueError):  # a workflow that its engine has dropped is closed in another context
            _current.reset(token)


def _add_run(record: logging.LogRecord) -> bool:
    """Add the fields to a record, except those that it has."""
    for name in FIELDS:
        if not hasattr(record, name):
            setattr(record, name, _current.get().get(name))
    return True


def add_run_fields() -> None:
    """Let the records of our loggers have the fields from now on."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_add_run)


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message, the fields that are set, and the worker."""

    def __init__(self, worker: str) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask_secrets(_get_text(self, record)),
            "worker": self._worker,
        }
        return json.dumps(line | _get_fields(record), ensure_ascii=False)


class TextLines(logging.Formatter):
    """One line per record for people, and more if it has a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = "".join(f" {name}={value}" for name, value in _get_fields(record).items()).replace("\n", "\\n")
        lines = mask_secrets(_get_text(self, record)).splitlines() or [""]
        return "\n".join(map(visible, [f"{moment} {record.levelname}{fields} {lines[0]}", *lines[1:]]))


def _get_fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}


def _get_text(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = record.getMessage()
    return f"{text}\n{formatter.formatException(record.exc_info)}" if record.exc_info else text


def write_logs(format: LogFormat, worker: str) -> None:
    """Write the records of our loggers to standard error, from INFO on."""
    add_run_fields()
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(worker) if format == "json" else TextLines())
    logger = logging.getLogger("prompty")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
