"""Agent turns inside your own Temporal workflow.

    @workflow.defn
    class Refund:
        @workflow.run
        async def run(self, ticket: str) -> str:
            plan = await turn("triage.prompty", {"ticket": ticket})
            return await turn("refund.prompty", {"plan": plan}, deadline=timedelta(hours=1))

    client = await Client.connect("localhost:7233", plugins=[PromptyPlugin(tools=[look, pay])])
    worker = Worker(client, task_queue="refunds", workflows=[Refund])

The workflow runs the loop, which decides and nothing else. Its effects are activities of workers, where models, tools
and secrets are: `prompty.open` reads the agent and renders its messages, `prompty.step` performs a model call, a tool
call, or a function of the host. A call that must not be repeated has one attempt. If its worker dies, a person says
what it has done.

Any worker performs tool calls. What needs the conversation goes to the worker that has it, by a task queue of its own,
and with the messages that are new. If that worker is gone, another one says what it lacks, and is sent this.
"""

import asyncio
import dataclasses
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from secrets import token_hex
from typing import Any, Literal, Unpack, cast

from prompty.errors import DeadlineExceeded, MissingExtra, PromptyError, RequestError, RunBroken

try:
    from temporalio import activity, workflow
    from temporalio.client import AsyncActivityCancelledError, Client, WorkflowHandle, WorkflowQueryFailedError
    from temporalio.common import RetryPolicy
    from temporalio.exceptions import (
        ActivityError,
        ApplicationError,
        ApplicationErrorCategory,
        TimeoutError as TemporalTimeout,
        TimeoutType,
    )
    from temporalio.plugin import SimplePlugin
    from temporalio.service import RPCError
    from temporalio.worker import Worker, WorkflowRunner
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
except ModuleNotFoundError as missing:
    raise MissingExtra("temporalio", "temporal") from missing

from prompty.drivers.run import load_agent, parse_decisions
from prompty.drivers.target import resolve_api
from prompty.durable.codec import (
    UNKNOWN,
    Decision,
    answer_from,
    decision_from,
    decision_to_json,
    error_from,
    error_to_json,
)
from prompty.durable.envelope import digest, seal, unseal
from prompty.durable.performer import Performer, is_cancelled, read_clock
from prompty.durable.record import (
    DurableOptions,
    Record,
    WorkerOptions,
    WorkerParts,
    new_record,
    option_to_json,
    record_from,
    stored_plan,
    stored_run,
)
from prompty.durable.steps import TurnDriver, Wanted, WrongWorker, list_hooks
from prompty.loop.effects import (
    AbandonAnswer,
    AskGate,
    CallModel,
    CheckGuardrail,
    DescribeTools,
    PlannedCall,
    Summarise,
)
from prompty.loop.options import Settings
from prompty.loop.policy import combine_policies
from prompty.loop.state import Plan, TurnState, check_policies
from prompty.loop.stop import Progress
from prompty.loop.turn import run_loop
from prompty.model.agent import PromptAgent, secrets_in
from prompty.model.event import Done, Event
from prompty.model.message import Json, Message, Reply, ToolCall
from prompty.model.paused import GatedCall, Paused
from prompty.model.request import WireRequest
from prompty.pipeline.load import StrPath
from prompty.pipeline.request import build_request
from prompty.pricing import get_pricer
from prompty.providers import PROVIDERS, Api
from prompty.registry import DEFAULT
from prompty.tools.toolbox import handlers_of

__all__ = ["PromptyPlugin", "answer", "find_pause", "steer", "turn"]

ANSWER, STEER, PAUSED = "prompty.answer", "prompty.steer", "prompty.paused"
OPEN, STEP = "prompty.open", "prompty.step"
ATTEMPTS = 10  # of a step whose workers die
LONGEST = timedelta(days=30)  # that a step may take
MISSING = "prompty.missing"  # the failure of an activity that has begun nothing, with the messages that it lacks
MOST_BYTES = 2_000_000  # of one value; Temporal refuses 2 MiB
LEASE = 10.0  # seconds
TURNS = 200  # that a worker remembers
# Workflows import these as they are: they keep no state of a workflow, and are slow to import for each.
MODULES = (
    *("prompty", "pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"),
    *("jinja2", "markupsafe", "yaml", "ruamel", "jsonschema_rs", "httpx2", "httpcore2", "anyio", "genai_prices"),
)
Stop = Callable[[Progress], bool]


# In the workflow.


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
        with inbox.steering() if record.options.get("steering") else nullcontext():
            while True:
                plan, state = _plan(record, hooks, stop)
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
    if agent.path is not None or any(secrets_in(agent)):
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
    call = check_size(seal(wanted), "the inputs and options of a turn")
    stored = await workflow.execute_activity(OPEN, call, start_to_close_timeout=minute, retry_policy=policy)
    opened: Any = unseal(stored, "the start of a turn")
    if "error" in opened:
        raise error_from(opened["error"], "the start of a turn")
    return opened


def _plan(record: Record, hooks: Any, stop: Stop | None) -> tuple[Plan, TurnState]:
    """Return the plan of a turn. It looks nothing up: variables that were not set are the concern of workers."""
    bare = dataclasses.replace(record, origins={**record.origins, "missing": []})
    offers_tools = bool(record.agent.get("tools") or record.options.get("tools"))
    plan, state = stored_plan(bare, hooks, partial(resolve_api, offers_tools=offers_tools))
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

    def show(self) -> dict[str, Any] | None:
        """Return the pause that has waited longest."""
        waiting = (paused for key, paused in self._pauses.items() if key not in self._answers)
        return next((seal(paused.to_json()) for paused in waiting), None)

    def take(self, key: str, decisions: dict[str, Any]) -> None:
        """Take an answer. The first one to a pause counts."""
        try:
            read = {name: decision_from(value) for name, value in decisions.items()}
        except (AttributeError, LookupError, TypeError):
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
        key = _get_key(paused)
        self._pauses[key] = paused
        try:
            await workflow.wait_condition(lambda: key in self._answers, timeout=timeout)
            return self._answers[key]
        except TimeoutError:
            return parse_decisions(paused, [False] * len(paused.pending))
        finally:
            del self._pauses[key]

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
        workflow.set_signal_handler(ANSWER, inbox.take)
        workflow.set_signal_handler(STEER, inbox.add)
    return inbox


def _get_key(paused: Paused) -> str:
    return f"{paused.run_id}/{paused.pauses}"


def check_size(value: Json, place: str) -> Json:
    """Return a value that Temporal can store."""
    if (size := len(json.dumps(value))) > MOST_BYTES:
        raise RunBroken(
            f"{place} has {size:,} bytes, and a value in a history of Temporal has at most {MOST_BYTES:,}\n"
            "    Let tools store large data and return references, or send less of a conversation: context_budget=…"
        )
    return value


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
        self._made: dict[str, str] = {}  # messages that activities made, by digest, with the queue of their worker
        self._sent = 0

    def note(self, stored: Json) -> None:
        """Note the message that an activity has made."""
        if (made := find_made(stored)) is not None:
            self._made[digest(made)] = str(stored["by"])

    def encode(self, messages: Iterable[Message], reader: str | None, lacking: Iterable[int] = ()) -> Json:
        """Return messages as an activity is sent them: references, and those that are new or `lacking`. The
        `reader` knows what it made itself: the queue of a worker, or None for any."""
        read = [message.to_json() for message in messages]
        digests = [digest(message) for message in read]
        numbers = [self._number(*one) for one in zip(digests, read, strict=True)]
        new: Json = {str(number): self._messages[number] for number in lacking}
        for one, number in zip(digests, numbers, strict=True):
            if number >= self._sent and str(number) not in new:
                is_known = one in self._made and reader in (None, self._made[one])
                new[str(number)] = one if is_known else self._messages[number]
        return {"ranges": _find_ranges(numbers), "digest": digest(digests), "new": new}

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
    """Activities of the current workflow. What needs the conversation goes `home`, to the worker that has it."""

    def __init__(self, opened: Any, record: Record, inbox: Inbox) -> None:
        self._opened, self._run_id, self._inbox = opened, record.run_id, inbox
        self._home: str | None = opened["queue"]
        self._sent = SentMessages()
        self._offered: Json | None = None

    async def keep(self, name: str, wanted: Wanted, /, *, once: bool = False, interrupted: bool = False) -> Json:
        goes_home = not isinstance(wanted, PlannedCall)
        queue = self._home if goes_home else None
        lacking: set[int] = set()
        turn: Json = {}
        for _ in range(ATTEMPTS):
            effect = encode(wanted, partial(self._sent.encode, reader=queue, lacking=sorted(lacking)))
            call = seal({**turn, "turn": self._opened["turn"], "step": name, "effect": effect})
            check_size(call, f"the step '{name}'")
            try:
                stored = await self._perform(name, call, queue, once=once)
            except ActivityError as error:
                if lacks := _find_lacks(error):
                    queue, lacking = lacks["queue"], lacking | set(lacks["lacking"])
                    turn = {**self._opened, "offered": self._offered} if lacks["turn"] else turn
                elif queue is not None and not is_cancelled() and not (once and _has_begun(error)):
                    queue, lacking, turn = None, set(), {}  # its worker is gone
                elif once and not is_cancelled():
                    return seal(UNKNOWN)  # its worker was lost: a person says what it did
                else:
                    raise
                continue
            if goes_home:
                self._home = str(stored["by"])
                self._sent.have_arrived()
            self._sent.note(stored)
            if isinstance(wanted, DescribeTools):
                self._offered = stored
            return stored
        raise RunBroken(f"{ATTEMPTS} workers were not ready for the step '{name}'")

    async def _perform(self, name: str, call: Json, queue: str | None, *, once: bool) -> Json:
        lease = timedelta(seconds=self._opened["lease"])
        attempts = 1 if once or queue is not None else ATTEMPTS
        stored: Json = await workflow.execute_activity(
            STEP,
            call,
            task_queue=queue,
            start_to_close_timeout=LONGEST,
            heartbeat_timeout=lease,
            schedule_to_start_timeout=lease if queue is not None else None,
            retry_policy=RetryPolicy(maximum_attempts=attempts, non_retryable_error_types=[MISSING]),
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


def _find_lacks(error: ActivityError) -> Any:
    """Return what a worker lacked that has begun nothing, or None for any other failure."""
    cause = error.cause
    return cause.details[0] if isinstance(cause, ApplicationError) and cause.type == MISSING else None


def _has_begun(error: ActivityError) -> bool:
    return not (isinstance(error.cause, TemporalTimeout) and error.cause.type == TimeoutType.SCHEDULE_TO_START)


# In a client.


async def find_pause(handle: WorkflowHandle[Any, Any]) -> Paused | None:
    """Return what a workflow waits for, if it waits for a person: of several pauses the one that has waited longest."""
    try:
        stored = await handle.query(PAUSED)
    except WorkflowQueryFailedError:
        return None  # it has had no turn yet
    return None if stored is None else Paused.from_json(cast(Json, unseal(stored, "a pause")))


async def answer(handle: WorkflowHandle[Any, Any], verdicts: object, *, paused: Paused | None = None) -> None:
    """Let a workflow that waits for a person go on. The first answer to a pause counts. By default, it is an answer to
    what `find_pause` returns."""
    paused = paused or await find_pause(handle)
    if paused is None:
        raise RequestError(f"the workflow '{handle.id}' does not wait for an answer", "Ask `find_pause`.")
    decisions = {key: decision_to_json(one) for key, one in parse_decisions(paused, verdicts).items()}
    await handle.signal(ANSWER, args=[_get_key(paused), decisions])


async def steer(handle: WorkflowHandle[Any, Any], text: str) -> None:
    """Send a message to the turn of a workflow that is under way with `steering=True`, or to its next one."""
    await handle.signal(STEER, text)


# In a worker.


class Lease:
    """One attempt of an activity. The server says whether it is still ours, so a process that was suspended learns that
    another attempt has begun before it begins anything itself."""

    def __init__(self) -> None:
        info = activity.info()
        self._handle = activity.client().get_async_activity_handle(task_token=info.task_token)
        self._task = asyncio.current_task()
        self._seconds = info.heartbeat_timeout.total_seconds() if info.heartbeat_timeout else LEASE
        self._until = 0.0
        self.refused: str | None = None
        self.has_ended: bool = False

    async def check(self) -> None:
        """Return if a side effect may begin."""
        if read_clock() < self._until:
            return
        try:
            await self._renew()
        except (AsyncActivityCancelledError, RPCError) as error:
            self.refused = f"this attempt may not begin anything: {error}"
            raise asyncio.CancelledError from error

    async def keep(self) -> None:
        """Renew the lease. If the workflow cancels the activity or another attempt has begun, end this one."""
        while True:
            await asyncio.sleep(self._seconds / 4)
            try:
                await self._renew()
                activity.heartbeat()  # the library ends an activity that does not
            except AsyncActivityCancelledError:
                break
            except RPCError as error:
                if error.status.name == "NOT_FOUND":
                    break
        self.has_ended = True
        if self._task is not None:
            self._task.cancel()

    async def _renew(self) -> None:
        begun = read_clock()
        await self._handle.heartbeat(rpc_timeout=timedelta(seconds=self._seconds / 2))
        self._until = begun + self._seconds / 2


_lease: ContextVar[Lease] = ContextVar("lease")


async def _fence() -> None:
    await _lease.get().check()


class KnownTurn:
    """A turn that this worker has steps of: its tools as they were offered, and its messages by their numbers."""

    def __init__(self, build: Callable[[], Performer], offered: Any) -> None:
        self._build = build
        self.performer: Performer = build()
        self.offered: Any = offered
        self._messages: dict[int, tuple[str, Json]] = {}
        self._made: dict[str, Json] = {}

    def note(self, stored: Json) -> None:
        """Note the message that a step has made: the workflow sends its digest."""
        if (made := find_made(stored)) is not None:
            self._made[digest(made)] = made

    def decode(self, effect: Any) -> Wanted:
        match effect["kind"]:
            case "tools":
                self.performer = self._build()  # one that has described its tools, before a pause, cannot again
                return DescribeTools()
            case "call":
                planned = effect["planned"]
                return PlannedCall(**{**planned, "call": ToolCall(**planned["call"])})
            case "gate":
                return AskGate(tuple(_gated_call_from(entry) for entry in effect["calls"]))
            case "guard":
                return CheckGuardrail("tool", _gated_call_from(effect["call"]))
            case "input":
                return CheckGuardrail("input", tuple(self.read(effect["messages"])))
            case "output":
                return CheckGuardrail("output", self.read(effect["messages"])[0])
            case "summary":
                return Summarise(tuple(self.read(effect["messages"])), effect["characters"])
            case "abandon":
                headers = self._find_api(effect).headers(self.performer.inner.targets[effect["model"]].agent)
                return AbandonAnswer(WireRequest(path=effect["path"], body={}, headers=headers), effect["model"])
        return self._decode_model_call(effect)

    def _find_api(self, effect: Any) -> Api:
        api: Api = self.performer.inner.targets[effect["model"]].api_of(
            WireRequest(path=effect["path"], body={}, headers={})
        )
        return api

    def _decode_model_call(self, effect: Any) -> CallModel:
        if self.offered is None:
            raise Missing(turn=True)
        messages = self.read(effect["messages"])
        target, api = self.performer.inner.targets[effect["model"]], self._find_api(effect)
        value: Any = unseal(self.offered, "the tools of a turn")
        tools: Any = answer_from(DescribeTools(), value["answer"], "the tools of a turn")
        functions = [tool.function for tool in tools]
        request = build_request(target.agent, messages, api, functions=functions, timeout=effect["timeout"])
        if effect["method"] == "GET":  # the answer is in the background
            request = dataclasses.replace(request, path=effect["path"], method="GET", body={})
        return CallModel(request, effect["call"], effect["model"])

    def read(self, encoded: Any) -> list[Message]:
        """Return the messages that a workflow refers to. Raise MISSING with the numbers of those not known here."""
        for number, entry in encoded["new"].items():
            message = self._made.get(entry) if isinstance(entry, str) else entry
            if message is not None:
                self._messages[int(number)] = digest(message), message
        numbers = [number for start, end in encoded["ranges"] for number in range(start, end)]
        lacking = [number for number in numbers if number not in self._messages]
        known = [self._messages[number] for number in numbers if number in self._messages]
        if not lacking and digest([one for one, _ in known]) != encoded["digest"]:
            lacking = numbers  # somebody has reset the workflow, and another conversation followed
        if lacking:
            raise Missing(lacking=lacking)
        return [Message.from_json(message) for _, message in known]


def _gated_call_from(stored: Any) -> GatedCall:
    return GatedCall(**{**stored, "bound": tuple(stored["bound"])})


class Missing(Exception):
    """This worker has begun nothing, because it lacks the turn or messages of it, or may not begin anything."""

    def __init__(self, reason: str = "", *, lacking: Sequence[int] = (), turn: bool = False) -> None:
        super().__init__(reason or ("this worker lacks the turn" if turn else "this worker lacks messages"))
        self.details: Json = {"lacking": list(lacking), "turn": turn}


class TurnActivities:
    """Performs the effects of turns with the tools, functions and secrets of a worker."""

    def __init__(self, host: WorkerParts, lease: float) -> None:
        self._host, self._lease = host, lease
        self.queue: str = f"prompty-{token_hex(8)}"  # of this process
        self._turns: OrderedDict[str, KnownTurn] = OrderedDict()

    @activity.defn(name=OPEN)
    async def open(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Store what a turn begins with: a file that changes meanwhile does not change it."""
        try:
            wanted: Any = unseal(stored, "the start of a turn")
            record, key = await asyncio.to_thread(self._new_record, wanted), token_hex(8)
            self._remember(key, record, None)
            opened: Json = {"record": record.to_json(), "hooks": self._host.hooks()}
            opened |= {"turn": key, "queue": self.queue, "lease": self._lease}
            return check_size(seal(opened), "the start of a turn")
        except PromptyError as error:
            return seal({"error": error_to_json(error)})

    def _new_record(self, wanted: Any) -> Record:
        source, options, inputs = wanted["source"], wanted["options"], wanted["inputs"]
        chosen = Settings(model=options.pop("model", None), options=options.pop("options", None))
        loaded = PromptAgent.model_validate(source) if isinstance(source, dict) else source
        agent = load_agent(loaded, chosen)
        secrets = self._find_secrets(agent, inputs)
        options.setdefault("tools", list(handlers_of(self._host.tools)))
        run_id = wanted["run"] or token_hex(16)
        record = new_record(run_id, agent, {**inputs, **secrets}, cast(DurableOptions, options), self._host.secrets)
        if wanted["run"] is not None:  # it goes on with the messages of its pause
            return dataclasses.replace(record, options={**record.options, "messages": []})
        messages = [message.to_json() for message in stored_run(record, self._host, None).state.messages]
        text = json.dumps(messages)
        for name, value in secrets.items():
            if json.dumps(value)[1:-1] in text:
                raise RequestError(
                    f"the input '{name}' is sensitive, and the history of a workflow would have it in a message",
                    "Bind it to a parameter of a tool instead.",
                )
        return dataclasses.replace(record, options={**record.options, "messages": messages})  # rendered once

    def _find_secrets(self, agent: PromptAgent, inputs: Json) -> dict[str, str]:
        """Return the sensitive inputs: secrets of this worker that have their names."""
        sensitive = [one.name for one in agent.inputs if one.sensitive]
        for name in sensitive:
            if inputs.get(name) is not None:
                raise RequestError(
                    f"the input '{name}' is sensitive, and the history of a workflow would have it",
                    f"Leave it out, and give it to the workers: PromptyPlugin(secrets={{'{name}': value}}).",
                )
        return {name: self._host.secrets[name] for name in sensitive if name in self._host.secrets}

    @activity.defn(name=STEP)
    async def step(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Perform one effect. Errors are results: a failure means that nothing has begun, or that a worker died."""
        lease = Lease()
        _lease.set(lease)
        beating = asyncio.create_task(lease.keep())
        try:
            call: Any = unseal(stored, "a step")
            turn = self._find_turn(call)
            wanted = turn.decode(call["effect"])
            result = await turn.performer.perform(call["step"], wanted)
            result = check_size(result, f"the result of the step '{call['step']}'")
            if isinstance(wanted, DescribeTools):
                turn.offered = result
            turn.note(result)
        except PromptyError as error:
            result = seal({"error": error_to_json(error)})
        except Missing as missing:
            raise self._fail(missing) from None
        except asyncio.CancelledError:
            if lease.refused is not None:
                raise self._fail(Missing(lease.refused)) from None
            if lease.has_ended:
                raise ApplicationError("this attempt was ended", category=ApplicationErrorCategory.BENIGN) from None
            raise
        finally:
            beating.cancel()
        return {**result, "by": self.queue}

    def _fail(self, missing: Missing) -> ApplicationError:
        details = {**missing.details, "queue": self.queue}
        return ApplicationError(str(missing), details, type=MISSING, category=ApplicationErrorCategory.BENIGN)

    def _find_turn(self, call: Any) -> KnownTurn:
        if "record" in call:
            if (hooks := self._host.hooks()) != call["hooks"]:
                raise RequestError(
                    f"a turn was begun with {list_hooks(call['hooks'])}, and another worker has {list_hooks(hooks)}",
                    "Start all workers of a task queue with the same PromptyPlugin.",
                )
            if call["turn"] not in self._turns:
                self._remember(call["turn"], record_from(call["record"], "a turn"), call["offered"])
        if call["turn"] not in self._turns:
            raise Missing(turn=True)
        turn = self._turns[call["turn"]]
        self._turns.move_to_end(call["turn"])
        turn.offered = turn.offered or call.get("offered")
        return turn

    def _remember(self, key: str, record: Record, offered: Any) -> None:
        def build() -> Performer:
            run = stored_run(record, self._host, None)
            return Performer(run, self._host.hooks(), fence=_fence, pace=self._host.pace)

        self._turns[key] = KnownTurn(build, offered)
        while len(self._turns) > TURNS:
            self._turns.popitem(last=False)


class PromptyPlugin(SimplePlugin):
    """Lets the workers of a client perform turns: `Client.connect(address, plugins=[PromptyPlugin(tools=[pay])])`.

    It takes the functions and secrets of turns. An attempt of a step whose worker has not been heard of for `lease`
    seconds is lost.
    """

    def __init__(self, *, lease: float = LEASE, **parts: Unpack[WorkerOptions]) -> None:
        if lease <= 0:
            raise RequestError(f"lease is {lease:g}", "Give it a number of seconds above 0.")
        for name, instead in _ELSEWHERE.items():
            if parts.get(name) is not None:
                raise RequestError(f"a worker of Temporal takes no {name}=", instead)
        self._turns = TurnActivities(WorkerParts(**parts), lease)
        _import_all()
        super().__init__(
            "prompty",
            activities=[self._turns.open, self._turns.step],
            workflow_runner=_pass_through,
            workflow_failure_exception_types=[PromptyError, WrongWorker],
        )

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Also listen to the task queue of this process."""
        config = worker.client.config(active_config=True)
        config["plugins"] = []  # which is in use
        async with Worker(Client(**config), task_queue=self._turns.queue, activities=[self._turns.step]):
            await super().run_worker(worker, next)


_ELSEWHERE = {
    "memory": "Pass the conversation to turn(…, messages=…): no lock can be held across activities.",
    "stop": "Pass it to turn(…, stop=…): it is called in the workflow.",
}


def _pass_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    runner = runner or SandboxedWorkflowRunner()
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    return dataclasses.replace(runner, restrictions=runner.restrictions.with_passthrough_modules(*MODULES))


def _import_all() -> None:
    """Import and read what the loop needs at its first use, so that no workflow does."""
    for name in DEFAULT[PROVIDERS].names():
        with suppress(ImportError, PromptyError):  # a provider whose extra is not installed
            agent = PromptAgent.model_validate({"model": {"id": "m", "provider": name}})
            build_request(agent, [Message("user", ())], resolve_api(agent), functions=[])
            get_pricer(agent, required=False)(Reply())
