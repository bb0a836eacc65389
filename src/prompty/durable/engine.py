"""The port to a durable engine: everything that runs need of one. An engine must pass `durable.suite`.

An engine runs workflows. A workflow is a function from a JSON record to a JSON output, under an id. When the process of
a worker dies, another worker calls the function again with the same record, and finished steps return their stored
results.
Above: `durable.driver`, `durable.runtime`. Below: DBOS, which only `durable.dbos_engine` knows.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from prompty.durable.selection import Outcome, Position, Selection
from prompty.model.message import Json

State = Literal["waiting", "running", "finished", "broken", "cancelled", "quarantined"]
Workflow = Callable[["Steps", Json], Awaitable[Json]]
StepBody = Callable[[], Awaitable[Json]]


class Steps(Protocol):
    """The engine as a running workflow sees it. Step names are unique in a workflow, and a workflow starts its steps in
    the same order in every execution."""

    async def step(self, name: str, body: StepBody, /) -> Json:
        """Run the body and store its result, or return the stored one. A body that raises ends the workflow."""
        ...

    async def receive(self) -> list[str]:
        """Return the messages sent to the workflow since the last call. They are stored like the result of a step."""
        ...

    async def fence(self) -> None:
        """Return when this worker may begin a side effect: at once, unless it has not renewed its lease for a while.
        Raise CancelledError if another worker may have taken over. Call it in a step. The engine already rejects
        writes from a stale owner."""
        ...

    async def write(self, value: Json, /) -> None:
        """Append to the workflow's stream while a step runs. A step that is run again writes again."""
        ...

    async def label(self, outcome: Outcome, /) -> None:
        """Store how this execution is about to end, so that `Engine.select` finds the workflow without reading its
        output. Call it last. A workflow that ends without a label is `done`."""
        ...


class StoredStep(NamedTuple):
    """A step that has ended."""

    name: str
    result: object


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
    workers without a lease left unfinished. The name is a label for people and need not be unique. Without a name it is
    a client. Its methods block, and can be called from any thread."""

    @property
    def version(self) -> str:
        """Version of the workflows that it starts and runs. Others stay as they are, for workers of their version."""
        ...

    def open(self, workflow: Workflow, /) -> None:
        """Start the worker."""
        ...

    def close(self, drain: float = 0) -> None:
        """Stop the worker after at most `drain` seconds. Unfinished workflows continue on any other worker."""
        ...

    def start(
        self, id: str, record: Json, /, *, priority: int | None = None, prompt: str = "", tenant: str | None = None
    ) -> None:
        """Start a workflow, unless there is one with this id. `select` finds it by the name of its prompt. One of a
        tenant is queued, also by a worker."""
        ...

    def submit(self, records: Mapping[str, Json], /, *, prompt: str = "", tenant: str | None = None) -> None:
        """Queue workflows by id in one transaction. Existing ones stay as they are."""
        ...

    def status(self, id: str, /) -> Status | None: ...

    def wait(self, id: str, seconds: float, /) -> Status:
        """Return the status when the workflow has ended, or after `seconds`."""
        ...

    def find(self, ids: Sequence[str], /, *, outputs: bool = False) -> list[Status]:
        """Return those of the workflows that exist, oldest first, without their records."""
        ...

    def select(
        self, selection: Selection, /, *, limit: int, after: Position | None = None, oldest_first: bool = False
    ) -> list[Position]:
        """Return the positions of runs, the newest first. A run is a chain of workflows (`id`, `id#1`, …), and its
        position is that of the last one. No inputs or outputs are read."""
        ...

    def count_versions(self) -> list["VersionCount"]:
        """Return how many workflows there are of each version."""
        ...

    def find_ended(self, ids: Sequence[str], /) -> list[Status]:
        """Return those of the workflows that have ended, without their records."""
        ...

    def steps(self, id: str, /) -> list[StoredStep]:
        """Return the finished steps in the order in which they started."""
        ...

    def read_stream(self, id: str, offset: int, /) -> list[object]:
        """Return the values of a workflow's stream after the first `offset`."""
        ...

    def send(self, id: str, text: str, /) -> None:
        """Send a message to a workflow, which reads it with `Steps.receive`."""
        ...

    def cancel(self, id: str, /) -> None:
        """Cancel a workflow, unless it has ended."""
        ...

    def retry(self, id: str, /) -> None:
        """Continue a cancelled or broken workflow after its last finished step."""
        ...

    def delete(self, ids: Sequence[str], /) -> None:
        """Delete workflows with everything stored about them."""
        ...

    def is_taken_over(self, id: str, /) -> bool:
        """Return True if another worker took a workflow over so recently that a process which hangs may still be in the
        middle of a side effect."""
        ...
