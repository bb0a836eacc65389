"""Plays a turn by hand, without any I/O, and checks on the way what must always hold.

The driver here records every answer, for tools call by call. When it crashes, the generator is dropped, a new one is
made from the same plan, and what was recorded is played to it again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from prompty import Message, ToolCall
from prompty.errors import BudgetSpent, Cancelled, PromptyError, RequestError
from prompty.events import Done, Event, GatedCall, MessagesChanged
from prompty.loop.effects import (
    AskGate,
    CallModel,
    CallTools,
    Checkpoint,
    DescribeTools,
    Effect,
    Emit,
    PlannedCall,
    Wait,
)
from prompty.loop.meter import Meter
from prompty.loop.state import TurnState
from prompty.loop.turn import run_loop
from prompty.model.message import Reply
from prompty.safety.redaction import MASK
from tests.loop.bodies import APIS, assert_sendable, assert_taken
from tests.loop.plays import TOOLS, Asked, Failure, Play, lets_through

BOUND = {tool.function.name: tool.bound for tool in TOOLS}
ALONE = {tool.function.name for tool in TOOLS if tool.sequential}


class Crash(Exception):
    """The process ends here."""


@dataclass(frozen=True)
class Recorded:
    """How an effect was answered."""

    value: object = None
    failure: Failure | None = None


@dataclass
class Journal:
    """What outlives a crash. `ran` is what the world has seen, `tools` what came of it."""

    crashes: frozenset[int] = frozenset()
    answers: list[Recorded] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    tools: dict[str, Message | None] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    steps: int = 0

    def step(self) -> None:
        """Something is done and recorded; here the process may end."""
        self.steps += 1
        if self.steps - 1 in self.crashes:
            raise Crash

    def until(self, count: int) -> "Journal":
        """The journal as it was before the answer of this number."""
        return replace(self, answers=self.answers[:count], events=[], tools=dict(self.tools), ran=[], steps=0)


@dataclass
class Ending:
    """What a turn came to."""

    events: list[Event]
    done: Done | None = None
    error: PromptyError | None = None

    @property
    def messages(self) -> Sequence[Message]:
        found = self.done.messages if self.done else cast(PromptyError, self.error).messages
        return cast(Sequence[Message], found)

    def told(self) -> object:
        """What can be compared: errors are equal when they say the same."""
        return self.events, self.done, type(self.error), str(self.error), list(self.messages)


@dataclass
class Life:
    """One process: a generator, what it asked for, and how far its batch has come."""

    play: Play
    journal: Journal
    cut_at: int | None = None
    partly: bool = False
    effects: list[Effect[object]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    asked: Asked | None = None
    iteration: int = 0
    allowed: list[bool] = field(default_factory=list)
    gated: bool = False
    misjudged: bool = False
    started: list[int] = field(default_factory=list)
    results: dict[str, Message | None] = field(default_factory=dict)

    def run(self) -> Ending:
        loop = run_loop(self.play.plan, TurnState(list(self.play.history), meter=Meter(self.play.plan.settings.budget)))
        answer: object = None
        failure: PromptyError | None = None
        try:
            while True:
                try:
                    effect = loop.throw(failure) if failure else loop.send(answer)
                except StopIteration as end:
                    return self._ended(Ending(self.events, done=end.value))
                except PromptyError as error:
                    return self._ended(Ending(self.events, error=error))
                recorded = self._performed(effect)
                answer, failure = recorded.value, recorded.failure() if recorded.failure else None
        finally:
            loop.close()

    def _performed(self, effect: Effect[object]) -> Recorded:
        if isinstance(effect, Emit):
            self._hear(effect.event)
            return Recorded()
        position = len(self.effects)
        self.effects.append(effect)
        self._check(effect)
        if position < len(self.journal.answers):
            recorded = self.journal.answers[position]
        else:
            recorded = self._answered(effect, position)
            self.journal.answers.append(recorded)
            self.journal.step()
        self._note(effect, recorded)
        return recorded

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, MessagesChanged):
            self._check_batch(event.messages)
        if len(self.events) > len(self.journal.events):
            self.journal.events.append(event)
            self.journal.step()
        assert event == self.journal.events[len(self.events) - 1]

    def _answered(self, effect: Effect[object], position: int) -> Recorded:
        """What the play says to an effect that was not answered before."""
        if position == self.cut_at and not (self.partly and isinstance(effect, CallTools)):
            return Recorded(failure=Cancelled)
        if position in self.play.interruptions and self.cut_at is None:
            return Recorded(failure=self.play.interruptions[position])
        match effect:
            case DescribeTools():
                return Recorded(TOOLS)
            case CallModel():
                said = self.play.answers[min(self._number(CallModel), len(self.play.answers) - 1)]
                return Recorded(said.reply) if isinstance(said, Asked) else Recorded(failure=said)
            case AskGate(calls):
                return Recorded(self.play.verdicts[self._number(AskGate) % len(self.play.verdicts)](len(calls)))
            case CallTools(calls=calls):
                run = calls[:1] if position == self.cut_at else calls
                found = {planned.key: self._ran(planned) for planned in run}
                return Recorded([found.get(planned.key) for planned in calls])
            case Checkpoint():
                return Recorded()
        return Recorded(failure=self.play.waits[self._number(Wait) % len(self.play.waits)])

    def _number(self, kind: type[Effect[object]]) -> int:
        """How many effects of a kind came before this one."""
        return sum(isinstance(effect, kind) for effect in self.effects) - 1

    def _ran(self, planned: PlannedCall) -> Message | None:
        """Run a call, unless it ran in an earlier life."""
        tools, key = self.journal.tools, planned.key
        if key not in tools:
            assert key not in self.journal.ran, f"{key} ran twice"
            self.journal.ran.append(key)
            tools[key] = self.play.outcome(planned.call, key)
            self.journal.step()
        return tools[key]

    def _note(self, effect: Effect[object], recorded: Recorded) -> None:
        if recorded.failure:
            return
        if isinstance(effect, CallModel):
            said = self.play.answers[min(self._number(CallModel), len(self.play.answers) - 1)]
            assert isinstance(said, Asked)
            assert said.reply is recorded.value
            self.asked, self.iteration = said, self.iteration + 1
            self.allowed, self.gated, self.started = list(said.runnable), False, []
        elif isinstance(effect, AskGate):
            self.gated = True
            judged = lets_through(recorded.value, sum(self.allowed))
            self.misjudged = judged is None
            verdicts = iter(judged or [False] * sum(self.allowed))
            self.allowed = [may and next(verdicts) for may in self.allowed]
        elif isinstance(effect, CallTools):
            results = cast(list[Message | None], recorded.value)
            self.results |= dict(zip((planned.key for planned in effect.calls), results, strict=True))

    # What must hold.

    def _check(self, effect: Effect[object]) -> None:
        match effect:
            case CallModel(request):
                api_name = next(name for name, api in APIS.items() if api.path == request.path)
                assert_taken(api_name, request.body)
            case AskGate(calls):
                self._check_gate(calls)
            case CallTools():
                self._check_stage(effect)

    def _reply(self) -> Reply:
        assert self.asked, "before the model said anything"
        return self.asked.reply

    def _check_gate(self, calls: Iterable[GatedCall]) -> None:
        """It is asked once, before anything runs, about everything that could run, and sees no value of the host's."""
        assert self.play.plan.hooks.gate
        assert not self.gated
        assert not self.started
        assert [(call.id, call.name) for call in calls] == [
            (call.id, call.name) for call, may in zip(self._reply().tool_calls, self.allowed, strict=True) if may
        ]
        for call in calls:
            assert all(call.arguments[name] == MASK for name in BOUND[call.name])

    def _check_stage(self, stage: CallTools) -> None:
        """Only calls of the last answer run: in its order, once, and only those that may."""
        calls, plan = self._reply().tool_calls, self.play.plan
        assert self.gated or not plan.hooks.gate
        assert stage.max_parallel == plan.settings.max_parallel
        positions = [int(planned.key.split(":")[2]) for planned in stage.calls]
        for planned, position in zip(stage.calls, positions, strict=True):
            assert planned.key == f"run:{self.iteration}:{position}"
            assert planned.call == calls[position]
            assert self.allowed[position], "a call ran that may not"
            assert not planned.arguments.keys() & set(BOUND[planned.call.name])
        sequential = plan.settings.tool_execution == "sequential"
        alone = sequential or any(planned.call.name in ALONE for planned in stage.calls)
        assert positions
        assert len(positions) == 1 or not alone
        self.started += positions
        assert self.started == [position for position, may in enumerate(self.allowed) if may][: len(self.started)]

    def _check_batch(self, messages: Sequence[Message]) -> None:
        """The last answer stands with one result for each call, in the order of the calls."""
        calls = self._reply().tool_calls
        said, *results = messages[-1 - len(calls) :]
        assert said.tool_calls == calls
        assert said.text == self._reply().text
        for position, (call, result) in enumerate(zip(calls, results, strict=True)):
            self._check_result(call, result, position)

    def _check_result(self, call: ToolCall, result: Message, position: int) -> None:
        assert (result.role, result.tool_call_id, result.tool_name) == ("tool", call.id, call.name)
        given = self.results.get(f"run:{self.iteration}:{position}")
        assert self.asked
        if given:
            assert result is given
        elif self.gated and not self.misjudged and self.asked.runnable[position] and not self.allowed[position]:
            assert result.text.startswith(f"Tool '{call.name}' was denied")
        else:
            assert result.is_error
            assert result.text.startswith("Error: ")

    def _ended(self, ending: Ending) -> Ending:
        messages, before = ending.messages, self.play.history
        assert tuple(messages[: len(before)]) == before
        if self.asked is None:
            assert tuple(messages) == before
        elif self.asked.reply.tool_calls:
            self._check_batch(messages)
        elif ending.done or isinstance(ending.error, RequestError):
            assert messages[-1] == self.asked.reply.message()
        if self.misjudged:
            assert isinstance(ending.error, RequestError | Cancelled | BudgetSpent)
            assert not self.started
        assert_sendable(messages)
        assert self.iteration <= self.play.plan.settings.max_iterations + 1
        if ending.done:
            assert ending.done.iterations == self.iteration
        return ending
