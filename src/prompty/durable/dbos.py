"""Agent turns inside your own DBOS workflow.

    @DBOS.workflow()
    async def triage(ticket: str) -> str:
        order = await load_order(ticket)                                     # a step of yours
        plan = await turn("triage.prompty", {"order": order}, tools=[look])  # its model and tool calls are steps
        return await turn("reply.prompty", {"plan": plan}, tools=[pay])

Each model call and each tool call is a DBOS step. After a crash, DBOS calls the workflow again and stored steps return
their results. A tool that is not idempotent and was under way is not repeated: a person says what it has done.
Cancellation, timeouts and queues are those of DBOS. Nothing of it is configured or replaced, so any DBOS application
can have turns.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from datetime import timedelta
from secrets import token_hex
from typing import Any, Literal, Unpack, cast

from dbos import DBOS, DBOSClient, error as dbos_error

from prompty.drivers.run import load_agent, parse_decisions
from prompty.drivers.run_spans import open_run_spans
from prompty.durable.codec import error_from, error_to_json
from prompty.durable.delta_stream import delta_from
from prompty.durable.envelope import seal, unseal
from prompty.durable.metrics import WorkerMetrics
from prompty.durable.performer import Fence, Performer, RunDeadline, begin_at_once, read_clock
from prompty.durable.record import (
    DurableOptions,
    Record,
    TurnOptions,
    WorkerOptions,
    WorkerParts,
    decision_from,
    decision_to_json,
    new_record,
    record_from,
    stored_run,
)
from prompty.durable.steps import TurnDriver, Wanted
from prompty.errors import PromptyError, RequestError, RunRefused
from prompty.loop.effects import LoadMemory, Rewrite, Verdict
from prompty.loop.options import Settings
from prompty.loop.policy import combine_policies
from prompty.model.agent import PromptAgent
from prompty.model.event import Delta, Done, Event, Retry
from prompty.model.message import Json
from prompty.model.paused import Paused
from prompty.pipeline.load import StrPath
from prompty.tools.toolbox import handlers_of
from prompty.tracing import names
from prompty.tracing.spans import NULL_SPAN, is_tracing

OPEN, STEERING, STREAM, PAUSED = "prompty.open", "prompty.steering", "prompty.deltas", "prompty.paused"
YEAR = 365 * 24 * 3600.0
SHORTEST_SLEEP = 0.001  # DBOS does not store shorter ones
POLL = 0.02
FRESH = 1.0  # seconds for which nobody else can have taken a workflow over unnoticed
Client = DBOSClient | type[DBOS]
Around = Callable[[], AbstractAsyncContextManager[None]]
_under_way: dict[str, "list[_Place]"] = {}  # the turns of each workflow, in the order of their calls


async def turn(
    source: PromptAgent | StrPath,
    inputs: Mapping[str, object] | None = None,
    *,
    on_pause: Literal["wait", "return"] = "wait",
    pause_timeout: timedelta | None = None,
    paused: Paused | None = None,
    verdicts: object = None,
    **options: Unpack[TurnOptions],
) -> Any:
    """Run a turn, and return its result. Call it in an async workflow of DBOS, as often as you like.

    If a person has to decide, the workflow waits for `answer`. After `pause_timeout`, the calls that wait are denied.
    With `on_pause="return"` it gets the `Paused` value, and goes on by `turn(..., paused=paused, verdicts=[...])`, in
    this workflow or another one.

    The agent is stored when the turn begins: a file that changes meanwhile does not change it. Functions, stores and
    secrets are not stored: pass the same ones in every execution. Turns that are awaited together run one after the
    other; for parallel turns, start a child workflow for each.
    """
    with _take_place(_get_workflow_id()) as place:
        parts, data = _split_options(options)
        stored = await DBOS.run_step_async({"name": OPEN}, _open_turn, source, inputs, parts, data, paused)
        opened: Any = unseal(stored, "the start of a turn")
        await place.wait_for_earlier(opened["step"])
        if "error" in opened:
            raise error_from(opened["error"], "the start of a turn")
        record = record_from(opened["record"], "the start of a turn")
        if paused is not None:
            record = record.after(paused, parse_decisions(paused, verdicts))
        ownership = _Ownership(place.workflow_id)
        while True:
            end = await run_record(record, parts, fence=ownership.confirm, preemptible=True)
            if isinstance(end, Done):
                return end.result
            if on_pause == "return":
                return end
            record = record.after(end, await _wait_for_answer(end, pause_timeout))


def _get_workflow_id() -> str:
    if DBOS.workflow_id is None:
        raise RequestError(
            "this turn is not in a workflow of DBOS",
            "Call it in an async function with @DBOS.workflow(), or use prompty.turn_async.",
        )
    if DBOS.step_id is not None:
        raise RequestError(
            "this turn is in a step of DBOS, and its calls are steps of their own",
            "Call it in the workflow, or use prompty.turn_async in the step.",
        )
    return DBOS.workflow_id


def _split_options(options: TurnOptions) -> tuple[WorkerParts, DurableOptions]:
    """Return what stays in this process, and what is stored."""
    own = {name: value for name, value in options.items() if name in WorkerOptions.__annotations__}
    parts = WorkerParts(**own)  # type: ignore[arg-type]  # its fields
    data = {name: value for name, value in options.items() if name not in own}
    return parts, cast(DurableOptions, {**data, "tools": list(handlers_of(parts.tools))})


async def _open_turn(
    source: PromptAgent | StrPath,
    inputs: Mapping[str, object] | None,
    parts: WorkerParts,
    options: DurableOptions,
    paused: Paused | None,
) -> Json:
    """Store the agent and its inputs. It is the first step of a turn."""
    try:
        # The stored agent has the model it runs with, whatever the environment of a later execution says.
        chosen = Settings(model=options.pop("model", None), options=options.pop("options", None))
        agent = await asyncio.to_thread(load_agent, source, chosen)
        if paused is not None:
            paused.check()
            kept: Any = paused.policy["approval"]
            options["approval"] = combine_policies(kept, options.get("approval"))
        run_id = token_hex(16) if paused is None else paused.run_id
        record = new_record(run_id, agent, inputs, options, parts.secrets)
        return seal({"record": record.to_json(), "step": DBOS.step_id})
    except PromptyError as error:
        return seal({"error": error_to_json(error), "step": DBOS.step_id})


class _Place:
    """The place of a turn among those of its workflow: the number of its first step, once that is stored.

    DBOS tells steps apart by the order in which they start. If turns ran side by side, it would be another order in
    every execution.
    """

    def __init__(self, workflow_id: str, earlier: "list[_Place]") -> None:
        self.workflow_id = workflow_id
        self.step: int | None = None
        self.has_ended = False
        self._earlier = earlier

    async def wait_for_earlier(self, step: int) -> None:
        """Wait for turns that began before this one. An execution that was cancelled and has not noticed yet may be in
        this very turn, or in a later one."""
        self.step = step
        while any(not one.has_ended and (one.step is None or one.step < step) for one in self._earlier):
            await asyncio.sleep(POLL)


@contextmanager
def _take_place(workflow_id: str) -> Iterator[_Place]:
    places = _under_way.setdefault(workflow_id, [])
    place = _Place(workflow_id, list(places))
    places.append(place)
    try:
        yield place
    finally:
        place.has_ended = True
        places.remove(place)
        if not places:
            _under_way.pop(workflow_id, None)


class _Ownership:
    """Knows whether another process has gone on with the workflow, as it may while this one was suspended. DBOS refuses
    what an execution wants to store that has lost its workflow, and this keeps it from beginning a call before that."""

    def __init__(self, workflow_id: str) -> None:
        self._workflow_id = workflow_id
        self._confirmed = -FRESH
        self._execution: object = None

    async def confirm(self) -> None:
        begun = read_clock()
        if begun - self._confirmed < FRESH:
            return
        [status] = await DBOS.list_workflows_async(
            workflow_ids=[self._workflow_id], load_input=False, load_output=False
        )
        found = (status.executor_id, status.recovery_attempts, status.dequeued_at)
        if self._execution not in (None, found):
            lost = f"another process goes on with the workflow '{self._workflow_id}'"
            raise dbos_error.DBOSWorkflowCancelledError(lost)
        self._execution, self._confirmed = found, begun


async def _wait_for_answer(paused: Paused, timeout: timedelta | None) -> dict[str, Verdict | Rewrite]:
    """Show the pause to `find_pause`, and wait for `answer`."""
    await DBOS.set_event_async(PAUSED, seal(paused.to_json()))
    seconds = YEAR if timeout is None else timeout.total_seconds()
    received = await DBOS.recv_async(_get_topic(paused), timeout_seconds=seconds)
    await DBOS.set_event_async(PAUSED, None)
    if received is None:
        return parse_decisions(paused, [False] * len(paused.pending))
    return {key: decision_from(value) for key, value in received.items()}


def _get_topic(paused: Paused) -> str:
    return f"prompty.answer {paused.run_id} {paused.pauses}"


def find_pause(client: Client, workflow_id: str) -> Paused | None:
    """Return what a workflow waits for, if it waits for a person. `client` is `DBOS` or a `DBOSClient`."""
    found = client.list_workflows(
        workflow_ids=[workflow_id], status=["PENDING", "ENQUEUED"], load_input=False, load_output=False
    )
    stored = client.get_event(workflow_id, PAUSED, timeout_seconds=0) if found else None
    return None if stored is None else Paused.from_json(cast(Json, unseal(stored, "a pause")))


def answer(client: Client, workflow_id: str, verdicts: object, *, paused: Paused | None = None) -> None:
    """Let a workflow that waits for a person go on. The first answer to a pause counts. With `paused` the answer is to
    that very pause, as `find_pause` returned it, and does nothing if that is over."""
    paused = paused or find_pause(client, workflow_id)
    if paused is None:
        raise RequestError(f"the workflow '{workflow_id}' does not wait for an answer", "Ask `find_pause`.")
    decisions = {key: decision_to_json(one) for key, one in parse_decisions(paused, verdicts).items()}
    topic = _get_topic(paused)
    client.send(workflow_id, decisions, topic, idempotency_key=topic)


def steer(client: Client, workflow_id: str, text: str) -> None:
    """Send a message to the turn of a workflow that is under way with `steering=True`, or to its next one."""
    client.send(workflow_id, text, STEERING)


def read_deltas(client: Client, workflow_id: str) -> Iterator[Delta | Retry]:
    """Yield the deltas of a workflow's turns with `stream=True`, until it ends. `Retry` comes before those of a model
    call that is made again after a crash."""
    attempts: dict[int, str] = {}
    for value in client.read_stream(workflow_id, STREAM):
        group: Any = unseal(value, f"the deltas of the workflow '{workflow_id}'")
        if attempts.setdefault(value["step"], group["attempt"]) != group["attempt"]:
            attempts[value["step"]] = group["attempt"]
            yield Retry(1, 0.0, "the process was lost while the model answered")
        yield from map(delta_from, group["deltas"])


async def run_record(
    record: Record,
    parts: WorkerParts,
    *,
    fence: Fence = begin_at_once,
    around: Around = nullcontext,
    on_progress: Fence = begin_at_once,
    metrics: WorkerMetrics | None = None,
    deadline: RunDeadline | None = None,
    preemptible: bool = False,
) -> Done | Paused:
    """Run a turn from its record in the current workflow, to its end or a pause, or raise the error that ends it.

    `fence` returns when a side effect may begin. What a step does that is not stored yet is done inside `around`, and
    `on_progress` is called between effects, once this execution has stored a step. With `preemptible`, DBOS looks once
    a second and step whether the workflow was cancelled.
    """
    spans = open_run_spans("turn", record.path or "run") if is_tracing() else None
    with spans or NULL_SPAN, spans.inside() if spans else NULL_SPAN:
        if spans:
            spans.span.set_attributes({names.RUN_ID: record.run_id})
        run = stored_run(record, parts, spans)
        write = _write_delta if record.options.get("stream") else None
        performer = Performer(
            run, parts.hooks(), fence=fence, write=write, metrics=metrics, pace=parts.pace, deadline=deadline
        )
        steps = DbosSteps(performer, fence, around, on_progress, preemptible=preemptible)
        try:
            return await TurnDriver(steps, record.run_id, performer.hooks).drive(run.loop(performer.inner))
        finally:
            await performer.release()


async def _write_delta(value: Json) -> None:
    """Write deltas, with the number of their step: the turns of a workflow name their steps alike."""
    await DBOS.write_stream_async(STREAM, {**value, "step": DBOS.step_id})


class DbosSteps:
    """Steps of the current workflow."""

    def __init__(
        self, performer: Performer, fence: Fence, around: Around, on_progress: Fence, *, preemptible: bool
    ) -> None:
        self._performer, self._fence, self._around, self._on_progress = performer, fence, around, on_progress
        self._is_new = False
        self._preemptible = preemptible

    async def keep(self, name: str, wanted: Wanted, /, *, once: bool = False, interrupted: bool = False) -> Json:
        async def perform() -> Json:
            self._is_new = True
            async with self._around():
                return await self._performer.perform(name, wanted, once=once, interrupted=interrupted)

        stored = await DBOS.run_step_async({"name": name, "preemptible": self._preemptible}, perform)
        if isinstance(wanted, LoadMemory):
            self._performer.note_loaded(stored)
        return stored

    async def begin(self, name: str, /) -> bool:
        async def store() -> Json:
            await self._fence()
            return seal(self._performer.execution)

        stored = unseal(await DBOS.run_step_async({"name": name}, store), f"the step '{name}'")
        if not isinstance(stored, str):
            raise RunRefused(f"the step '{name}'", "it is not what a step keeps")
        return stored == self._performer.execution

    async def receive(self) -> list[str]:
        texts: list[str] = []
        while (text := await DBOS.recv_async(STEERING, timeout_seconds=0)) is not None:
            texts.append(str(text))
        return texts

    async def sleep(self, seconds: float, /) -> None:
        await DBOS.sleep_async(max(self._performer.get_wait(seconds), SHORTEST_SLEEP))

    async def before_effect(self) -> None:
        if self._is_new:
            await self._on_progress()

    def emit(self, event: Event, /) -> None:
        self._performer.emit(event)
