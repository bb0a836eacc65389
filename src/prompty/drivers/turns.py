"""A turn, put together: the plan for the loop, and the driver that carries it out."""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal
from uuid import uuid4

from prompty.cancellation import CancelToken
from prompty.drivers.aio import AsyncDriver
from prompty.drivers.deadline import Clock
from prompty.drivers.decoding import Outcome
from prompty.drivers.fallbacks import agents_of
from prompty.drivers.finishing import turn_finisher
from prompty.drivers.host import Gate, Host, Listener, MemoryStore, Steering
from prompty.drivers.models import async_model_of, model_of
from prompty.drivers.opening import Opening, opening
from prompty.drivers.spanning import turned, turned_async
from prompty.drivers.summaries import async_summary_of, summary_of
from prompty.drivers.sync import SyncDriver
from prompty.drivers.toolruns import ToolRuns
from prompty.drivers.watch import watched
from prompty.errors import RequestError
from prompty.loop.budget import Budget, Price, tokens_of
from prompty.loop.context import Context, Tokens, context_of
from prompty.loop.effects import Loop, Rewrite, Verdict
from prompty.loop.gate import verdicts as read_verdicts
from prompty.loop.guardrails import Guardrails
from prompty.loop.state import Choice, Plan, Session, TurnState, resumed_state
from prompty.loop.stop import Progress
from prompty.loop.turn import resumed_turn
from prompty.model.agent import PromptAgent
from prompty.model.event import Done, Event
from prompty.model.paused import GatedCall, Paused
from prompty.pipeline.telemetry import show_turn
from prompty.pipeline.validate import validate_inputs
from prompty.pricing import price_of
from prompty.providers import Api
from prompty.tools.toolbox import Tools, toolbox
from prompty.tracing.spans import SILENCE, Span

Execution = Literal["parallel", "sequential"]
Inputs = Mapping[str, object] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnOptions:
    """How a turn goes; `TurnArguments` says what each of them means."""

    tools: Tools = None
    output_type: type[Any] | None = None
    memory: MemoryStore | None = None
    session_id: str | None = None
    gate: Gate | None = None
    approval: object = None
    tool_execution: Execution = "parallel"
    max_parallel: int | None = None
    tool_timeout: float | None = None
    max_iterations: int = 10
    stop: Callable[[Progress], bool] | None = None
    budget: Budget | None = None
    max_retries: int = 3
    timeout: float | None = None
    fallbacks: Sequence[object] | None = None
    guardrails: Guardrails | None = None
    steering: Steering | None = None
    context_budget: int | Tokens | Context | None = None
    cancel: CancelToken | None = None
    on_event: Listener | None = None
    messages: Sequence[object] | None = None

    def __post_init__(self) -> None:
        if self.tool_execution not in ("parallel", "sequential"):
            raise RequestError(
                f"tool_execution is {self.tool_execution!r}", "Write 'parallel', or 'sequential' for one at a time."
            )
        for name in ("max_parallel", "max_iterations"):
            if (given := getattr(self, name)) is not None and given < 1:
                raise RequestError(f"{name} is {given}", "Give it a number of at least 1.")
        if (self.memory is None) != (self.session_id is None):
            raise RequestError("memory and session_id belong together", "Pass both, or none of them.")


class Turn:
    """One turn of an agent, ready to go, or one that goes on from a `state`; `lineage` are the prompts it runs in."""

    def __init__(
        self,
        agent: PromptAgent,
        inputs: Inputs,
        options: TurnOptions,
        *,
        stream: bool,
        state: TurnState | None = None,
        run_id: str | None = None,
        lineage: tuple[str, ...] = (),
        span: Span = SILENCE,
    ) -> None:
        show_turn(span, agent, inputs, options.session_id)
        self.lineage, self.span = lineage, span
        self.agent, self.options, self.stream = agent, options, stream
        self.agents = [agent, *agents_of(agent, options.fallbacks)]
        self.tools = toolbox(agent, options.tools)
        self.inputs = validate_inputs(agent, inputs)
        self.context = context_of(options.context_budget)
        self.budget = options.budget or Budget()
        self.clock = Clock(self.budget.seconds)
        self.run_id = run_id or uuid4().hex
        self.opening = Opening([], 0, 0) if state else opening(agent, inputs, options.messages, options.session_id)
        self.state = state or TurnState(self.opening.messages)

    def left(self) -> Budget:
        """What is left of the budget, for a prompt that runs as a tool of this one."""
        tokens, cost = self.budget.tokens, self.budget.cost
        return Budget(
            tokens=None if tokens is None else max(tokens - tokens_of(self.state.usage), 0),
            cost=None if cost is None else max(Decimal(str(cost)) - (self.state.cost or 0), Decimal()),
            seconds=self.clock.left(),
        )

    def events(self) -> Generator[Event, None, Done | Paused]:
        """What happens, in synchronous code; the generator returns what it comes to."""
        models = [model_of(agent, self.options.cancel) for agent in self.agents]
        host = self._host(summary_of(self.context))
        driver = SyncDriver(models=models, host=host, **self._driving(host, models))
        return turned(self.span, driver.run(self.loop([model.api for model in models])))

    def events_async(self) -> AsyncGenerator[Event | Outcome[Done | Paused], None]:
        """What happens, in asynchronous code, and what it comes to as the outcome."""
        driver = self.async_driver()
        return turned_async(self.span, driver.run(self.loop([model.api for model in driver.models])))

    def async_driver(self) -> AsyncDriver:
        """What performs the effects of the turn in asynchronous code."""
        models = [async_model_of(agent, self.options.cancel) for agent in self.agents]
        host = self._host(async_summary_of(self.context))
        return AsyncDriver(models=models, host=host, **self._driving(host, models))

    def loop(self, apis: Sequence[Api]) -> Loop[Done | Paused]:
        return resumed_turn(self._plan(apis), self.state)

    def _host(self, summary: Callable[..., object] | None) -> Host:
        options = self.options
        return Host(
            gate=options.gate,
            guardrails=options.guardrails,
            summary=summary,
            steering=options.steering,
            memory=options.memory,
            listener=options.on_event,
        )

    def _driving(self, host: Host, models: Sequence[object]) -> dict[str, Any]:
        options = self.options
        runs = ToolRuns(
            agent=self.agent,
            run=self,
            tools=self.tools,
            inputs=self.inputs,
            run_id=self.run_id,
            timeout=options.tool_timeout,
            cancel=options.cancel or CancelToken(),
            approval=options.approval,
            tell=host.tell,
        )
        watch = watched(self.span, self.agents, models, runs.tools, options.session_id)
        return {"tools": runs, "cancel": options.cancel, "clock": self.clock, "watch": watch}

    def _price(self, agent: PromptAgent) -> Price:
        """Answers are priced when somebody can see what they cost: looking a price up takes longer than a tool call."""
        options, limited = self.options, self.budget.cost is not None
        if limited or options.stop or options.on_event or self.stream:
            return price_of(agent, required=limited)
        return lambda _: None

    def _plan(self, apis: Sequence[Api]) -> Plan:
        options = self.options
        models = [
            Choice(agent=agent, api=api, price=self._price(agent)) for agent, api in zip(self.agents, apis, strict=True)
        ]
        return Plan(
            agent=self.agent,
            api=models[0].api,
            price=models[0].price,
            fallbacks=tuple(models[1:]),
            run_id=self.run_id,
            finish=turn_finisher(self.agent, options.output_type),
            strict=options.output_type is not None,
            session=self._session(),
            gated=options.gate is not None,
            guarded=options.guardrails.kinds() if options.guardrails else frozenset(),
            steered=options.steering is not None,
            context=self.context,
            sequential=options.tool_execution == "sequential",
            max_parallel=options.max_parallel,
            max_iterations=options.max_iterations,
            stop=options.stop,
            budget=self.budget,
            max_retries=options.max_retries,
            timeout=options.timeout,
            stream=self.stream,
        )

    def _session(self) -> Session | None:
        if self.options.session_id is None:
            return None
        return Session(id=self.options.session_id, history_at=self.opening.history_at, new_from=self.opening.new_from)


def decisions(paused: Paused, verdicts: object) -> dict[str, Verdict | Rewrite]:
    """What was decided about pending calls: one verdict for each in their order, or some by their keys."""
    if isinstance(verdicts, Mapping):
        unknown = verdicts.keys() - {call.key for call in paused.pending}
        if unknown:
            raise RequestError(f"no pending call has the key {sorted(map(str, unknown))[0]!r}", "See `paused.pending`.")
        return {call.key: _decision(call, verdicts[call.key]) for call in paused.pending if call.key in verdicts}
    if not isinstance(verdicts, Sequence) or len(verdicts) != len(paused.pending):
        raise RequestError(
            f"{len(paused.pending)} calls wait for a verdict", "Give one for each, or some by their keys in a mapping."
        )
    return {call.key: _decision(call, said) for call, said in zip(paused.pending, verdicts, strict=True)}


def _decision(call: GatedCall, said: object) -> Verdict | Rewrite:
    """What somebody said about one call. Only one of which nobody knows what it did can be given a result."""
    if call.unknown and isinstance(said, Rewrite):
        return said
    [verdict] = read_verdicts([said], 1)
    return verdict


def resumed(
    agent: PromptAgent,
    paused: Paused,
    verdicts: Any,
    inputs: Inputs,
    options: TurnOptions,
    *,
    stream: bool,
    span: Span = SILENCE,
) -> Turn:
    """A paused turn, ready to go on with what was decided about its calls."""
    state = resumed_state(paused, decisions(paused, verdicts))
    return Turn(agent, inputs, options, stream=stream, state=state, run_id=paused.run_id, span=span)
