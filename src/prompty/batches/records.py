"""Records: the JSON object written for each row, with its result or its failure. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from prompty.batches.rows import Row
from prompty.errors import ResultError
from prompty.model.agent import PromptAgent, create_redactor
from prompty.model.citation import Citation, ProviderCall
from prompty.model.message import Json, ToolCall, Usage
from prompty.model.paused import Paused


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRow:
    """A row to run, with its id and its inputs without sensitive values.

    `interrupted` counts the processes that died while they ran it. Each of them may have paid for it.
    """

    row: Row
    id: str
    masked_inputs: dict[str, object]
    interrupted: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RowUsage:
    """Tokens and dollars used by one row, and the sources of its answer. `attempts` counts requests to a model, or is
    None if unknown."""

    usage: Usage = field(default_factory=Usage)
    cost: Decimal | None = None
    model: str | None = None
    attempts: int | None = None
    citations: tuple[Citation, ...] = ()
    provider_calls: tuple[ProviderCall, ...] = ()


@dataclass(frozen=True, slots=True)
class RowFailure:
    """The reason why a row has no result: the error's class and message. `details` are the reason and the answer of a
    `ResultError`."""

    kind: str
    message: str
    details: Json = field(default_factory=dict)


def build_result(planned: PlannedRow, result: object, usage: RowUsage) -> Json:
    """Return the record of a row that succeeded."""
    if isinstance(result, list):  # tool calls; any other result is already JSON data
        result = [item.to_json() if isinstance(item, ToolCall) else item for item in result]
    outcome: Json = {"result": result}
    if usage.citations:
        outcome["citations"] = [citation.to_json() for citation in usage.citations]
    if usage.provider_calls:
        outcome["providerCalls"] = [call.to_json() for call in usage.provider_calls]
    return _build_record(planned, outcome, usage)


def build_failure(planned: PlannedRow, failure: RowFailure, usage: RowUsage) -> Json:
    """Return the record of a row that failed."""
    error: Json = {"class": failure.kind, "message": failure.message, **failure.details}
    return _build_record(planned, {"error": error}, usage)


def _build_record(planned: PlannedRow, outcome: Json, used: RowUsage) -> Json:
    counts = {"attempts": used.attempts, "interrupted": planned.interrupted or None}
    return {
        "id": planned.id,
        "row": planned.row.number,
        "inputs": planned.masked_inputs,
        **outcome,
        "usage": {name: count for name, count in used.usage.to_json().items() if count is not None},
        "cost": None if used.cost is None else float(used.cost),
        "model": used.model,
        **{name: count for name, count in counts.items() if count is not None},
    }


def describe_error(error: BaseException, agent: PromptAgent, inputs: Mapping[str, object]) -> RowFailure:
    """Describe an error without secrets and without the values of sensitive inputs."""
    redactor = create_redactor(agent)
    redactor.hide([inputs.get(declared.name) for declared in agent.inputs if declared.sensitive])
    if isinstance(error, ResultError):
        details: Json = {"reason": error.reason, "answer": redactor.mask(error.text)}
        return RowFailure("ResultError", redactor.mask(error.for_command_line()), details)
    return RowFailure(type(error).__name__, redactor.mask(str(error)))


def describe_pause(paused: Paused, fix: str) -> RowFailure:
    """Describe a row that needs approval. `fix` says how to approve it."""
    names = ", ".join(sorted({call.name for call in paused.pending}))
    return RowFailure("Paused", f"approval is needed for: {names}\n    {fix}")


def encode_record(record: Json) -> bytes:
    """Encode a record as one line of JSON. Lone surrogates, which UTF-8 cannot encode, are escaped."""
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(record, allow_nan=False).encode() + b"\n"


def parse_cost(record: Mapping[str, object]) -> Decimal:
    cost = record.get("cost")
    return Decimal(str(cost)) if isinstance(cost, int | float) else Decimal()
