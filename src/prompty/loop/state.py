"""The plan of a run, made before it starts, and its state, which changes while it runs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple, cast

from prompty.errors import PausedRefused
from prompty.loop.context import Context, Gauge
from prompty.loop.effects import Rewrite, Verdict
from prompty.loop.meter import Meter
from prompty.loop.options import Settings
from prompty.loop.policy import later, list_policies
from prompty.loop.stop import Price, Progress
from prompty.loop.tool_step import Slots
from prompty.model.agent import PromptAgent
from prompty.model.citation import ProviderCall, parse_provider_calls
from prompty.model.event import Done
from prompty.model.message import Message, Reply, ToolCall, Usage
from prompty.model.paused import GatedCall, Paused
from prompty.pipeline.caching import CacheUse
from prompty.providers import Api, RequestBase
from prompty.tools.calls import error_message, result_message


class Choice(NamedTuple):
    """A model to call, what its requests have in common, and the price of its answers."""

    agent: PromptAgent
    base: RequestBase
    price: Price


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionPlan:
    """The place of a session in the messages of a turn.

    The history is inserted at `history_at`. Messages from `new_from` on are stored; those before are rendered again
    each turn.
    """

    id: str
    history_at: int
    new_from: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """The host's functions that a run calls. A durable run stores this, because every worker must call the same."""

    gate: bool = False
    guardrails: frozenset[str] = frozenset()
    summary: bool = False
    steering: bool = False


NO_HOOKS = Hooks()


class Plan(NamedTuple):
    """Everything the loop knows before it starts. `choices` are the file's model and its fallbacks.

    `finish` converts an answer to the result, and raises ResultError if it does not match. A turn sends such an answer
    back once. With `keeps_refusals`, `finish` also gets the refusals of streams. Without `run_tools` there is one
    answer and no tool runs. Unless the run is `observed`, events that only report progress are omitted.
    `cache_use` says what of its requests will be sent again.
    """

    run_id: str
    choices: Sequence[Choice]
    settings: Settings
    finish: Callable[[Reply], object]
    hooks: Hooks = NO_HOOKS
    keeps_refusals: bool = False
    run_tools: bool = True
    session: SessionPlan | None = None
    context: Context | None = None
    stream: bool = False
    has_tools: bool = True
    observed: bool = True
    cache_use: CacheUse | None = None


@dataclass(slots=True)
class TurnState:
    """The messages and counters of a run.

    - `meter`: what this run and those below it use.
    - `saved`: number of leading messages already persisted; meaningless until `session_loaded`.
    - `pending_batch`: while tools run, the answer that called them, with a slot for each result.
    - `stored`: number of messages in the session.
    - `resumed`: the pause that the run continues from, until its calls start to run.
    - `uncertain_calls`: keys of calls whose outcome is unknown, because their process died during the call.
    - `calls`: number of model calls, for `CallModel.call`.
    - `last_reply`: the model's last answer; after a pause, the one that the pause is about.
    - `provider_calls`: the tools that providers ran, also for prompts that run as tools.
    - `counted`: keys of tool calls whose usage and provider calls are counted.
    - `gauge`: how tokens follow from messages, once a context budget has asked.
    - `dropped`: positions that do not fit the context; `summary` replaces them.
    - `bases`: what requests have in common if a server asked for another API than the plan's, by the number of the
      model.
    - `omitted`: options that were not sent because a model refuses them, with the reason.
    """

    messages: list[Message]
    iteration: int = 0
    meter: Meter = field(default_factory=Meter, repr=False)
    saved: int = 0
    stored: int = 0
    pauses: int = 0
    session_loaded: bool = False
    resumed: Paused | None = field(default=None, repr=False)
    pending_batch: tuple[Reply, Slots] | None = field(default=None, repr=False)
    decided: Mapping[str, Verdict] = field(default_factory=dict)
    uncertain_calls: frozenset[str] = frozenset()
    calls: int = 0
    model: int = 0
    repair_used: bool = False
    gauge: Gauge | None = None
    dropped: frozenset[int] = frozenset()
    summary: str = ""
    bases: dict[int, RequestBase] = field(default_factory=dict, repr=False)
    omitted: dict[str, str] = field(default_factory=dict)
    last_reply: Reply | None = field(default=None, repr=False)
    provider_calls: tuple[ProviderCall, ...] = ()
    counted: set[str] = field(default_factory=set, repr=False)

    @property
    def usage(self) -> Usage:
        return self.meter.usage

    @property
    def cost(self) -> Decimal | None:
        return self.meter.cost

    def count(self, reply: Reply, choice: Choice) -> None:
        """Count an answer, or a piece of one."""
        self.last_reply = reply
        self.meter.count(choice.agent, reply, choice.price(reply))

    def count_tools(self, run_id: str) -> None:
        """Count what prompts that ran as tools have used, unless it was counted while they ran."""
        for position, result in enumerate(self.pending_batch[1] if self.pending_batch else ()):
            key = f"{run_id}:{self.iteration}:{position}"
            if result and result.usage and key not in self.counted:
                self.counted.add(key)
                self.provider_calls += result.provider_calls
                self.meter.count_stored(key, result.usage, result.cost)

    def settle(self, api: Api, reason: str) -> None:
        """Append the pending answer and its results. A call without a result gets the reason why it did not run."""
        if self.pending_batch is None:
            return
        reply, slots = self.pending_batch
        results = [
            result or error_message(call, f"Tool '{call.name}' was not run: {reason}")
            for call, result in zip(reply.tool_calls, slots, strict=True)
        ]
        self.messages += api.tool_messages(reply, results)
        self.pending_batch = None

    def progress(self, reply: Reply) -> Progress:
        return Progress(
            rounds=self.iteration,
            calls=reply.tool_calls,
            messages=tuple(self.messages),
            usage=self.usage,
            cost=self.cost,
        )

    def done(self, result: object) -> Done:
        answers = (message for message in reversed(self.messages) if message.role == "assistant")
        return Done(
            result=result,
            messages=tuple(self.messages),
            usage=self.usage,
            cost=self.cost,
            iterations=self.iteration,
            citations=next((message.citations for message in answers), ()),
            provider_calls=self.provider_calls,
        )

    def paused(self, plan: Plan, reply: Reply, calls: Sequence[tuple[GatedCall, Verdict]]) -> Paused:
        """Return the turn as a value to resume from. Decided calls keep their verdicts."""
        slots = self.pending_batch[1] if self.pending_batch else []
        paused = Paused(
            run_id=plan.run_id,
            iteration=self.iteration,
            messages=tuple(message.to_json() for message in self.messages),
            reply=reply.to_json(),
            usage={**self.usage.to_json()},
            calls=tuple(
                replace(call, unknown=verdict.deferred and call.key in self.uncertain_calls) for call, verdict in calls
            ),
            decided={call.key: (verdict.allowed, verdict.reason) for call, verdict in calls if not verdict.deferred},
            results=tuple(result.to_json() if result else None for result in slots),
            policy={
                "gate": plan.hooks.gate,
                "guardrails": sorted(plan.hooks.guardrails),
                "approval": [_policy_to_json(policy) for policy in list_policies(plan.settings.approval)],
            },
            carry_over={
                "model": self.model,
                "repair_used": self.repair_used,
                **(self.gauge._asdict() if self.gauge else {}),
                "dropped": sorted(self.dropped),
                "summary": self.summary,
                **({"provider_calls": [call.to_json() for call in self.provider_calls]} if self.provider_calls else {}),
            },
            cost=None if self.cost is None else str(self.cost),
            session_id=plan.session.id if plan.session else None,
            saved=self.saved,
            stored=self.stored if plan.session else None,
            pauses=self.pauses,
        )
        return paused.sign(plan.settings.paused_key) if plan.settings.paused_key else paused


def _policy_to_json(policy: object) -> object:
    """Return a policy as JSON. A policy that JSON cannot represent is unknown, which means `always`."""
    try:
        return json.loads(json.dumps(policy))
    except (TypeError, ValueError):
        return "always"


def check_policies(paused: Paused, hooks: Hooks) -> None:
    """Raise PausedRefused if a paused turn would continue with other guardrails, or without its gate."""
    before, now = cast(list[str], paused.policy["guardrails"]), sorted(hooks.guardrails)
    if sorted(before) != now:
        raise PausedRefused(
            f"it was paused with the guardrails {', '.join(before) or 'none'}, and is resumed with "
            f"{', '.join(now) or 'none'}",
            "Resume it with the same guardrails=.",
        )
    if paused.policy["gate"] and not hooks.gate:
        raise PausedRefused("it was paused with a gate, and is resumed without one", "Resume it with a gate=.")


def resumed_state(
    paused: Paused, decisions: Mapping[str, Verdict | Rewrite], meter: Callable[..., Meter] = Meter
) -> TurnState:
    """Return the state of a paused turn, with the decisions about its calls. `meter` makes its meter."""
    reply = Reply.from_json(paused.reply)
    slots: Slots = [Message.from_json(result) if result else None for result in paused.results]
    for call in (call for call in paused.pending if call.key in decisions):
        position = int(call.key.rpartition(":")[2])
        slots[position] = _settled_result(reply.tool_calls[position], call, decisions[call.key])
    decided = {call.key: later() for call in paused.pending}
    decided |= {key: Verdict(allowed, reason) for key, (allowed, reason) in paused.decided.items()}
    carry_over = dict(cast(dict[str, Any], paused.carry_over))
    gauge = Gauge(**{name: carry_over.pop(name) for name in Gauge._fields if name in carry_over})
    return TurnState(
        messages=[Message.from_json(message) for message in paused.messages],
        iteration=paused.iteration,
        meter=meter(
            usage=Usage(**paused.usage),  # type: ignore[arg-type]  # JSON of a Usage
            cost=None if paused.cost is None else Decimal(paused.cost),
            has_answers=True,
        ),
        counted={f"{paused.run_id}:{paused.iteration}:{at}" for at, result in enumerate(paused.results) if result},
        saved=paused.saved,
        pauses=paused.pauses + 1,
        pending_batch=(reply, slots),
        last_reply=reply,
        resumed=paused,
        uncertain_calls=frozenset(call.key for call in paused.pending if call.unknown),
        decided={**decided, **{key: verdict for key, verdict in decisions.items() if isinstance(verdict, Verdict)}},
        **{
            **carry_over,
            "gauge": gauge,
            "dropped": frozenset(carry_over.get("dropped", ())),
            "provider_calls": parse_provider_calls(carry_over.get("provider_calls")),
        },
    )


def _settled_result(call: ToolCall, pending: GatedCall, decision: Verdict | Rewrite) -> Message | None:
    """Return the result of a call that was decided without running it, or None if it may run."""
    if isinstance(decision, Rewrite):
        return result_message(call, decision.value)
    if decision.allowed or decision.deferred or not pending.unknown:
        return None
    reason = decision.reason or "it was interrupted; it may or may not have taken effect"
    return error_message(call, f"Tool '{call.name}' failed: {reason}")
