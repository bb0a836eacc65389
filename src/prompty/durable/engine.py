"""The port to a durable engine: the few things that a run needs of one. `durable.suite` is what an engine must pass.

An engine runs workflows: a function of a JSON record, under an id, to a JSON output. When the process of a worker dies,
the worker of the same name calls the function again with the same record; steps that left a result are not run again.
Above: `durable.driver`, `durable.runtime`. Below: DBOS, in `durable.dbos_engine` and nowhere else.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from prompty.model.message import Json

State = Literal["waiting", "running", "finished", "broken", "cancelled"]
Workflow = Callable[["Steps", Json], Awaitable[Json]]
Body = Callable[[], Awaitable[Json]]


class Steps(Protocol):
    """What the workflow that is running has of the engine. Every step has a name that is its own in the workflow, and a
    workflow begins its steps in the same order whenever it is run."""

    async def step(self, name: str, body: Body, /) -> Json:
        """What the body gave when it first ended; it is not run again. A body that raises ends the workflow."""
        ...

    async def received(self) -> list[str]:
        """What was sent to the workflow and not taken yet. It is kept like the result of a step."""
        ...

    async def owned(self) -> bool:
        """Whether this execution is still the one that counts: another worker may have taken the workflow over. Asked
        inside a step. What is kept by one that does not count is refused anyway; this is for what it does."""
        ...

    async def write(self, value: Json, /) -> None:
        """Add to what is told about the workflow while a step runs. A step that is run again tells it again."""
        ...


class StoredStep(NamedTuple):
    """A step that has ended."""

    name: str
    result: object


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """What an engine knows of a workflow. `record` and `output` are what was stored, and are not trusted. `recovered`
    is how often it went on after its worker had died: what was under way then may have been done twice."""

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
    """How workflows that wait are taken: so many at once by one worker and by all, and so many in so many seconds."""

    worker_concurrency: int | None = None
    concurrency: int | None = None
    rate: tuple[int, float] | None = None


class Engine(Protocol):
    """Keeps workflows. One that was opened with a name works: it runs what it starts, what waits, and what a worker of
    its name left behind. Without a name it only starts, reads and writes. Its methods block and may be called from any
    thread."""

    def open(self, workflow: Workflow, /) -> None:
        """Begin to work. Raises NameInUse while another process works under this name."""
        ...

    def close(self, drain: float = 0) -> None:
        """Stop. Workflows have so many seconds to end; what is left goes on when a worker of this name opens again."""
        ...

    def start(self, id: str, record: Json, /, *, priority: int | None = None) -> None:
        """Start a workflow; nothing happens if there is one of this id."""
        ...

    def submit(self, records: Mapping[str, Json], /) -> None:
        """Leave workflows by their ids to whoever works, all of them or none; those that there are stay as they are."""
        ...

    def status(self, id: str, /) -> Status | None: ...

    def wait(self, id: str, seconds: float, /) -> Status:
        """The status when the workflow has ended, or when the time is up."""
        ...

    def find(self, prefix: str = "", /, *, outputs: bool = True) -> list[Status]:
        """The workflows whose ids begin so, the oldest first; without their records."""
        ...

    def ended(self, ids: Sequence[str], /) -> list[Status]:
        """Those of these workflows that have ended; without their records."""
        ...

    def steps(self, id: str, /) -> list[StoredStep]:
        """The steps that have ended, in the order in which they were begun."""
        ...

    def written(self, id: str, after: int, /) -> list[object]:
        """What was told about a workflow, without the first so many."""
        ...

    def send(self, id: str, text: str, /) -> None:
        """Tell a workflow something; see `Steps.received`."""
        ...

    def cancel(self, id: str, /) -> None:
        """End a workflow where it stands; nothing happens if it has ended."""
        ...

    def retry(self, id: str, /) -> None:
        """Let a workflow that was cancelled or broke go on from its last step."""
        ...

    def delete(self, ids: Sequence[str], /) -> None:
        """Forget workflows and everything that belongs to them."""
        ...

    def adopt(self, name: str, /, *, force: bool = False) -> int:
        """Take over the workflows of a worker that will not come back; how many there are. Raises NameInUse while its
        process is there, unless that is wanted: it may be doing something at this moment."""
        ...
