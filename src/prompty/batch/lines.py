"""What is written of a row, as data: its result, or why it has none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from prompty.batch.rows import Row
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, ToolCall
from prompty.model.paused import Paused
from prompty.model.reply import Usage
from prompty.redaction import MASK, masked_text


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedRow:
    """A row with its id and its inputs as they may be shown; `interrupted` is how often it was begun before by
    processes that died, each of which may have paid for it."""

    row: Row
    id: str
    shown: dict[str, object]
    interrupted: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What a row has used. `attempts` counts requests to a model; None where nobody has counted."""

    usage: Usage = field(default_factory=Usage)
    cost: Decimal | None = None
    model: str | None = None
    attempts: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a row has no result: the class of the error, and its words."""

    kind: str
    message: str


def result_line(named: NamedRow, result: object, spent: Spent) -> Json:
    return {**_named(named), "result": _plain(result), **_spent(named, spent)}


def failed_line(named: NamedRow, failure: Failure, spent: Spent) -> Json:
    return {**_named(named), "error": {"class": failure.kind, "message": failure.message}, **_spent(named, spent)}


def failure_of(error: BaseException, agent: PromptAgent, inputs: Mapping[str, object]) -> Failure:
    """An error in words that may be kept: neither secrets nor what the file calls sensitive."""
    message = masked_text(str(error))
    for declared in agent.inputs:
        if declared.sensitive and (value := inputs.get(declared.name)) not in (None, ""):
            message = message.replace(str(value), MASK)
    return Failure(type(error).__name__, message)


def failure_of_pause(paused: Paused, how: str) -> Failure:
    """A row that waits for a person has no result; `how` says how to go on."""
    names = ", ".join(sorted({call.name for call in paused.pending}))
    return Failure("Paused", f"a person must decide about: {names}\n    {how}")


def cost_in(line: Mapping[str, object]) -> Decimal:
    """What a line says that its row cost."""
    found = line.get("cost")
    return Decimal(str(found)) if isinstance(found, int | float) else Decimal()


def _named(named: NamedRow) -> Json:
    return {"id": named.id, "row": named.row.number, "inputs": named.shown}


def _spent(named: NamedRow, spent: Spent) -> Json:
    usage = {name: count for name, count in spent.usage.to_json().items() if count is not None}
    cost = None if spent.cost is None else float(spent.cost)
    counts = {"attempts": spent.attempts, "interrupted": named.interrupted or None}
    told = {name: count for name, count in counts.items() if count is not None}
    return {"usage": usage, "cost": cost, "model": spent.model, **told}


def _plain(result: object) -> object:
    """Calls that a prompt asks for, as data; every other result is data already."""
    if isinstance(result, list):
        return [one.to_json() if isinstance(one, ToolCall) else one for one in result]
    return result
