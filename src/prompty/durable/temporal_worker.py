"""The half of a turn on Temporal that runs in activities, where models, tools and secrets are."""

import asyncio
import dataclasses
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from secrets import token_hex
from typing import Any, Unpack, cast

from pydantic import TypeAdapter
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError
from temporalio.worker import Interceptor, WorkerConfig, WorkflowInterceptorClassInput, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from prompty.drivers.run import load_agent
from prompty.drivers.target import resolve_base
from prompty.durable.codec import answer_from, error_to_json
from prompty.durable.envelope import digest, seal, unseal
from prompty.durable.performer import Performer, read_clock
from prompty.durable.record import (
    DurableOptions,
    Record,
    WorkerOptions,
    describe_hooks,
    new_record,
    record_from,
    stored_run,
)
from prompty.durable.steps import Wanted, WrongWorker, list_hooks
from prompty.durable.temporal_workflow import (
    FIND_MOST_BYTES,
    MISSING,
    MOST_BYTES,
    OPEN,
    READ,
    STEP,
    check_size,
    find_made,
)
from prompty.errors import PromptyError, RequestError
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
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message, Reply
from prompty.model.paused import GatedCall
from prompty.model.request import WireRequest
from prompty.pipeline.request import build_request
from prompty.pricing import get_pricer
from prompty.providers import PROVIDERS, RequestBase
from prompty.providers.fitting import fit_request
from prompty.registry import DEFAULT
from prompty.tools.toolbox import handlers_of

_GATED: TypeAdapter[tuple[GatedCall, ...]] = TypeAdapter(tuple[GatedCall, ...])
_PLANNED: TypeAdapter[PlannedCall] = TypeAdapter(PlannedCall)
LEASE = 10.0  # seconds
TURNS = 200  # that a worker remembers
# Workflows import these as they are: they keep no state of a workflow, and are slow to import for each.
MODULES = (
    *("prompty", "pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"),
    *("jinja2", "markupsafe", "yaml", "ruamel", "jsonschema_rs", "httpx2", "httpcore2", "anyio", "genai_prices"),
)


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

    def learn(self, messages: Mapping[str, Json]) -> None:
        """Note messages by their numbers."""
        self._messages |= {int(number): (digest(message), message) for number, message in messages.items()}

    def decode(self, effect: Any) -> Wanted:
        match effect["kind"]:
            case "tools":
                self.performer = self._build()  # one that has described its tools, before a pause, cannot again
                return DescribeTools()
            case "call":
                return _PLANNED.validate_python(effect["planned"])
            case "gate":
                return AskGate(_GATED.validate_python(effect["calls"]))
            case "guard":
                return CheckGuardrail("tool", *_GATED.validate_python([effect["call"]]))
            case "input":
                return CheckGuardrail("input", tuple(self.read(effect["messages"])))
            case "output":
                return CheckGuardrail("output", self.read(effect["messages"])[0])
            case "summary":
                return Summarise(tuple(self.read(effect["messages"])), effect["characters"])
            case "abandon":
                base = self._find_base(effect)
                request = WireRequest(path=effect["path"], body={}, headers=base.api.headers(base))
                return AbandonAnswer(request, effect["model"])
        return self._decode_model_call(effect)

    def _find_base(self, effect: Any) -> RequestBase:
        """Return what requests have in common: as planned, or for the API that the server asked for."""
        target = self.performer.inner.targets[effect["model"]]
        api = target.api_of(WireRequest(path=effect["path"], body={}, headers={}))
        return target.base if api is target.api else fit_request(target.agent, api)

    def _decode_model_call(self, effect: Any) -> CallModel:
        if self.offered is None:
            raise Missing("this worker lacks the tools of the turn")
        messages = self.read(effect["messages"])
        target, base = self.performer.inner.targets[effect["model"]], self._find_base(effect)
        value: Any = unseal(self.offered, "the tools of a turn")
        tools: Any = answer_from(DescribeTools(), value["answer"], "the tools of a turn")
        functions = [tool.function for tool in tools]
        request = build_request(target.agent, messages, base, functions=functions, timeout=effect["timeout"])
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
            lacking = numbers  # the workflow was reset, and another conversation followed
        if lacking:
            raise Missing("this worker lacks messages", lacking)
        return [Message.from_json(message) for _, message in known]


class Missing(Exception):
    """This worker has begun nothing, because it lacks messages or, with `lacking=None`, the tools of the turn, or may
    not begin anything."""

    def __init__(self, reason: str, lacking: Sequence[int] | None = None) -> None:
        super().__init__(reason)
        self.lacking: Sequence[int] | None = lacking


def _fail(missing: Missing) -> ApplicationError:
    return ApplicationError(str(missing), type=MISSING, category=ApplicationErrorCategory.BENIGN)


async def _decode(turn: KnownTurn, call: Any) -> Wanted:
    """Return the effect of a step. Ask the workflow for what this worker lacks."""
    while True:
        try:
            return turn.decode(call["effect"])
        except Missing as missing:
            found = await _read(call["turn"], missing.lacking)
            if missing.lacking is None:
                turn.offered = found["offered"]
            else:
                turn.learn(found)


async def _read(turn: str, numbers: Sequence[int] | None) -> Any:
    """Return messages of a turn, or how it was opened, from its workflow."""
    info = activity.info()
    try:
        handle = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        stored = await handle.query(READ, args=[turn, numbers])
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
        raise Missing(f"the workflow does not answer: {error}") from None
    if stored is None:
        raise Missing("the turn is over")
    return unseal(stored, "a turn")


class TurnActivities:
    """Performs the effects of turns with the tools, functions and secrets of a worker."""

    def __init__(self, host: WorkerOptions, lease: float) -> None:
        self._host, self._lease = host, lease
        self._secrets, self._hooks = host.get("secrets") or {}, describe_hooks(host)
        self.most_bytes: float = MOST_BYTES
        self._turns: OrderedDict[str, KnownTurn] = OrderedDict()

    @activity.defn(name=OPEN)
    async def open(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Store what a turn begins with: a file that changes meanwhile does not change it."""
        try:
            wanted: Any = unseal(stored, "the start of a turn")
            record, key = await asyncio.to_thread(self._new_record, wanted), token_hex(8)
            self._remember(key, record, None)
            opened: Json = {"record": record.to_json(), "hooks": self._hooks}
            opened |= {"turn": key, "lease": self._lease}
            return check_size(seal(opened), "the start of a turn", self.most_bytes)
        except PromptyError as error:
            return seal({"error": error_to_json(error)})

    def _new_record(self, wanted: Any) -> Record:
        source, options, inputs = wanted["source"], wanted["options"], wanted["inputs"]
        chosen = Settings(model=options.pop("model", None), options=options.pop("options", None))
        loaded = PromptAgent.model_validate(source) if isinstance(source, dict) else source
        agent = load_agent(loaded, chosen)
        secrets = self._find_secrets(agent, inputs)
        options.setdefault("tools", list(handlers_of(self._host.get("tools"))))
        run_id = wanted["run"] or token_hex(16)
        record = new_record(run_id, agent, {**inputs, **secrets}, cast(DurableOptions, options), self._secrets)
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
        return {name: self._secrets[name] for name in sensitive if name in self._secrets}

    @activity.defn(name=STEP)
    async def step(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Perform one effect. Errors are results: a failure means that nothing has begun, or that a worker died."""
        lease = Lease()
        _lease.set(lease)
        beating = asyncio.create_task(lease.keep())
        try:
            call: Any = unseal(stored, "a step")
            turn = await self._find_turn(call["turn"])
            wanted = await _decode(turn, call)
            if "used" in call:
                turn.performer.inner.meter.set_used(call["used"])
            result = await turn.performer.perform(call["step"], wanted)
            result = check_size(result, f"the result of the step '{call['step']}'", self.most_bytes)
            if isinstance(wanted, DescribeTools):
                turn.offered = result
            turn.note(result)
        except PromptyError as error:
            result = seal({"error": error_to_json(error)})
        except Missing as missing:
            raise _fail(missing) from None
        except asyncio.CancelledError:
            if lease.refused is not None:
                raise _fail(Missing(lease.refused)) from None
            if lease.has_ended:
                raise ApplicationError("this attempt was ended", category=ApplicationErrorCategory.BENIGN) from None
            raise
        finally:
            beating.cancel()
        return result

    async def _find_turn(self, key: str) -> KnownTurn:
        if key not in self._turns:
            opened = await _read(key, None)
            if self._hooks != opened["hooks"]:
                raise RequestError(
                    f"a turn was begun with {list_hooks(opened['hooks'])}, and another worker "
                    f"has {list_hooks(self._hooks)}",
                    "Start all workers of a task queue with the same PromptyPlugin.",
                )
            self._remember(key, record_from(opened["record"], "a turn"), opened["offered"])
        self._turns.move_to_end(key)
        return self._turns[key]

    def _remember(self, key: str, record: Record, offered: Any) -> None:
        def build() -> Performer:
            run = stored_run(record, self._host, None)
            return Performer(run, self._hooks, fence=_fence)

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
        self._turns = TurnActivities(parts, lease)
        _import_all()
        super().__init__(
            "prompty",
            interceptors=[_Interceptor(self._turns)],
            activities=[self._turns.open, self._turns.step],
            workflow_runner=_pass_through,
            workflow_failure_exception_types=[PromptyError, WrongWorker],
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Let values be as large as the storage of the client allows."""
        converter = config["client"].config(active_config=True)["data_converter"]
        self._turns.most_bytes = MOST_BYTES if converter.external_storage is None else math.inf
        return super().configure_worker(config)


class _Interceptor(Interceptor):
    """Tells workflows how large a value may be."""

    def __init__(self, turns: TurnActivities) -> None:
        self._turns = turns

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> None:
        input.unsafe_extern_functions[FIND_MOST_BYTES] = lambda: self._turns.most_bytes


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
            build_request(agent, [Message("user", ())], resolve_base(agent), functions=[])
            get_pricer(agent, required=False)(Reply())
