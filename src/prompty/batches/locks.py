"""Exclusive locks in a database: one process at a time collects the results of a batch."""

import threading
import time
from contextlib import suppress
from hashlib import sha256
from logging import Logger, getLogger
from pathlib import Path
from typing import Any, Protocol

from prompty.concurrency import FileLock
from prompty.extras import require

CHECK_SECONDS = 5.0
DEATH_SECONDS = 3.0
logger: Logger = getLogger("prompty")


class DatabaseLock(Protocol):
    """A lock held by this process."""

    def release(self) -> None: ...


def acquire_lock(url: str, name: str) -> DatabaseLock:
    """Lock a name in a database, or raise `BlockingIOError`. The lock ends with the process, even if it is killed."""
    if not url.startswith("sqlite:"):
        return PostgresLock(url, name)
    database = Path(url.partition("///")[2])
    database.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(database.with_name(f"{database.name}.{sha256(name.encode()).hexdigest()[:16]}.lock"))


class PostgresLock:
    """Advisory lock of a database session. A server that restarts loses it, so a thread checks and reacquires it."""

    def __init__(self, url: str, name: str) -> None:
        self._psycopg: Any = require("psycopg", extra="durable")
        self._url, self._name = url.replace("postgresql+psycopg:", "postgresql:"), name
        self._key = int.from_bytes(sha256(f"prompty:{name}".encode()).digest()[:8], signed=True)
        self._connection = self._acquire()
        self._released = threading.Event()
        self._connection_lock = threading.Lock()
        threading.Thread(target=self._watch, name="prompty lock", daemon=True).start()

    def _acquire(self) -> Any:
        """Return a connection that holds the lock. The server needs a moment to notice that the last holder died."""
        connection = self._psycopg.connect(self._url, autocommit=True)
        until = time.monotonic() + DEATH_SECONDS
        try:
            while not connection.execute("SELECT pg_try_advisory_lock(%s)", (self._key,)).fetchone()[0]:
                if time.monotonic() > until:
                    raise BlockingIOError(f"another process holds the lock '{self._name}'")
                time.sleep(0.05)
        except BaseException:
            connection.close()
            raise
        return connection

    def _watch(self) -> None:
        while not self._released.wait(CHECK_SECONDS):
            with self._connection_lock:
                if not self._released.is_set():  # a released lock must not be reacquired
                    self._check()

    def _check(self) -> None:
        try:
            self._connection.execute("SELECT 1")
        except self._psycopg.Error:
            self._connection.close()
            self._reacquire()

    def _reacquire(self) -> None:
        try:
            self._connection = self._acquire()
        except self._psycopg.Error:
            logger.warning("The database is unreachable. The lock '%s' will be acquired again.", self._name)
        except BlockingIOError:
            logger.error("Another process took the lock '%s' while the database was unreachable.", self._name)

    def release(self) -> None:
        self._released.set()
        with self._connection_lock:
            with suppress(self._psycopg.Error):
                self._connection.execute("SELECT pg_advisory_unlock(%s)", (self._key,))
            self._connection.close()
