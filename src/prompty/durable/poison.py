"""Poison: a run that kills its process must not take its neighbours with it again and again.

A run that was under way when its worker died may be the cause. One death says little: from then on its worker notes in
the database when it executes a step, and a further death counts against it only if it did. Runs with two deaths begin
their first step one after the other, and from three deaths on no other run of the worker executes a step meanwhile. One
that finishes a step is cleared. One that has died twice alone is quarantined. Used by `durable.worker`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from prompty.durable.database import RunRow

SUSPECT_DEATHS = 2
ISOLATED_DEATHS = 3
QUARANTINE_DEATHS = 5
WINDOW_SECONDS = 600.0  # deaths that are further apart have nothing to do with each other
SUSPECT_SECONDS = 0.5  # until the next suspect begins
ISOLATED_SECONDS = 30.0  # until the neighbours go on, and the longest wait for their steps before
Note = Callable[[], Awaitable[object]]


def count_deaths(runs: Mapping[str, RunRow], lost: str, now: float) -> dict[str, int]:
    """Return the deaths of the runs that a lost worker had, with this one. `now` is in seconds of the database's
    clock."""
    fresh = {id: run._replace(deaths=0) if _is_old(run, now) else run for id, run in runs.items()}
    alone = {id for id, run in fresh.items() if run.deaths >= ISOLATED_DEATHS and run.marked_by == lost}
    return {id: run.deaths + (id in alone if alone else _is_blamed(run, lost)) for id, run in fresh.items()}


def _is_old(run: RunRow, now: float) -> bool:
    return run.taken_over is not None and now - run.taken_over / 1000 > WINDOW_SECONDS


def _is_blamed(run: RunRow, lost: str) -> bool:
    return run.deaths == 0 or run.marked_by == lost


class Probation:
    """The executions of a worker: how many execute a step, and whether one of them must be alone."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._executing = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = asyncio.Event()
        self._open.set()

    @asynccontextmanager
    async def execute(self) -> AsyncIterator[None]:
        """Execute a step. It waits while another run is isolated."""
        await self._open.wait()
        self._executing += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._executing -= 1
            if self._executing == 0:
                self._idle.set()

    async def admit(self, trial: "Trial") -> None:
        """Let a suspect begin when it is its turn, and keep the others waiting until it has passed or time is up."""
        async with self._turn:
            if not trial.is_isolated:
                trial.admitted.set()
                await _wait_for(trial.ended, SUSPECT_SECONDS)
                return
            self._open.clear()
            try:
                await _wait_for(self._idle, ISOLATED_SECONDS)
                trial.admitted.set()
                await _wait_for(trial.ended, ISOLATED_SECONDS)
            finally:
                self._open.set()


class Trial:
    """One execution of a run. `mark` notes that it executes a step, `clear` that it has finished one; neither is called
    for a run without deaths."""

    def __init__(self, probation: Probation, deaths: int, mark: Note, clear: Note) -> None:
        self.deaths: int = deaths
        self.admitted: asyncio.Event = asyncio.Event()
        self.ended: asyncio.Event = asyncio.Event()
        self._probation, self._mark, self._clear = probation, mark, clear
        self._beginning = asyncio.Lock()
        self._guard: asyncio.Task[None] | None = None
        self._is_marked = False

    @property
    def is_isolated(self) -> bool:
        return self.deaths >= ISOLATED_DEATHS

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """Execute a step that is not stored yet. `begin` follows inside, before what it does."""
        if self.is_isolated:
            yield
            return
        await self._wait_for_turn()  # before it counts as one that executes
        async with self._probation.execute():
            yield

    async def begin(self) -> None:
        """Return when the run may do something, which is noted."""
        if self.deaths:
            await self._wait_for_turn()
            async with self._beginning:
                if not self._is_marked:
                    self._is_marked = True
                    await self._mark()

    async def _wait_for_turn(self) -> None:
        if self.deaths >= SUSPECT_DEATHS:
            if self._guard is None:
                self._guard = asyncio.create_task(self._probation.admit(self))
            await self.admitted.wait()

    async def pass_step(self) -> None:
        """Clear the run: it has finished a step."""
        if self.deaths:
            self.deaths = 0
            self.ended.set()
            await self._clear()

    async def end(self) -> None:
        """End the execution, so that the others go on."""
        self.ended.set()
        if self._guard is not None:
            self._guard.cancel()
            await asyncio.gather(self._guard, return_exceptions=True)


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
