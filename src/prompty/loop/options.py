"""The options of a run, each declared once, and their type checks before it starts.

A new option is a line in one of the TypedDicts below, a default in `Settings`, and its use. Data options survive
JSON, so durable runs store them. Host options are functions and objects of this process.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

from typing_extensions import Doc

from prompty.cancellation import CancelToken
from prompty.errors import RequestError, WrongArgument
from prompty.loop.context import Context, Tokens
from prompty.loop.policy import AllPolicies, Guardrails
from prompty.loop.stop import Budget, Progress
from prompty.memory.store import AsyncMemoryStore, MemoryStore
from prompty.model.event import Event
from prompty.model.paused import GatedCall
from prompty.registry import Registry
from prompty.steering import Steering
from prompty.tools.toolbox import Tools

Gate = Callable[[list[GatedCall]], object]
Listener = Callable[[Event], object]


class CallData(TypedDict, total=False):
    """Data options of every run."""

    model: Annotated[
        str | None,
        Doc(
            "The model to use instead of the file's: an id, or `provider:id`, where `provider` is a registered "
            "provider or a known server such as `ollama` or `groq`."
        ),
    ]
    options: Annotated[
        Mapping[str, object] | None, Doc("Model options, as under `model.options:`. They override the file's.")
    ]
    timeout: Annotated[
        float | None,
        Doc(
            "Timeout in seconds for one answer of the model, including all attempts, for the start of MCP servers, "
            "and for each call of their tools that has no other timeout."
        ),
    ]
    max_retries: Annotated[int, Doc("The maximum number of retries of a failed model call.")]
    fallbacks: Annotated[
        Sequence[object] | None,
        Doc("Models to call if the file's model is unavailable: ids, mappings as under `model:`, or agents."),
    ]
    budget: Annotated[Budget | None, Doc("The tokens, dollars and seconds that the run may use.")]
    provider_tools: Annotated[
        bool,
        Doc("False refuses tools that the provider runs, such as a web search: they cost, and see the prompt."),
    ]
    extra_inputs: Annotated[Literal["error", "ignore"], Doc("Report unknown inputs as an error, or ignore them.")]
    outputs_mode: Annotated[
        Literal["strict", "lenient"],
        Doc(
            "Raise `ResultError` for an answer that does not fit the file's `outputs`, or return it as it came. `run` "
            "always returns it as it came."
        ),
    ]


class CallHost(TypedDict, total=False):
    """Host options of every run."""

    guardrails: Annotated[Guardrails | None, Doc("Functions that check the model's input, output and tool calls.")]
    cancel: Annotated[CancelToken | None, Doc("A token that cancels the run from another thread or task.")]
    on_event: Annotated[Listener | None, Doc("A function to call with every event.")]
    registry: Annotated[Registry | None, Doc("The registry to use instead of the one that the agent was loaded with.")]


class CallOptions(CallData, CallHost, total=False):
    """Options of `run` and `invoke`."""


class RunOptions(CallData, total=False):
    """Options of a turn that are data."""

    session_id: Annotated[str | None, Doc("The conversation to load from `memory`, continue, and store.")]
    approval: Annotated[
        object,
        Doc(
            "When a call needs approval, for all tools or by tool name: `never`, `always`, or a condition such as "
            '`{"when": {"amount": {"minimum": 100}}}`. The file\'s `approvalMode` also applies, and the stricter '
            "policy wins. Without a gate, a call that needs approval pauses the turn."
        ),
    ]
    tool_execution: Annotated[
        Literal["parallel", "sequential"], Doc("Run the tool calls of one answer in parallel, or one at a time.")
    ]
    max_parallel: Annotated[
        int | None, Doc("The maximum number of tool calls that run in parallel. None for no limit.")
    ]
    tool_timeout: Annotated[float | None, Doc("Timeout in seconds for one tool call.")]
    max_iterations: Annotated[int, Doc("The maximum number of answers with tool calls.")]
    context_budget: Annotated[
        int | Tokens | Context | None,
        Doc(
            "How much of the conversation is sent: `Tokens(n)`, a number of characters (not of tokens), or a `Context` "
            "with a summary."
        ),
    ]
    messages: Annotated[
        Sequence[object] | None,
        Doc(
            "A conversation to continue, instead of rendering the file. With a session, an empty list continues the "
            "session without a new message."
        ),
    ]


class HostOptions(CallHost, total=False):
    """Options of a turn that are functions and objects of the host."""

    tools: Annotated[
        Tools,
        Doc("Functions, or the result of `bind_tools`. They need not be declared in the file."),
    ]
    memory: Annotated[
        MemoryStore | AsyncMemoryStore | None, Doc("The session store. Turns of one session wait for each other.")
    ]
    gate: Annotated[
        Gate | None,
        Doc(
            "A function that gets all calls of an answer before any of them runs, and returns a verdict for each: "
            "True, False, `deny(reason)`, or `later()`, which pauses the turn until `resume`."
        ),
    ]
    stop: Annotated[
        Callable[[Progress], bool] | None, Doc("A condition that ends the turn after a round of tools; see `Stop`.")
    ]
    steering: Annotated[Steering | None, Doc("Messages that a user sends while the turn runs.")]
    paused_key: Annotated[
        bytes | None,
        Doc("A secret key that signs `Paused` values. `resume` with a key refuses a value without its signature."),
    ]


class TurnOptions(RunOptions, HostOptions, total=False):
    """Options of `turn` and `resume`."""


# Options that a prompt running as a tool inherits from its parent.
_INHERITED = (
    "approval",
    "cancel",
    "gate",
    "guardrails",
    "max_iterations",
    "max_parallel",
    "max_retries",
    "outputs_mode",
    "provider_tools",
    "registry",
    "timeout",
    "tool_execution",
    "tool_timeout",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All options of a run with their defaults."""

    model: str | None = None
    options: Mapping[str, object] | None = None
    timeout: float | None = None
    max_retries: int = 3
    fallbacks: Sequence[object] | None = None
    budget: Budget | None = None
    provider_tools: bool = True
    extra_inputs: Literal["error", "ignore"] = "error"
    outputs_mode: Literal["strict", "lenient"] = "strict"
    guardrails: Guardrails | None = None
    cancel: CancelToken | None = None
    on_event: Listener | None = None
    registry: Registry | None = None
    session_id: str | None = None
    approval: object = None
    tool_execution: Literal["parallel", "sequential"] = "parallel"
    max_parallel: int | None = 16
    tool_timeout: float | None = None
    max_iterations: int = 10
    context_budget: int | Tokens | Context | None = None
    messages: Sequence[object] | None = None
    tools: Tools = None
    memory: MemoryStore | AsyncMemoryStore | None = None
    gate: Gate | None = None
    stop: Callable[[Progress], bool] | None = None
    steering: Steering | None = None
    paused_key: bytes | None = field(default=None, repr=False)

    def for_child(self, **own: Any) -> "Settings":
        """Return the settings for a prompt that runs as a tool: the inherited ones and its `own`."""
        return Settings(**{name: getattr(self, name) for name in _INHERITED}, **own)


def renders_file(options: Mapping[str, Any]) -> bool:
    """Return True unless the messages of a run take the place of the file's. An empty list continues a session, whose
    system part comes from the file."""
    messages = options.get("messages")
    return messages is None or (options.get("session_id") is not None and messages in ([], ()))


class _Rule(NamedTuple):
    accepts: Callable[[object], bool]
    expected: str
    fix: str


def check_options(function: str, options: Mapping[str, object]) -> None:
    """Raise WrongArgument for the first option of the wrong type. Raise RequestError for a number that is too small."""
    for name, value in options.items():
        rule = _RULES.get(name)
        if rule is not None and not rule.accepts(value):
            raise WrongArgument(f"{function}({name}=…)", value, rule.expected, rule.fix)
    check_numbers(options)


_LEAST = {"max_retries": 0, "max_iterations": 1, "max_parallel": 1}


def check_numbers(options: Mapping[str, Any]) -> None:
    """Raise RequestError for a number that is too small."""
    for name, value in options.items():
        if name in ("timeout", "tool_timeout") and value is not None and value <= 0:
            raise RequestError(
                f"{name} is {value:g}",
                "Give it a number of seconds above 0, or None for no limit.",
                "Give it a number of seconds above 0, or leave it out.",
            )
        if name in _LEAST and value is not None and value < _LEAST[name]:
            raise RequestError(f"{name} is {value}", f"Give it a number of at least {_LEAST[name]}.")


def _is_a(*types: type) -> Callable[[object], bool]:
    return lambda value: value is None or isinstance(value, types)


def _is_callable(value: object) -> bool:
    return value is None or callable(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_seconds(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value))


def _is_list(value: object) -> bool:
    return value is None or (isinstance(value, Sequence) and not isinstance(value, str | bytes))


def _are_tools(value: object) -> bool:
    if value is None or isinstance(value, Mapping):
        return True
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _is_approval(value: object) -> bool:
    """Return True for a policy, or policies by tool. Only the type is checked: an unknown policy means `always`."""
    return value is None or isinstance(value, str | Mapping | AllPolicies)


def _is_memory(value: object) -> bool:
    return value is None or all(callable(getattr(value, name, None)) for name in ("acquire", "load", "append"))


_SECONDS = _Rule(_is_seconds, "a number of seconds", "Write a number such as 30, or None for no limit.")
_COUNT = _Rule(_is_count, "a whole number", "Write a number such as 3.")
_FUNCTION = _Rule(_is_callable, "a function", "Pass the function itself, without calling it.")

_RULES: dict[str, _Rule] = {
    "model": _Rule(_is_a(str), "a str", "Write model='id' or model='provider:id'."),
    "options": _Rule(_is_a(Mapping), "a mapping of model options", "Write options={'temperature': 0}."),
    "timeout": _SECONDS,
    "tool_timeout": _SECONDS,
    "max_retries": _COUNT,
    "max_iterations": _COUNT,
    "max_parallel": _Rule(lambda value: value is None or _is_count(value), _COUNT.expected, _COUNT.fix),
    "fallbacks": _Rule(_is_list, "a list of models", "Write ['model-id'], or mappings as under `model:`."),
    "budget": _Rule(_is_a(Budget), "a Budget", "Write Budget(tokens=…, cost=…, seconds=…)."),
    "provider_tools": _Rule(lambda value: isinstance(value, bool), "True or False", "Write provider_tools=False."),
    "guardrails": _Rule(_is_a(Guardrails), "Guardrails", "Write Guardrails(input=…, output=…, tool=…)."),
    "cancel": _Rule(_is_a(CancelToken), "a CancelToken", "Pass CancelToken()."),
    "registry": _Rule(_is_a(Registry), "a Registry", "Pass Registry()."),
    "steering": _Rule(_is_a(Steering), "a Steering", "Pass Steering()."),
    "on_event": _FUNCTION,
    "gate": _FUNCTION,
    "stop": _FUNCTION,
    "session_id": _Rule(_is_a(str), "a str", "Pass the session's id as a str."),
    "messages": _Rule(_is_list, "a list of messages", "Write [user('…')]."),
    "tools": _Rule(_are_tools, "a list of functions", "Write tools=[function]."),
    "memory": _Rule(_is_memory, "a memory store", "Pass SqliteMemory(path) or InProcessMemory()."),
    "approval": _Rule(_is_approval, "a policy, or policies by tool", "Write 'always', 'never' or {'tool': 'always'}."),
    "context_budget": _Rule(
        lambda value: value is None or _is_count(value) or isinstance(value, Tokens | Context),
        "Tokens, a number of characters, or a Context",
        "Write Tokens(8000) for tokens. A plain number counts characters.",
    ),
}
