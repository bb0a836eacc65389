"""A turn, put together: the plan for the loop, and the driver that carries it out."""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from prompty.drivers.aio import AsyncDriver
from prompty.drivers.calls import finisher
from prompty.drivers.deadline import Clock
from prompty.drivers.decoding import Outcome
from prompty.drivers.models import async_model_of, model_of
from prompty.drivers.sync import Gate, Listener, SyncDriver
from prompty.drivers.toolruns import ToolRuns
from prompty.errors import RequestError
from prompty.loop.budget import Budget, Price
from prompty.loop.stop import Progress
from prompty.loop.turn import Plan, turn
from prompty.model.agent import PromptAgent
from prompty.model.event import Done, Event
from prompty.model.message import Message
from prompty.pipeline.prepare import prepare
from prompty.pipeline.prices import price_of
from prompty.pipeline.request import read_messages
from prompty.pipeline.validate import validate_inputs
from prompty.providers import Api
from prompty.tools.context import CancelToken
from prompty.tools.toolbox import Tools, toolbox

Execution = Literal["parallel", "sequential"]
Inputs = Mapping[str, object] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnOptions:
    """How a turn goes; `turn` says what each of them means."""

    tools: Tools = None
    output_type: type[Any] | None = None
    gate: Gate | None = None
    tool_execution: Execution = "parallel"
    max_parallel: int | None = None
    tool_timeout: float | None = None
    max_iterations: int = 10
    stop: Callable[[Progress], bool] | None = None
    budget: Budget | None = None
    max_retries: int = 3
    timeout: float | None = None
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


class Turn:
    """One turn of an agent, ready to go."""

    def __init__(self, agent: PromptAgent, inputs: Inputs, options: TurnOptions, *, stream: bool) -> None:
        self.agent, self.options, self.stream = agent, options, stream
        self.tools = toolbox(agent, options.tools)
        self.inputs = validate_inputs(agent, inputs)
        self.messages = self._messages(inputs)
        self.budget = options.budget or Budget()
        self.run_id = uuid4().hex

    def _messages(self, inputs: Inputs) -> list[Message]:
        given = self.options.messages
        return prepare(self.agent, inputs) if given is None else read_messages(given)

    def events(self) -> Generator[Event, None, Done]:
        """What happens, in synchronous code; the generator returns what it comes to."""
        model = model_of(self.agent, self.options.cancel)
        return SyncDriver(model=model, **self._driving()).run(turn(self._plan(model.api), self.messages))

    def events_async(self) -> AsyncGenerator[Event | Outcome[Done], None]:
        """What happens, in asynchronous code, and what it comes to as the outcome."""
        model = async_model_of(self.agent, self.options.cancel)
        return AsyncDriver(model=model, **self._driving()).run(turn(self._plan(model.api), self.messages))

    def _driving(self) -> dict[str, Any]:
        options = self.options
        runs = ToolRuns(
            tools=self.tools,
            inputs=self.inputs,
            run_id=self.run_id,
            timeout=options.tool_timeout,
            cancel=options.cancel or CancelToken(),
        )
        clock = Clock(self.budget.seconds)
        return {
            "tools": runs,
            "gate": options.gate,
            "cancel": options.cancel,
            "listener": options.on_event,
            "clock": clock,
        }

    def _price(self) -> Price:
        """Answers are priced when somebody can see what they cost: looking a price up takes longer than a tool call."""
        options, limited = self.options, self.budget.cost is not None
        if limited or options.stop or options.on_event or self.stream:
            return price_of(self.agent, required=limited)
        return lambda _: None

    def _plan(self, api: Api) -> Plan:
        options = self.options
        return Plan(
            agent=self.agent,
            api=api,
            run_id=self.run_id,
            finish=finisher(self.agent, options.output_type),
            price=self._price(),
            gated=options.gate is not None,
            sequential=options.tool_execution == "sequential",
            max_parallel=options.max_parallel,
            max_iterations=options.max_iterations,
            stop=options.stop,
            budget=self.budget,
            max_retries=options.max_retries,
            timeout=options.timeout,
            stream=self.stream,
        )
