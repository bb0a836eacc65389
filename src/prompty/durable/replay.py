"""Replay the events of a run: the same driver and loop, answered from stored steps. Nothing is run.

A reader needs no tools, no keys and no model. Attempts of a model call are not stored, so they have no events here.
"""

from collections.abc import Coroutine, Generator, Iterator, Mapping, Set
from types import coroutine
from typing import Any

from prompty.drivers.target import resolve_api
from prompty.drivers.tool_runner import interrupted
from prompty.durable.codec import TOOLS, result_from
from prompty.durable.envelope import unseal
from prompty.durable.record import Record, stored_plan
from prompty.durable.steps import TurnDriver, Wanted
from prompty.errors import Cancelled, PromptyError, RunRefused
from prompty.loop.effects import CallModel, CallTools, DrainSteering, OutcomeUnknown, PlannedCall
from prompty.loop.turn import run_loop
from prompty.model.event import Event, ModelFailed, ModelRequested, RunCancelled, ToolFinished, ToolStarted
from prompty.model.message import Message

Stored = Mapping[str, Any]
CANCELLED = "the run was cancelled"


class Replay(TurnDriver):
    """The replay of one segment of a run. It brings its own `Steps`: those that are stored."""

    def __init__(self, record: Record) -> None:
        super().__init__(self, record.run_id, {})
        self.record = record
        self.ended: bool = False
        self.error: PromptyError | None = None
        self._stored: Stored = {}
        self._is_cancelled = False
        self._driving: Coroutine[Set[str], None, object] | None = None
        self._awaited: Set[str] = frozenset()  # steps of which it needs one to go on
        self._model_step: str | None = None  # if that is what it needs
        self._told: list[Event] = []
        self._drains = 0

    def advance(self, steps: Stored, *, is_cancelled: bool = False) -> Iterator[Event | str]:
        """What happens as far as these steps go, and before each answer of a model the name of its step. It may be
        called again with more steps. A run that was cancelled ends where they end, with its calls interrupted."""
        self._stored, self._is_cancelled = steps, is_cancelled
        if self._driving is None and not self._begin():
            if is_cancelled:
                self.ended = True
                yield RunCancelled(CANCELLED)
            return
        while not self.ended:
            if self._model_step is not None:
                yield self._model_step
            if self._awaited and self._awaited.isdisjoint(steps) and not is_cancelled:
                return
            self._go_on()
            told, self._told = self._told, []
            yield from told

    def _begin(self) -> bool:
        """Begin, once the hooks that the run calls are stored: that is with its tools."""
        name = next((name for name in self._stored if name.startswith(f"{TOOLS}:")), None)
        value: Any = {} if name is None else unseal(self._stored[name], self._place(name))
        if "hooks" not in value:  # or the step failed, and the run with it
            return False
        self._hooks = value["hooks"]
        self._driving = self.drive(run_loop(*stored_plan(self.record, self._hooks, resolve_api)))
        return True

    def _go_on(self) -> None:
        assert self._driving is not None  # noqa: S101  it has begun
        self._model_step = None
        try:
            self._awaited = self._driving.send(None)
        except StopIteration:
            self.ended = True
        except RunRefused:
            raise
        except PromptyError as error:
            self.ended, self.error = True, error

    async def _run_stage(self, stage: CallTools) -> list[Message | OutcomeUnknown | None]:
        """Return the results of calls. They are told in the order of the calls, whichever was stored first, so that an
        event has the same position for every reader."""
        self._told += [ToolStarted(planned.call, planned.key) for planned in stage.calls]
        return [await self._read_result(planned) for planned in stage.calls]

    async def _read_result(self, planned: PlannedCall) -> Message | OutcomeUnknown | None:
        name = self._names.of_call(planned)
        if name not in self._stored:
            await _wait_for({name})
        if name not in self._stored:  # it was cancelled
            return interrupted(planned)
        result = result_from(await self._read(name, planned), self._place(name))
        if isinstance(result, Message):
            self._told.append(ToolFinished(planned.call, result, planned.key))
        return result

    # The steps.

    async def keep(self, name: str, wanted: Wanted, /, *, once: bool = False, interrupted: bool = False) -> Any:
        self._model_step = name if isinstance(wanted, CallModel) else None
        if self._model_step is not None or name not in self._stored:
            await _wait_for({name})
        if name not in self._stored:
            raise Cancelled(CANCELLED)
        return self._stored[name]

    async def begin(self, name: str, /) -> bool:
        return True

    async def receive(self) -> list[str]:
        self._drains += 1
        texts: list[str] = await self.keep(f"received:{self._drains}", DrainSteering())
        return texts

    async def sleep(self, seconds: float, /) -> None: ...

    async def before_effect(self) -> None: ...

    def emit(self, event: Event, /) -> None:
        if not isinstance(event, ModelRequested | ModelFailed):
            self._told.append(event)


@coroutine
def _wait_for(names: Set[str]) -> Generator[Set[str], None, None]:
    """Let `advance` go on until one of these steps is stored."""
    yield names
