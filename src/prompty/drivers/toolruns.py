"""What both drivers know about running tools."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from prompty.cancellation import CancelToken
from prompty.errors import PromptyError
from prompty.loop.effects import OfferedTool, PlannedCall
from prompty.model.agent import PromptAgent
from prompty.model.event import Event
from prompty.model.message import Message, ToolCall
from prompty.pipeline.request import has_kinds
from prompty.tools.context import ToolContext
from prompty.tools.results import error_message, failure_message, result_message
from prompty.tools.toolbox import BoundTool, kind_tools


@dataclass(kw_only=True, slots=True)
class ToolRuns:
    """The tools of one run, and what their handlers get beside the model's arguments. Tools of other kinds than
    functions are found when the run begins."""

    agent: PromptAgent
    tools: dict[str, BoundTool]
    inputs: Mapping[str, object]
    run_id: str
    timeout: float | None = None
    cancel: CancelToken = field(default_factory=CancelToken)
    approval: object = None
    run: object = None
    tell: Callable[[Event], object] | None = None
    inside: Callable[[ToolCall, Callable[[], object], bool], Callable[[], object]] | None = None
    check: Callable[[PlannedCall], Awaitable[None]] | None = None  # just before a tool begins; it may raise

    @property
    def has_kinds(self) -> bool:
        return has_kinds(self.agent)

    async def find_kinds(self, *, sync: bool) -> None:
        """Ask the kinds of the file's tools what they offer."""
        self.tools |= await kind_tools(self.agent, self.tools.keys(), sync=sync)

    def offered(self) -> tuple[OfferedTool, ...]:
        return tuple(self._offered(tool) for tool in self.tools.values())

    def _offered(self, tool: BoundTool) -> OfferedTool:
        options = tool.handler.options
        return OfferedTool(
            function=tool.function,
            bound=tuple(tool.bindings),
            approval=(*tool.approval, self._host_policy(tool.function.name)),
            sequential=options.sequential,
            timeout=self.timeout if options.timeout is None else options.timeout,
            idempotent=options.idempotent,
        )

    def _host_policy(self, name: str) -> object:
        """What the host says about one tool: the same for all, or each by its name."""
        if isinstance(self.approval, Mapping) and "when" not in self.approval:
            return self.approval.get(name)
        return self.approval

    def is_async(self, planned: PlannedCall) -> bool:
        return self.tools[planned.call.name].handler.is_async

    def prepared(self, planned: PlannedCall) -> Callable[[], object]:
        """The call of a handler, with everything it takes. Raises for arguments that it cannot take."""
        context = ToolContext(
            run_id=self.run_id,
            call_id=planned.call.id,
            name=planned.call.name,
            key=planned.key,
            cancel=self.cancel,
            tell=self.tell,
            run=self.run,
        )
        call = self.tools[planned.call.name].prepared(planned.arguments, self.inputs, context)
        return self.inside(planned.call, call, self.is_async(planned)) if self.inside else call


def answered(planned: PlannedCall, value: object) -> Message:
    """The message of a result; one that cannot be written is a failure of the tool."""
    try:
        return result_message(planned.call, value)
    except Exception as error:
        return failure_message(planned.call, error)


def failed(planned: PlannedCall, error: Exception) -> Message:
    """The message of a call that raised. A tool's own time-outs are its own; ours are told apart by the caller."""
    if isinstance(error, PromptyError):
        return error_message(planned.call, f"Tool '{planned.call.name}' was not run: {error}")
    return failure_message(planned.call, error)


def timed_out(planned: PlannedCall) -> Message:
    return error_message(planned.call, f"Tool '{planned.call.name}' failed: no result within {planned.timeout} s")


def interrupted(planned: PlannedCall) -> Message:
    """The message of a call that had begun when the turn was cancelled."""
    return error_message(
        planned.call, f"Tool '{planned.call.name}' was interrupted; what it has done until then is not known"
    )


def due(planned: PlannedCall) -> float:
    """When the time of a call is up, on the clock of `time.monotonic`."""
    return float("inf") if planned.timeout is None else time.monotonic() + planned.timeout
