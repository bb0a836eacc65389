"""What a run is, as a value that any worker can begin or go on with: the agent as it was at the start, its inputs and
options; for a later segment also where it was paused and what was answered."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, cast

from pydantic import ValidationError

from prompty.drivers.host import Gate, MemoryStore, Steering
from prompty.drivers.turns import Execution, Turn, TurnOptions
from prompty.durable.pace import Pace
from prompty.durable.secrets import Secrets, with_secrets, without_secrets
from prompty.durable.values import digest, opened, sealed
from prompty.errors import RequestError, RunRefused
from prompty.loop.budget import Budget
from prompty.loop.context import Context, Tokens
from prompty.loop.effects import Rewrite, Verdict
from prompty.loop.guardrails import Guardrails
from prompty.loop.state import resumed_state
from prompty.loop.stop import Progress
from prompty.model.agent import PromptAgent
from prompty.model.message import ContentPart, Json, MediaPart, Message, TextPart, part_to_json
from prompty.model.paused import Paused
from prompty.tools.toolbox import Tools, handlers_of
from prompty.tracing.spans import SILENCE, Span

Decision = Verdict | Rewrite


class RunArguments(TypedDict, total=False):
    """How a durable run goes: those of `TurnArguments` that are data, and

    - `tools`: the names of those of the worker's tools that the model is offered; those that the file declares always
      are. Without it, all tools of the runtime that starts the run.
    - `stream`: the words of the model are told while they come (`events`), and kept.
    - `steering`: the run listens to `steer`, which costs a step in each round.
    """

    tools: Sequence[str] | None
    approval: object
    tool_execution: Execution
    max_parallel: int | None
    tool_timeout: float | None
    max_iterations: int
    budget: Budget | None
    max_retries: int
    timeout: float | None
    fallbacks: Sequence[str] | None
    session_id: str | None
    context_budget: int | Tokens | None
    messages: Sequence[object] | None
    stream: bool
    steering: bool


class HostArguments(TypedDict, total=False):
    """What a worker gives to its runs and a database cannot hold: functions, stores, and the values of secrets."""

    tools: Tools
    gate: Gate | None
    guardrails: Guardrails | None
    stop: Callable[[Progress], bool] | None
    summary: Callable[[list[Message], int], Any] | str | Path | None
    memory: MemoryStore | None
    secrets: Secrets
    pace: Pace | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostParts:
    """The same, with what is not given."""

    tools: Tools = None
    gate: Gate | None = None
    guardrails: Guardrails | None = None
    stop: Callable[[Progress], bool] | None = None
    summary: Callable[[list[Message], int], Any] | str | Path | None = None
    memory: MemoryStore | None = None
    secrets: Secrets = field(default_factory=dict)
    pace: Pace | None = None

    def asked(self) -> Json:
        """Which functions are asked. A run keeps that: who reads it, or goes on with it, must ask the same."""
        guarded = sorted(self.guardrails.kinds()) if self.guardrails else []
        return {"gate": self.gate is not None, "guardrails": guarded, "summary": self.summary is not None}

    def for_reading(self, asked: Mapping[str, Any]) -> "HostParts":
        """Stand-ins for the functions that a run has asked, for a reader: what they said is kept."""
        guarded: dict[str, Any] = dict.fromkeys(asked["guardrails"], _never_called)
        return replace(
            self,
            tools=None,
            gate=_never_called if asked["gate"] else None,
            guardrails=Guardrails(**guarded) if guarded else None,
            summary=_never_called if asked["summary"] else None,
        )


def _never_called(*_: object, **__: object) -> None:
    raise AssertionError("a reader runs nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One segment of a run. `agent` and `inputs` lack their secrets: `secrets` and `hidden` say where to find them."""

    run_id: str
    segment: int
    agent: Json
    path: str | None
    agent_hash: str
    secrets: list[Json]
    inputs: Json
    hidden: dict[str, str]
    options: Json
    paused: Json | None = None
    answers: Json = field(default_factory=dict)
    cancelled: bool = False

    def to_json(self) -> Json:
        return sealed(asdict(self))

    def after(self, paused: Paused, said: Mapping[str, Decision], *, cancelled: bool = False) -> "Record":
        """The segment that goes on from a pause."""
        answers: Json = {key: _answer_to_json(one) for key, one in said.items()}
        following = {"segment": self.segment + 1, "paused": paused.to_json(), "answers": answers}
        return replace(self, **following, cancelled=cancelled)  # type: ignore[arg-type]  # fields of a record


def record_from(stored: object, place: str) -> Record:
    """Read what `to_json` wrote. An agent that is not the one of the start is refused."""
    value = opened(stored, place)
    try:
        record = Record(**cast(dict[str, Any], value))
    except TypeError as error:
        raise RunRefused(place, f"it cannot be read: {error}") from None
    if digest([record.agent, record.secrets]) != record.agent_hash:
        raise RunRefused(place, "its agent is not the one that the run began with")
    return record


def new_record(
    run_id: str, agent: PromptAgent, inputs: Mapping[str, object] | None, options: RunArguments, secrets: Secrets
) -> Record:
    """The first segment of a run."""
    data, references = without_secrets(agent, secrets)
    hidden = _hidden(agent, inputs or {}, secrets)
    return Record(
        run_id=run_id,
        segment=0,
        agent=data,
        path=str(agent.path) if agent.path else None,
        agent_hash=digest([data, references]),
        secrets=references,
        inputs={name: _to_json(value) for name, value in (inputs or {}).items() if name not in hidden},
        hidden=hidden,
        options={name: _option_to_json(value) for name, value in options.items() if value is not None},
    )


def _hidden(agent: PromptAgent, inputs: Mapping[str, object], secrets: Secrets) -> dict[str, str]:
    """The names of secrets by the inputs that they are for: those that the file calls sensitive."""
    names = {value: name for name, value in secrets.items()}
    sensitive = [one.name for one in agent.inputs if one.sensitive and inputs.get(one.name) is not None]
    for name in sensitive:
        if inputs[name] not in names:
            raise RequestError(
                f"the input '{name}' is sensitive, and a run would have to keep it",
                "Give it a name that workers know: DurableRuntime(url, secrets={'name': value}).",
            )
    return {name: names[str(inputs[name])] for name in sensitive}


def _to_json(value: object) -> object:
    """Inputs and options as JSON: messages and media in our own shape, everything else as it is."""
    match value:
        case Message():
            return value.to_json()
        case TextPart() | MediaPart():
            return part_to_json(cast(ContentPart, value))
        case Mapping():
            return {str(key): _to_json(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_to_json(entry) for entry in value]
    return value


def _option_to_json(value: object) -> object:
    match value:
        case Tokens(count):
            return {"tokens": count}
        case Budget():
            return {**asdict(value), "cost": None if value.cost is None else str(value.cost)}
    return _to_json(value)


def agent_of(record: Record, secrets: Secrets | None) -> PromptAgent:
    """The agent of a run. Without secrets it can be read, and not run."""
    bare = PromptAgent(path=Path(record.path) if record.path else None)
    data = deepcopy(record.agent)
    if secrets is not None:
        data = with_secrets(data, record.secrets, bare, secrets)
    try:
        return PromptAgent.model_validate({**data, "path": bare.path})
    except ValidationError as error:
        cause = f"{error.error_count()} parts of it cannot be read"
        raise RunRefused(f"the agent of the run '{record.run_id}'", cause) from None


def turn_of(record: Record, parts: HostParts, *, reading: bool = False, span: Span = SILENCE) -> Turn:
    """The turn that a segment is. One for reading needs nothing that only a worker has."""
    agent = agent_of(record, None if reading else parts.secrets)
    inputs = {**record.inputs, **{name: _secret(name, key, parts, reading) for name, key in record.hidden.items()}}
    options = _turn_options(record, parts, agent, reading=reading)
    state = None
    if record.paused is not None:
        said = {key: _answer_from(one) for key, one in record.answers.items()}
        state = resumed_state(Paused.from_json(record.paused), said)
    stream = bool(record.options.get("stream"))
    return Turn(agent, inputs, options, stream=stream, state=state, run_id=record.run_id, span=span)


def _secret(name: str, key: str, parts: HostParts, reading: bool) -> str:
    if reading:
        return ""
    if key not in parts.secrets:
        raise RequestError(
            f"the secret '{key}' for the input '{name}' is not known here",
            f"Start the worker with DurableRuntime(url, secrets={{'{key}': value}}).",
        )
    return parts.secrets[key]


def _turn_options(record: Record, parts: HostParts, agent: PromptAgent, *, reading: bool) -> TurnOptions:
    given = cast(dict[str, Any], dict(record.options))
    given.pop("stream", None)
    tools = _stand_ins(agent) if reading else _offered(parts.tools, given.get("tools"), agent)
    budget, context = given.get("budget"), given.get("context_budget")
    own = {
        "tools": tools,
        "steering": Steering() if given.pop("steering", False) else None,
        "budget": Budget(**budget) if budget else None,
        "context_budget": _context(context, parts.summary),
        "memory": parts.memory if given.get("session_id") is not None else None,
    }
    functions = {"gate": parts.gate, "guardrails": parts.guardrails, "stop": parts.stop}
    if reading:
        own["memory"] = _NO_MEMORY if given.get("session_id") is not None else None
    return TurnOptions(**{**given, **own, **functions})


def _context(given: Any, summary: Any) -> Context | None:
    if given is None:
        return None
    return Context(limit=Tokens(given["tokens"]) if isinstance(given, dict) else given, summary=summary)


def _offered(tools: Tools, names: Sequence[str] | None, agent: PromptAgent) -> Tools:
    """The worker's functions for a run: those that the file declares, and those that the run names beside them."""
    handlers = handlers_of(tools)
    missing = [name for name in names or () if name not in handlers]
    if missing:
        raise RequestError(f"this worker has no tool '{missing[0]}'", "Start it with the tools that its runs use.")
    wanted = {tool.name for tool in agent.tools} | set(names or ())
    return {name: handler for name, handler in handlers.items() if name in wanted}


def _stand_ins(agent: PromptAgent) -> Tools:
    """Functions for a reader: what the model was told of them is in the record."""

    def never_called(**_: object) -> None:
        raise AssertionError("a reader runs nothing")

    return {tool.name: never_called for tool in agent.tools if tool.kind == "function"}


class _NoMemory:
    """The store of a reader, who finds what was loaded in the record."""

    def load(self, _: str, /) -> list[Json]:
        raise AssertionError("a reader loads nothing")

    def append(self, _: str, __: tuple[Json, ...], /) -> None: ...

    def replace(self, _: str, __: tuple[Json, ...], /) -> None: ...

    def acquire(self, _: str, /) -> Callable[[], None] | None:
        return None


_NO_MEMORY = _NoMemory()


def _answer_to_json(said: Decision) -> Json:
    return {"result": said.value} if isinstance(said, Rewrite) else asdict(said)


def _answer_from(value: Any) -> Decision:
    return Rewrite(value["result"]) if "result" in value else Verdict(**value)
