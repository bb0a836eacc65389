"""A run, assembled once: the plan for the loop, and the driver that performs its effects.

`run`, `invoke`, `turn` and `resume` all start here. `invoke` is the loop without tools.
"""

from asyncio import to_thread
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from operator import is_
from secrets import token_hex
from threading import Lock
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from prompty.drivers import aio, sync
from prompty.drivers.driver import NO_HOST, NO_LIMIT, Clock, Driver, Host, Outcome
from prompty.drivers.run_spans import RunSpans, assembling, open_run_spans
from prompty.drivers.span_attributes import describe_version
from prompty.drivers.stream import AsyncPromptyStream, PromptyStream
from prompty.drivers.target import resolve_target
from prompty.drivers.tool_runner import ToolRunner
from prompty.errors import PausedRefused, PromptyError, Refused, RequestError, ResultError, check_path
from prompty.loop.context import Context, parse_context
from prompty.loop.effects import Loop, Rewrite, Verdict
from prompty.loop.meter import CountedReply, Meter
from prompty.loop.options import Settings, renders_file
from prompty.loop.policy import combine_policies, get_tool_policies, parse_verdict
from prompty.loop.state import (
    NO_HOOKS,
    Choice,
    Hooks,
    Plan,
    SessionPlan,
    TurnState,
    check_policies,
    resumed_state,
)
from prompty.loop.stop import Price
from prompty.loop.turn import run_loop
from prompty.model.agent import PromptAgent, hide_values
from prompty.model.citation import Citation, ProviderCall
from prompty.model.event import Done, Event
from prompty.model.message import Message, Reply, ToolCall, Usage, list_rows, user
from prompty.model.paused import GatedCall, Paused
from prompty.model.request import OutputSchema
from prompty.model.tool import ToolDefinition, runs_at_provider
from prompty.model.trust import Trust
from prompty.pipeline.caching import CacheUse, choose_cache_use
from prompty.pipeline.load import StrPath, load
from prompty.pipeline.model_override import find_model_changes, override_model
from prompty.pipeline.outputs import CUT, CUT_ANSWER, check_outputs, find_reason
from prompty.pipeline.places import place_error
from prompty.pipeline.prepare import list_hidden_inputs, prepare_valid
from prompty.pipeline.request import process_reply, read_messages
from prompty.pipeline.validate import fill_defaults, validate_run_inputs
from prompty.pricing import get_pricer
from prompty.providers import RequestBase, asks_server
from prompty.providers.credentials import check_missing
from prompty.providers.provider_tools import refuse_provider_tools
from prompty.registry import DEFAULT, Registry
from prompty.safety.html import Row, to_text, write_table
from prompty.safety.origins import parse_origin
from prompty.safety.redaction import Redactor, current_redactor
from prompty.tools.calls import Metered
from prompty.tracing.spans import NULL_SPAN, begin, is_tracing
from prompty.wire.structured import cast, find_result_schema

AgentOrPath = PromptAgent | StrPath
Inputs = Mapping[str, object] | None


T = TypeVar("T")
D = TypeVar("D", bound=Driver)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result(Generic[T]):
    """The result of `invoke(…, details=True)` or `turn(…, details=True)`.

    `usage` includes every call of the run, also those of prompts that ran as tools. `model` is the one that answered
    last, as its provider names it, and `finish_reason` is why it stopped. `omitted` are the options of the file that
    were not sent because the model refuses them, with the reason. `citations` are the sources of the answer, and
    `provider_calls` the tools that providers ran during the run.
    """

    value: T
    messages: tuple[Message, ...] = field(repr=False)
    usage: Usage
    finish_reason: str | None
    model: str
    omitted: Mapping[str, str] = field(default_factory=dict)
    citations: tuple[Citation, ...] = ()
    provider_calls: tuple[ProviderCall, ...] = ()
    _cost: Decimal | None = field(default=None, repr=False)
    _replies: tuple[CountedReply, ...] = field(default=(), repr=False, compare=False)
    _sensitive: tuple[object, ...] = field(default=(), repr=False, compare=False)  # values that no view shows

    @property
    def cost(self) -> Decimal | None:
        """The cost of the run in dollars, looked up when you ask for it (extra `prices`). None if it is not known, as
        for a turn that was paused in between."""
        if self._cost is not None:
            return self._cost
        if sum((counted.reply.usage for counted in self._replies), Usage()) != self.usage:
            return None
        costs = [get_pricer(agent, required=False)(reply) for agent, reply in self._replies]
        return sum((cost for cost in costs if cost is not None), Decimal()) if None not in costs else None

    @property
    def cached_shares(self) -> dict[str, float]:
        """The share of the input that providers read from their caches, from 0 to 1, by prompt: its name and the
        beginning of its text's hash, as in traces. Prompts without a known share are left out."""
        usages: dict[str, Usage] = {}
        for agent, reply in self._replies:
            version = describe_version(agent)
            usages[version] = usages.get(version, Usage()) + reply.usage
        return {version: usage.cached_share for version, usage in usages.items() if usage.cached_share is not None}

    def _repr_html_(self) -> str:
        """Return a table for notebooks, without the values of sensitive inputs: notebooks are saved and shared."""
        redactor = Redactor(self._sensitive)
        counts = {"input tokens": self.usage.input_tokens, "output tokens": self.usage.output_tokens}
        counts |= self.usage.requests
        facts = [
            ("model", self.model),
            *((name, "" if count is None else f"{count:,}") for name, count in counts.items()),
            ("cost", "" if self.cost is None else f"${self.cost:.6f}".rstrip("0").rstrip(".")),
            ("finish reason", self.finish_reason or ""),
        ]
        shown = [*_list_value_rows(self.value), *(row for message in self.messages for row in list_rows(message))]
        own = [(redactor.mask(name), redactor.mask(text)) for name, text in shown]
        return write_table([*own, *facts])


def _list_value_rows(value: object) -> Iterable[Row]:
    if isinstance(value, list) and value and all(isinstance(entry, ToolCall) for entry in value):
        return [(f"calls {call.name}", call.arguments) for call in value]
    return [("value", to_text(value))]


class Invocation(NamedTuple):
    """A call of `run`, `invoke`, `turn` or `resume`, as the caller wrote it. Only a turn runs tools.

    The inputs of a durable run are `validated` when it is submitted, and never again: it must end as it began. Nobody
    continues the conversation of a row of a batch (`is_row`).
    """

    operation: Literal["run", "invoke", "turn"]
    source: AgentOrPath
    settings: Settings
    inputs: Inputs = None
    output_type: type[Any] | None = None
    stream: bool = False
    paused: Paused | None = None
    verdicts: object = None
    validated: bool = False
    details: bool = False
    is_row: bool = False


def start(invocation: Invocation) -> Any:
    """Run in synchronous code: return the result, or the stream."""
    run, events = open_run(invocation)
    return PromptyStream(events, run.redactor) if invocation.stream else run.result(sync.drain(events))


async def start_async(invocation: Invocation) -> Any:
    """Run in async code: return the result, or the stream."""
    run, events = await open_run_async(invocation)
    if invocation.stream:
        return await AsyncPromptyStream.start(events, run.redactor)
    return run.result(await aio.drain_async(events))


def open_run(
    invocation: Invocation, parent: "Run | None" = None
) -> "tuple[Run, Generator[Event, None, Done | Paused]]":
    """Assemble a run, connect it, and return it with its events. The caller must start the generator, which ends the
    run's span."""
    spans = open_run_spans(invocation.operation, invocation.source) if is_tracing() else None
    redactor = spans.redactor if spans else Redactor(parent=current_redactor())
    with assembling(spans) if spans else redactor.inside():
        invocation = check_invocation(invocation)
        agent = override_agent(read_source(invocation.source, invocation.settings), invocation)
        if spans:
            spans.describe(agent, invocation.inputs, invocation.settings)
        try:
            run = assemble_run(invocation, agent, redactor, parent=parent, spans=spans)
            driver = run.sync_driver()
            return run, driver.drive(run.loop(driver))
        except PromptyError as error:
            place_error(error, agent)
            raise


async def open_run_async(
    invocation: Invocation, parent: "Run | None" = None
) -> "tuple[Run, AsyncGenerator[Event | Outcome[Done | Paused], None]]":
    """The async form of `open_run`."""
    spans = open_run_spans(invocation.operation, invocation.source) if is_tracing() else None
    redactor = spans.redactor if spans else Redactor(parent=current_redactor())
    with assembling(spans) if spans else redactor.inside():
        invocation = check_invocation(invocation)
        source, settings = invocation.source, invocation.settings
        if not isinstance(source, PromptAgent):
            source = await to_thread(read_source, source, settings)
        agent = override_agent(source, invocation)
        if spans:
            spans.describe(agent, invocation.inputs, settings)
        try:
            run = assemble_run(invocation, agent, redactor, parent=parent, spans=spans)
            driver = run.async_driver()
            return run, driver.drive(run.loop(driver))
        except PromptyError as error:
            place_error(error, agent)
            raise


def read_source(source: AgentOrPath, settings: Settings) -> PromptAgent:
    """Return an agent, loaded from its file if `source` is a path."""
    if isinstance(source, PromptAgent):
        return source
    check_path(source, "the first argument", "a PromptAgent or the path of a .prompty file")
    return load(source, missing_env="defer", registry=settings.registry or DEFAULT)


def load_agent(source: AgentOrPath, settings: Settings) -> PromptAgent:
    """Return an agent, loaded from its file if `source` is a path, with the registry and the model of the caller."""
    agent = read_source(source, settings)
    changes = _find_changes(agent, settings)
    return agent.model_copy(update=changes) if changes else agent


def override_agent(agent: PromptAgent, invocation: Invocation) -> PromptAgent:
    """Return the agent of a call: with everything that the caller overrides, in one copy."""
    changes = _find_changes(agent, invocation.settings)
    changes |= find_call_changes(agent, invocation, changes.get("trust", agent.trust))
    return agent.model_copy(update=changes) if changes else agent


def _find_changes(agent: PromptAgent, settings: Settings) -> dict[str, Any]:
    """Return the fields of an agent that the registry and the model of the caller change."""
    registry = settings.registry or agent.registry
    changes: dict[str, Any] = {} if registry is agent.registry else {"registry": registry}
    if settings.model is None and not settings.options and agent.model.id:
        return changes
    return changes | find_model_changes(agent, registry, settings.model, settings.options)


def find_call_changes(agent: PromptAgent, invocation: Invocation, trust: Trust) -> dict[str, Any]:
    """Return the fields of an agent that a call's type, policies and fallbacks change."""
    changes: dict[str, Any] = {}
    settings = invocation.settings
    if invocation.output_type is not None and (schema := find_result_schema(agent, invocation.output_type)):
        changes["result_schema"] = schema
    if settings.approval is not None and (tools := _ask_for_provider_tools(agent.tools, settings.approval)):
        changes["tools"] = tools
    if settings.fallbacks is not None:
        changes["trust"] = trust.without(("fallbacks",))
    return changes


def check_invocation(invocation: Invocation) -> Invocation:
    """Check the options of a call. The approval policies of a paused turn still hold."""
    _check_settings(invocation.settings)
    if invocation.paused is None:
        return invocation
    return invocation._replace(settings=_check_paused(invocation.paused, invocation.settings))


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run: an agent with its fallbacks, valid inputs, and the state of the loop. `assemble_run` makes it, and
    connects to nothing.

    `parent` is the run that this one is a tool of. `redactor` masks what the run hides.
    """

    invocation: Invocation
    agents: Sequence[PromptAgent]
    inputs: dict[str, object]
    opening: "Opening"
    state: TurnState
    run_id: str
    context: Context | None
    clock: Clock
    redactor: Redactor
    parent: "Run | None" = None
    spans: RunSpans | None = None

    @property
    def agent(self) -> PromptAgent:
        return self.agents[0]

    @property
    def settings(self) -> Settings:
        return self.invocation.settings

    @property
    def lineage(self) -> tuple[str, ...]:
        """The paths of the prompts around this one."""
        return (*self.parent.lineage, str(self.parent.agent.path)) if self.parent else ()

    @property
    def is_priced(self) -> bool:
        """Whether the cost is shown or limited, here or in the run that calls this prompt as a tool."""
        settings, is_limited = self.settings, self.state.meter.limits_cost
        if is_limited or settings.stop or settings.on_event or self.invocation.stream:
            return True
        return self.parent is not None and self.parent.is_priced

    @property
    def _has_tools(self) -> bool:
        return self.invocation.operation == "turn" or bool(self.agent.tools)

    @property
    def _checks_outputs(self) -> bool:
        is_promised = self.invocation.operation != "run" and self.settings.outputs_mode == "strict"
        return is_promised and self.invocation.output_type is None and bool(self.agent.outputs)

    def sync_driver(self) -> sync.SyncDriver:
        """Connect to the models and tools, for synchronous code."""
        return self._connect(sync.SyncDriver, self._run_summary, is_async=False)

    def async_driver(self) -> aio.AsyncDriver:
        """Connect to the models and tools, for async code."""
        return self._connect(aio.AsyncDriver, self._run_summary_async, is_async=True)

    def _run_summary(self, invocation: Invocation) -> Metered:
        """Run the prompt of a summary below this run, whose budget it uses."""
        run, events = open_run(invocation, self)
        return run.meter_result(sync.drain(events), self)

    async def _run_summary_async(self, invocation: Invocation) -> Metered:
        run, events = await open_run_async(invocation, self)
        return run.meter_result(await aio.drain_async(events), self)

    def meter_result(self, end: Done | Paused, parent: "Run") -> Metered:
        """Return the result for the run above, where its usage is counted already: unless another process reads it."""
        key = f"run:{self.run_id}"
        parent.state.meter.live.add(key)
        return Metered(self.result(end), self.state.usage, self.state.cost, key=key)

    def _connect(self, driver: type[D], start: Callable[[Invocation], object], *, is_async: bool) -> D:
        settings, spans = self.settings, self.spans
        summary = summarizer(self.context, start, settings, self.agent.registry)
        if (settings.memory is None) != (settings.session_id is None):
            raise RequestError("memory and session_id belong together", "Pass both, or neither.")
        host = Host(self.redactor, settings, summary, spans) if spans or _has_callbacks(settings) else NO_HOST
        # The first connection of a process imports the provider, which a trace would show as a hole.
        with begin("connect") if spans else NULL_SPAN:
            tools = None
            if self._has_tools:
                tools = ToolRunner(
                    self.agent,
                    settings,
                    self.inputs,
                    run_id=self.run_id,
                    redactor=self.redactor,
                    run_tools=self.invocation.operation == "turn",
                    run=self,
                    emit=host.emit,
                    spans=spans,
                    session=host.session,
                )
            offers_tools = bool(self.agent.tools or settings.tools)
            targets = [resolve_target(agent, is_async=is_async, offers_tools=offers_tools) for agent in self.agents]
        if spans:
            spans.attach(self.agents, targets, tools.tools if tools else {})
        return driver(
            targets=targets,
            tools=tools,
            host=host,
            clock=self.clock,
            meter=self.state.meter,
            redactor=self.redactor,
            cancel=settings.cancel,
            spans=spans,
            streaming=self.invocation.stream,
        )

    def loop(self, driver: Driver) -> Loop[Done | Paused]:
        """Return the loop of the run, for the driver that will perform its effects."""
        observed = self.invocation.stream or self.spans is not None or self.settings.on_event is not None
        bases = [target.base for target in driver.targets]
        return run_loop(self.plan(bases, self.hooks(), observed=observed), self.state)

    def result(self, end: Done | Paused) -> Any:
        """Return what the caller gets: the result, with details if wanted, or the `Paused` value of a turn that
        waits."""
        if isinstance(end, Paused):
            return end
        if not self.invocation.details:
            return end.result
        given = self.invocation.inputs or {}
        reply = self.state.last_reply or Reply()
        return Result(
            value=end.result,
            messages=end.messages,
            usage=end.usage,
            finish_reason=reply.finish_reason,
            model=reply.model or self.agents[self.state.model].model.id,
            omitted=self.state.omitted,
            citations=end.citations,
            provider_calls=end.provider_calls,
            _cost=end.cost,
            _replies=tuple(self.state.meter.replies),
            _sensitive=tuple(given.get(one.name, one.default) for one in self.agent.inputs if one.sensitive),
        )

    def hooks(self) -> Hooks:
        """Return the functions of the host that the loop calls."""
        return _list_hooks(self.settings, self.context)

    def plan(self, bases: Sequence[RequestBase], hooks: Hooks, *, observed: bool = True) -> Plan:
        """Return the plan of the run. It has no side effects."""
        if not self.settings.provider_tools:
            refuse_provider_tools(bases)
        invocation, session_id = self.invocation, self.settings.session_id
        history_at, new_from = self.opening.history_at, self.opening.new_from
        return Plan(
            run_id=self.run_id,
            choices=[
                Choice(agent=agent, base=base, price=self._price(agent))
                for agent, base in zip(self.agents, bases, strict=True)
            ],
            settings=self.settings,
            finish=result_maker(self.agent, invocation.output_type, bases[0].output if self._checks_outputs else None),
            hooks=hooks,
            keeps_refusals=self._checks_outputs,
            run_tools=invocation.operation == "turn",
            session=None
            if session_id is None
            else SessionPlan(id=session_id, history_at=history_at, new_from=new_from),
            context=self.context,
            stream=invocation.stream,
            has_tools=self._has_tools,
            observed=observed,
            cache_use=_find_cache_use(self.agent, invocation),
        )

    def _price(self, agent: PromptAgent) -> Price:
        """Return the price of answers. Unless someone can see the cost, skip the lookup: it takes longer than a tool
        call."""
        if self.is_priced:
            return get_pricer(agent, required=self.state.meter.limits_cost)
        return _no_price


def assemble_run(
    invocation: Invocation,
    agent: PromptAgent,
    redactor: Redactor,
    *,
    state: TurnState | None = None,
    run_id: str | None = None,
    parent: Run | None = None,
    spans: RunSpans | None = None,
) -> Run:
    """Return the run of a call, or of a turn that continues with a `state`. It connects to nothing."""
    settings, paused = invocation.settings, invocation.paused
    agents = [agent, *fallback_agents(agent, settings.fallbacks)]
    for one in agents:
        hide_values(redactor, one)
    if agent.trust.missing and asks_server(agent):
        check_missing(agent)
    has_messages = state is not None or paused is not None or not _begins(settings)
    inputs = valid_inputs(agent, invocation, has_messages=has_messages)
    redactor.hide(list_hidden_inputs(agent, inputs))
    context = parse_context(settings.context_budget) if settings.context_budget is not None else None
    clock = _start_clock(settings)
    meter = partial(Meter, settings.budget, parent.state.meter if parent else None, lock=Lock())
    if paused is not None:
        check_policies(paused, _list_hooks(settings, context))
        state, run_id = _resume(paused, invocation.verdicts, agents, meter), paused.run_id
    opening = Opening([], 0, 0) if state else initial_messages(agent, inputs, invocation.inputs, settings)
    return Run(
        invocation=invocation,
        agents=agents,
        inputs=inputs,
        opening=opening,
        state=state or TurnState(opening.messages, meter=meter()),
        run_id=run_id or token_hex(16),
        context=context,
        clock=clock,
        redactor=redactor,
        parent=parent,
        spans=spans,
    )


def _resume(paused: Paused, verdicts: object, agents: Sequence[PromptAgent], meter: Callable[..., Meter]) -> TurnState:
    """Return the state of a paused turn, with the verdicts on its calls."""
    carry_over: Any = paused.carry_over
    if carry_over.get("model", 0) >= len(agents):
        raise PausedRefused("it was paused with a fallback that is not there now", "Pass the same fallbacks=.")
    return resumed_state(paused, parse_decisions(paused, verdicts), meter)


def _start_clock(settings: Settings) -> Clock:
    if settings.timeout is None and settings.budget is None:
        return NO_LIMIT
    return Clock(settings.budget.seconds if settings.budget else None)


def _list_hooks(settings: Settings, context: Context | None) -> Hooks:
    if not _has_callbacks(settings):
        return NO_HOOKS
    return Hooks(
        gate=settings.gate is not None,
        guardrails=settings.guardrails.kinds() if settings.guardrails else frozenset(),
        summary=bool(context and context.summary),
        steering=settings.steering is not None,
    )


def _find_cache_use(agent: PromptAgent, invocation: Invocation) -> CacheUse | None:
    """Return what other requests share with those of a run. The messages of `run` may be anything."""
    if invocation.operation == "run":
        return None
    has_tools = bool(agent.tools or invocation.settings.tools)
    is_alone = invocation.operation == "invoke" or (invocation.is_row and not has_tools)
    return choose_cache_use(agent, is_continued=not is_alone)


def _no_price(_: Reply) -> Decimal | None:
    return None


def _check_settings(settings: Settings) -> None:
    if settings.tool_execution not in ("parallel", "sequential"):
        raise RequestError(
            "tool_execution is neither 'parallel' nor 'sequential'",
            "Write 'parallel', or 'sequential' for one at a time.",
        )
    if settings.outputs_mode not in ("strict", "lenient"):
        raise RequestError(
            "outputs_mode is neither 'strict' nor 'lenient'", "Write 'lenient' to get an answer that does not fit."
        )
    key: object = settings.paused_key
    if key is not None and (not isinstance(key, bytes) or not key):
        raise RequestError("paused_key is not a key", "Pass bytes, for example secrets.token_bytes(32).")


def _check_paused(paused: Paused, settings: Settings) -> Settings:
    """Check a paused turn, and return the settings to continue it with: its approval policies still hold."""
    paused.check()
    if settings.paused_key is not None:
        paused.verify(settings.paused_key)
    kept: Any = paused.policy["approval"]
    return replace(settings, approval=combine_policies(kept, settings.approval))


def _has_callbacks(settings: Settings) -> bool:
    """Return True if the host has functions or stores that the run may call."""
    return any((settings.gate, settings.guardrails, settings.steering, settings.memory, settings.on_event)) or (
        settings.context_budget is not None
    )


class Opening(NamedTuple):
    """The first messages of a run. History goes to `history_at`; those from `new_from` on are new in the session."""

    messages: list[Message]
    history_at: int
    new_from: int


def _begins(settings: Settings) -> bool:
    return renders_file({"messages": settings.messages, "session_id": settings.session_id})


def valid_inputs(agent: PromptAgent, invocation: Invocation, *, has_messages: bool) -> dict[str, object]:
    """Return the inputs of a run, with defaults filled in."""
    if invocation.operation == "run":
        return {}
    if invocation.validated:
        return fill_defaults(agent, invocation.inputs)
    extra_inputs = invocation.settings.extra_inputs
    return validate_run_inputs(agent, invocation.inputs, extra_inputs=extra_inputs, has_messages=has_messages)


def initial_messages(agent: PromptAgent, valid: dict[str, object], inputs: Inputs, settings: Settings) -> Opening:
    """Return the messages of the file and its valid inputs, or those that the caller has."""
    if settings.messages is not None and not _begins(settings):
        return _place_history(read_messages(settings.messages), None)
    if settings.session_id is None:
        return Opening(prepare_valid(agent, valid, recorded=inputs), 0, 0)
    opening = _open_session(agent, valid, inputs)
    if settings.messages is None:
        return opening
    return opening._replace(messages=opening.messages[: opening.new_from])


def _open_session(agent: PromptAgent, valid: dict[str, object], inputs: Inputs) -> Opening:
    """Return the messages of the file, with the place of the history among them."""
    thread = _history_input(agent, inputs)
    if thread is None:
        return _place_history(prepare_valid(agent, valid, recorded=inputs), None)
    marker = user(f"history {token_hex(16)}")
    prepared = prepare_valid(agent, {**valid, thread: [marker]}, recorded=inputs)
    at = next((position for position, message in enumerate(prepared) if message == marker), None)
    return _place_history([message for message in prepared if message != marker], at)


def _history_input(agent: PromptAgent, inputs: Inputs) -> str | None:
    """Return the `thread` input for the history, unless the caller fills it."""
    threads = (entry.name for entry in agent.inputs if entry.kind == "thread" and entry.name not in (inputs or {}))
    return next(threads, None)


def _place_history(messages: list[Message], history_at: int | None) -> Opening:
    """Take the last user messages as new. Those before are the file's own, rendered anew each turn."""
    from_user = [at for at, message in enumerate(messages) if message.role == "user"]
    new_from = from_user[-1] if from_user else len(messages)
    while new_from - 1 in from_user:
        new_from -= 1
    if history_at is None:
        return Opening(messages, new_from, new_from)
    return Opening(messages, history_at, max(new_from, history_at))


def _ask_for_provider_tools(tools: Sequence[ToolDefinition], approval: object) -> tuple[ToolDefinition, ...] | None:
    """Return the tools with the host's policy on those that the provider runs, or None if it changes none. If the
    provider cannot ask, the request is refused."""
    asking = tuple(
        tool.model_copy(update={"approval_mode": "always"})
        if runs_at_provider(tool) and {*map(str, get_tool_policies(approval, tool.name))} - {"None", "never"}
        else tool
        for tool in tools
    )
    return None if all(map(is_, asking, tools)) else asking


def fallback_agents(agent: PromptAgent, option: Sequence[object] | None) -> list[PromptAgent]:
    """Return the agent with each fallback model: an id, a mapping as under `model:`, or an agent with that model."""
    entries = agent.metadata.get("fallbacks") if option is None else option
    if entries is None or not isinstance(entries, Sequence) or isinstance(entries, str):
        return []
    if option is None:
        own = [agent.model_copy(update={"trust": agent.trust.for_fallback(index)}) for index in range(len(entries))]
        return [_with_model(one, entry, one.trust) for one, entry in zip(own, entries, strict=True)]
    trust = agent.trust.without(("model",), ("fallbacks",))
    return [_with_model(agent.model_copy(update={"trust": trust}), entry) for entry in entries]


def _with_model(agent: PromptAgent, entry: object, trust: Trust | None = None) -> PromptAgent:
    """Return the agent with another model. Without `trust`, the program names it, and trusts its endpoint."""
    if isinstance(entry, str):
        return override_model(agent, entry)
    if isinstance(entry, PromptAgent) and entry.trust.from_file:
        return agent.model_copy(update={"model": entry.model, "trust": agent.trust.with_model(entry.trust)})
    try:
        model = entry.model if isinstance(entry, PromptAgent) else PromptAgent.model_validate({"model": entry}).model
    except ValidationError as error:
        raise RequestError(
            f"a fallback model cannot be read: {error.errors()[0]['msg']}",
            "Write an id, or a mapping as under `model:`.",
        ) from None
    if trust is None:
        origin = parse_origin(getattr(model.connection, "endpoint", None) or "")
        trust = replace(agent.trust, trusted=agent.trust.trusted | ({origin} if origin else set()))
    return agent.model_copy(update={"model": model, "trust": trust})


def result_maker(
    agent: PromptAgent, output_type: type[Any] | None, outputs: OutputSchema | None
) -> Callable[[Reply], object]:
    """Return the function that makes the result of a reply. It raises ResultError for an answer that does not fit
    the `output_type`, or the `outputs` of the file, if they are given."""

    def make_result(reply: Reply) -> object:
        result = process_reply(agent, reply)
        if output_type is not None:
            return _cast_result(reply, result, output_type)
        if outputs is not None:
            check_outputs(outputs.schema, reply, result)
        return result

    return make_result


def _cast_result(reply: Reply, result: object, output_type: type[Any]) -> Any:
    if reply.refusal:
        raise Refused(reply.refusal)
    try:
        return cast(result, output_type)
    except ResultError as error:
        error.reason, error.text = find_reason(reply), reply.text
        if error.reason != "cut":
            raise
    raise ResultError(output_type, CUT_ANSWER, reason="cut", text=reply.text, fix=CUT.python, command_fix=CUT.command)


def parse_decisions(paused: Paused, verdicts: object) -> dict[str, Verdict | Rewrite]:
    """Read the verdicts on pending calls: one for each in order, or some by their keys."""
    if isinstance(verdicts, Mapping):
        unknown = verdicts.keys() - {call.key for call in paused.pending}
        if unknown:
            raise RequestError(f"no pending call has the key {sorted(map(str, unknown))[0]!r}", "See `paused.pending`.")
        return {call.key: _parse_decision(call, verdicts[call.key]) for call in paused.pending if call.key in verdicts}
    if not isinstance(verdicts, Sequence) or len(verdicts) != len(paused.pending):
        raise RequestError(
            f"{len(paused.pending)} calls wait for a verdict", "Give one for each, or some by their keys in a mapping."
        )
    return {call.key: _parse_decision(call, verdict) for call, verdict in zip(paused.pending, verdicts, strict=True)}


def _parse_decision(call: GatedCall, verdict: object) -> Verdict | Rewrite:
    """Parse one verdict. `use_result(...)` is only valid for a call whose outcome is unknown."""
    if call.unknown and isinstance(verdict, Rewrite):
        return verdict
    return parse_verdict(verdict, f"the verdict on '{call.name}'")


def summarizer(
    context: Context | None, start: Callable[[Invocation], object], settings: Settings, registry: Registry
) -> Callable[..., object] | None:
    """Return the function that sums up dropped messages: the host's, or one that starts its .prompty file."""
    if context is None or context.summary is None or callable(context.summary):
        return context.summary if context and callable(context.summary) else None
    agent = load(context.summary, missing_env="defer", registry=registry).model_copy(
        update={"tools": (), "outputs": ()}
    )  # the result is text
    own = Settings(
        extra_inputs="ignore",
        model=settings.model,
        cancel=settings.cancel,
        timeout=settings.timeout,
        max_retries=settings.max_retries,
        provider_tools=settings.provider_tools,
    )
    return lambda messages, characters: start(_summary_invocation(agent, messages, characters, own))


def _summary_invocation(
    agent: PromptAgent, messages: Sequence[Message], characters: int, settings: Settings
) -> Invocation:
    lines = [f"{message.role}: {message.text}" for message in messages if message.text]
    inputs = {"conversation": "\n".join(lines), "characters": characters}
    return Invocation(operation="invoke", source=agent, inputs=inputs, settings=settings)
