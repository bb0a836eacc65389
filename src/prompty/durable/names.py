"""Exclusive worker names. Two live workers with one name would each recover the other's runs."""

import threading
import time
from contextlib import suppress
from hashlib import sha256
from logging import Logger, getLogger
from pathlib import Path
from typing import Any, Protocol

from prompty.concurrency import FileLock
from prompty.errors import NameInUse
from prompty.extras import require

CHECK_SECONDS = 5.0
DEATH_SECONDS = 3.0
logger: Logger = getLogger("prompty")


class NameLock(Protocol):
    """A name held by this process."""

    def release(self) -> None: ...


def name_lock(url: str, name: str) -> NameLock:
    """Lock a name in a database, or raise `NameInUse`. The lock ends with the process, however it ends."""
    if not url.startswith("sqlite:"):
        return PostgresLock(url, name)
    database = Path(url.partition("///")[2])
    database.parent.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(database.with_name(f"{database.name}.{sha256(name.encode()).hexdigest()[:16]}.lock"))
    except BlockingIOError:
        raise NameInUse(name) from None


class PostgresLock:
    """Advisory lock of a database session. A server that restarts loses it, so a thread checks and reacquires it."""

    def __init__(self, url: str, name: str) -> None:
        self._psycopg: Any = require("psycopg", extra="durable")
        self._url, self._name = url.replace("postgresql+psycopg:", "postgresql:"), name
        self._key = int.from_bytes(sha256(f"prompty:{name}".encode()).digest()[:8], signed=True)
        self._connection = self._acquire()
        self._released = threading.Event()
        self._connection_lock = threading.Lock()
        threading.Thread(target=self._watch, name="prompty name", daemon=True).start()

    def _acquire(self) -> Any:
        """Return a connection that holds the lock. The server needs a moment to notice that the last holder died."""
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

    def _watch(self) -> None:
        while not self._released.wait(CHECK_SECONDS):
            with self._connection_lock:
                if not self._released.is_set():  # a released name must not be reacquired
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
            logger.warning("The database is unreachable. The worker '%s' keeps trying to connect.", self._name)
        except NameInUse:
            logger.error("Another worker took the name '%s' while the database was unreachable.", self._name)

    def release(self) -> None:
        self._released.set()
        with self._connection_lock:
            with suppress(self._psycopg.Error):
                self._connection.execute("SELECT pg_advisory_unlock(%s)", (self._key,))
            self._connection.close()
