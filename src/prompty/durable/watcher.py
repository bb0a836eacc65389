"""Watcher: cancels executions whose run belongs to another one by now.

A run changes hands when it is cancelled, retried or taken over. The engine rejects what a stale execution writes; the
watcher ends what it still does. One question a second covers all executions of a worker, so runs that wait for a model
or a tool cost nothing. Used by `durable.dbos_engine`.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging import Logger, getLogger
from typing import Any

WATCH_SECONDS = 1.0
CHUNK = 1000  # ids in one query
FindOwners = Callable[[Sequence[str]], Mapping[str, str | None]]
logger: Logger = getLogger("prompty")


@dataclass(frozen=True, eq=False, slots=True)
class Execution:
    """A workflow under way in this process, and the token that its writes need."""

    id: str
    token: str | None
    task: "asyncio.Task[Any]"


class Watcher:
    """The executions of a worker. `find_owners` returns the tokens of workflows by id, and may block."""

    def __init__(self, find_owners: FindOwners) -> None:
        self._find_owners = find_owners
        self._executions: set[Execution] = set()

    @contextmanager
    def watch(self, id: str, token: str | None) -> Iterator[None]:
        """Cancel the current task when the workflow gets another token."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a workflow is a coroutine
        execution = Execution(id, token, task)
        self._executions.add(execution)
        try:
            yield
        finally:
            self._executions.discard(execution)

    async def run(self) -> None:
        """Look after the executions until cancelled. While the database is away, they stay as they are."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self._cancel_stale()
            except Exception as error:  # whatever the database driver raises
                logger.debug("The worker cannot ask which runs were cancelled: %s", type(error).__name__)

    def cancel_all(self) -> None:
        """Cancel all executions: the worker lost its lease."""
        for execution in list(self._executions):
            execution.task.cancel()

    async def _cancel_stale(self) -> None:
        asked = list(self._executions)
        for start in range(0, len(asked), CHUNK):
            chunk = asked[start : start + CHUNK]
            owners = await asyncio.to_thread(self._find_owners, [execution.id for execution in chunk])
            for execution in chunk:
                if owners.get(execution.id) != execution.token:
                    self._cancel(execution)

    def _cancel(self, execution: Execution) -> None:
        if execution in self._executions:  # it may have ended while the database was asked
            execution.task.cancel()
