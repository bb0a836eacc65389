"""Decide whether a call may run: the gate's verdicts, approval policies, and guardrails.

All three fail closed: anything but an explicit approval is a denial. An approval policy, from the file
(`approvalMode`) or from the host, is `never`, `always`, or `{when: {amount: {minimum: 100}}}`: ask if the named
arguments match these JSON Schemas. A missing argument matches. The stricter policy wins, and an unknown policy means
`always`. All three see the arguments of the actual call: with defaults, and as rewritten by a guardrail.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prompty.errors import RequestError, WrongArgument
from prompty.loop.effects import Rewrite, Verdict
from prompty.model.conditions import get_conditions
from prompty.model.message import Json, Message
from prompty.model.paused import GatedCall
from prompty.safety.schemas import get_validator

ALLOW = Verdict(True)


def deny(reason: str = "") -> Verdict:
    """Return a verdict that denies a call. The model sees the reason."""
    return Verdict(False, reason)


def later() -> Verdict:
    """Return a verdict that defers the decision: the turn pauses, and `resume` continues it with the answer."""
    return Verdict(False, "", deferred=True)


def use_result(value: object) -> Rewrite:
    """Return the answer to a call whose outcome is unknown: it took effect, with this result.

    The other answers to such a call are `True`, which runs it again, and `deny("why")`, which reports it as failed.
    """
    return Rewrite(value)


def parse_verdicts(answer: object, count: int) -> list[Verdict]:
    """Parse a gate's answer as one verdict for each of `count` calls. Raise RequestError for anything else: denying the
    calls would hide a mistake in the gate."""
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes):
        raise RequestError(f"the gate returned {_name_value(answer)} instead of a list of verdicts", _GATE_FIX)
    if len(answer) != count:
        raise RequestError(f"the gate returned {len(answer)} verdicts for {count} calls", _GATE_FIX)
    return [parse_verdict(entry, "a verdict of the gate") for entry in answer]


_GATE_FIX = "Return one verdict for each call, in order: [True for call in calls]."


def parse_verdict(entry: object, subject: str) -> Verdict:
    """Parse one verdict. Raise RequestError, naming `subject`, for anything else."""
    if entry is True:
        return ALLOW
    if entry is False:
        return Verdict(False)
    if isinstance(entry, Verdict) and {type(entry.allowed), type(entry.deferred)} == {bool}:
        return entry if entry.allowed and not entry.deferred else Verdict(False, str(entry.reason), entry.deferred)
    raise RequestError(f"{subject} is {_name_value(entry)}", "Return True, False, deny('reason') or later().")


def _name_value(value: object) -> str:
    """Return the repr of a plain value, or the type of any other, whose text may be long or private."""
    return f"{value!r:.100}" if value is None or isinstance(value, bool | int | str) else f"a {type(value).__name__}"


MaybeAwaitable = object | Awaitable[object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Guardrails:
    """Sync or async functions that check a run. Each returns True, `deny("reason")`, or `rewrite(value)`.

    `input` gets the messages of a request and may replace them. `output` gets the answer as a message and may replace
    its text. `tool` gets a call and may replace its arguments.
    """

    input: Callable[[list[Message]], MaybeAwaitable] | None = None
    output: Callable[[Message], MaybeAwaitable] | None = None
    tool: Callable[[GatedCall], MaybeAwaitable] | None = None

    def __post_init__(self) -> None:
        for kind in ("input", "output", "tool"):
            value = getattr(self, kind)
            if value is not None and not callable(value):
                raise WrongArgument(
                    f"Guardrails({kind}=…)", value, "a function", "Pass the function, without calling it."
                )

    def kinds(self) -> frozenset[str]:
        """Return the names of the guardrails that are set."""
        return frozenset(kind for kind in ("input", "output", "tool") if getattr(self, kind))


def rewrite(value: object) -> Rewrite:
    """Return a guardrail's answer that replaces the checked value."""
    return Rewrite(value)


def parse_guardrail(answer: object) -> Verdict | Rewrite:
    """Parse a guardrail's answer. An invalid answer is a denial."""
    if isinstance(answer, Verdict | Rewrite):
        return answer
    if answer is True:
        return ALLOW
    if answer is False:
        return Verdict(False)
    return Verdict(False, "the guardrail did not return a verdict")


def needs_approval(policies: Iterable[object], arguments: Json) -> bool:
    """Return True if any policy requires approval of a call with these arguments."""
    return any(_requires_approval(policy, arguments) for policy in policies)


def _requires_approval(policy: object, arguments: Json) -> bool:
    if policy in (None, "never"):
        return False
    conditions = get_conditions(policy)
    if not conditions:
        return True
    try:
        return get_validator(json.dumps({"properties": conditions})).is_valid(arguments)
    except ValueError:
        return True  # not a schema: it cannot have meant "never ask"


class AllPolicies(tuple[object, ...]):
    """Host policies that apply together: those that a turn was paused with, and those it is resumed with."""

    __slots__ = ()


def combine_policies(kept: Iterable[object], added: object) -> object:
    """Combine the policies of a paused turn with those that it is resumed with."""
    policies = list(kept)
    policies += [policy for policy in list_policies(added) if policy not in policies]
    return policies[0] if len(policies) == 1 else AllPolicies(policies) if policies else None


def list_policies(approval: object) -> list[object]:
    """Return the option `approval` as a list of policies."""
    if approval is None:
        return []
    return list(approval) if isinstance(approval, AllPolicies) else [approval]


def get_tool_policies(approval: object, name: str) -> tuple[object, ...]:
    """Return the host's policies for one tool. Each is a policy for all tools, or a mapping by tool."""
    if approval is None:
        return ()
    return tuple(
        policy.get(name) if isinstance(policy, Mapping) and "when" not in policy else policy
        for policy in list_policies(approval)
    )
