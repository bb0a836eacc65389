"""A worker's name is its own: two processes of one name would take each other's runs for their own left ones."""

import threading
import time
from contextlib import suppress
from hashlib import sha256
from logging import getLogger
from pathlib import Path
from typing import Any, Protocol

from prompty.concurrency import FileLock
from prompty.errors import NameInUse
from prompty.extras import require

CHECK_SECONDS = 5.0
DEATH_SECONDS = 3.0
logger = getLogger("prompty")


class NameLock(Protocol):
    """A name that this process has."""

    def release(self) -> None: ...


def name_lock(url: str, name: str) -> NameLock:
    """Take a name in a database. The system gives it back when the process ends, however it ends."""
    if not url.startswith("sqlite:"):
        return PostgresLock(url, name)
    database = Path(url.partition("///")[2])
    database.parent.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(database.with_name(f"{database.name}.{sha256(name.encode()).hexdigest()[:16]}.lock"))
    except BlockingIOError:
        raise NameInUse(name) from None


class PostgresLock:
    """A lock of a session of the database. A server that was restarted has forgotten it, so it is looked after."""

    def __init__(self, url: str, name: str) -> None:
        self._psycopg: Any = require("psycopg", extra="durable")
        self._url, self._name = url.replace("postgresql+psycopg:", "postgresql:"), name
        self._key = int.from_bytes(sha256(f"prompty:{name}".encode()).digest()[:8], signed=True)
        self._connection = self._taken()
        self._released = threading.Event()
        self._changing = threading.Lock()
        threading.Thread(target=self._keep, name="prompty name", daemon=True).start()

    def _taken(self) -> Any:
        """A connection that has the name. A server needs a moment to see that a process which had it is dead."""
        connection = self._psycopg.connect(self._url, autocommit=True)
        until = time.monotonic() + DEATH_SECONDS
        try:
            while not connection.execute("SELECT pg_try_advisory_lock(%s)", (self._key,)).fetchone()[0]:
                if time.monotonic() > until:
                    raise NameInUse(self._name)
                time.sleep(0.05)
        except BaseException:
            connection.close()
            raise
        return connection

    def _keep(self) -> None:
        while not self._released.wait(CHECK_SECONDS):
            with self._changing:
                if not self._released.is_set():  # a name that was given back must not be taken again
                    self._look()

    def _look(self) -> None:
        try:
            self._connection.execute("SELECT 1")
        except self._psycopg.Error:
            self._connection.close()
            self._retake()

    def _retake(self) -> None:
        try:
            self._connection = self._taken()
        except self._psycopg.Error:
            logger.warning("The database cannot be reached; the worker '%s' waits for it.", self._name)
        except NameInUse:
            logger.error("Another worker has taken the name '%s' while the database was away.", self._name)

    def release(self) -> None:
        self._released.set()
        with self._changing:
            with suppress(self._psycopg.Error):
                self._connection.execute("SELECT pg_advisory_unlock(%s)", (self._key,))
            self._connection.close()
