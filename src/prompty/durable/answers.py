"""What answers an effect, as JSON: what a step keeps, and what a replay reads.

Everything here is a pair: what one function writes, the other one reads. What cannot be read is refused.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from prompty import errors
from prompty.errors import PromptyError, RunRefused, StreamCut
from prompty.loop.effects import (
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
    Verdict,
)
from prompty.loop.policy import parse_guardrail, parse_verdicts
from prompty.model.message import Json, Message
from prompty.model.reply import Reply, reply_from
from prompty.model.request import Function
from prompty.pipeline.messages import message_from

# What reading raises when JSON is not what was written.
_MISREAD = (AttributeError, LookupError, TypeError, ValueError)
UNKNOWN: Json = {"unknown": True}
TOOLS = "tools"


class StepNames:
    """Names for the steps of a run: the same in every execution, and no two alike. Calls have keys of their own."""

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
    CallModel: "model",
    AskGate: "gate",
    CheckGuardrail: "guardrail",
    DescribeTools: TOOLS,
}


def answer_to_json(effect: Effect[object], answer: object) -> object:
    """What a driver answered to an effect."""
    match effect:
        case CallModel():
            return cast(Reply, answer).to_json()
        case DescribeTools():
            return [asdict(tool) for tool in cast(Sequence[OfferedTool], answer)]
        case AskGate(calls):
            return [verdict_to_json(verdict) for verdict in parse_verdicts(answer, len(calls))]
        case CheckGuardrail():
            said = parse_guardrail(answer)
            return {"rewrite": _rewritten(said.value)} if isinstance(said, Rewrite) else verdict_to_json(said)
    return answer


def verdict_to_json(verdict: Verdict) -> Json:
    return {"allowed": verdict.allowed, "reason": verdict.reason, "later": verdict.deferred}


def verdict_from(value: Any) -> Verdict:
    return Verdict(value["allowed"], value["reason"], value["later"])


def _rewritten(value: object) -> object:
    """What a guardrail put in the place of messages, of an answer, or of arguments."""
    if isinstance(value, Message):
        return {"message": value.to_json()}
    if isinstance(value, list | tuple):
        return [_rewritten(entry) for entry in value]
    return value


def answer_from(effect: Effect[object], value: Any, place: str) -> object:
    """Read what `answer_to_json` wrote."""
    try:
        return _answer_from(effect, value)
    except _MISREAD as error:
        raise RunRefused(place, f"it cannot be read: {error}") from error


def _answer_from(effect: Effect[object], value: Any) -> object:
    match effect:
        case CallModel():
            return reply_from(value)
        case DescribeTools():
            return tuple(_offered(entry) for entry in value)
        case AskGate():
            return [verdict_from(entry) for entry in value]
        case CheckGuardrail():
            return Rewrite(_put(value["rewrite"])) if "rewrite" in value else verdict_from(value)
    return value


def _offered(value: dict[str, Any]) -> OfferedTool:
    lists = {"bound": tuple(value["bound"]), "approval": tuple(value["approval"])}
    return OfferedTool(**{**value, **lists, "function": Function(**value["function"])})


def _put(value: Any) -> object:
    if isinstance(value, list):
        return [_put(entry) for entry in value]
    return message_from(value["message"]) if isinstance(value, dict) and value.keys() == {"message"} else value


def result_to_json(result: Message | OutcomeUnknown) -> Json:
    """What became of a call."""
    return UNKNOWN if isinstance(result, OutcomeUnknown) else {"message": result.to_json()}


def result_from(value: Any, place: str) -> Message | OutcomeUnknown:
    """Read what `result_to_json` wrote."""
    try:
        return OutcomeUnknown() if value == UNKNOWN else message_from(value["message"])
    except _MISREAD as error:
        raise RunRefused(place, f"it cannot be read: {error}") from error


def error_to_json(error: PromptyError) -> Json:
    """A failure as a value: its class, its words, and what it says beside them."""
    said = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | None)}
    partial = error.partial.to_json() if isinstance(error, StreamCut) and isinstance(error.partial, Reply) else None
    words = [part for part in error.args if isinstance(part, str)]
    messages = [message.to_json() for message in error.messages]
    return {"class": type(error).__name__, "words": words, "said": said, "partial": partial, "messages": messages}


def error_from(value: Any, place: str) -> PromptyError:
    """Read what `error_to_json` wrote."""
    try:
        found = getattr(errors, value["class"])
        error: PromptyError = found.__new__(found)
        error.args = tuple(value["words"])
        vars(error).update(value["said"])
        if isinstance(error, StreamCut):
            error.partial = reply_from(value["partial"]) if value["partial"] else None
        error.messages = tuple(message_from(message) for message in value["messages"])
    except _MISREAD as misread:
        raise RunRefused(place, f"it cannot be read: {misread}") from misread
    return error
