"""The port to a durable engine: everything that runs need of one. An engine must pass `tests/durable/suite.py`.

An engine runs workflows. A workflow is a function from a JSON record to a JSON output, under an id. It decides what
happens next, and acts only in steps. A step is data: its name and its effect, for which the engine calls `perform`, in
the process of the workflow or in another one. When the process of a worker dies, another worker calls the workflow
again with the same record, and finished steps return their stored results.

`Engine` is what every engine can do. What only some can is a protocol of its own: `Streams`, `Retries`, `Batches`,
`Catalog`, `Takeovers`, and `HasQueue` and `HasTimers` in `durable.queueing` and `durable.timers`.
Above: `durable.driver`, `durable.performer`, `durable.runtime`. Below: `durable.dbos_engine`, which knows DBOS.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from prompty.durable.selection import Outcome, Position, Selection
from prompty.errors import RequestError
from prompty.model.message import Json

State = Literal["waiting", "running", "finished", "broken", "cancelled", "quarantined"]
Workflow = Callable[["Steps", Json], Awaitable[Json]]
Perform = Callable[["Attempt", Json], Awaitable[Json]]


class Steps(Protocol):
    """The engine as a running workflow sees it. Step names are unique in a workflow, and a workflow starts its steps in
    the same order in every execution."""

    @property
    def execution(self) -> str:
        """Id of this execution. If the engine executes a workflow again after a worker died, it has another id."""
        ...

    async def step(self, name: str, effect: Json, /) -> Json:
        """Have the effect performed and store its result, or return the stored one. If `perform` raises, the workflow
        ends. Put references into an effect instead of what is stored already: some engines store it, too."""
        ...

    async def begin(self, name: str, /) -> bool:
        """Store that this execution begins side effects which must not be repeated. Return False if an earlier
        execution began them, so that they may have happened."""
        ...

    async def receive(self) -> list[str]:
        """Return the messages sent to the workflow since the last call. They are stored like the result of a step."""
        ...

    async def label(self, outcome: Outcome, /) -> None:
        """Store how this execution is about to end, so that `Catalog.select` finds the workflow without reading its
        output. Call it last. A workflow that ends without a label is `done`."""
        ...


class Attempt(Protocol):
    """One attempt at a step, as `perform` sees it."""

    @property
    def execution(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def is_repeated(self) -> bool:
        """True if the engine knows that an earlier attempt of this execution started and has no result."""
        ...

    async def fence(self) -> None:
        """Return when this worker may begin a side effect: at once, unless it has not renewed its lease for a while.
        Raise CancelledError if another worker may have taken over. The engine already rejects writes from a stale
        owner."""
        ...


@runtime_checkable
class WritableAttempt(Attempt, Protocol):
    """An attempt of an engine with `Streams`."""

    async def write(self, value: Json, /) -> None:
        """Append to the workflow's stream. A step that is run again writes again."""
        ...


@runtime_checkable
class RemoteAttempt(Attempt, Protocol):
    """An attempt of an engine whose steps may run in another process than their workflow."""

    async def load(self) -> "StoredExecution":
        """Read what is stored of the execution."""
        ...


class StoredStep(NamedTuple):
    """A step that has ended."""

    name: str
    result: object


class StoredExecution(NamedTuple):
    """The record of a workflow, and its steps that have ended."""

    record: Json
    steps: Sequence[StoredStep]


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """State of a workflow. `record` and `output` come from storage and are not trusted. `recovered` counts restarts
    after a worker died; whatever ran at that moment may have been done twice. Only workers of the same `version` run
    it."""

    id: str
    state: State
    record: object = None
    output: object = None
    error: str | None = None
    worker: str | None = None
    recovered: int = 0
    created: datetime
    ended: datetime | None = None
    prompt: str | None = None
    version: str = ""
    tenant: str | None = None


class VersionCount(NamedTuple):
    """Workflows of one version: how many are waiting, running, and ended."""

    version: str
    waiting: int
    running: int
    ended: int

    @property
    def unfinished(self) -> int:
        return self.waiting + self.running


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Dequeue limits: per-worker concurrency, global concurrency, rate (count, seconds), and concurrency of a tenant.
    Runs with and without tenants are counted apart. `max_waiting` limits what this runtime adds to the queue."""

    worker_concurrency: int | None = None
    concurrency: int | None = None
    rate: tuple[int, float] | None = None
    tenant_concurrency: int | None = None
    max_waiting: int | None = None


class Engine(Protocol):
    """Storage and execution of workflows. With a name it is a worker: it runs what it starts, what is queued, and what
    workers that died left unfinished. The name is a label for people and need not be unique. Without a name it is a
    client. Its methods block, and can be called from any thread."""

    @property
    def version(self) -> str:
        """Version of the workflows that it starts and runs. Others stay as they are, for workers of their version."""
        ...

    @property
    def runs_steps_locally(self) -> bool:
        """True if the steps of an execution run in its process, so that a run can hold the lock of its memory session,
        and a span, from its start to its end."""
        ...

    def open(self, workflow: Workflow, perform: Perform, /) -> None:
        """Start the worker."""
        ...

    def close(self, drain: float = 0) -> None:
        """Stop the worker after at most `drain` seconds. Unfinished workflows continue on any other worker."""
        ...

    def start(self, id: str, record: Json, /, *, prompt: str = "") -> None:
        """Start a workflow, unless there is one with this id. `Catalog.select` finds it by the name of its prompt."""
        ...

    def status(self, id: str, /) -> Status | None: ...

    def wait(self, id: str, seconds: float, /) -> Status:
        """Return the status when the workflow has ended, or after `seconds`."""
        ...

    def find(self, ids: Sequence[str], /, *, outputs: bool = False) -> list[Status]:
        """Return those of the workflows that exist, oldest first, without their records."""
        ...

    def steps(self, id: str, /) -> list[StoredStep]:
        """Return the finished steps in the order in which they started."""
        ...

    def send(self, id: str, text: str, /) -> None:
        """Send a message to a workflow, which reads it with `Steps.receive`."""
        ...

    def cancel(self, id: str, /) -> None:
        """Cancel a workflow, unless it has ended."""
        ...


@runtime_checkable
class Streams(Protocol):
    """Readers see what a step writes while it runs."""

    def read_stream(self, id: str, offset: int, /) -> list[object]:
        """Return the values of a workflow's stream after the first `offset`."""
        ...


@runtime_checkable
class Retries(Protocol):
    """A workflow that ended without an output can go on."""

    def retry(self, id: str, /) -> None:
        """Continue a cancelled or broken workflow after its last finished step."""
        ...


@runtime_checkable
class Catalog(Protocol):
    """Workflows can be listed, counted and deleted."""

    def select(
        self, selection: Selection, /, *, limit: int, after: Position | None = None, oldest_first: bool = False
    ) -> list[Position]:
        """Return the positions of runs, the newest first. A run is a chain of workflows (`id`, `id#1`, …), and its
        position is that of the last one. No inputs or outputs are read."""
        ...

    def count_versions(self) -> list[VersionCount]:
        """Return how many workflows there are of each version."""
        ...

    def delete(self, ids: Sequence[str], /) -> None:
        """Delete workflows with everything stored about them."""
        ...


@runtime_checkable
class Batches(Engine, Catalog, Protocol):
    """Many workflows can be started and collected at once."""

    def submit(self, records: Mapping[str, Json], /, *, prompt: str = "", tenant: str | None = None) -> None:
        """Queue workflows by id in one transaction. Existing ones stay as they are."""
        ...

    def find_ended(self, ids: Sequence[str], /) -> list[Status]:
        """Return those of the workflows that have ended, without their records."""
        ...


@runtime_checkable
class Takeovers(Protocol):
    """The engine knows when a worker took a workflow over from another one."""

    def is_taken_over(self, id: str, /) -> bool:
        """Return True if another worker took a workflow over so recently that a process which hangs may still be in the
        middle of a side effect."""
        ...


def lacks(engine: Engine, purpose: str, fix: str) -> RequestError:
    """Return the error of a caller that needs what an engine does not have."""
    return RequestError(f"{type(engine).__name__} cannot {purpose}", fix)
