"""Find bindings and approval conditions that match no parameter, for tools whose parameters are known offline."""

from collections.abc import Collection, Iterator
from contextlib import suppress

from prompty.errors import PromptyError
from prompty.model.agent import PromptAgent
from prompty.model.conditions import get_conditions
from prompty.model.tool import FunctionTool, ToolDefinition
from prompty.pipeline.conditions import check_tool_conditions
from prompty.pipeline.source_map import Finding, SourceMap
from prompty.tools.kinds import TOOL_KINDS, UnmatchedBinding, find_unmatched


def check_bindings(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a finding for each binding that would fail when a run describes its tools."""
    for index, tool in enumerate(agent.tools):
        for error in _find_errors(tool, agent) if tool.bindings else ():
            keys = ("tools", index, "bindings", error.binding)
            yield source_map.locate(
                keys, "unknown-binding", error.cause, error.fix, on_key=True, replacement=error.nearest
            )


def check_kind_conditions(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a finding for each wrong name in the approval conditions of tools that are not functions."""
    for index, tool in enumerate(agent.tools):
        if isinstance(tool, FunctionTool) or not get_conditions(tool.approval_mode):
            continue
        with suppress(PromptyError):  # the tool's file is invalid, which a run reports
            parameters = _find_parameters(tool, agent)
            if parameters is not None:
                yield from check_tool_conditions(index, tool, parameters, source_map)


def _find_errors(tool: ToolDefinition, agent: PromptAgent) -> list[UnmatchedBinding]:
    try:
        parameters = _find_parameters(tool, agent)
    except UnmatchedBinding as error:
        return [error]
    except PromptyError:
        return []  # the tool's file is invalid, which a run reports
    return [] if parameters is None else find_unmatched(tool, parameters)


def _find_parameters(tool: ToolDefinition, agent: PromptAgent) -> Collection[str] | None:
    kinds = agent.registry[TOOL_KINDS]
    find_parameters = getattr(kinds.get(tool.kind), "find_parameters", None) if kinds.has(tool.kind) else None
    return find_parameters(tool, agent) if find_parameters else None
