"""Codec: answers to effects as the JSON that steps store and a replay reads.

The functions come in pairs: `x_to_json` writes, `x_from` reads and raises `RunRefused` for anything else.
"""

from collections.abc import Sequence
from typing import Any, cast

from pydantic import TypeAdapter

from prompty import errors
from prompty.durable.verdicts import verdict_from_json, verdict_to_json
from prompty.errors import (
    InputError,
    InputProblem,
    LoadError,
    Problem,
    PromptyError,
    Refused,
    RunRefused,
    StreamCut,
)
from prompty.loop.effects import (
    AbandonAnswer,
    AskGate,
    CallModel,
    CallTools,
    CheckGuardrail,
    DescribeTools,
    Effect,
    OfferedTool,
    OutcomeUnknown,
    PlannedCall,
    Rewrite,
    Summarise,
)
from prompty.loop.policy import parse_guardrail, parse_verdicts
from prompty.model.message import Json, Message, Reply
from prompty.tools.calls import Metered

# Raised by a reader when the JSON does not have the shape that was written.
_MISREAD = (AttributeError, LookupError, TypeError, ValueError)
_METERED: TypeAdapter[Metered] = TypeAdapter(Metered)
_OFFERED: TypeAdapter[tuple[OfferedTool, ...]] = TypeAdapter(tuple[OfferedTool, ...])
_PROBLEMS: TypeAdapter[tuple[Problem, ...]] = TypeAdapter(tuple[Problem, ...])
UNKNOWN: Json = {"unknown": True}
MODEL, TOOLS = "model", "tools"


class StepNames:
    """Unique step names, the same in every execution of a run. Tool calls are named by their key."""

    def __init__(self) -> None:
        self._count = 0

    def of(self, effect: Effect[object]) -> str:
        self._count += 1
        return f"{_NAMES.get(type(effect), type(effect).__name__.lower())}:{self._count}"

    @staticmethod
    def of_call(planned: PlannedCall) -> str:
        return f"tool:{planned.key}"

    @staticmethod
    def of_intent(stage: CallTools) -> str:
        return f"intent:{stage.calls[0].key}"


_NAMES: dict[type[object], str] = {
    CallModel: MODEL,
    AskGate: "gate",
    CheckGuardrail: "guardrail",
    DescribeTools: TOOLS,
    AbandonAnswer: "abandon",
}


def answer_to_json(effect: Effect[object], answer: object) -> object:
    """Encode a driver's answer to an effect."""
    match effect:
        case CallModel():
            return cast(Reply, answer).to_json()
        case DescribeTools():
            return _OFFERED.dump_python(tuple(cast(Sequence[OfferedTool], answer)), mode="json")
        case AskGate(calls):
            return [verdict_to_json(verdict) for verdict in parse_verdicts(answer, len(calls))]
        case CheckGuardrail():
            verdict = parse_guardrail(answer)
            return (
                {"rewrite": _rewrite_to_json(verdict.value)}
                if isinstance(verdict, Rewrite)
                else verdict_to_json(verdict)
            )
        case Summarise() if isinstance(answer, Metered):
            return _METERED.dump_python(answer, mode="json")
    return answer


def _rewrite_to_json(value: object) -> object:
    """Encode the messages, reply or arguments that a guardrail returned."""
    if isinstance(value, Message):
        return {"message": value.to_json()}
    if isinstance(value, list | tuple):
        return [_rewrite_to_json(entry) for entry in value]
    return value


def answer_from(effect: Effect[object], value: Any, place: str) -> object:
    """Decode the result of `answer_to_json`. `place` names the step in errors."""
    try:
        return _answer_from(effect, value)
    except _MISREAD as error:
        raise RunRefused(place, f"it cannot be read: {error}") from error


def _answer_from(effect: Effect[object], value: Any) -> object:
    match effect:
        case CallModel():
            return Reply.from_json(value)
        case DescribeTools():
            return _OFFERED.validate_python(value)
        case AskGate():
            return [verdict_from_json(entry) for entry in value]
        case CheckGuardrail():
            return Rewrite(_rewrite_from(value["rewrite"])) if "rewrite" in value else verdict_from_json(value)
        case Summarise() if isinstance(value, dict):
            return _METERED.validate_python(value)
    return value


def _rewrite_from(value: Any) -> object:
    if isinstance(value, list):
        return [_rewrite_from(entry) for entry in value]
    return Message.from_json(value["message"]) if isinstance(value, dict) and value.keys() == {"message"} else value


def result_to_json(result: Message | OutcomeUnknown) -> Json:
    """Encode the result of a tool call."""
    return UNKNOWN if isinstance(result, OutcomeUnknown) else {"message": result.to_json()}


def result_from(value: Any, place: str) -> Message | OutcomeUnknown:
    """Decode the result of `result_to_json`."""
    try:
        return OutcomeUnknown() if value == UNKNOWN else Message.from_json(value["message"])
    except _MISREAD as error:
        raise RunRefused(place, f"it cannot be read: {error}") from error


def error_to_json(error: PromptyError) -> Json:
    """Encode an error: its class, its arguments and its simple attributes."""
    attributes = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | None)}
    arrived = error.partial if isinstance(error, StreamCut) else error.reply if isinstance(error, Refused) else None
    stored: Json = {
        "class": type(error).__name__,
        "arguments": [part for part in error.args if isinstance(part, str)],
        "attributes": attributes,
        "partial": arrived.to_json() if isinstance(arrived, Reply) else None,
        "messages": [message.to_json() for message in error.messages],
    }
    match error:
        case LoadError(problems=problems):
            stored["problems"] = _PROBLEMS.dump_python(problems)
        case InputError(problems=found):
            stored["problems"] = [problem._asdict() for problem in found]
    return stored


def error_from(value: Any, place: str) -> PromptyError:
    """Decode the result of `error_to_json`."""
    try:
        error_class = getattr(errors, value["class"])
        error: PromptyError = error_class.__base__.__new__(error_class)  # that of `FileMissing` is of an OSError
        error.args = tuple(value["arguments"])
        vars(error).update(value["attributes"])
        arrived = Reply.from_json(value["partial"]) if value["partial"] else None
        if isinstance(error, StreamCut):
            error.partial = arrived
        if isinstance(error, Refused):
            error.reply = arrived
        if isinstance(error, LoadError):
            error.problems = _PROBLEMS.validate_python(value["problems"])
        if isinstance(error, InputError):
            error.problems = tuple(InputProblem(**problem) for problem in value["problems"])
        error.messages = tuple(Message.from_json(message) for message in value["messages"])
    except _MISREAD as misread:
        raise RunRefused(place, f"it cannot be read: {misread}") from misread
    return error
