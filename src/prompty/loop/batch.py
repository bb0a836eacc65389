"""One batch of calls: read, judged, run in stages, each result in the slot of its call (L1–L5)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from prompty.errors import ArgumentsError, Cancelled
from prompty.loop.effects import AskGate, CallTools, Emit, GatedCall, Loop, OfferedTool, PlannedCall
from prompty.loop.gate import verdicts
from prompty.model.event import ToolGated
from prompty.model.message import Message, ToolCall
from prompty.tools.arguments import final_arguments, validator_of
from prompty.tools.results import error_message, result_message
from prompty.tracing.redaction import MASK

Slots = list[Message | None]
Planned = dict[int, PlannedCall]


class Offered(dict[str, OfferedTool]):
    """The tools of a run by name, with what checks their arguments."""

    def __init__(self, tools: Iterable[OfferedTool]) -> None:
        super().__init__((tool.function.name, tool) for tool in tools)
        self.validators = {name: validator_of(tool.function.parameters) for name, tool in self.items()}


def planned_calls(calls: Sequence[ToolCall], offered: Offered, key: str, slots: Slots) -> Planned:
    """The calls that may run, by position; the others have their results already."""
    planned: Planned = {}
    for position, call in enumerate(calls):
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


def judged_calls(planned: Planned, offered: Offered, slots: Slots) -> Loop[Planned]:
    """The calls that the gate lets through, after it was asked about all of them at once."""
    asked = tuple(_shown(one, offered[one.call.name]) for one in planned.values())
    answer = yield from AskGate(asked)
    allowed: Planned = {}
    for (position, one), verdict in zip(planned.items(), verdicts(answer, len(planned)), strict=True):
        yield from Emit(ToolGated(one.call, verdict.allowed, verdict.reason))
        if verdict.allowed:
            allowed[position] = one
        else:
            reason = f": {verdict.reason}" if verdict.reason else ""
            slots[position] = result_message(one.call, f"Tool '{one.call.name}' was denied{reason}")
    return allowed


def _shown(one: PlannedCall, tool: OfferedTool) -> GatedCall:
    arguments = {**one.arguments, **dict.fromkeys(tool.bound, MASK)}
    return GatedCall(id=one.call.id, name=one.call.name, arguments=arguments, key=one.key)


def run_calls(
    planned: Planned, offered: Offered, slots: Slots, *, sequential: bool, max_parallel: int | None
) -> Loop[None]:
    """Run what is planned, stage by stage."""
    alone = [position for position, one in planned.items() if sequential or offered[one.call.name].sequential]
    for stage in stages(list(planned), alone):
        calls = tuple(planned[position] for position in stage)
        results = yield from CallTools(calls=calls, max_parallel=max_parallel)
        for position, result in zip(stage, results, strict=True):
            slots[position] = result
        if None in results:
            raise Cancelled


def stages(positions: Sequence[int], alone: Sequence[int]) -> Iterator[list[int]]:
    """Positions in stages that follow each other: one that runs alone parts those before it from those after it."""
    for is_alone, group in groupby(positions, key=lambda position: position in alone):
        if is_alone:
            yield from ([position] for position in group)
        else:
            yield list(group)
