"""The record of a durable turn: a value from which any process can start or continue it.

It holds the agent as it was at the start, its inputs and options, and after a pause also the pause and the answers to
it.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, TypedDict, cast

from pydantic import TypeAdapter
from typing_extensions import Doc

from prompty.drivers.run import Invocation, Run, assemble_run, check_invocation, find_call_changes
from prompty.drivers.run_spans import RunSpans
from prompty.drivers.target import resolve_base
from prompty.durable.envelope import digest, seal, unseal
from prompty.durable.secrets import SECRET_FIELDS, TRUST, Secrets, extract_secrets, restore_secrets
from prompty.durable.steps import WrongWorker
from prompty.durable.verdicts import Decision, verdict_from_json, verdict_to_json
from prompty.errors import PausedRefused, RequestError, RunRefused
from prompty.loop.context import Context, Tokens
from prompty.loop.meter import Meter
from prompty.loop.options import Gate, RunOptions, Settings, check_numbers, renders_file
from prompty.loop.policy import AllPolicies, Guardrails
from prompty.loop.state import Hooks, Plan, TurnState, check_policies, resumed_state
from prompty.loop.stop import Budget, Progress
from prompty.memory.store import AsyncMemoryStore, MemoryStore
from prompty.model.agent import PromptAgent
from prompty.model.content import ContentPart, MediaPart, TextPart, part_to_json
from prompty.model.message import Json, Message, parse_messages
from prompty.model.paused import Paused
from prompty.model.trust import Trust
from prompty.pipeline.thread_input import find_threads, parse_thread
from prompty.pipeline.validate import validate_run_inputs
from prompty.providers import RequestBase
from prompty.providers.provider_tools import refuse_provider_tools
from prompty.safety.redaction import Redactor, leaves
from prompty.steering import Steering
from prompty.tools.toolbox import Tools, handlers_of

_BUDGET: TypeAdapter[Budget] = TypeAdapter(Budget)
_TRUSTED = [one.name for one in fields(Trust)]
Summarizer = Callable[[list[Message], int], Any] | str | Path | None


class DurableOptions(RunOptions, total=False):
    """Options of a durable run: those of a turn that are data, and its own."""

    tools: Annotated[
        Sequence[str] | None,
        Doc("Names of the worker's tools to offer with the declared ones. By default none."),
    ]
    stream: Annotated[bool, Doc("Store the deltas of the model's answers, for `read_deltas`.")]
    steering: Annotated[bool, Doc("Accept messages by `steer`, which costs a step in each round.")]


class WorkerOptions(TypedDict, total=False):
    """Functions, stores and secrets of a process, which a database cannot hold."""

    tools: Annotated[Tools, Doc("Functions, or the result of `bind_tools`.")]
    gate: Annotated[Gate | None, Doc("Decides about all calls of an answer, as in a turn.")]
    guardrails: Annotated[Guardrails | None, Doc("Checks of inputs, answers and calls.")]
    stop: Annotated[Callable[[Progress], bool] | None, Doc("Returns True to end a turn after a round.")]
    summary: Annotated[Summarizer, Doc("Sums up what `context_budget` leaves out: a function or a .prompty file.")]
    memory: Annotated[MemoryStore | AsyncMemoryStore | None, Doc("The session store of turns with a `session_id`.")]
    secrets: Annotated[Secrets, Doc("Secrets by name. A database holds the name, and the process the value.")]


class TurnOptions(RunOptions, WorkerOptions, total=False):
    """Options of a turn in your own workflow."""

    stream: Annotated[bool, Doc("Store the deltas of the model's answers, for `read_deltas`.")]
    steering: Annotated[bool, Doc("Accept messages by `steer`, which costs a step in each round.")]


def describe_hooks(worker: WorkerOptions) -> Json:
    """Return which functions a run calls. It is stored: every worker and reader of the run must call the same."""
    guardrails = worker.get("guardrails")
    guarded = sorted(guardrails.kinds()) if guardrails else []
    return {name: worker.get(name) is not None for name in ("gate", "summary")} | {"guardrails": guarded}


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A turn, from its start or from a pause. `agent` and `inputs` lack their secrets; `secrets` and `hidden` refer to
    them. The deadline is in seconds since 1970."""

    run_id: str
    agent: Json
    path: str | None
    agent_hash: str
    secrets: list[Json]
    inputs: Json
    hidden: dict[str, str]
    options: Json
    origins: Json
    paused: Json | None = None
    answers: Json = field(default_factory=dict)
    deadline: float | None = None

    def to_json(self) -> Json:
        """Return the JSON to store."""
        return seal(asdict(self))

    def after(self, paused: Paused, decisions: Mapping[str, Decision]) -> "Record":
        """Return the segment that continues from a pause."""
        answers: Json = {key: verdict_to_json(decision) for key, decision in decisions.items()}
        return replace(self, paused=paused.to_json(), answers=answers)


def record_from(stored: object, place: str) -> Record:
    """Read a record. Raise RunRefused if its agent is not the one of the start."""
    value = unseal(stored, place)
    try:
        record = Record(**cast(dict[str, Any], value))
    except TypeError as error:
        raise RunRefused(place, f"it cannot be read: {error}") from None
    if digest([record.agent, record.secrets]) != record.agent_hash:
        raise RunRefused(place, "its agent is not the one that the run began with")
    return record


def new_record(
    run_id: str, agent: PromptAgent, inputs: Mapping[str, object] | None, options: DurableOptions, secrets: Secrets
) -> Record:
    """Return the first segment of a run. Raise `InputError` if its inputs are not valid."""
    check_numbers(options)
    if options.get("provider_tools") is False:
        refuse_provider_tools([resolve_base(agent)])
    extra_inputs = options.get("extra_inputs", "error")
    validate_run_inputs(agent, inputs, extra_inputs=extra_inputs, has_messages=not renders_file(options))
    data, references = extract_secrets(agent, secrets)
    given = dict(inputs or {})
    hidden = _hidden(agent, given, secrets)
    if renders_file(options):
        given |= {name: parse_thread(agent, name, given[name]) for name in find_threads(agent, given)}
    return Record(
        run_id=run_id,
        agent=data,
        path=str(agent.path) if agent.path else None,
        agent_hash=digest([data, references]),
        secrets=references,
        inputs={name: option_to_json(value) for name, value in given.items() if name not in hidden},
        hidden=hidden,
        options={name: option_to_json(value) for name, value in options.items() if value is not None},
        origins=TRUST.dump_python(agent.trust, mode="json", exclude=SECRET_FIELDS),
    )


def _hidden(agent: PromptAgent, inputs: Mapping[str, object], secrets: Secrets) -> dict[str, str]:
    """Return the names of the secrets that are passed as sensitive inputs, by input."""
    names = {value: name for name, value in secrets.items()}
    sensitive = [one.name for one in agent.inputs if one.sensitive and inputs.get(one.name) is not None]
    for name in sensitive:
        if inputs[name] not in names:
            raise RequestError(
                f"the input '{name}' is sensitive, and a run would have to keep it",
                "Give it a name that its workers know: secrets={'name': value}.",
                "Give it a name that its workers know: --secret NAME=VARIABLE.",
            )
    return {name: names[str(inputs[name])] for name in sensitive}


def option_to_json(value: object) -> object:
    """Return an option or an input as JSON: messages and media in our own shape, everything else as it is."""
    match value:
        case Tokens(count):
            return {"tokens": count}
        case Budget():
            return _BUDGET.dump_python(value, mode="json")
        case Message():
            return value.to_json()
        case TextPart() | MediaPart():
            return part_to_json(cast(ContentPart, value))
        case Mapping():
            return {str(key): option_to_json(entry) for key, entry in value.items()}
        case list() | tuple():
            return [option_to_json(entry) for entry in value]
    return value


def stored_agent(record: Record, secrets: Secrets | None) -> PromptAgent:
    """Return the agent of a run. Without secrets it can be read, but not run."""
    bare = PromptAgent(path=Path(record.path) if record.path else None)
    data = deepcopy(record.agent)
    values = [] if secrets is None else restore_secrets(data, record.secrets, bare, secrets)
    try:
        # None in place of each default: a record that lacks a field is refused
        trust = TRUST.validate_python({**dict.fromkeys(_TRUSTED), **record.origins, "secrets": [*leaves(values)]})
        return PromptAgent.model_validate({**data, "path": bare.path, "trust": trust})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        cause = f"it cannot be read: {type(error).__name__}"  # the message could quote a secret
        raise RunRefused(f"the agent of the run '{record.run_id}'", cause) from None


def stored_run(record: Record, worker: WorkerOptions, spans: RunSpans | None) -> Run:
    """Return the run of a segment, with the functions and secrets of a worker."""
    known = worker.get("secrets") or {}
    agent = stored_agent(record, known)
    options = _stored_options(record)
    limit = options.get("context_budget")
    settings = Settings(
        **{
            **options,
            "tools": _select_tools(worker.get("tools"), options.get("tools"), agent),
            "context_budget": None if limit is None else Context(limit=limit, summary=worker.get("summary")),
            "memory": worker.get("memory") if options.get("session_id") is not None else None,
            **{name: worker.get(name) for name in ("gate", "guardrails", "stop")},
        }
    )
    secrets = {name: _get_secret(name, key, known) for name, key in record.hidden.items()}
    run = _assemble(record, agent, settings, secrets, spans)
    if run.state.resumed:
        try:
            check_policies(run.state.resumed, run.hooks())
        except PausedRefused:
            raise WrongWorker.for_hooks(record.run_id, run.state.resumed.policy, describe_hooks(worker)) from None
    return run


def stored_plan(
    record: Record, hooks: Mapping[str, Any], find_base: Callable[[PromptAgent], RequestBase]
) -> tuple[Plan, TurnState]:
    """Return the plan and the first state of a segment, for a reader: it needs no functions, secrets or models."""
    options = {**_stored_options(record), "tools": None}
    secrets = dict.fromkeys(record.hidden, "")
    run = _assemble(record, stored_agent(record, None), Settings(**options), secrets, None)
    called = Hooks(
        gate=hooks["gate"],
        guardrails=frozenset(hooks["guardrails"]),
        summary=hooks["summary"],
        steering=run.settings.steering is not None,
    )
    return run.plan([find_base(agent) for agent in run.agents], called), run.state


def _assemble(
    record: Record, agent: PromptAgent, settings: Settings, secrets: Mapping[str, str], spans: RunSpans | None
) -> Run:
    state = None
    if record.paused is not None:
        decisions = {key: verdict_from_json(value) for key, value in record.answers.items()}
        state = resumed_state(Paused.from_json(record.paused), decisions, partial(Meter, settings.budget, lock=Lock()))
    # `new_record` stored what may cross, so these are messages of this program
    is_rendered = renders_file(record.options)
    threads = {name: parse_messages(record.inputs[name]) for name in find_threads(agent, record.inputs) if is_rendered}
    invocation = Invocation(
        operation="turn",
        source=agent,
        inputs={**record.inputs, **threads, **secrets},
        settings=settings,
        stream=bool(record.options.get("stream")),
        validated=True,
    )
    invocation = check_invocation(invocation)
    if spans:
        spans.describe(agent, invocation.inputs, settings)
    if changes := find_call_changes(agent, invocation, agent.trust):
        agent = agent.model_copy(update=changes)
    redactor = spans.redactor if spans else Redactor()
    return assemble_run(invocation, agent, redactor, state=state, run_id=record.run_id, spans=spans)


def _get_secret(name: str, key: str, secrets: Secrets) -> str:
    if key not in secrets:
        raise RequestError(
            f"the secret '{key}' for the input '{name}' is not known here",
            f"Pass secrets={{'{key}': value}}.",
            f"Start the worker with --secret {key}=VARIABLE.",
        )
    return secrets[key]


def _stored_options(record: Record) -> dict[str, Any]:
    """Return the options of a record as those of a turn."""
    options = cast(dict[str, Any], {name: value for name, value in record.options.items() if name != "stream"})
    options["steering"] = Steering() if options.get("steering") else None
    if isinstance(policies := options.get("approval"), list):
        options["approval"] = AllPolicies(policies)
    options["budget"] = _BUDGET.validate_python(options["budget"]) if options.get("budget") else None
    if isinstance(limit := options.get("context_budget"), dict):
        options["context_budget"] = Tokens(limit["tokens"])
    return options


def _select_tools(tools: Tools, names: Sequence[str] | None, agent: PromptAgent) -> Tools:
    """Return the worker's functions for a run: those that the file declares, and those that the run names."""
    handlers = handlers_of(tools)
    missing = [name for name in names or () if name not in handlers]
    if missing:
        raise RequestError(
            f"this process has no tool '{missing[0]}'", "Give it the tools that its runs began with: tools=[...]."
        )
    wanted = {tool.name for tool in agent.tools} | set(names or ())
    return {name: handler for name, handler in handlers.items() if name in wanted}
