"""The half of a turn on Temporal that runs in the workflow: the loop, which decides and nothing else.

Its effects are activities, which `durable.temporal_worker` performs.
"""

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Unpack

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from prompty.drivers.run import parse_decisions
from prompty.drivers.target import resolve_base
from prompty.durable.codec import UNKNOWN, error_from
from prompty.durable.envelope import digest, seal, unseal
from prompty.durable.performer import is_cancelled
from prompty.durable.record import DurableOptions, Record, option_to_json, record_from, stored_plan
from prompty.durable.steps import TurnDriver, Wanted
from prompty.durable.verdicts import Decision, verdict_from_json
from prompty.errors import DeadlineExceeded, RequestError, RunBroken
from prompty.loop.effects import (
    AbandonAnswer,
    AskGate,
    CallModel,
    CheckGuardrail,
    DescribeTools,
    PlannedCall,
    Summarise,
)
from prompty.loop.meter import Meter
from prompty.loop.policy import combine_policies
from prompty.loop.state import Plan, TurnState, check_policies
from prompty.loop.stop import Progress
from prompty.loop.turn import run_loop
from prompty.model.agent import PromptAgent, list_bound_values, secrets_in
from prompty.model.event import Done, Event
from prompty.model.message import Json, Message, Reply
from prompty.model.paused import GatedCall, Paused
from prompty.pipeline.load import StrPath
from prompty.pricing import get_pricer

ANSWER, STEER, PAUSED, READ = "prompty.answer", "prompty.steer", "prompty.paused", "prompty.read"
OPEN, STEP = "prompty.open", "prompty.step"
ATTEMPTS = 10  # of a step whose workers die
LONGEST = timedelta(days=30)  # that a step may take
MISSING = "prompty.missing"  # the failure of an activity that has begun nothing
MOST_BYTES = 2_000_000  # of one value without an external storage; Temporal refuses 2 MiB
PAGE_BYTES = 1_000_000
MOST_HISTORY = 40_000_000  # bytes; Temporal ends a workflow at 50 MiB
FIND_MOST_BYTES = "prompty.most_bytes"  # a function that the plugin gives to workflows
Stop = Callable[[Progress], bool]


async def turn(
    source: PromptAgent | StrPath,
    inputs: Mapping[str, object] | None = None,
    *,
    on_pause: Literal["wait", "return"] = "wait",
    pause_timeout: timedelta | None = None,
    deadline: timedelta | None = None,
    paused: Paused | None = None,
    verdicts: object = None,
    stop: Stop | None = None,
    **options: Unpack[DurableOptions],
) -> Any:
    """Run a turn, and return its result. Call it in a workflow of Temporal, as often as you like.

    If a person has to decide, the workflow waits for `answer`, or with `on_pause="return"` gets the `Paused` value: go
    on with it by `turn(..., paused=paused, verdicts=[...])`. After `pause_timeout`, calls that wait are denied. After
    `deadline`, raise DeadlineExceeded: what is under way is cancelled.

    A worker loads the file when the turn begins. `stop` is called in the workflow, so it must be as deterministic.
    """
    _check_options(options)
    if paused is not None:
        paused.check()
        kept: Any = paused.policy["approval"]
        options["approval"] = combine_policies(kept, options.get("approval"))
    wanted = {
        "source": _to_data(source) if isinstance(source, PromptAgent) else str(source),
        "inputs": option_to_json(inputs or {}),
        "options": {name: option_to_json(value) for name, value in options.items() if value is not None},
        "run": paused.run_id if paused is not None else None,
    }

    async def run() -> Any:
        opened = await _open(wanted)
        record, hooks, inbox = record_from(opened["record"], "the start of a turn"), opened["hooks"], _find_inbox()
        if paused is not None:
            record = record.after(paused, parse_decisions(paused, verdicts))
        steps = TemporalSteps(opened, record, inbox)
        with (
            inbox.steering() if record.options.get("steering") else nullcontext(),
            inbox.keeping(opened["turn"], steps),
        ):
            while True:
                plan, state = _plan(record, hooks, stop)
                steps.meter = state.meter
                end = await TurnDriver(steps, record.run_id, hooks).drive(run_loop(plan, state))
                if isinstance(end, Done):
                    return end.result
                if on_pause == "return":
                    return end
                record = record.after(end, await inbox.wait(end, pause_timeout))

    running = asyncio.ensure_future(run())
    try:
        await workflow.wait([running], timeout=None if deadline is None else deadline.total_seconds())
        if not running.done():
            raise DeadlineExceeded(f"{deadline} after its start")
        return running.result()
    except (asyncio.CancelledError, DeadlineExceeded):
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        raise


def _to_data(agent: PromptAgent) -> Json:
    """Return an agent that was built in code. One that was loaded from a file has its secrets in it."""
    if agent.path is not None or any(secrets_in(agent)) or any(list_bound_values(agent.tools)):
        raise RequestError(
            "the history of a workflow cannot hold this agent: it was loaded from a file, or has a secret",
            "Pass the path of its file, which a worker loads.",
        )
    data: Json = agent.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return data


def _check_options(options: DurableOptions) -> None:
    if options.get("session_id") is not None:
        raise RequestError(
            "a turn on Temporal has no session: no lock can be held across activities",
            "Pass the conversation: turn(…, messages=…).",
        )
    if options.get("stream"):
        raise RequestError("a turn on Temporal stores no deltas", "Leave stream= out: the result comes as a whole.")


async def _open(wanted: Json) -> Any:
    minute, policy = timedelta(minutes=1), RetryPolicy(maximum_attempts=ATTEMPTS)
    call = check_size(seal(wanted), "the inputs and options of a turn", find_most_bytes())
    stored = await workflow.execute_activity(OPEN, call, start_to_close_timeout=minute, retry_policy=policy)
    opened: Any = unseal(stored, "the start of a turn")
    if "error" in opened:
        raise error_from(opened["error"], "the start of a turn")
    return opened


def _plan(record: Record, hooks: Any, stop: Stop | None) -> tuple[Plan, TurnState]:
    """Return the plan of a turn. It looks nothing up: variables that were not set are the concern of workers."""
    bare = dataclasses.replace(record, origins={**record.origins, "missing": []})
    offers_tools = bool(record.agent.get("tools") or record.options.get("tools"))
    plan, state = stored_plan(bare, hooks, partial(resolve_base, offers_tools=offers_tools))
    if state.resumed is not None:
        check_policies(state.resumed, plan.hooks)
    if stop is not None:
        priced = [choice._replace(price=get_pricer(choice.agent, required=False)) for choice in plan.choices]
        plan = plan._replace(choices=priced, settings=dataclasses.replace(plan.settings, stop=stop))
    return plan._replace(observed=False), state


class Inbox:
    """What a workflow shows to people and receives from them, for all its turns."""

    def __init__(self) -> None:
        self._pauses: dict[str, Paused] = {}
        self._answers: dict[str, dict[str, Decision]] = {}
        self._texts: list[str] = []
        self._is_steered = False
        self.turns: dict[str, TemporalSteps] = {}

    def read(self, turn: str, numbers: list[int] | None) -> dict[str, Any] | None:
        """Return messages of a turn, or how it was opened, for a worker that lacks them."""
        return seal(self.turns[turn].read(numbers)) if turn in self.turns else None

    def show(self) -> dict[str, Any] | None:
        """Return the pause that has waited longest."""
        waiting = (paused for key, paused in self._pauses.items() if key not in self._answers)
        return next((seal(paused.to_json()) for paused in waiting), None)

    def take(self, key: str, decisions: dict[str, Any]) -> None:
        """Take an answer. The first one to a pause counts."""
        try:
            read = {name: verdict_from_json(value) for name, value in decisions.items()}
        except (AttributeError, RequestError):
            workflow.logger.warning("An answer to a pause was ignored, because it cannot be read.")
            return
        if key in self._pauses:
            self._answers.setdefault(key, read)

    def add(self, text: str) -> None:
        self._texts.append(text)

    def drain(self) -> list[str]:
        texts, self._texts = self._texts, []
        return texts

    async def wait(self, paused: Paused, timeout: timedelta | None) -> Mapping[str, Decision]:
        key = get_key(paused)
        self._pauses[key] = paused
        try:
            await workflow.wait_condition(lambda: key in self._answers, timeout=timeout)
            return self._answers[key]
        except TimeoutError:
            return parse_decisions(paused, [False] * len(paused.pending))
        finally:
            del self._pauses[key]

    @contextmanager
    def keeping(self, key: str, steps: "TemporalSteps") -> Iterator[None]:
        """Let workers read a turn while it is under way."""
        self.turns[key] = steps
        try:
            yield
        finally:
            del self.turns[key]

    @contextmanager
    def steering(self) -> Iterator[None]:
        if self._is_steered:
            raise RequestError(
                "two turns of a workflow would take the same steering messages",
                "Run them one after the other, or each in a child workflow.",
            )
        self._is_steered = True
        try:
            yield
        finally:
            self._is_steered = False


def _find_inbox() -> Inbox:
    inbox = getattr(workflow.get_query_handler(PAUSED), "__self__", None)
    if not isinstance(inbox, Inbox):
        inbox = Inbox()
        workflow.set_query_handler(PAUSED, inbox.show)
        workflow.set_query_handler(READ, inbox.read)
        workflow.set_signal_handler(ANSWER, inbox.take)
        workflow.set_signal_handler(STEER, inbox.add)
    return inbox


def get_key(paused: Paused) -> str:
    return f"{paused.run_id}/{paused.pauses}"


def find_most_bytes() -> float:
    """Return the most bytes of a value in the history of this workflow."""
    find = workflow.extern_functions().get(FIND_MOST_BYTES)
    return MOST_BYTES if find is None else find()


def check_size(value: Json, place: str, most: float) -> Json:
    """Return a value that Temporal can store."""
    if (size := len(json.dumps(value))) > most:
        raise RunBroken(
            f"{place} has {size:,} bytes, and a value in a history of Temporal has at most {most:,}\n"
            "    Let tools store large data and return references, send less of a conversation: context_budget=…, or "
            "give the client an external storage."
        )
    return value


def check_history() -> None:
    """Raise RunBroken before Temporal ends the workflow, which it does in the middle of a turn."""
    if (size := workflow.info().get_current_history_size()) > MOST_HISTORY:
        raise RunBroken(
            f"the history of this workflow has {size:,} bytes, and Temporal ends it at 52,428,800\n"
            "    Send less of a conversation: context_budget=…, give the client an external storage, or go on in a new "
            "workflow: workflow.continue_as_new."
        )


def find_made(stored: Json) -> Json | None:
    """Return the message that the result of a step adds to the conversation."""
    value: Any = unseal(stored, "a step")
    if isinstance(answer := value.get("answer"), dict) and "attempt" in value:
        return Reply.from_json(answer).message().to_json()
    message: Json | None = value.get("message")
    return message


class SentMessages:
    """Numbers the messages of a turn, so that activities are sent each of them once, and refer to it from then on."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}  # by digest
        self._messages: list[Json] = []
        self._made: set[str] = set()  # digests of messages that activities made
        self._sent = 0

    def note(self, stored: Json) -> None:
        """Note the message that an activity has made."""
        if (made := find_made(stored)) is not None:
            self._made.add(digest(made))

    def encode(self, messages: Iterable[Message]) -> Json:
        """Return messages as an activity is sent them: references, and those that are new. Of one that an activity
        made, its digest: the worker that made it knows it."""
        read = [message.to_json() for message in messages]
        digests = [digest(message) for message in read]
        numbers = [self._number(*one) for one in zip(digests, read, strict=True)]
        new: Json = {
            str(number): one if one in self._made else self._messages[number]
            for one, number in zip(digests, numbers, strict=True)
            if number >= self._sent
        }
        return {"ranges": _find_ranges(numbers), "digest": digest(digests), "new": new}

    def read(self, numbers: Iterable[int]) -> Json:
        """Return the first of these messages, by their numbers: as many as fit in the answer to a query."""
        page: Json = {}
        size = 0
        for number in numbers:
            size += len(json.dumps(self._messages[number]))
            if page and size > PAGE_BYTES:
                break
            page[str(number)] = self._messages[number]
        return page

    def _number(self, one: str, message: Json) -> int:
        number = self._numbers.setdefault(one, len(self._messages))
        if number == len(self._messages):
            self._messages.append(message)
        return number

    def have_arrived(self) -> None:
        self._sent = len(self._messages)


def _find_ranges(numbers: Iterable[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return ranges


def encode(wanted: Wanted, encode_messages: Callable[[Iterable[Message]], Json]) -> Json:
    """Return an effect as an activity is sent it. `KnownTurn.decode` reads it."""
    match wanted:
        case CallModel(request, call, model):
            rest = {"call": call, "model": model, "path": request.path, "timeout": request.timeout}
            rest["method"] = request.method
            return {"kind": "model", "messages": encode_messages(request.messages), **rest}
        case AbandonAnswer(request, model):
            return {"kind": "abandon", "path": request.path, "model": model}
        case PlannedCall():
            return {"kind": "call", "planned": dataclasses.asdict(wanted)}
        case DescribeTools():
            return {"kind": "tools"}
        case AskGate(calls):
            return {"kind": "gate", "calls": [dataclasses.asdict(call) for call in calls]}
        case CheckGuardrail("tool", GatedCall() as gated):
            return {"kind": "guard", "call": dataclasses.asdict(gated)}
        case CheckGuardrail("input", tuple(messages)):
            return {"kind": "input", "messages": encode_messages(messages)}
        case CheckGuardrail("output", Message() as message):
            return {"kind": "output", "messages": encode_messages([message])}
        case Summarise(messages, characters):
            return {"kind": "summary", "messages": encode_messages(messages), "characters": characters}
    raise RunBroken(f"a turn on Temporal cannot do this: {type(wanted).__name__}")


class TemporalSteps:
    """Activities of the current workflow, on any worker. One that lacks messages or the turn asks the workflow, by a
    query, which adds nothing to its history."""

    def __init__(self, opened: Any, record: Record, inbox: Inbox) -> None:
        self._opened, self._run_id, self._inbox = opened, record.run_id, inbox
        self._sent = SentMessages()
        self._offered: Json | None = None
        self.meter: Meter = Meter()

    def read(self, numbers: Sequence[int] | None) -> Json:
        """Return messages of the turn, or how it was opened."""
        return {**self._opened, "offered": self._offered} if numbers is None else self._sent.read(numbers)

    async def keep(self, name: str, wanted: Wanted, /, *, once: bool = False, interrupted: bool = False) -> Json:
        check_history()
        content: Json = {
            "turn": self._opened["turn"],
            "step": name,
            "effect": encode(wanted, self._sent.encode),
        }
        if isinstance(wanted, PlannedCall | Summarise):  # which may run other prompts under the budget of this turn
            content["used"] = self.meter.used()
        call = seal(content)
        check_size(call, f"the step '{name}'", find_most_bytes())
        for _ in range(ATTEMPTS):
            try:
                stored = await self._perform(name, call, once=once)
            except ActivityError as error:
                if isinstance(error.cause, ApplicationError) and error.cause.type == MISSING:
                    continue
                if once and not is_cancelled():
                    return seal(UNKNOWN)  # its worker was lost: a person says what it did
                raise
            if not isinstance(wanted, PlannedCall):
                self._sent.have_arrived()
            self._sent.note(stored)
            if isinstance(wanted, DescribeTools):
                self._offered = stored
            return stored
        raise RunBroken(f"{ATTEMPTS} workers were not ready for the step '{name}'")

    async def _perform(self, name: str, call: Json, *, once: bool) -> Json:
        stored: Json = await workflow.execute_activity(
            STEP,
            call,
            start_to_close_timeout=LONGEST,
            heartbeat_timeout=timedelta(seconds=self._opened["lease"]),
            retry_policy=RetryPolicy(maximum_attempts=1 if once else ATTEMPTS, non_retryable_error_types=[MISSING]),
            summary=name.replace(f"{self._run_id}:", ""),
        )
        return stored

    async def begin(self, name: str, /) -> bool:
        return True  # the server knows whether an attempt was begun

    async def receive(self) -> list[str]:
        return self._inbox.drain()

    async def sleep(self, seconds: float, /) -> None:
        await asyncio.sleep(seconds * workflow.random().uniform(1.0, 1.25))

    def emit(self, event: Event, /) -> None: ...
