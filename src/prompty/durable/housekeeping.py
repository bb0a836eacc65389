"""Housekeeping of a worker: what has to be done regularly for all runs, on one thread."""

import threading
import time
from collections.abc import Callable, Mapping
from logging import Logger, getLogger

LOOK_SECONDS = 1.0
STOP_SECONDS = 5.0
logger: Logger = getLogger("prompty")


class Housekeeper:
    """Calls functions, each every so many seconds, until it is stopped. One that fails is called again later: the
    database may be away."""

    def __init__(self, chores: Mapping[Callable[[], None], float]) -> None:
        self._due = dict.fromkeys(chores, 0.0)
        self._chores = chores
        self._failing: set[Callable[[], None]] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="prompty housekeeping", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, but don't wait for a database that is away."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS)

    def _keep(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            for chore, seconds in self._chores.items():
                if time.monotonic() >= self._due[chore] and not self._stopping.is_set():
                    self._call(chore)
                    self._due[chore] = time.monotonic() + seconds

    def _call(self, chore: Callable[[], None]) -> None:
        try:
            chore()
        except Exception as error:  # whatever the database driver raises
            if chore not in self._failing and not self._stopping.is_set():  # once, until it works again
                logger.warning("The worker cannot look after waiting runs: %s", type(error).__name__)
            self._failing.add(chore)
        else:
            self._failing.discard(chore)
