"""Probation: runs that were under way when their worker died must not take their neighbours with them again.

A run that kills its process would end every worker that takes it over. A worker therefore starts runs whose workers
died twice one after the other, and a run whose worker died three times while no other run executes a step. One that
finishes a step is cleared. One that kills its worker alone is quarantined, in `durable.dbos_leases`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

SUSPECT_DEATHS = 2
ISOLATED_DEATHS = 3
QUARANTINE_DEATHS = 4
SUSPECT_SECONDS = 0.5  # until the next suspect starts
ISOLATED_SECONDS = 30.0  # until the neighbours go on, and the longest wait for their steps before
Note = Callable[[], Awaitable[None]]


class Trial:
    """The execution of a run whose worker died, up to the first step that it finishes."""

    def __init__(self, clear: Note, deaths: int) -> None:
        self.is_isolated: bool = deaths >= ISOLATED_DEATHS
        self._clear = clear
        self._ended = asyncio.Event()

    async def pass_step(self) -> None:
        """Clear the run: it has finished a step."""
        if not self._ended.is_set():
            self._ended.set()
            await self._clear()

    def end(self) -> None:
        self._ended.set()

    async def wait(self, seconds: float) -> None:
        """Wait until it has passed or ended, but not longer than so many seconds."""
        await _wait_for(self._ended, seconds)


class Probation:
    """The runs of a worker: how many execute a step, and whether one of them must be alone."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._executing = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = asyncio.Event()
        self._open.set()

    @asynccontextmanager
    async def step(self, trial: Trial | None) -> AsyncIterator[None]:
        """Execute a step. It waits while another run is isolated."""
        if trial is not None and trial.is_isolated:
            yield
            return
        await self._open.wait()
        self._executing += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._executing -= 1
            if self._executing == 0:
                self._idle.set()

    @asynccontextmanager
    async def start(self, deaths: int, mark: Note, clear: Note) -> AsyncIterator[Trial]:
        """Start a run whose worker died. `mark` notes that it executes from now on."""
        trial, started = Trial(clear, deaths), asyncio.Event()
        guard = asyncio.create_task(self._guard(trial, started)) if deaths >= SUSPECT_DEATHS else None
        try:
            if guard is not None:
                await started.wait()
            await mark()
            yield trial
        finally:
            trial.end()
            if guard is not None:
                guard.cancel()
                await asyncio.gather(guard, return_exceptions=True)

    async def _guard(self, trial: Trial, started: asyncio.Event) -> None:
        """Let a suspect start when it is its turn, and keep the others waiting until it has passed or time is up."""
        async with self._turn:
            if not trial.is_isolated:
                started.set()
                await trial.wait(SUSPECT_SECONDS)
                return
            self._open.clear()
            try:
                await _wait_for(self._idle, ISOLATED_SECONDS)
                started.set()
                await trial.wait(ISOLATED_SECONDS)
            finally:
                self._open.set()


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
