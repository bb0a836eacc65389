"""Replay the events of a run: the same loop, answered from its stored steps. Nothing is run.

A reader needs no tools, no keys and no model. Attempts of a model call are not stored, so they have no events here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from prompty.drivers.target import resolve_api
from prompty.drivers.tool_runner import interrupted
from prompty.durable.codec import TOOLS, StepNames, answer_from, error_from, result_from
from prompty.durable.driver import CANCELLED
from prompty.durable.envelope import unseal
from prompty.durable.record import Record, stored_plan
from prompty.errors import Cancelled, PromptyError, RunRefused
from prompty.loop.effects import CallModel, CallTools, Checkpoint, DrainSteering, Effect, Emit, Loop, PlannedCall
from prompty.loop.turn import run_loop
from prompty.model.event import Event, ModelFailed, ModelRequested, RunCancelled, ToolFinished, ToolStarted
from prompty.model.message import Message

Stored = Mapping[str, object]


class Replay:
    """The replay of one segment of a run."""

    def __init__(self, record: Record) -> None:
        self._record, self._names = record, StepNames()
        self._loop: Loop[object] | None = None
        self._drains = 0
        self._effect: Effect[object] | None = None
        self._name = ""
        self._open: dict[str, PlannedCall] = {}
        self.ended: bool = False
        self.error: PromptyError | None = None

    def _begun(self, steps: Stored) -> Loop[object] | None:
        """Return the loop, once the hooks that the run calls are stored: that is with its tools."""
        name = next((name for name in steps if name.startswith(f"{TOOLS}:")), None)
        if self._loop is None and name is not None:
            value: Any = unseal(steps[name], self._place(name))
            if "hooks" not in value:  # the step failed, and the run with it
                return None
            self._loop = run_loop(*stored_plan(self._record, value["hooks"], resolve_api))
        return self._loop

    @property
    def model_step(self) -> str | None:
        """The step in which the model is asked, if that is what happens next."""
        return self._name if isinstance(self._effect, CallModel) else None

    def next(self, steps: Stored) -> list[Event] | None:
        """What happens next; None where the steps end, or the segment. May be called again with more steps."""
        if self._effect is None:
            return None if self.ended or self._begun(steps) is None else list(self._sent(None))
        if isinstance(self._effect, CallTools):
            return self._next_of_stage(self._effect, steps)
        if self._name not in steps:
            return None
        return list(self._sent_answer(self._effect, steps[self._name]))

    def _next_of_stage(self, stage: CallTools, steps: Stored) -> list[Event] | None:
        finished = list(self._tools_finished(steps))
        if not self._open:
            return finished + list(self._sent([self._result(steps, planned) for planned in stage.calls]))
        return finished or None

    def cancel(self, steps: Stored) -> Iterator[Event]:
        """End it as one that was cancelled where its steps end. Calls that had begun count as interrupted."""
        if self._loop is None:
            yield RunCancelled(CANCELLED)
            return
        if isinstance(self._effect, CallTools):
            results = [self._result(steps, planned) for planned in self._effect.calls]
            yield from self._sent(results)
        while not self.ended:
            yield from self._sent(None, Cancelled(CANCELLED))

    def _sent_answer(self, effect: Effect[object], stored: object) -> Iterator[Event]:
        if isinstance(effect, DrainSteering):
            yield from self._sent(stored)
            return
        place = self._place(self._name)
        value: Any = unseal(stored, place)
        if not isinstance(value, dict):
            raise RunRefused(place, "it is not what a step keeps")
        if "error" in value:
            yield from self._sent(None, error_from(value["error"], place))
        else:
            yield from self._sent(answer_from(effect, value.get("answer"), place))

    def _sent(self, answer: object, failure: PromptyError | None = None) -> Iterator[Event]:
        """Answer the loop, and pass on what it tells until it wants something again."""
        self._effect = None
        loop = self._loop
        assert loop is not None  # noqa: S101  it has begun
        try:
            effect = loop.throw(failure) if failure else loop.send(answer)
            while isinstance(effect, Emit | Checkpoint):
                if isinstance(effect, Emit) and not isinstance(effect.event, ModelRequested | ModelFailed):
                    yield effect.event
                effect = loop.send(None)
        except StopIteration:
            self.ended = True
        except PromptyError as error:
            self.ended, self.error = True, error
        else:
            yield from self._wanted(effect)

    def _wanted(self, effect: Effect[object]) -> Iterator[Event]:
        self._effect = effect
        if isinstance(effect, CallTools):
            self._open = {self._names.of_call(planned): planned for planned in effect.calls}
            yield from (ToolStarted(planned.call, planned.key) for planned in effect.calls)
        elif isinstance(effect, DrainSteering):
            self._drains += 1
            self._name = f"received:{self._drains}"
        else:
            self._name = self._names.of(effect)

    def _tools_finished(self, steps: Stored) -> Iterator[Event]:
        for name in [name for name in self._open if name in steps]:
            planned = self._open.pop(name)
            result = self._result(steps, planned)
            if isinstance(result, Message):
                yield ToolFinished(planned.call, result, planned.key)

    def _result(self, steps: Stored, planned: PlannedCall) -> object:
        name = self._names.of_call(planned)
        if name not in steps:
            return interrupted(planned)
        value: Any = unseal(steps[name], self._place(name))
        if isinstance(value, dict) and "error" in value:
            raise error_from(value["error"], self._place(name))
        return result_from(value, self._place(name))

    def _place(self, name: str) -> str:
        return f"the step '{name}' of the run '{self._record.run_id}'"
