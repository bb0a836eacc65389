"""Prompts as tools of other prompts (§2.9.2). A child is invoked (`single`), or runs its own turn (`agentic`).

In a single pass no tool runs: if the child's model calls tools, the calls are the result, as from `invoke`.

A child gets the rest of its parent's budget, and its cancel token, gate and listener. It sees the tools that its own
file declares, and nothing of its parent's conversation.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from prompty.drivers import aio, sync
from prompty.drivers.run import Invocation, Run, open_run, open_run_async
from prompty.errors import ToolError
from prompty.loop.options import Listener
from prompty.loop.stop import Budget
from prompty.model.agent import PromptAgent
from prompty.model.event import Done, Nested
from prompty.model.message import Json, ToolCall
from prompty.model.paused import Paused
from prompty.model.property import RICH_KINDS
from prompty.model.request import Function
from prompty.model.tool import PromptyTool, ToolDefinition, fix_texts
from prompty.model.trust import refuse_text
from prompty.pipeline.load import load, read_agent
from prompty.pipeline.validate import find_input_names
from prompty.providers import has_server
from prompty.providers.credentials import check_missing
from prompty.tools.calls import Metered
from prompty.tools.function import ToolContext
from prompty.tools.kinds import KindTool, locate_file
from prompty.tools.toolbox import handlers_of
from prompty.wire.structured import build_schema

MAX_CHILD_DEPTH = 5


class ChildKind:
    """The tool kind `prompty`."""

    def is_local(self, _: ToolDefinition, __: PromptAgent, /) -> bool:
        """Return True: the functions are known without a server."""
        return True

    def find_parameters(self, tool: ToolDefinition, agent: PromptAgent, /) -> frozenset[str] | None:
        """Return the inputs that a child uses. Its file is read without requiring environment variables."""
        return find_input_names(read_agent(_locate_child(tool, agent), agent.allowed_roots, agent.registry))

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        child = load_child(tool, agent)
        agentic = isinstance(tool, PromptyTool) and tool.mode == "agentic"
        function = Function(
            name=tool.name, description=tool.description or child.description, parameters=build_schema(child.inputs)
        )

        async def call(arguments: Json, context: ToolContext) -> object:
            invocation = child_invocation(child, arguments, context, agentic=agentic)
            _, events = await open_run_async(invocation, context.run)
            return _metered_result(await aio.drain_async(events))

        def call_sync(arguments: Json, context: ToolContext) -> object:
            invocation = child_invocation(child, arguments, context, agentic=agentic)
            _, events = open_run(invocation, context.run)
            return _metered_result(sync.drain(events))

        defaults: Json = {
            entry.name: entry.default
            for entry in child.inputs
            if entry.default is not None and not entry.sensitive and entry.kind not in RICH_KINDS
        }
        used = find_input_names(child)
        return [
            KindTool(
                function=function,
                call=call,
                call_sync=call_sync,
                defaults=defaults,
                sensitive=frozenset(entry.name for entry in child.inputs if entry.sensitive),
                bindable=frozenset(tool.bindings) if used is None else used,
            )
        ]


def load_child(tool: ToolDefinition, agent: PromptAgent) -> PromptAgent:
    """Load the prompt of a tool. It may read the same files as its parent, and is trusted like it.

    The parent's model gets its description and its inputs, so its variables are checked here.
    """
    own = agent.trust
    child = load(
        _locate_child(tool, agent),
        allowed_roots=agent.allowed_roots,
        env_allowed=own.env_allowed,
        missing_env="defer",
        registry=agent.registry,
    )
    if has_server():
        check_missing(child)
        if refusal := refuse_text(child.trust):
            raise ToolError(f"the tool '{tool.name}': {refusal.cause}", refusal.fix, refusal.command_fix)
    trust = replace(child.trust, trusted=child.trust.trusted | own.trusted)
    # The model fills in the inputs of a child. They must not replace a fixed text.
    tools = tuple([fix_texts(entry) for entry in child.tools])
    return child.model_copy(update={"tools": tools, "trust": trust})


def _locate_child(tool: ToolDefinition, agent: PromptAgent) -> Path:
    if not isinstance(tool, PromptyTool):
        raise ToolError(f"the tool '{tool.name}' is not a prompt", "Write `kind: prompty` and a `path:`.")
    return locate_file(tool.path, tool, agent)


def child_invocation(child: PromptAgent, arguments: Json, context: ToolContext, *, agentic: bool) -> Invocation:
    """Return the run of a child: `invoke`, or the turn of an agent."""
    parent: Run = context.run
    lineage = (*parent.lineage, str(parent.agent.path))
    if str(child.path) in lineage:
        raise ToolError(f"the prompt '{child.name or child.path}' would call itself", "Break the cycle.")
    if len(lineage) >= MAX_CHILD_DEPTH:
        raise ToolError(f"prompts call each other more than {MAX_CHILD_DEPTH} levels deep", "Nest fewer prompts.")
    parent.state.meter.live.add(context.key)
    declared = {tool.name for tool in child.tools} if agentic else set()
    settings = parent.settings.for_child(
        tools={name: tool for name, tool in handlers_of(parent.settings.tools).items() if name in declared},
        budget=None if parent.clock.end is None else Budget(seconds=parent.clock.left()),
        on_event=_nested_listener(parent, context),
    )
    operation: Literal["turn", "invoke"] = "turn" if agentic else "invoke"
    return Invocation(operation=operation, source=child, inputs=arguments, settings=settings)


def _nested_listener(parent: Run, context: ToolContext) -> Listener | None:
    listener = parent.settings.on_event
    return (lambda event: listener(Nested(context.name, context.call_id, event))) if listener else None


def _metered_result(end: Done | Paused) -> object:
    """Return the result for the parent's model, with the child's usage."""
    if isinstance(end, Paused):
        raise ToolError(
            "a tool of the prompt needs approval, and a prompt that runs as a tool cannot pause",
            "Pass the turn a gate that answers at once.",
        )
    result = end.result
    if isinstance(result, list) and all(isinstance(entry, ToolCall) for entry in result):
        result = [call.to_json() for call in result]
    return Metered(result, end.usage, end.cost, end.provider_calls)
