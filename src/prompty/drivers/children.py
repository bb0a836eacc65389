"""Prompts as tools of other prompts (§2.9.2): a child runs once (`single`), or as a turn of its own (`agentic`).

A child has what is left of its parent: its budget, its cancelling, its gate and its listener. It sees the tools that
its own file declares, and nothing of its parent's conversation.
"""

from collections.abc import Sequence
from dataclasses import replace

from prompty.drivers.calls import last_of
from prompty.drivers.calls_async import last_of as last_of_async
from prompty.drivers.host import Listener
from prompty.drivers.spanning import turn_span
from prompty.drivers.turns import Turn
from prompty.errors import ToolError
from prompty.model.agent import PromptAgent
from prompty.model.event import Done, Nested
from prompty.model.message import Json
from prompty.model.paused import Paused
from prompty.model.request import Function
from prompty.model.tool import PromptyTool, ToolDefinition
from prompty.pipeline.load import load
from prompty.tools.context import ToolContext
from prompty.tools.kinds import KindTool
from prompty.tools.results import Metered
from prompty.tools.toolbox import handlers_of
from prompty.wire.schema import schema_of

MOST_LEVELS = 5


class ChildKind:
    """The kind `prompty`."""

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        child = child_of(tool, agent)
        agentic = isinstance(tool, PromptyTool) and tool.mode == "agentic"
        function = Function(
            name=tool.name, description=tool.description or child.description, parameters=schema_of(child.inputs)
        )

        async def call(arguments: Json, context: ToolContext) -> object:
            return _result(await last_of_async(child_turn(child, arguments, context, agentic=agentic).events_async()))

        def call_sync(arguments: Json, context: ToolContext) -> object:
            return _result(last_of(child_turn(child, arguments, context, agentic=agentic).events()))

        sensitive = frozenset(one.name for one in child.inputs if one.sensitive)
        return [KindTool(function=function, call=call, call_sync=call_sync, sensitive=sensitive)]


def child_of(tool: ToolDefinition, agent: PromptAgent) -> PromptAgent:
    """The prompt of a tool: a file below the folder of the one that names it."""
    if not isinstance(tool, PromptyTool):
        raise ToolError(f"the tool '{tool.name}' is not a prompt", "Write `kind: prompty` and a `path:`.")
    if agent.path is None:
        raise ToolError(
            f"the prompt '{tool.path}' of the tool '{tool.name}' lies beside a file, and its parent comes from none",
            "Load the parent with load(path).",
        )
    folder = agent.path.parent.resolve()
    path = (folder / tool.path).resolve()
    if not path.is_relative_to(folder):
        raise ToolError(f"the prompt '{tool.path}' of '{tool.name}' is not below the folder of its parent", "Move it.")
    return load(path, registry=agent.registry)


def child_turn(child: PromptAgent, arguments: Json, context: ToolContext, *, agentic: bool) -> Turn:
    """A turn of a child; one that runs once has no tools, and so no loop."""
    parent: Turn = context.run
    lineage = (*parent.lineage, str(parent.agent.path))
    if str(child.path) in lineage:
        raise ToolError(f"the prompt '{child.name or child.path}' would call itself", "Break the circle.")
    if len(lineage) >= MOST_LEVELS:
        raise ToolError(f"prompts call each other more than {MOST_LEVELS} levels deep", "Have them call fewer others.")
    declared = {tool.name for tool in child.tools} if agentic else set()
    functions = {name: one for name, one in handlers_of(parent.options.tools).items() if name in declared}
    options = replace(
        parent.options,
        tools=functions,
        output_type=None,
        memory=None,
        session_id=None,
        messages=None,
        steering=None,
        stop=None,
        fallbacks=None,
        context_budget=None,
        budget=parent.left(),
        on_event=_nested(parent, context),
    )
    shown = child if agentic else child.model_copy(update={"tools": ()})
    with turn_span(shown) as span:
        return Turn(shown, arguments, options, stream=False, lineage=lineage, span=span)


def _nested(parent: Turn, context: ToolContext) -> Listener | None:
    listener = parent.options.on_event
    return (lambda event: listener(Nested(context.name, context.call_id, event))) if listener else None


def _result(end: Done | Paused) -> object:
    """What the parent's model reads, with what it took."""
    if isinstance(end, Paused):
        raise ToolError(
            "a tool of the prompt needs the approval of a person, and a prompt inside another cannot wait for one",
            "Give the turn a gate that answers at once.",
        )
    return Metered(end.result, end.usage, end.cost)
