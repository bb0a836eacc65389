"""The port to a durable engine: everything that runs need of one. An engine must pass `durable.suite`.

An engine runs workflows. A workflow is a function from a JSON record to a JSON output, under an id. When the process of
a worker dies, the next worker of the same name calls the function again with the same record, and finished steps return
their stored results.
Above: `durable.driver`, `durable.runtime`. Below: DBOS, which only `durable.dbos_engine` knows.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from prompty.model.message import Json

State = Literal["waiting", "running", "finished", "broken", "cancelled"]
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

    async def is_owner(self) -> bool:
        """Return False if another worker has taken over this workflow. Call it in a step, before a side effect: the
        engine already rejects writes from a stale owner."""
        ...

    async def write(self, value: Json, /) -> None:
        """Append to the workflow's stream while a step runs. A step that is run again writes again."""
        ...


class StoredStep(NamedTuple):
    """A step that has ended."""

    name: str
    result: object


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """State of a workflow. `record` and `output` come from storage and are not trusted. `recovered` counts restarts
    after a worker died; whatever ran at that moment may have been done twice."""

    id: str
    state: State
    record: object = None
    output: object = None
    error: str | None = None
    worker: str | None = None
    recovered: int = 0
    created: datetime
    ended: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Dequeue limits: per-worker concurrency, global concurrency, and rate (count, seconds)."""

    worker_concurrency: int | None = None
    concurrency: int | None = None
    rate: tuple[int, float] | None = None


class Engine(Protocol):
    """Storage and execution of workflows. With a name it is a worker: it runs what it starts, what is queued, and what
    the last worker of its name left unfinished. Without a name it is a client. Its methods block, and can be called
    from any thread."""

    def open(self, workflow: Workflow, /) -> None:
        """Start the worker. Raise `NameInUse` while another process has this name."""
        ...

    def close(self, drain: float = 0) -> None:
        """Stop the worker after at most `drain` seconds. Unfinished workflows continue when the name opens again."""
        ...

    def start(self, id: str, record: Json, /, *, priority: int | None = None) -> None:
        """Start a workflow, unless there is one with this id."""
        ...

    def submit(self, records: Mapping[str, Json], /) -> None:
        """Queue workflows by id in one transaction. Existing ones stay as they are."""
        ...

    def status(self, id: str, /) -> Status | None: ...

    def wait(self, id: str, seconds: float, /) -> Status:
        """Return the status when the workflow has ended, or after `seconds`."""
        ...

    def find(self, prefix: str = "", /, *, outputs: bool = True) -> list[Status]:
        """Return the workflows whose ids have this prefix, oldest first, without their records."""
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

    def adopt(self, name: str, /, *, force: bool = False) -> int:
        """Take over the workflows of a worker that is gone for good, and return how many. Raise `NameInUse` while its
        process is alive, unless `force`: it may be in the middle of a side effect."""
        ...
