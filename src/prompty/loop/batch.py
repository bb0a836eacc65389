"""One batch of calls: read, looked at, judged, run in stages, each result in the slot of its call (L1–L5)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from prompty.errors import ArgumentsError, Cancelled, ToolError
from prompty.loop.approval import needs_approval
from prompty.loop.effects import (
    AskGate,
    CallTools,
    CheckGuardrail,
    Checkpoint,
    Emit,
    Loop,
    OfferedTool,
    PlannedCall,
    Rewrite,
    Unknown,
    Verdict,
)
from prompty.loop.gate import ALLOW, later, verdicts
from prompty.loop.guardrails import read
from prompty.model.event import ToolGated
from prompty.model.message import Json, Message, ToolCall
from prompty.model.paused import GatedCall
from prompty.safety.redaction import MASK
from prompty.tools.arguments import Validator, check_arguments, final_arguments, validator_of
from prompty.tools.results import error_message, result_message

Slots = list[Message | None]
Planned = dict[int, PlannedCall]


class Offered(dict[str, OfferedTool]):
    """The tools of a run by name, with what checks their arguments, and whether a person may have to be asked."""

    def __init__(self, tools: Iterable[OfferedTool]) -> None:
        super().__init__((tool.function.name, tool) for tool in tools)
        self.validators = {name: _validator(tool) for name, tool in self.items()}
        self.may_ask = any(policy not in (None, "never") for tool in self.values() for policy in tool.approval)


def _validator(tool: OfferedTool) -> Validator:
    try:
        return validator_of(tool.function.parameters)
    except ValueError as error:
        raise ToolError(
            f"the schema of the tool '{tool.function.name}' cannot be used: {error}",
            "Correct it, or leave the tool out.",
        ) from None


def planned_calls(calls: Sequence[ToolCall], offered: Offered, key: str, slots: Slots) -> Planned:
    """The calls that may run, by position; the others have their results already."""
    planned: Planned = {}
    for position, call in enumerate(calls):
        if slots[position] is not None:  # of before the turn was paused
            continue
        tool = offered.get(call.name)
        if tool is None:
            known = ", ".join(sorted(offered)) or "none"
            slots[position] = error_message(call, f"There is no tool '{call.name}'. The tools are: {known}.")
            continue
        try:
            arguments = final_arguments(call.arguments, tool.bound, offered.validators[call.name])
        except ArgumentsError as error:
            slots[position] = error_message(call, f"Tool '{call.name}' was not run: {error}")
            continue
        planned[position] = PlannedCall(call=call, arguments=arguments, key=f"{key}:{position}", timeout=tool.timeout)
    return planned


def guarded_calls(planned: Planned, offered: Offered, slots: Slots) -> Loop[Planned]:
    """The calls that the guardrail lets through, with the arguments it leaves them."""
    passed: Planned = {}
    for position, one in planned.items():
        said = read((yield from CheckGuardrail("tool", _shown(one, offered[one.call.name]))))
        if isinstance(said, Rewrite):
            said = _rewritten(passed, position, one, said.value, offered)
        elif said.allowed:
            passed[position] = one
        if not said.allowed:
            slots[position] = result_message(one.call, f"Tool denied by guardrail: {said.reason}")
    return passed


def _rewritten(passed: Planned, position: int, one: PlannedCall, value: object, offered: Offered) -> Verdict:
    """A call with other arguments, which must fit too; what the host fills in stays the host's."""
    name = one.call.name
    given = value if isinstance(value, dict) else {}
    arguments = {key: entry for key, entry in given.items() if key not in offered[name].bound}
    try:
        check_arguments(arguments, offered.validators[name])
    except ArgumentsError as error:
        return Verdict(False, f"its rewritten arguments do not fit: {error}")
    passed[position] = replace(one, arguments=arguments)
    return ALLOW


def asked_calls(planned: Planned, offered: Offered) -> tuple[GatedCall, ...]:
    """The calls of a batch as a gate sees them."""
    return tuple(_shown(one, offered[one.call.name]) for one in planned.values())


def _shown(one: PlannedCall, tool: OfferedTool) -> GatedCall:
    arguments: Json = {**one.arguments, **dict.fromkeys(tool.bound, MASK)}
    return GatedCall(
        id=one.call.id,
        name=one.call.name,
        arguments=arguments,
        key=one.key,
        needs_approval=needs_approval(tool.approval, one.arguments),
    )


def judgement(asked: tuple[GatedCall, ...], *, gated: bool, decided: Mapping[str, Verdict]) -> Loop[list[Verdict]]:
    """A verdict for each call: what a person decided meanwhile, else what the gate says to the whole batch at once.
    Without a gate, calls that need nobody's approval may run, and the others wait."""
    if decided:
        return [decided.get(call.key) or later() for call in asked]
    if gated and asked:
        return verdicts((yield from AskGate(asked)), len(asked))
    return [later() if call.needs_approval else ALLOW for call in asked]


def allowed_calls(planned: Planned, said: Sequence[Verdict], slots: Slots) -> Loop[Planned]:
    """The calls that may run; the others get the reason why not as their result."""
    allowed: Planned = {}
    for (position, one), verdict in zip(planned.items(), said, strict=True):
        yield from Emit(ToolGated(one.call, verdict.allowed, verdict.reason))
        if verdict.allowed:
            allowed[position] = one
        else:
            reason = f": {verdict.reason}" if verdict.reason else ""
            slots[position] = result_message(one.call, f"Tool '{one.call.name}' was denied{reason}")
    return allowed


def open_calls(
    planned: Planned, unknown: Sequence[int], offered: Offered, slots: Slots
) -> list[tuple[GatedCall, Verdict]]:
    """The calls that have no result yet: a person is asked about the unknown ones, the others may run as before."""
    left = {position: one for position, one in planned.items() if slots[position] is None}
    said = [later() if position in unknown else ALLOW for position in left]
    return list(zip(asked_calls(left, offered), said, strict=True))


def run_calls(
    planned: Planned, offered: Offered, slots: Slots, *, sequential: bool, max_parallel: int | None
) -> Loop[list[int]]:
    """Run what is planned, stage by stage. After a stage with calls of which nobody knows what they did, nothing more
    runs; their positions are the result."""
    alone = [position for position, one in planned.items() if sequential or offered[one.call.name].sequential]
    for stage in stages(list(planned), alone):
        calls = tuple(planned[position] for position in stage)
        results = yield from CallTools(calls=calls, max_parallel=max_parallel)
        answered = dict(zip(stage, results, strict=True))
        for position, result in answered.items():
            slots[position] = None if isinstance(result, Unknown) else result
        yield from Checkpoint()
        if None in results:
            raise Cancelled
        if unknown := [position for position, result in answered.items() if isinstance(result, Unknown)]:
            return unknown
    return []


def stages(positions: Sequence[int], alone: Sequence[int]) -> Iterator[list[int]]:
    """Positions in stages that follow each other: one that runs alone parts those before it from those after it."""
    for is_alone, group in groupby(positions, key=lambda position: position in alone):
        if is_alone:
            yield from ([position] for position in group)
        else:
            yield list(group)
