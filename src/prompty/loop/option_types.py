"""Type checks of a run's options, made before the run starts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from prompty.cancellation import CancelToken
from prompty.errors import WrongArgument
from prompty.loop.budget import Budget
from prompty.loop.context import Context, Tokens
from prompty.loop.policy import AllPolicies, Guardrails
from prompty.registry import Registry
from prompty.steering import Steering


class _Rule(NamedTuple):
    accepts: Callable[[object], bool]
    expected: str
    fix: str


def check_options(function: str, options: Mapping[str, object]) -> None:
    """Raise WrongArgument for the first option of the wrong type."""
    for name, value in options.items():
        rule = _RULES.get(name)
        if rule is not None and not rule.accepts(value):
            raise WrongArgument(f"{function}({name}=…)", value, rule.expected, rule.fix)


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
        "a number of characters, Tokens or a Context",
        "Write Tokens(8000) or Context(limit=…).",
    ),
}
