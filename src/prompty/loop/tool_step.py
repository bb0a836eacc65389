"""One batch of tool calls: parse, guard, approve, run in stages. Each result goes to its call's slot."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import groupby

from prompty.errors import ArgumentsError, Cancelled, PausedRefused, ToolError
from prompty.loop.effects import (
    AskGate,
    CallTools,
    CheckGuardrail,
    Checkpoint,
    Emit,
    Loop,
    OfferedTool,
    OutcomeUnknown,
    PlannedCall,
    Rewrite,
    Verdict,
)
from prompty.loop.policy import (
    ALLOW,
    deny,
    get_tool_policies,
    later,
    needs_approval,
    parse_guardrail,
    parse_verdicts,
)
from prompty.model.event import ToolGated
from prompty.model.message import APPROVAL, Message, ToolCall
from prompty.model.paused import GatedCall, mask_bound
from prompty.safety.json import copy_json
from prompty.safety.redaction import MASK
from prompty.safety.schemas import Validator, get_validator
from prompty.tools.calls import (
    complete_arguments,
    drop_defaults,
    error_message,
    is_valid,
    parse_arguments,
    resolve_arguments,
    result_message,
)

_NO_GATE = "no gate was there to approve it"
Slots = list[Message | None]
Planned = dict[int, PlannedCall]


class Toolset(dict[str, OfferedTool]):
    """The tools of a run by name, with their argument validators."""

    def __init__(self, tools: Iterable[OfferedTool]) -> None:
        super().__init__((tool.function.name, tool) for tool in tools)
        self.validators: dict[str, Validator] = {name: _compile_validator(tool) for name, tool in self.items()}
        policies = (policy for tool in self.values() for policy in tool.approval)
        self.has_policies: bool = any(policy not in (None, "never") for policy in policies)
        self._hashes: dict[str, str] = {}

    def definition(self, name: str) -> str:
        """Return a hash of a tool's definition, and the names of its bound parameters and of their variables."""
        if name not in self._hashes:
            tool = self[name]
            shown: list[object] = [tool.function.description, tool.function.parameters, sorted(tool.bound)]
            if tool.variables:
                shown.append(tool.variables)
            self._hashes[name] = sha256(json.dumps(shown, sort_keys=True, default=str).encode()).hexdigest()
        return self._hashes[name]


def _compile_validator(tool: OfferedTool) -> Validator:
    try:
        return get_validator(json.dumps(tool.function.parameters))
    except ValueError as error:
        raise ToolError(
            f"the schema of the tool '{tool.function.name}' is invalid: {error}",
            "Correct it, or remove the tool.",
        ) from None


def plan_calls(calls: Sequence[ToolCall], toolset: Toolset, key: str, slots: Slots) -> Planned:
    """Return the valid calls by position. An invalid call gets an error as its result in `slots`."""
    planned: Planned = {}
    for position, call in enumerate(calls):
        if slots[position] is not None:  # answered before the turn was paused
            continue
        if call.asks_approval:
            _plan_approval(planned, position, call, key, slots)
            continue
        tool = toolset.get(call.name)
        if tool is None:
            slots[position] = _no_such_tool(call, toolset)
            continue
        try:
            arguments = resolve_arguments(call.arguments, tool.bound, toolset.validators[call.name], tool.defaults)
        except ArgumentsError as error:
            slots[position] = error_message(call, f"Tool '{call.name}' was not run: {error}")
            continue
        planned[position] = PlannedCall(call=call, arguments=arguments, key=f"{key}:{position}", timeout=tool.timeout)
    return planned


def _plan_approval(planned: Planned, position: int, call: ToolCall, key: str, slots: Slots) -> None:
    """Plan the question whether the provider may run a call. Its schema is the provider's affair."""
    try:
        arguments = parse_arguments(call.arguments)
    except ArgumentsError as error:
        slots[position] = error_message(call, f"Tool '{call.name}' was denied: {error}")
        return
    planned[position] = PlannedCall(call=call, arguments=arguments, key=f"{key}:{position}")


def _no_such_tool(call: ToolCall, toolset: Toolset) -> Message:
    known = ", ".join(sorted(toolset)) or "none"
    return error_message(call, f"There is no tool '{call.name}'. The available tools are: {known}.")


def restore_calls(
    calls: Sequence[ToolCall], kept: Mapping[str, GatedCall], toolset: Toolset, key: str, slots: Slots
) -> Planned:
    """Return the calls of a paused turn with the arguments that were shown for approval. They are not parsed or guarded
    again."""
    planned: Planned = {}
    for position, call in enumerate(calls):
        if slots[position] is not None:
            continue
        shown, tool = kept.get(f"{key}:{position}"), toolset.get(call.name)
        if shown is None:
            raise PausedRefused(f"it belongs to another run than '{key}'", "Pass it as `turn` returned it.")
        if call.asks_approval:
            planned[position] = PlannedCall(call=call, arguments=copy_json(shown.arguments), key=shown.key)
            continue
        if tool is None:
            slots[position] = _no_such_tool(call, toolset)
            continue
        if _has_other_bindings(shown, tool) or not tool.defaults.keys() <= shown.arguments.keys():
            raise PausedRefused(
                f"the bindings or defaults of the tool '{call.name}' have changed since approval was requested",
                "Resume it with the original file and tools, or start a new turn.",
            )
        arguments = {name: copy_json(value) for name, value in shown.arguments.items() if name not in shown.bound}
        validator = toolset.validators[call.name]
        if not is_valid(arguments, validator) and not is_valid(drop_defaults(arguments, tool.defaults), validator):
            slots[position] = error_message(call, f"Tool '{call.name}' was not run: its parameters have changed")
            continue
        planned[position] = PlannedCall(call=call, arguments=arguments, key=shown.key, timeout=tool.timeout)
    return planned


def _has_other_bindings(shown: GatedCall, tool: OfferedTool) -> bool:
    """Return True if other parameters are bound now, or to other variables. Pauses of older releases name none."""
    masks = {name: mask_bound(tool.variables.get(name)) for name in tool.bound}
    return set(shown.bound) != masks.keys() or any(shown.arguments[name] not in (MASK, masks[name]) for name in masks)


def guard_calls(planned: Planned, toolset: Toolset, slots: Slots) -> Loop[Planned]:
    """Return the calls that the tool guardrail allows, with its rewritten arguments."""
    passed: Planned = {}
    for position, call in planned.items():
        verdict = parse_guardrail((yield from CheckGuardrail("tool", gated_call(call, toolset))))
        if isinstance(verdict, Rewrite) and call.call.asks_approval:
            verdict = Verdict(False, "the provider runs it, with its own arguments")
        if isinstance(verdict, Rewrite):
            verdict = _rewrite_call(passed, position, call, verdict.value, toolset)
        elif verdict.allowed:
            passed[position] = call
        if not verdict.allowed:
            slots[position] = result_message(call.call, f"Tool denied by guardrail: {verdict.reason}")
    return passed


def _rewrite_call(passed: Planned, position: int, call: PlannedCall, value: object, toolset: Toolset) -> Verdict:
    """Replace a call's arguments, which are validated again. Bound values cannot be rewritten."""
    if not isinstance(value, dict):
        return Verdict(False, "its rewritten arguments are not a mapping")
    name = call.call.name
    arguments = {key: copy_json(entry) for key, entry in value.items() if key not in toolset[name].bound}
    try:
        arguments = complete_arguments(arguments, toolset.validators[name], toolset[name].defaults)
    except ArgumentsError as error:
        return Verdict(False, f"its rewritten arguments are invalid: {error}")
    passed[position] = replace(call, arguments=arguments)
    return ALLOW


def gated_call(planned: PlannedCall, toolset: Toolset) -> GatedCall:
    """Return a call as the gate sees it: bound values are masks with their variables, and the arguments are a copy."""
    if planned.call.asks_approval:
        call, arguments = planned.call, copy_json(planned.arguments)
        return GatedCall(id=call.id, name=call.name, arguments=arguments, key=planned.key, needs_approval=True)
    tool = toolset[planned.call.name]
    return GatedCall(
        id=planned.call.id,
        name=planned.call.name,
        arguments={
            **copy_json(planned.arguments),
            **{name: mask_bound(tool.variables.get(name)) for name in tool.bound},
        },
        key=planned.key,
        needs_approval=needs_approval(tool.approval, planned.arguments),
        bound=tool.bound,
        definition=toolset.definition(planned.call.name),
    )


def gated_calls(planned: Planned, toolset: Toolset) -> tuple[GatedCall, ...]:
    return tuple(gated_call(call, toolset) for call in planned.values())


def decide_calls(
    planned: Planned, toolset: Toolset, *, gated: bool, decided: Mapping[str, Verdict], approval: object = None
) -> Loop[list[Verdict]]:
    """Return a verdict for each call: the decision made during a pause, or else the gate's.

    Without a gate, calls that need no approval may run, and the others are deferred. What a provider asks about is
    deferred if the host's policies say so, and otherwise denied: the host may not know that it could be asked.
    """
    if decided:
        return [decided.get(call.key) or later() for call in planned.values()]
    calls = gated_calls(planned, toolset)
    if gated and calls:
        return parse_verdicts((yield from AskGate(calls)), len(calls))
    return [
        deny(_NO_GATE)
        if asked.call.asks_approval and not needs_approval(get_tool_policies(approval, call.name), asked.arguments)
        else later()
        if call.needs_approval
        else ALLOW
        for asked, call in zip(planned.values(), calls, strict=True)
    ]


def allow_calls(planned: Planned, verdicts: Sequence[Verdict], slots: Slots) -> Loop[Planned]:
    """Return the calls that may run. A denied call gets the reason as its result."""
    allowed: Planned = {}
    for (position, call), verdict in zip(planned.items(), verdicts, strict=True):
        yield Emit(ToolGated(call.call, verdict.allowed, verdict.reason))
        if verdict.allowed and call.call.asks_approval:
            slots[position] = replace(result_message(call.call, "Approved."), opaque={APPROVAL: True})
        elif verdict.allowed:
            allowed[position] = call
        else:
            reason = f": {verdict.reason}" if verdict.reason else ""
            slots[position] = result_message(call.call, f"Tool '{call.call.name}' was denied{reason}")
    return allowed


def unanswered_calls(
    planned: Planned, uncertain: Sequence[int], toolset: Toolset, slots: Slots
) -> list[tuple[GatedCall, Verdict]]:
    """Return the calls without a result. Uncertain calls are deferred, the others may still run."""
    left = {position: call for position, call in planned.items() if slots[position] is None}
    verdicts = [later() if position in uncertain else ALLOW for position in left]
    return list(zip(gated_calls(left, toolset), verdicts, strict=True))


def run_calls(
    planned: Planned, toolset: Toolset, slots: Slots, *, sequential: bool, max_parallel: int | None
) -> Loop[list[int]]:
    """Run the planned calls stage by stage. Stop after a stage with calls of unknown outcome, and return their
    positions."""
    alone = [position for position, call in planned.items() if sequential or toolset[call.call.name].sequential]
    for stage in split_stages(list(planned), alone):
        calls = tuple(planned[position] for position in stage)
        results = dict(zip(stage, (yield from CallTools(calls=calls, max_parallel=max_parallel)), strict=True))
        for position, result in results.items():
            slots[position] = None if isinstance(result, OutcomeUnknown) else result
        yield from Checkpoint()
        if None in results.values():
            raise Cancelled
        if uncertain := [position for position, result in results.items() if isinstance(result, OutcomeUnknown)]:
            return uncertain
    return []


def split_stages(positions: Sequence[int], alone: Sequence[int]) -> Iterator[list[int]]:
    """Split positions into consecutive stages. Each position in `alone` is its own stage."""
    for is_alone, group in groupby(positions, key=lambda position: position in alone):
        if is_alone:
            yield from ([position] for position in group)
        else:
            yield list(group)
