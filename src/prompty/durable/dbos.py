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
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from secrets import token_hex
from typing import Any, Literal, Unpack, cast

from prompty.errors import MissingExtra, PromptyError, RequestError, RunRefused

try:
    from dbos import DBOS, DBOSClient, StepInfo
except ModuleNotFoundError as _missing:
    raise MissingExtra("dbos", "dbos") from _missing

from prompty.drivers.run import load_agent, parse_decisions
from prompty.drivers.run_spans import open_run_spans
from prompty.durable.codec import MODEL, error_from, error_to_json
from prompty.durable.delta_stream import delta_from
from prompty.durable.envelope import seal, unseal
from prompty.durable.performer import Fence, Performer, RunDeadline
from prompty.durable.record import (
    DurableOptions,
    Record,
    TurnOptions,
    WorkerOptions,
    describe_hooks,
    new_record,
    record_from,
    stored_run,
)
from prompty.durable.steps import TurnDriver, Wanted
from prompty.durable.verdicts import Decision, verdict_from_json, verdict_to_json
from prompty.durable.watch import WatchedTurn, watch_turn
from prompty.loop.effects import LoadMemory
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

OPEN, UNTIL = "prompty.open", "prompty.until"
STEERING, STREAM, PAUSED = "prompty.steering", "prompty.deltas", "prompty.paused"
YEAR = 365 * 24 * 3600.0
SHORTEST_SLEEP = 0.001  # DBOS does not store shorter ones
Client = DBOSClient | type[DBOS]


async def turn(
    source: PromptAgent | StrPath,
    inputs: Mapping[str, object] | None = None,
    *,
    on_pause: Literal["wait", "return"] = "wait",
    pause_timeout: timedelta | None = None,
    deadline: timedelta | None = None,
    paused: Paused | None = None,
    verdicts: object = None,
    **options: Unpack[TurnOptions],
) -> Any:
    """Run a turn, and return its result. Call it in an async workflow of DBOS, as often as you like.

    If a person has to decide, the workflow waits for `answer`. After `pause_timeout`, the calls that wait are denied.
    With `on_pause="return"` it gets the `Paused` value, and goes on by `turn(..., paused=paused, verdicts=[...])`, in
    this workflow or another one. After `deadline`, raise DeadlineExceeded: what is under way is cancelled.

    The agent is stored when the turn begins: a file that changes meanwhile does not change it. Functions, stores and
    secrets are not stored: pass the same ones in every execution. Turns that are awaited together run one after the
    other; for parallel turns, start a child workflow for each.
    """
    with watch_turn(_get_workflow_id()) as watched:
        parts, data = _split_options(options)
        stored = await DBOS.run_step_async({"name": OPEN}, _open_turn, source, inputs, parts, data, paused, deadline)
        opened: Any = unseal(stored, "the start of a turn")
        await watched.wait_for_earlier(opened["step"])
        if "error" in opened:
            raise error_from(opened["error"], "the start of a turn")
        record = record_from(opened["record"], "the start of a turn")
        if paused is not None:
            record = record.after(paused, parse_decisions(paused, verdicts))
        limit = RunDeadline(record.deadline)
        while True:
            end = await _run_record(record, parts, watched.confirm, limit)
            if isinstance(end, Done):
                return end.result
            if on_pause == "return":
                return end
            record = record.after(end, await _wait_for_answer(end, watched, pause_timeout, limit))


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


def _split_options(options: TurnOptions) -> tuple[WorkerOptions, DurableOptions]:
    """Return what stays in this process, and what is stored."""
    own = {name: value for name, value in options.items() if name in WorkerOptions.__annotations__}
    data = {name: value for name, value in options.items() if name not in own}
    tools = list(handlers_of(options.get("tools")))
    return cast(WorkerOptions, own), cast(DurableOptions, {**data, "tools": tools})


async def _open_turn(
    source: PromptAgent | StrPath,
    inputs: Mapping[str, object] | None,
    parts: WorkerOptions,
    options: DurableOptions,
    paused: Paused | None,
    deadline: timedelta | None,
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
        record = new_record(run_id, agent, inputs, options, parts.get("secrets") or {})
        if deadline is not None:
            record = replace(record, deadline=time.time() + deadline.total_seconds())
        return seal({"record": record.to_json(), "step": DBOS.step_id})
    except PromptyError as error:
        return seal({"error": error_to_json(error), "step": DBOS.step_id})


async def _wait_for_answer(
    paused: Paused, watched: WatchedTurn, timeout: timedelta | None, deadline: RunDeadline
) -> Mapping[str, Decision]:
    """Show the pause to `find_pause`, and wait for `answer`."""
    await DBOS.set_event_async(PAUSED, seal(paused.to_json()))
    until = deadline.at
    if timeout is not None:  # stored, so that another execution waits for the rest of the time only
        ends = await DBOS.run_step_async({"name": UNTIL}, _compute_end, timeout)
        until = min(ends, until or ends)
    topic = _get_topic(paused)
    await watched.wait_for_answer(topic, until)
    seconds = YEAR if until is None else max(until - time.time(), 0.0)
    received = await DBOS.recv_async(topic, timeout_seconds=seconds)  # which is there, or the time is up
    await DBOS.set_event_async(PAUSED, None)
    if received is not None:
        return {key: verdict_from_json(value) for key, value in received.items()}
    if until == deadline.at:
        raise deadline.error()
    return parse_decisions(paused, [False] * len(paused.pending))


async def _compute_end(timeout: timedelta) -> float:
    return time.time() + timeout.total_seconds()


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
    decisions = {key: verdict_to_json(one) for key, one in parse_decisions(paused, verdicts).items()}
    topic = _get_topic(paused)
    client.send(workflow_id, decisions, topic, idempotency_key=topic)
    client.update_workflow_attributes(workflow_id, {topic: True}, merge=True)  # so the watcher finds it


def find_retry_step(steps: Sequence[StepInfo]) -> int:
    """Return the step from which a failed workflow should be rewound, so that everything good before it is kept:
    `client.rewind_workflow(id, start_step=find_retry_step(client.list_workflow_steps(id)))`.

    An error of a turn is the result of a step that succeeded for DBOS. Go on at the first one that no later answer of
    a model made up for. If the last answer itself was the reason, ask the model again, unless calls of its tools have
    begun. Otherwise keep all steps: the reason was the process, or code after them.
    """
    failed = last_answer = None
    for step in steps:
        kind = step["function_name"].partition(":")[0]
        if kind.startswith("DBOS."):
            continue
        output: Any = step["output"]
        value: Any = unseal(output, f"the step '{kind}'") if isinstance(output, dict) and "prompty" in output else None
        if step["error"] is not None or (isinstance(value, dict) and "error" in value):
            failed = failed or step["function_id"]
        elif kind == MODEL:
            failed, last_answer = None, step["function_id"]
        elif kind in ("intent", "tool") or value is None:  # what follows an answer shows that it was good
            last_answer = None
    return failed or last_answer or max((step["function_id"] for step in steps), default=0) + 1


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


async def _run_record(record: Record, parts: WorkerOptions, fence: Fence, deadline: RunDeadline) -> Done | Paused:
    """Run a turn from its record to its end or a pause, or raise the error that ends it. `fence` returns when a side
    effect may begin."""
    spans = open_run_spans("turn", record.path or "run") if is_tracing() else None
    with spans or NULL_SPAN, spans.inside() if spans else NULL_SPAN:
        if spans:
            spans.span.set_attributes({names.RUN_ID: record.run_id})
        run = stored_run(record, parts, spans)
        write = _write_delta if record.options.get("stream") else None
        performer = Performer(run, describe_hooks(parts), fence=fence, write=write, deadline=deadline)
        try:
            steps = _DbosSteps(performer, fence)
            return await TurnDriver(steps, record.run_id, performer.hooks).drive(run.loop(performer.inner))
        finally:
            await performer.release()


async def _write_delta(value: Json) -> None:
    """Write deltas, with the number of their step: the turns of a workflow name their steps alike."""
    await DBOS.write_stream_async(STREAM, {**value, "step": DBOS.step_id})


class _DbosSteps:
    """Steps of the current workflow."""

    def __init__(self, performer: Performer, fence: Fence) -> None:
        self._performer, self._fence = performer, fence

    async def keep(self, name: str, wanted: Wanted, /, *, once: bool = False, interrupted: bool = False) -> Json:
        async def perform() -> Json:
            return await self._performer.perform(name, wanted, once=once, interrupted=interrupted)

        stored = await DBOS.run_step_async({"name": name}, perform)
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

    def emit(self, event: Event, /) -> None:
        self._performer.emit(event)
