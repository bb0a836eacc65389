"""Suspend processes of tests, as a machine does that sleeps."""

import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.durable.own import until

Process = ForkServerProcess | subprocess.Popen[str]


def stop(process: Process, url: str) -> None:
    """Stop a process, but not while it has a lock on a SQLite file that keeps others from writing. Without a
    write-ahead log, a reader's lock does too."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: is_stopped(process))
    while url.startswith("sqlite") and not _is_free(url.partition("///")[2]):
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.01)
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: is_stopped(process))


def is_stopped(process: Process) -> bool:
    """Return True if all of its threads are stopped."""
    stats = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def _is_free(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True
