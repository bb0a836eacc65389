"""The tools of one run: describe them to the model, prepare calls, and convert outcomes to messages."""

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from logging import Logger, getLogger

from prompty.cancellation import CancelToken
from prompty.drivers.run_spans import RunSpans
from prompty.drivers.session import MemorySession
from prompty.errors import PromptyError
from prompty.loop.effects import OfferedTool, PlannedCall
from prompty.loop.options import Settings
from prompty.loop.policy import get_tool_policies, list_policies
from prompty.model.agent import PromptAgent
from prompty.model.conditions import check_conditions, check_tool_names, describe_callee
from prompty.model.event import Event, ToolFinished
from prompty.model.message import Message
from prompty.model.tool import PromptyTool, runs_at_provider
from prompty.model.trust import explain_missing
from prompty.pipeline.request import has_kinds, list_declared_functions, list_offered_functions
from prompty.safety.redaction import Redactor, masked_traceback
from prompty.tools.calls import ReportedFailure, error_message, failure_message, result_message
from prompty.tools.function import ToolContext
from prompty.tools.kinds import KindRunner
from prompty.tools.toolbox import BoundTool, kind_tools, toolbox

logger: Logger = getLogger("prompty")


class NotRun(Exception):
    """A call could not be prepared, so its tool did not run."""


class ToolRunner:
    """Describes the tools of a run and prepares their calls.

    Without `run_tools` the functions are only offered, so no handlers are needed. `before_call` runs right before a
    tool starts, and may raise.
    """

    def __init__(
        self,
        agent: PromptAgent,
        settings: Settings,
        inputs: Mapping[str, object],
        *,
        run_id: str,
        redactor: Redactor,
        run_tools: bool = True,
        run: object = None,
        emit: Callable[[Event], object] | None = None,
        spans: RunSpans | None = None,
        session: MemorySession | None = None,
    ) -> None:
        self.session = session
        self._agent, self._settings, self._inputs = agent, settings, inputs
        self._run_id, self._run, self._run_tools = run_id, run, run_tools
        self._emit, self._spans, self._redactor = emit, spans, redactor
        self._errors: dict[str, Exception] = {}
        self.tools: dict[str, BoundTool] = toolbox(agent, settings.tools) if run_tools else {}
        self.cancel: CancelToken = settings.cancel or CancelToken()
        self.has_kinds: bool = has_kinds(agent)
        self.before_call: Callable[[PlannedCall], Awaitable[None]] | None = None

    async def describe_kinds(self, *, is_async: bool) -> tuple[OfferedTool, ...]:
        """Return all tools. Tools of other kinds than functions may use the network to describe themselves."""
        if not self._run_tools:
            functions = await list_offered_functions(self._agent, self._settings.timeout)
            return tuple(OfferedTool(function=function) for function in functions)
        await self.find_kinds(is_async=is_async)
        return self.describe()

    async def find_kinds(self, *, is_async: bool) -> None:
        self.tools |= await kind_tools(
            self._agent, self.tools.keys(), sync=not is_async, timeout=self._settings.timeout
        )

    def describe(self) -> tuple[OfferedTool, ...]:
        """Return the tools that are functions."""
        if not self._run_tools:
            return tuple(OfferedTool(function=function) for function in list_declared_functions(self._agent))
        if self._settings.approval is not None:
            self._check_approval()
        return tuple(self._describe_tool(tool) for tool in self.tools.values())

    def _describe_tool(self, tool: BoundTool) -> OfferedTool:
        options = tool.handler.options
        return OfferedTool(
            function=tool.function,
            bound=tuple(tool.bindings),
            variables={name: tool.variables[name] for name in tool.bindings if tool.variables.get(name)},
            defaults=tool.defaults,
            approval=(*tool.approval, *get_tool_policies(self._settings.approval, tool.function.name)),
            sequential=options.sequential,
            timeout=self._find_timeout(tool),
            idempotent=options.idempotent,
        )

    def _find_timeout(self, tool: BoundTool) -> float | None:
        """Return the timeout of a tool's calls: its own, that of tools, or that of an answer if a server runs it."""
        is_remote = isinstance(tool.handler, KindRunner) and tool.handler.tool.is_remote
        limits = [
            tool.handler.options.timeout,
            self._settings.tool_timeout,
            self._settings.timeout if is_remote else None,
        ]
        return next((limit for limit in limits if limit is not None), None)

    def _check_approval(self) -> None:
        """Check the conditions in the host's approval policies: those for all tools, and those by tool."""
        callees = [describe_callee(tool.function, tool.bindings) for tool in self.tools.values()]
        for policy in list_policies(self._settings.approval):
            check_conditions(policy, callees)
            if isinstance(policy, Mapping) and "when" not in policy:
                if not self._has_children():
                    hosted = [tool.name for tool in self._agent.tools if runs_at_provider(tool)]
                    check_tool_names(policy, [*self.tools, *hosted])
                for callee in callees:
                    check_conditions(policy.get(callee.name), [callee])

    def _has_children(self) -> bool:
        """Return True if a policy may be for the tools of another prompt: a child of this run, or its parent."""
        return bool(getattr(self._run, "lineage", ())) or any(
            isinstance(tool, PromptyTool) for tool in self._agent.tools
        )

    def is_async(self, planned: PlannedCall) -> bool:
        return self.tools[planned.call.name].handler.is_async

    def prepare(self, planned: PlannedCall) -> Callable[[], object]:
        """Return a handler's call with all its arguments. Raise NotRun if they are invalid."""
        if missing := [use for use in self._agent.trust.missing if use.keys[:2] == ("tools", planned.call.name)]:
            raise NotRun(explain_missing(missing)[0])
        context = ToolContext(
            run_id=self._run_id,
            call_id=planned.call.id,
            name=planned.call.name,
            key=planned.key,
            cancel=self.cancel,
            tell=self._emit,
            run=self._run,
        )
        try:
            call = self.tools[planned.call.name].prepare(planned.arguments, self._inputs, context)
        except PromptyError as error:
            raise NotRun(self._redactor.mask(str(error))) from error
        if self.session is not None and self.session.is_locked:
            call = self.session.wrap_tool(call, is_async=self.is_async(planned))
        if self._spans is None:
            return self._hide_inside(call)
        return self._spans.wrap_tool(planned.key, call, is_async=self.is_async(planned))

    def _hide_inside(self, call: Callable[[], object]) -> Callable[[], object]:
        """Return a function that makes a call inside which the values are hidden that the run hides."""

        async def wait(awaitable: Awaitable[object]) -> object:
            with self._redactor.inside():
                return await awaitable

        def run() -> object:
            with self._redactor.inside():
                value = call()
            return wait(value) if inspect.isawaitable(value) else value

        return run

    def succeeded(self, planned: PlannedCall, value: object) -> Message:
        """Return the message of a result. If it cannot be serialized, the tool has failed."""
        try:
            return result_message(planned.call, value)
        except Exception as error:
            return self.failed(planned, error)

    def failed(self, planned: PlannedCall, error: Exception) -> Message:
        """Return the message of a call that raised or could not be prepared. Log errors in the host's code."""
        if isinstance(error, NotRun):
            return not_run(planned, error)
        self._errors[planned.key] = error
        if not isinstance(error, ReportedFailure):
            logger.error("The tool '%s' raised.\n%s", planned.call.name, masked_traceback(error, self._redactor))
        message = failure_message(planned.call, error, self._redactor.mask)
        if not (isinstance(error, PromptyError) and self._is_child(planned.call.name)):
            return message
        cost = error.cost if getattr(self._run, "is_priced", False) else None  # else it would be looked up
        return replace(message, usage=error.usage, cost=cost)  # paid, although it failed

    def _is_child(self, name: str) -> bool:
        return any(isinstance(tool, PromptyTool) and tool.name == name for tool in self._agent.tools)

    def finished(self, planned: PlannedCall, result: Message) -> ToolFinished:
        """Return the event for a call that has ended, with the exception that it raised."""
        return ToolFinished(planned.call, result, planned.key, self._errors.pop(planned.key, None))


def not_run(planned: PlannedCall, error: NotRun) -> Message:
    return error_message(planned.call, f"Tool '{planned.call.name}' was not run: {error}")


def timed_out(planned: PlannedCall) -> Message:
    return error_message(planned.call, f"Tool '{planned.call.name}' failed: no result within {planned.timeout} s")


def interrupted(planned: PlannedCall) -> Message:
    """Return the message of a call that had started when the run was cancelled."""
    return error_message(
        planned.call, f"Tool '{planned.call.name}' was interrupted; it may or may not have taken effect"
    )


def due(planned: PlannedCall) -> float:
    """Return the time at which the call times out, by `time.monotonic`."""
    return float("inf") if planned.timeout is None else time.monotonic() + planned.timeout
