"""Findings for approval conditions that name an unknown parameter, or one that the host fills in."""

from collections.abc import Collection, Iterator

from prompty.model.agent import PromptAgent
from prompty.model.conditions import Callee, find_condition_problem, get_conditions
from prompty.model.tool import FunctionTool, ToolDefinition
from prompty.pipeline.source_map import Finding, SourceMap


def check_function_conditions(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a finding for each wrong name in the conditions of declared function tools."""
    for index, tool in enumerate(agent.tools):
        if isinstance(tool, FunctionTool) and tool.approval_mode is not None:
            yield from check_tool_conditions(index, tool, [entry.name for entry in tool.parameters], source_map)


def check_tool_conditions(
    index: int, tool: ToolDefinition, parameters: Collection[str], source_map: SourceMap
) -> Iterator[Finding]:
    """Yield a finding for each wrong name in the conditions of the tool at this index."""
    callee = Callee(tool.name, sorted(parameters), tool.bindings)
    for name, schema in (get_conditions(tool.approval_mode) or {}).items():
        problem = find_condition_problem({"when": {name: schema}}, [callee])
        if problem:
            keys = ("tools", index, "approvalMode", "when", name)
            yield source_map.locate(
                keys, "approval-parameter", problem.cause, problem.fix, on_key=True, replacement=problem.nearest
            )
