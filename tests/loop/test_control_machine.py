"""The same for turns that are paused, remembered, steered, guarded, trimmed and corrected: whatever happens, history
and session can be sent, no call runs twice, and a turn that waited for a person is the turn without the wait."""

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from prompty import Context, Message, Paused, Tokens, deny, later
from prompty.errors import BudgetSpent, Cancelled, PromptyError, ResultError
from prompty.events import Done, Event, GatedCall, Verdict
from prompty.loop.effects import (
    AskGate,
    CallModel,
    CallTools,
    CheckGuardrail,
    DescribeTools,
    DrainSteering,
    Effect,
    Emit,
    LoadMemory,
    Loop,
    Rewrite,
    SaveMemory,
    Summarise,
)
from prompty.loop.meter import Meter
from prompty.loop.state import Hooks, Plan, SessionPlan, TurnState, resumed_state
from prompty.loop.turn import run_loop
from prompty.model.message import Json, Reply
from tests.loop.bodies import APIS, assert_sendable, assert_taken
from tests.loop.plays import TOOLS, Asked, Failure, Play, plays

pytestmark = pytest.mark.slow

EXAMPLES = 3000 if os.environ.get("PROMPTY_SOAK") else 300
GUARDED: dict[str, tuple[object, ...]] = {
    "input": (True, True, True, True, Verdict(True), deny("secret")),
    "output": (True, True, True, Rewrite("Rewritten."), deny("rude")),
    "tool": (True, True, deny("never"), Rewrite({"at": "here"}), Rewrite({"at": 1}), None),
}
FINAL = (True, True, False, deny("no"))


def _three_words(reply: Reply) -> object:
    """A result for an answer that says "The end."; all others do not fit."""
    if reply.text != "The end.":
        raise ResultError("sentence", ValueError("it is not the end"))
    return reply.text


@dataclass(frozen=True)
class Control:
    """A play, with everything a host can do to a turn."""

    play: Play
    plan: Plan
    guarded: dict[str, tuple[object, ...]]
    said: tuple[tuple[str, ...], ...]
    summaries: tuple[str | None, ...]
    waits_for: tuple[bool, ...]
    finals: tuple[object, ...]

    def verdict(self, key: str, *, patient: bool) -> object:
        """What is said about a call; one that waits for a person waits only where somebody is patient."""
        at = sum(map(ord, key))
        return later() if patient and self.waits_for[at % len(self.waits_for)] else self.finals[at % len(self.finals)]


@st.composite
def controls(draw: st.DrawFn) -> Control:
    play = draw(plays())
    history = list(play.history)
    kinds = draw(st.frozensets(st.sampled_from(sorted(GUARDED))))
    context = draw(st.sampled_from([None, Context(limit=60, summary=len), Context(limit=Tokens(20))]))  # type: ignore[arg-type]  # only whether there is one counts here
    session = SessionPlan(id="s", history_at=len(history) - 1, new_from=len(history) - 1)
    summary = context is not None and context.summary is not None
    plan = play.plan._replace(
        hooks=Hooks(gate=True, guardrails=kinds, summary=summary, steering=draw(st.booleans())),
        context=context,
        session=draw(st.sampled_from([None, session])),
        finish=draw(st.sampled_from([play.plan.finish, _three_words])),
    )
    return Control(
        play=play,
        plan=plan,
        guarded={kind: tuple(draw(st.lists(st.sampled_from(GUARDED[kind]), min_size=5, max_size=5))) for kind in kinds},
        said=tuple(draw(st.lists(st.sampled_from([(), (), ("Faster!",), ("a", "b")]), max_size=6))),
        summaries=tuple(draw(st.lists(st.sampled_from([None, "They talked."]), min_size=2, max_size=2))),
        waits_for=tuple(draw(st.lists(st.booleans(), min_size=1, max_size=5))),
        finals=tuple(draw(st.lists(st.sampled_from(FINAL), min_size=1, max_size=5))),
    )


@dataclass
class World:
    """What outlives a process: what was answered, what ran, and what is stored."""

    control: Control
    patient: bool = False
    answers: list[tuple[object, Failure | None]] = field(default_factory=list)
    counts: Counter[Any] = field(default_factory=Counter)
    stored: list[Json] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    interruptions: dict[int, Failure] = field(default_factory=dict)
    crash_after: int | None = None

    def next(self, kind: Any) -> int:
        self.counts[kind] += 1
        return int(self.counts[kind]) - 1

    def answer(self, effect: Effect[object]) -> tuple[object, Failure | None]:
        """What an effect that has no answer yet is answered with."""
        if not isinstance(effect, SaveMemory) and len(self.answers) in self.interruptions:
            return None, self.interruptions[len(self.answers)]
        match effect:
            case DescribeTools():
                return TOOLS, None
            case CallModel():
                return self._said_by_the_model()
            case AskGate(calls):
                return [self.control.verdict(call.key, patient=self.patient) for call in calls], None
            case CheckGuardrail(kind, value):
                number = sum(map(ord, value.key)) if isinstance(value, GatedCall) else self.next(kind)
                return self.control.guarded[kind][number % 5], None
            case CallTools(calls=calls):
                return [self._ran(planned) for planned in calls], None
            case DrainSteering():
                number = self.next(DrainSteering)
                return list(self.control.said[number]) if number < len(self.control.said) else [], None
            case Summarise():
                return self.control.summaries[self.next(Summarise) % 2], None
        return self._remembered(effect), None

    def _remembered(self, effect: Effect[object]) -> object:
        if isinstance(effect, SaveMemory):
            self.stored += effect.messages
        return list(self.stored) if isinstance(effect, LoadMemory) else None

    def _said_by_the_model(self) -> tuple[object, Failure | None]:
        answers = self.control.play.answers
        said = answers[min(self.next(CallModel), len(answers) - 1)]
        return (said.reply, None) if isinstance(said, Asked) else (None, said)

    def _ran(self, planned: Any) -> Message | None:
        assert planned.key not in self.ran, "a call ran twice"
        self.ran.append(planned.key)
        return self.control.play.outcome(planned.call, planned.key)


class Crash(Exception):
    """The process ends here."""


@dataclass
class Ending:
    """What a turn came to."""

    events: list[Event]
    value: Done | Paused | None = None
    error: PromptyError | None = None

    def told(self) -> object:
        return self.events, self.value, type(self.error), str(self.error), self.messages()

    def messages(self) -> list[Message]:
        if self.error:
            return list(self.error.messages)
        if isinstance(self.value, Paused):
            return [Message.from_json(message) for message in self.value.messages]
        return list(self.value.messages) if self.value else []


def drive(loop: Loop[Done | Paused], world: World) -> Ending:
    """One process: answers effects, those of an earlier process as they were answered then."""
    events: list[Event] = []
    position, answer, failure = 0, None, None
    while True:
        try:
            effect = loop.throw(failure()) if failure else loop.send(answer)
        except StopIteration as end:
            return checked(Ending(events, value=end.value))
        except PromptyError as error:
            return checked(Ending(events, error=error))
        answer, failure = None, None
        if isinstance(effect, Emit):
            events.append(effect.event)
            continue
        if isinstance(effect, CallModel):
            assert_taken(
                next(name for name, api in APIS.items() if api.path == effect.request.path), effect.request.body
            )
        if position == len(world.answers):
            if position == world.crash_after:
                world.crash_after = None
                raise Crash
            world.answers.append(world.answer(effect))
        answer, failure = world.answers[position]
        position += 1


def checked(ending: Ending) -> Ending:
    assert_sendable(ending.messages())
    return ending


def begin(control: Control) -> TurnState:
    return TurnState(list(control.play.history), meter=Meter(control.plan.settings.budget))


def whole(control: Control, world: World) -> Ending:
    """Play a turn to its end, in as many processes as it takes."""
    while True:
        try:
            return drive(
                run_loop(
                    control.plan, TurnState(list(control.play.history), meter=Meter(control.plan.settings.budget))
                ),
                world,
            )
        except Crash:
            continue


def check_session(control: Control, world: World) -> None:
    """What is stored can be sent, and the session goes on."""
    if control.plan.session is None:
        return
    if world.stored:
        assert_sendable([Message.from_json(message) for message in world.stored])
    plan = control.plan._replace(hooks=Hooks(gate=True), context=None, finish=lambda reply: reply.text)
    again = World(replace(control, play=replace(control.play, answers=(Asked(Reply(text="Still here."), ()),))))
    again.stored = list(world.stored)
    ending = drive(
        run_loop(plan, TurnState(list(control.play.history), meter=Meter(control.plan.settings.budget))), again
    )
    assert isinstance(ending.value, Done)
    assert again.stored[: len(world.stored)] == world.stored


relaxed: Callable[..., Any] = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@relaxed
@given(controls(), st.integers(0, 40))
def test_a_crash_anywhere_changes_nothing(control: Control, crash_after: int) -> None:
    undisturbed, crashed = World(control), World(control, crash_after=crash_after)
    assert whole(control, crashed).told() == whole(control, undisturbed).told()
    assert crashed.ran == undisturbed.ran
    assert crashed.stored == undisturbed.stored
    check_session(control, undisturbed)


@relaxed
@given(controls(), st.integers(0, 40), st.sampled_from([Cancelled, lambda: BudgetSpent("no time left")]))
def test_an_end_anywhere_leaves_a_history_and_a_session_that_work(
    control: Control, position: int, failure: Failure
) -> None:
    world = World(control, interruptions={position: failure})
    ending = whole(control, world)
    check_session(control, world)
    if control.plan.session and ending.error:
        stored = [Message.from_json(message).to_json() for message in world.stored]
        assert [message.to_json() for message in ending.messages()][-len(stored) or len(ending.messages()) :] == stored


@relaxed
@given(controls())
def test_a_turn_that_waited_is_the_turn_without_the_wait(control: Control) -> None:
    at_once, patient = World(control), World(control, patient=True)
    expected = whole(control, at_once)
    ending = whole(control, patient)
    pauses = 0
    while isinstance(ending.value, Paused):
        pauses += 1
        assert not patient.ran or pauses > 1 or patient.ran == at_once.ran[: len(patient.ran)]
        stored = Paused.from_json(json.loads(json.dumps(ending.value.to_json())))
        ending = drive(run_loop(control.plan, decided(control, stored)), resumed_world(patient))
    assert ending.messages() == expected.messages()
    assert type(ending.error) is type(expected.error)
    assert patient.ran == at_once.ran
    assert patient.stored == at_once.stored


def decided(control: Control, paused: Paused) -> TurnState:
    finals = {call.key: control.verdict(call.key, patient=False) for call in paused.pending}
    verdicts = {key: said if isinstance(said, Verdict) else Verdict(said is True) for key, said in finals.items()}
    return resumed_state(paused, verdicts)


def resumed_world(world: World) -> World:
    """The same world for the next process: what it asks is new, what was said is known."""
    world.answers = []
    return world
