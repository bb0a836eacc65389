"""Jinja2's sandbox, in which everything that takes time or memory is paid for.

The sandbox keeps a template away from Python; it does not keep it from asking for half a gigabyte of x or for
nested loops that take minutes. `jinja2_limits` has the budget of a render, `jinja2_prices` what things cost, and
`jinja2_metering` puts the filters of this module into a template.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import wraps
from typing import Any, NoReturn, cast

from jinja2 import TemplateAssertionError, pass_context
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from prompty.renderers.jinja2_limits import (
    CHARACTERS_PER_STEP,
    CONTAINERS,
    STEPS_PER_PART,
    BudgetedContext,
    bounded,
    listed,
    measure,
)
from prompty.renderers.jinja2_prices import comparison_price, is_light, operator_price, price

_ROUND_DEEPER = 20


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with everything that takes time or memory paid for."""

    context_class = BudgetedContext
    intercepted_binops = frozenset({"+", "-", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=as_text, keep_trailing_newline=True, **options)
        self.filters = {name: _guarded(name, function) for name, function in self.filters.items()}
        self.filters |= {"_counted": counted, "_paid": paid, "_copied": copied, "_key": key}
        self.filters |= {"_compared": compared, "_concatenated": concatenated}
        self.tests |= {name: _guarded_test(cast(Any, self.tests[name]), price) for name, price in _TEST_PRICES.items()}
        self.globals["namespace"] = BriefNamespace
        del self.globals["lipsum"]

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """What joins the output, and the text of a macro or a block."""
        pieces = list(pieces)
        bounded(sum(map(len, pieces)))
        return "".join(pieces)

    def handle_exception(self, source: str | None = None) -> NoReturn:
        """Raise it as it is: to rewrite the traceback takes longer than most renders, and nobody sees it."""
        raise

    def call_filter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("_"):  # as in `map("_paid")`
            raise TemplateAssertionError(f"No filter named {name!r}.", 1)
        return super().call_filter(name, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _REFUSED_METHODS and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        context.budget.spend(operator_price(operator, left, right))
        result = super().call_binop(context, operator, left, right)
        return context.budget.made(result) if isinstance(result, str) else result

    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        given = {name: value for name, value in kwargs.items() if name not in ("_loop_vars", "_block_vars")}
        context.budget.spend(len(args) + len(given))
        if isinstance(function, Macro | BlockReference | LoopContext):
            return self._call_template(context, function, args, kwargs)
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps `str.format`
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str | list | tuple | dict):
            return self._call_method(context, function, f"{_kind(owner)}.{method.__name__}", (owner, *args), given)
        searched = len(owner) if isinstance(owner, (range, *CONTAINERS)) else 0  # `range(9).count("x")`
        context.budget.spend(searched + measure(*args, *given.values()).steps)
        return context.budget.made(super().call(context, function, *args, **kwargs))

    def _call_template(self, context: Any, function: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(function, LoopContext):  # `loop(children)` of a recursive loop
            args = tuple(counted(context, iterable, _ROUND_DEEPER) for iterable in args)
        with context.budget.deeper():
            return context.budget.made(super().call(context, function, *args, **kwargs))

    def _call_method(self, context: Any, method: Any, operation: str, args: Any, kwargs: Any) -> Any:
        owner, *rest = map(listed, args)
        context.budget.spend(price(operation, (owner, *rest), kwargs))
        result = super().call(context, method, *rest, **kwargs)
        return result if is_light(operation) else context.budget.made(result)


# Bytes are no text, and a table for `translate` can turn one character into a million.
_REFUSED_METHODS = frozenset({"encode", "from_bytes", "maketrans", "to_bytes", "translate"})


def _kind(owner: object) -> str:
    if isinstance(owner, str):
        return "str"
    return "dict" if isinstance(owner, dict) else "list"


class BriefNamespace(Namespace):
    """A namespace that shows nothing of what it holds."""

    def __repr__(self) -> str:
        return "<Namespace>"


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, paid for by the size of what it gets and gives."""
    wants = getattr(function, "jinja_pass_arg", None)

    @pass_context
    @wraps(function)
    def guarded(context: BudgetedContext, /, *args: Any, **kwargs: Any) -> Any:
        if not is_light(name):
            args = tuple(map(listed, args))
        context.budget.spend(price(name, args, kwargs))
        leading = [_passed(wants.name, context)] if wants else []
        result = function(*leading, *args, **kwargs)
        return result if is_light(name) else context.budget.made(result)

    return guarded


def _passed(wanted: str, context: Context) -> object:
    return {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}[wanted]


def _guarded_test(function: Callable[..., Any], price: Callable[..., int]) -> Callable[..., Any]:
    @pass_context
    @wraps(function)
    def guarded(context: BudgetedContext, /, *args: Any, **kwargs: Any) -> Any:
        args = tuple(map(listed, args))
        context.budget.spend(price(*args, **kwargs))
        return function(*args, **kwargs)

    return guarded


_TEST_PRICES: dict[str, Callable[..., int]] = {
    "divisibleby": lambda value, num: operator_price("%", value, num),
    "even": lambda value: operator_price("%", value, 2),
    "odd": lambda value: operator_price("%", value, 2),
    "lower": lambda value: price("lower", (value,), {}),
    "upper": lambda value: price("upper", (value,), {}),
    "in": lambda value, seq: comparison_price("in", value, seq),
}
_COMPARING = {
    "==",
    "eq",
    "equalto",
    "!=",
    "ne",
    "<",
    "lt",
    "lessthan",
    "<=",
    "le",
    ">",
    "gt",
    "greaterthan",
    ">=",
    "ge",
}
_TEST_PRICES |= dict.fromkeys(_COMPARING, lambda left, right: comparison_price("eq", left, right))


# What a template does, as filters that know the render they are part of.


@pass_context
def as_text(context: BudgetedContext, value: object) -> str:
    """What `{{ value }}` writes."""
    if isinstance(value, str):
        return context.budget.write(value)
    if not isinstance(value, int | float):
        size = measure(value)
        bounded(size.as_text)
        context.budget.spend(size.steps)
    return context.budget.write(str(value))


@pass_context
def counted(context: BudgetedContext, iterable: Any, steps: int) -> Any:
    """What a `for` goes over, paid for before the first round."""
    if isinstance(iterable, Undefined):
        return iterable
    rounds = iterable if isinstance(iterable, Sized) else listed(iter(iterable))
    context.budget.spend(len(rounds) * steps)
    return rounds


@pass_context
def paid(context: BudgetedContext, steps: int) -> None:
    """What a macro does first, or a round of a recursive loop."""
    context.budget.spend(steps)


@pass_context
def copied(context: BudgetedContext, value: Any) -> Any:
    """What `value[1:]` takes a copy of."""
    if isinstance(value, str):
        context.budget.spend(len(value) // CHARACTERS_PER_STEP)
    elif isinstance(value, list | tuple):
        context.budget.spend(len(value) // 4)
    return value


@pass_context
def key(context: BudgetedContext, value: Any) -> Any:
    """What `values[value]` looks for; every part of a tuple is looked at."""
    if isinstance(value, tuple):
        context.budget.spend(measure(value).steps)
    return value


@pass_context
def concatenated(context: BudgetedContext, parts: list[object]) -> str:
    """What `a ~ b` gives."""
    size = measure(*parts)
    bounded(size.as_text)
    context.budget.spend(size.parts * STEPS_PER_PART)
    return str(context.budget.made("".join(map(str, parts))))


@pass_context
def compared(context: BudgetedContext, left: Any, *rest: Any) -> Any:
    """What `a < b` gives, or `a < b in c`."""
    result = None
    for name, right in zip(rest[::2], map(listed, rest[1::2]), strict=True):
        context.budget.spend(comparison_price(name, left, right))
        result = _COMPARISONS[name](left, right)
        if not result:
            break
        left = right
    return result


_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda item, where: item in where,
    "notin": lambda item, where: item not in where,
}
