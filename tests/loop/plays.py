"""Random turns, decided beforehand: what the model, the gate, the tools and the user who interrupts will say.

Everything that is said depends on what it answers and on nothing else, so that a turn can be played twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from prompty import Budget, Message, Stop, ToolCall, Usage, assistant, tool_result, user
from prompty.errors import BudgetSpent, Cancelled, ModelError, PromptyError, RequestError
from prompty.events import Verdict
from prompty.loop.effects import OfferedTool
from prompty.loop.options import Settings
from prompty.loop.state import Choice, Hooks, Plan
from prompty.model.message import Reply
from prompty.providers.fitting import fit_request
from prompty.testing.encoding import WIRES
from prompty.tools import Function
from tests.loop.bodies import AGENTS, APIS

Failure = Callable[[], PromptyError]


def _function(name: str, *required: str) -> Function:
    schema = {"type": "object", "properties": {one: {"type": "string"} for one in required}}
    return Function(name=name, description=None, parameters={**schema, "required": list(required)})


TOOLS = (
    OfferedTool(function=_function("look", "at")),
    OfferedTool(function=_function("pay", "amount"), bound=("account",), timeout=5),
    OfferedTool(function=_function("alone"), sequential=True),
)
# name, arguments
GOOD = (
    ("look", '{"at": "the sky"}'),
    ("look", '```json\n{"at": "the sky"}\n```'),
    ("look", '```\n{"at": ""}\n```'),
    ("pay", '{"amount": "5", "account": "of somebody else"}'),
    ("alone", "{}"),
    ("alone", ""),
)
BAD = (
    ("look", '{"at": 1}'),
    ("look", '{"at": "the'),
    ("look", "{}"),
    ("look", "the sky"),
    ("look", '["at"]'),
    ("look", "null"),
    ("pay", '{"account": "mine"}'),
    ("pay", '{"amount": NaN}'),
    ("nobody", "{}"),
    ("", "{}"),
    ("no such tool!", '{"at": "the sky"}'),
    ("Look", '{"at": "the sky"}'),
)
IDS = ("call_0", "call_0_2", "call_0_3", "call_0_2_2", "", "call", "call_2", "a b", "ü", "9", "x" * 64, "x" * 70)


@dataclass(frozen=True)
class Asked:
    """An answer of the model, and which of its calls may run at all."""

    reply: Reply
    runnable: tuple[bool, ...]


@dataclass(frozen=True)
class Play:
    """One turn, decided beforehand."""

    plan: Plan
    history: tuple[Message, ...]
    answers: tuple[Asked | Failure, ...]
    verdicts: tuple[Callable[[int], object], ...]
    outcomes: tuple[str | None, ...]
    waits: tuple[Failure | None, ...]
    interruptions: dict[int, Failure]
    crashes: frozenset[int]

    def outcome(self, call: ToolCall, key: str) -> Message | None:
        """What a tool gives: always the same for the same call."""
        _, iteration, position = key.split(":")
        said = self.outcomes[(int(iteration) * 3 + int(position)) % len(self.outcomes)]
        if said is None:
            return None
        text, is_error = f"{said} {key}", said == "Error:"
        return Message("tool", text, tool_call_id=call.id, tool_name=call.name, is_error=is_error)


def _retryable() -> ModelError:
    return ModelError("try again", retryable=True, retry_after=0.1)


def _permanent() -> ModelError:
    return ModelError("never", status=400)


def _no_time() -> BudgetSpent:
    return BudgetSpent("no time left")


interruptions: st.SearchStrategy[Failure] = st.sampled_from([Cancelled, _no_time])
faults = st.sampled_from([_retryable, _retryable, _permanent])
texts = st.sampled_from(["", "Well.", "  ", "So: 漢"])
usages = st.builds(Usage, input_tokens=st.none() | st.integers(0, 60), output_tokens=st.none() | st.integers(0, 60))
ids = st.sampled_from(IDS) | st.text("ab_-2", max_size=3)


@st.composite
def id_lists(draw: st.DrawFn, count: int) -> list[str]:
    """Ids of one answer: all the same, all different, or anything."""
    match draw(st.sampled_from(["same", "numbered", "any"])):
        case "same":
            return [draw(ids)] * count
        case "numbered":
            return [f"call_{number}" for number in range(count)]
        case _:
            return draw(st.lists(ids, min_size=count, max_size=count))


@st.composite
def asking(draw: st.DrawFn, api_name: str) -> Asked:
    """An answer with calls: as the API's own JSON is read, or made by hand, as a processor of the host's does."""
    wanted = draw(st.lists(st.sampled_from(GOOD * 4 + BAD), min_size=1, max_size=4))
    named = zip(wanted, draw(id_lists(len(wanted))), strict=True)
    calls = tuple(ToolCall(id=one, name=name, arguments=arguments) for (name, arguments), one in named)
    reply = Reply(text=draw(texts), tool_calls=calls, usage=draw(usages), id="r", model="m", **draw(thoughts(api_name)))
    return Asked(_read(api_name, reply, draw(st.booleans())), tuple(one in GOOD for one in wanted))


def thoughts(api_name: str) -> st.SearchStrategy[dict[str, Any]]:
    along = {
        "chat": {"reasoning_details": [{"type": "reasoning.text", "text": "Hm", "index": 0, "signature": "c2ln"}]},
        "responses": {"encrypted_content": "c2VjcmV0"},
        "messages": {"signature": "c2lnbmVk"},
    }
    return st.sampled_from([{}, {"reasoning": "Hm"}, {"reasoning": "Hm", "opaque": along[api_name]}])


def _read(api_name: str, reply: Reply, by_hand: bool) -> Reply:
    if by_hand:
        return replace(reply, opaque={})
    api = APIS[api_name]
    return api.reply(WIRES[api.path].whole(reply))


@st.composite
def answering(draw: st.DrawFn, api_name: str) -> Asked:
    reply = Reply(text=draw(texts), usage=draw(usages), id="r", model="m", **draw(thoughts(api_name)))
    return Asked(_read(api_name, reply, draw(st.booleans())), ())


CLEAR = (True, True, True, False, Verdict(True), Verdict(False, "no"))
ENTRIES = (*CLEAR * 4, Verdict(1, "almost"), None, "yes", 1)  # type: ignore[arg-type]  # a gate may say anything


@st.composite
def gates(draw: st.DrawFn) -> Callable[[int], object]:
    """What a gate says about so many calls."""
    entries = tuple(draw(st.lists(st.sampled_from(ENTRIES), min_size=4, max_size=4)))
    form = draw(st.sampled_from(FORMS))
    return lambda count: form(entries[:count])


FORMS: tuple[Callable[[tuple[object, ...]], object], ...] = (
    *[list] * 6,
    *[tuple] * 6,
    lambda entries: [True] * len(entries),
    lambda entries: [True] * len(entries),
    lambda entries: [Verdict(True)] * len(entries),
    lambda _: None,
    lambda _: True,
    lambda entries: "y" * len(entries),
    lambda entries: [*entries, True],
    lambda entries: entries[1:],
    lambda entries: dict.fromkeys(range(len(entries)), True),
    lambda entries: iter(entries),
)


def lets_through(answer: object, count: int) -> list[bool] | None:
    """Which calls an answer of a gate lets run, worked out again: only a clear yes in a list of the right length. An
    answer that is not one verdict for each call is none."""
    if not isinstance(answer, list | tuple) or len(answer) != count:
        return None
    if any(not isinstance(entry.allowed if isinstance(entry, Verdict) else entry, bool) for entry in answer):
        return None
    return [entry is True or (isinstance(entry, Verdict) and entry.allowed) for entry in answer]


@st.composite
def earlier(draw: st.DrawFn) -> tuple[Message, ...]:
    """What was said before: nothing, or a turn with calls whose results may be missing or wrong."""
    if draw(st.booleans()):
        return (user("Hi"),)
    named = draw(st.lists(ids, min_size=1, max_size=2))
    calls = [ToolCall(id=one, name="look", arguments='{"at": "me"}') for one in named]
    results = [tool_result(one, "seen") for one in draw(st.lists(st.sampled_from([*named, "other"]), max_size=3))]
    return (user("Hi"), assistant("", tool_calls=calls), *results, user("And now?"))


def _no_result(_: Reply) -> object:
    raise RequestError("it does not fit", "Ask again.")


stops = st.sampled_from([None, None, None, None, Stop.steps(2), Stop.tool_called("look", "nobody"), Stop.tokens(60)])
budgets = st.sampled_from([Budget(), Budget(), Budget(), Budget(tokens=100), Budget(cost=1)])


@st.composite
def plans(draw: st.DrawFn, api_name: str) -> Plan:
    price = draw(st.sampled_from([None, Decimal("0.4")]))
    return Plan(
        run_id="run",
        choices=[
            Choice(agent=AGENTS[api_name], base=fit_request(AGENTS[api_name], APIS[api_name]), price=lambda _: price)
        ],
        finish=draw(st.sampled_from([lambda reply: reply.text, lambda reply: reply.text, _no_result])),
        hooks=Hooks(gate=draw(st.booleans())),
        settings=Settings(
            tool_execution=draw(st.sampled_from(["parallel", "parallel", "sequential"])),
            max_parallel=draw(st.none() | st.integers(1, 2)),
            max_iterations=draw(st.sampled_from([3, 2, 1, 3])),
            stop=draw(stops),
            budget=draw(budgets),
            max_retries=draw(st.integers(0, 2)),
        ),
        stream=draw(st.booleans()),
    )


@st.composite
def scripts(draw: st.DrawFn, api_name: str) -> tuple[Asked | Failure, ...]:
    """What the model says: mostly calls."""
    kinds = draw(st.lists(st.sampled_from("ccccccccctf"), min_size=1, max_size=5))
    said: dict[str, st.SearchStrategy[Asked | Failure]] = {"c": asking(api_name), "t": answering(api_name), "f": faults}
    return tuple(draw(said[kind]) for kind in kinds)


@st.composite
def plays(draw: st.DrawFn) -> Play:
    """A turn that ends at some time: after what the model says here it answers without calls."""
    api_name = draw(st.sampled_from(sorted(APIS)))
    return Play(
        plan=draw(plans(api_name)),
        history=draw(earlier()),
        answers=(*draw(scripts(api_name)), Asked(Reply(text="The end."), ())),
        verdicts=tuple(draw(st.lists(gates(), min_size=4, max_size=4))),
        outcomes=tuple(
            draw(st.lists(st.sampled_from(["Seen", "Seen", "Seen", "Seen", "Error:", None]), min_size=1, max_size=7))
        ),
        waits=tuple(draw(st.lists(st.sampled_from([None, None, None, _retryable]), min_size=4, max_size=4))),
        interruptions=draw(st.sampled_from([{}, {}]) | st.dictionaries(st.integers(0, 12), interruptions, max_size=1)),
        crashes=draw(st.frozensets(st.integers(0, 30), max_size=6)),
    )
