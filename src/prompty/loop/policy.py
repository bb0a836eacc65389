"""Decide whether a call may run: the gate's verdicts, approval policies, and guardrails.

All three fail closed: an answer that is not clearly a yes is a no (L2). An approval policy, from the file
(`approvalMode`) or from the host, is `never`, `always`, or `{when: {amount: {minimum: 100}}}`: ask when the named
arguments match these JSON Schemas. The stricter policy wins, and a policy that is not understood means `always`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from prompty.loop.effects import Rewrite, Verdict
from prompty.model.message import Json, Message
from prompty.model.paused import GatedCall
from prompty.tools.arguments import get_validator

ALLOW = Verdict(True)
NO_VERDICT = Verdict(False, "the gate gave no verdict")


def deny(reason: str = "") -> Verdict:
    """Return the verdict that keeps a call from running. The model is told the reason."""
    return Verdict(False, reason)


def later() -> Verdict:
    """Return the verdict that defers the decision: the turn pauses, and `resume` continues it with the answer."""
    return Verdict(False, "", deferred=True)


def use_result(value: object) -> Rewrite:
    """Answer a call whose outcome is unknown: it has happened, and this is its result.

    The other answers to such a call are `True`, which runs it again, and `deny("why")`, which reports it as failed.
    """
    return Rewrite(value)


def parse_verdicts(answer: object, count: int) -> list[Verdict]:
    """Read what a gate returned as one verdict for each of `count` calls."""
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes) or len(answer) != count:
        return [NO_VERDICT] * count
    return [_parse_verdict(entry) for entry in answer]


def _parse_verdict(entry: object) -> Verdict:
    if isinstance(entry, Verdict):
        allowed = entry.allowed is True and not entry.deferred
        return entry if allowed else Verdict(False, entry.reason, entry.deferred is True)
    if entry is True:
        return ALLOW
    return Verdict(False) if entry is False else NO_VERDICT


Answer = object | Awaitable[object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Guardrails:
    """Functions of the host, sync or async. Each returns True, `deny("reason")`, or `rewrite(value)`.

    `input` sees the messages of a request and may replace them; `output` sees the answer as a message and may replace
    its text; `tool` sees a call and may replace its arguments.
    """

    input: Callable[[list[Message]], Answer] | None = None
    output: Callable[[Message], Answer] | None = None
    tool: Callable[[GatedCall], Answer] | None = None

    def kinds(self) -> frozenset[str]:
        """Return the names of the guardrails that are set."""
        return frozenset(kind for kind in ("input", "output", "tool") if getattr(self, kind))


def rewrite(value: object) -> Rewrite:
    """Let it pass, with this value in its place."""
    return Rewrite(value)


def parse_guardrail(answer: object) -> Verdict | Rewrite:
    """Read what a guardrail returned."""
    if isinstance(answer, Verdict | Rewrite):
        return answer
    if answer is True:
        return ALLOW
    if answer is False:
        return Verdict(False)
    return Verdict(False, "the guardrail gave no verdict") if answer is None else NO_VERDICT


def needs_approval(policies: Iterable[object], arguments: Json) -> bool:
    """Return True if one of the policies asks a person about a call with these arguments."""
    return any(_requires_approval(policy, arguments) for policy in policies)


def describe_policy(policy: object) -> str:
    """Say in words when a policy asks."""
    match policy:
        case None | "never":
            return "never asks"
        case {"when": dict(conditions), **others} if not others:
            return f"asks for some values of {', '.join(conditions)}"
    return "always asks"


def _requires_approval(policy: object, arguments: Json) -> bool:
    match policy:
        case None | "never":
            return False
        case {"when": dict(conditions), **others} if not others:
            try:
                schema: Json = {"type": "object", "properties": conditions, "required": list(conditions)}
                return get_validator(schema).is_valid(arguments)
            except ValueError:
                return True  # not a schema: it cannot have meant "never ask"
    return True
