"""What a turn is told beforehand, and what has happened in it so far."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any, cast

from prompty.loop.batch import Slots
from prompty.loop.budget import Budget, Price, total
from prompty.loop.context import CHARACTERS_PER_TOKEN, Context
from prompty.loop.effects import Rewrite, Verdict
from prompty.loop.gate import later
from prompty.loop.stop import Progress
from prompty.model.agent import PromptAgent
from prompty.model.event import Done
from prompty.model.message import Message, ToolCall
from prompty.model.paused import GatedCall, Paused
from prompty.model.reply import Reply, Usage, reply_from
from prompty.pipeline.messages import message_from
from prompty.providers import Api
from prompty.tools.results import error_message, result_message


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A model that can be asked."""

    agent: PromptAgent
    api: Api
    price: Price


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """Where a turn is remembered. Among the messages of the turn, history goes to `history_at`, and those from
    `new_from` on are the turn's own: all others are made anew each time."""

    id: str
    history_at: int
    new_from: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a turn is told beforehand. `finish` raises ResultError for an answer that does not fit; where the turn is
    not `strict` about that, the answer is the result all the same."""

    agent: PromptAgent
    api: Api
    run_id: str
    finish: Callable[[Reply], object]
    price: Price
    strict: bool = False
    fallbacks: tuple[Choice, ...] = ()
    session: Session | None = None
    gated: bool = False
    guarded: frozenset[str] = frozenset()
    steered: bool = False
    context: Context | None = None
    sequential: bool = False
    max_parallel: int | None = None
    max_iterations: int = 10
    stop: Callable[[Progress], bool] | None = None
    budget: Budget = field(default_factory=Budget)
    max_retries: int = 3
    timeout: float | None = None
    stream: bool = False

    def choice(self, number: int) -> Choice:
        """The model of the file, or one that stands in for it."""
        own = Choice(agent=self.agent, api=self.api, price=self.price)
        return (own, *self.fallbacks)[number]


@dataclass(slots=True)
class TurnState:
    """What has happened so far. While tools run, `open` is the answer that called them, with a slot for each call, and
    `unknown` are the keys of those of which nobody knows what they did; `saved` is how many messages need not be
    stored (again), once the session is `remembered`: before, it is somebody else's."""

    messages: list[Message]
    iteration: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: Decimal | None = None
    saved: int = 0
    pauses: int = 0
    remembered: bool = False
    open: tuple[Reply, Slots] | None = field(default=None, repr=False)
    decided: Mapping[str, Verdict] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    model: int = 0
    corrected: bool = False
    ratio: float = CHARACTERS_PER_TOKEN
    gone: frozenset[int] = frozenset()
    summary: str = ""

    def count(self, reply: Reply, price: Price) -> None:
        """Add what an answer used. A cost that is not known for one answer is not known for the turn."""
        cost = price(reply)
        known = cost is not None and (self.iteration == 1 or self.cost is not None)
        self.cost = (self.cost or Decimal()) + cost if known and cost is not None else None
        self.usage = total(self.usage, reply.usage)

    def count_tools(self, slots: Slots) -> None:
        """Add what prompts took that ran as tools."""
        for local in (result.local for result in slots if result and "usage" in result.local):
            self.usage = total(self.usage, Usage(**cast(dict[str, int | None], local["usage"])))
            known = self.cost is not None and local["cost"] is not None
            self.cost = self.cost + Decimal(str(local["cost"])) if known and self.cost is not None else None

    def settle(self, api: Api, reason: str) -> None:
        """Put the open answer and its results into the history at once; a call without a result gets one that says
        why it did not run."""
        if self.open is None:
            return
        reply, slots = self.open
        results = [
            result or error_message(call, f"Tool '{call.name}' was not run: {reason}")
            for call, result in zip(reply.tool_calls, slots, strict=True)
        ]
        self.messages += api.tool_messages(reply, results)
        self.open = None

    def progress(self, reply: Reply) -> Progress:
        return Progress(
            rounds=self.iteration,
            calls=reply.tool_calls,
            messages=tuple(self.messages),
            usage=self.usage,
            cost=self.cost,
        )

    def done(self, result: object) -> Done:
        return Done(
            result=result,
            messages=tuple(self.messages),
            usage=self.usage,
            cost=self.cost,
            iterations=self.iteration,
        )

    def paused(self, plan: Plan, reply: Reply, asked: Sequence[tuple[GatedCall, Verdict]]) -> Paused:
        """The turn as a value to go on from. Calls that were judged already keep their verdicts."""
        return Paused(
            run_id=plan.run_id,
            iteration=self.iteration,
            messages=tuple(message.to_json() for message in self.messages),
            reply=reply.to_json(),
            usage=asdict(self.usage),
            pending=tuple(replace(call, unknown=call.key in self.unknown) for call, verdict in asked if verdict.later),
            decided={call.key: (verdict.allowed, verdict.reason) for call, verdict in asked if not verdict.later},
            results=tuple(result.to_json() if result else None for result in self.open[1]) if self.open else (),
            standing={
                "model": self.model,
                "corrected": self.corrected,
                "ratio": self.ratio,
                "gone": sorted(self.gone),
                "summary": self.summary,
            },
            cost=None if self.cost is None else str(self.cost),
            session_id=plan.session.id if plan.session else None,
            saved=self.saved,
            pauses=self.pauses,
        )


def resumed_state(paused: Paused, said: Mapping[str, Verdict | Rewrite]) -> TurnState:
    """The state of a turn that was paused, with what has been decided about its calls."""
    reply = reply_from(paused.reply)
    slots = [message_from(result) if result else None for result in paused.results] or [None] * len(reply.tool_calls)
    for call in (call for call in paused.pending if call.key in said):
        position = int(call.key.rpartition(":")[2])
        slots[position] = _settled(reply.tool_calls[position], call, said[call.key])
    decided = {call.key: later() for call in paused.pending}
    decided |= {key: Verdict(allowed, reason) for key, (allowed, reason) in paused.decided.items()}
    standing = cast(dict[str, Any], paused.standing)
    return TurnState(
        messages=[message_from(message) for message in paused.messages],
        iteration=paused.iteration,
        usage=Usage(**paused.usage),  # type: ignore[arg-type]  # JSON of a Usage
        cost=None if paused.cost is None else Decimal(paused.cost),
        saved=paused.saved,
        pauses=paused.pauses + 1,
        open=(reply, slots),
        unknown=frozenset(call.key for call in paused.pending if call.unknown),
        decided={**decided, **{key: one for key, one in said.items() if isinstance(one, Verdict)}},
        **{**standing, "gone": frozenset(standing.get("gone", ()))},
    )


def _settled(call: ToolCall, asked: GatedCall, said: Verdict | Rewrite) -> Message | None:
    """The result of a call that a person has settled without running it: what it gave, or that it counts as failed."""
    if isinstance(said, Rewrite):
        return result_message(call, said.value)
    if said.allowed or said.later or not asked.unknown:
        return None
    reason = said.reason or "it was interrupted, and what it has done is not known"
    return error_message(call, f"Tool '{call.name}' failed: {reason}")
