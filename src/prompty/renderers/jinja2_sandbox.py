"""Jinja2's sandbox with a step budget for every render, which bounds its time and memory.

The sandbox isolates a template from Python. It does not stop a template that asks for half a gigabyte of text, or for
nested loops that run for minutes. Here filters, tests, calls and operators are charged as they run; `Meter` adds
charges to a parsed template for the rest. Used by `renderers.jinja2`; the costs are in `renderers.jinja2_limits`.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sized
from functools import wraps
from typing import Any, NoReturn

from jinja2 import TemplateAssertionError, nodes, pass_context
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from prompty.renderers.jinja2_limits import (
    BITS,
    CHARACTERS,
    CONTAINERS,
    LIGHT,
    LOOPS,
    PARTS,
    SOURCE,
    STEPS,
    TOKENS,
    WIDE_NUMBERS,
    call_steps,
    comparison_steps,
    measure,
    operator_steps,
    to_list,
)

# Bytes are not text, and a table for `translate` can turn one character into a million.
_REFUSED_METHODS = frozenset({"encode", "from_bytes", "maketrans", "to_bytes", "translate"})
_CHARGED_TESTS = {"==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", "<=", "le", ">", "gt", "greaterthan"}
_CHARGED_TESTS |= {">=", "ge", "divisibleby", "even", "odd", "lower", "upper"}

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt}
_OPERATORS |= {"lteq": operator.le, "gt": operator.gt, "gteq": operator.ge}
_OPERATORS |= {"in": lambda item, values: item in values, "notin": lambda item, values: item not in values}

_TEMPLATE_CALLS = (Macro, BlockReference, LoopContext)
_NUMBERS = (int, float)
_METHOD_OWNERS = (str, range, *CONTAINERS)
_LONG_NUMBER = re.compile(r"(?<![\da-fA-F_])[\da-fA-F_]{250000}")


class RenderUsage:
    """Steps used so far by one render, and its current depth of macro, block and recursive loop calls."""

    steps = depth = 0


class LimitedContext(Context):
    """The state of one render. Methods with `pass_context` are filters that `Meter` adds to a template."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.usage: RenderUsage = RenderUsage()

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        context = super().derived(locals)
        if isinstance(context, LimitedContext):
            context.usage = self.usage
        return context

    @pass_context
    def spend(self, steps: float) -> None:
        if steps > 0:  # a number in the template can make it negative or NaN
            self.usage.steps += int(steps)
        if self.usage.steps > STEPS.maximum:
            STEPS.check(self.usage.steps)

    @pass_context
    def write(self, value: object) -> str:
        """Return the text of `{{ value }}`."""
        if not isinstance(value, str):
            if isinstance(value, CONTAINERS):
                self.spend(CHARACTERS.check(measure(value)) // 4)
            value = str(value)
        self.spend(4 + value.__sizeof__() // 32)
        return value

    @pass_context
    def keep(self, value: Any, steps_per_part: float = 2) -> Any:
        """Charge for the memory of a new value and return it."""
        if isinstance(value, str):
            CHARACTERS.check(len(value))
            self.spend(value.__sizeof__() // 32)
        elif isinstance(value, int):
            BITS.check(value.bit_length())
        elif isinstance(value, CONTAINERS):
            self.spend(PARTS.check(len(value)) * steps_per_part)
        return value

    @pass_context
    def iterate(self, iterable: Any, steps: int) -> Any:
        """Charge for all iterations of a `for` before the first."""
        if isinstance(iterable, Undefined):
            return iterable
        rounds = iterable if isinstance(iterable, Sized) else to_list(iter(iterable))
        self.spend(len(rounds) * steps)
        return rounds

    @pass_context
    def hash_key(self, key: Any) -> Any:
        """Charge for hashing a key, which reads every part of a tuple."""
        if isinstance(key, tuple):
            self.spend(measure(key) // 4)
        return key

    @pass_context
    def concatenate(self, values: list[object]) -> Any:
        """Return the result of `a ~ b`."""
        return self.keep(self.environment.concat([self.write(value) for value in values]))

    @pass_context
    def compare(self, left: Any, *rest: Any) -> Any:
        """Return the result of `a < b`, or of a chain such as `a < b in c`."""
        result = None
        for name, right in zip(rest[::2], map(to_list, rest[1::2]), strict=True):
            self.spend(comparison_steps(name, left, right))
            result = _OPERATORS[name](left, right)
            if not result:
                break
            left = right
        return result


def _count_tokens(tokens: Iterable[Token]) -> Iterator[Token]:
    for count, token in enumerate(tokens):
        TOKENS.check(count)
        yield token


class OpaqueNamespace(Namespace):
    """A namespace whose text does not include its values, because their length is not bounded."""

    def __repr__(self) -> str:
        return "<Namespace>"


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, with a budget for each render."""

    context_class: type[Context] = LimitedContext
    intercepted_binops: frozenset[str] = frozenset({"+", "-", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(
            finalize=LimitedContext.write,
            keep_trailing_newline=True,
            optimized=False,  # the optimizer takes cubic time in the depth of an expression
            **options,
        )
        self.filters: dict[str, Callable[..., Any]] = {name: _charged(name, run) for name, run in self.filters.items()}
        for name in ("compare", "concatenate", "hash_key", "iterate", "keep", "spend"):
            self.filters[f"_{name}"] = getattr(LimitedContext, name)
        for name in _CHARGED_TESTS:
            self.tests[name] = _charged(name, self.tests[name])
        self.tests["in"] = pass_context(lambda context, value, seq: context.compare(value, "in", seq))
        self.globals["namespace"] = OpaqueNamespace
        del self.globals["lipsum"]

    def preprocess(self, source: str, name: str | None = None, filename: str | None = None) -> str:
        """Refuse a source that would take too long to compile."""
        SOURCE.check(len(source))
        TOKENS.check(source.count("{{") + source.count("{%") + source.count("{#"))
        if _LONG_NUMBER.search(source):  # Jinja2's lexer uses 270 bytes per digit
            BITS.check(BITS.maximum + 1)
        return source

    def _tokenize(self, source: str, name: str | None, filename: str | None = None, state: str | None = None) -> Any:
        # An extension could also count the tokens, but importing `jinja2.ext` takes longer than a first render.
        return TokenStream(_count_tokens(super()._tokenize(source, name, filename, state)), name, filename)

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """Return the text of the output, or of a macro or a block."""
        pieces = list(pieces)
        if (size := sum(map(len, pieces))) > CHARACTERS.maximum:
            CHARACTERS.check(size)
        return "".join(pieces)

    def handle_exception(self, source: str | None = None) -> NoReturn:
        """Raise the error unchanged: rewriting its traceback takes longer than most renders."""
        raise

    def call_filter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        _check_filter(name, 1)  # `map("_spend")`
        return super().call_filter(name, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _REFUSED_METHODS and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or not (isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS)):
            left, right = to_list(left), to_list(right)
            context.spend(operator_steps(operator, left, right))
        result = super().call_binop(context, operator, left, right)
        return context.keep(result, 2 if isinstance(result, set) else 0.25)

    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(function, _TEMPLATE_CALLS):
            return self._call_template(context, function, args, kwargs)
        named = {name: value for name, value in kwargs.items() if name not in ("_loop_vars", "_block_vars")}
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps `str.format`
        owner = getattr(method, "__self__", None)
        operation = f".{method.__name__}" if isinstance(owner, _METHOD_OWNERS) else ""
        args = tuple(map(to_list, args))
        context.spend(call_steps(operation, (owner if operation else None, *args), named))
        result = super().call(context, function, *args, **kwargs)
        return result if operation in LIGHT else context.keep(result)

    def _call_template(self, context: Any, function: Any, args: Any, kwargs: Any) -> Any:
        """Call a macro, a block or a recursive loop. Deep calls cost more, because they can branch at each level."""
        if isinstance(function, LoopContext):
            args = tuple(context.iterate(iterable, 20) for iterable in args)
        context.usage.depth += 1
        try:
            context.spend(100 * context.usage.depth + len(args) + len(kwargs))
            return context.keep(super().call(context, function, *args, **kwargs))
        finally:
            context.usage.depth -= 1


def _charged(name: str, run: Any) -> Callable[..., Any]:
    """Return a filter or test that charges for its work."""
    wants = getattr(run, "jinja_pass_arg", None)
    light = name in LIGHT

    @pass_context
    @wraps(run)
    def charged(context: LimitedContext, /, *args: Any, **kwargs: Any) -> Any:
        if not light:
            args = tuple(map(to_list, args))
        context.spend(call_steps(name, args, kwargs))
        if wants is not None:
            passed = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
            args = (passed[wants.name], *args)
        return run(*args, **kwargs) if light else context.keep(run(*args, **kwargs))

    return charged


def _check_filter(name: str, line: int) -> None:
    """Raise if a template uses a filter that only `Meter` may use."""
    if name.startswith("_"):
        raise TemplateAssertionError(f"No filter named {name!r}.", line)


class Meter(NodeTransformer):
    """Adds charges to a parsed template for operations that Jinja2 compiles to plain Python."""

    steps: int = 0
    wide_numbers: int = 0
    loops: int = 0

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        self.steps += _NODE_STEPS.get(type(node), 1)
        before = self.steps
        if isinstance(node, nodes.For):
            return self._visit_loop(node)
        self.generic_visit(node)
        if isinstance(node, nodes.TemplateData):
            self.steps += len(node.data) // 32
        elif isinstance(node, nodes.Const) and isinstance(node.value, int):
            self.wide_numbers = WIDE_NUMBERS.check(self.wide_numbers + (node.value.bit_length() > 64))
        elif isinstance(node, nodes.Macro | nodes.CallBlock | nodes.Block):
            self._charge_body(node, before)
        return _charged_expression(node) if isinstance(node, nodes.Expr | nodes.Pair) else node

    def _visit_loop(self, node: nodes.For) -> nodes.For:
        iterable = self.visit(node.iter)
        before = self.steps
        node.iter = nodes.Const(None)  # the iterable is evaluated once, so it is not part of an iteration
        self.loops = LOOPS.check(self.loops + 1)
        self.generic_visit(node)
        self.loops -= 1
        node.iter = iterable if node.recursive else _filter("_iterate", iterable, nodes.Const(self.steps - before))
        if node.recursive:
            self._charge_body(node, before)
        return node

    def _charge_body(self, node: nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block, before: int) -> None:
        steps = nodes.Const(self.steps - before, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(_filter("_spend", steps), lineno=node.lineno))


_NODE_STEPS: dict[type[nodes.Node], int] = {nodes.Name: 2, nodes.Getitem: 4, nodes.Getattr: 6, nodes.Call: 15}
_NODE_STEPS |= {nodes.Macro: 20, nodes.CallBlock: 20}


def _charged_expression(node: Any) -> Any:
    if getattr(node, "dyn_args", None):
        node.dyn_args = _filter("_iterate", node.dyn_args, nodes.Const(2))
    match node:
        case nodes.Filter():
            _check_filter(node.name, node.lineno)
        case nodes.Getitem(arg=nodes.Slice()):
            return _filter("_keep", node, nodes.Const(0.25))
        case nodes.Getitem(arg=key) if not isinstance(key, nodes.Const):
            node.arg = _filter("_hash_key", key)
        case nodes.Pair(key=key) if not isinstance(key, nodes.Const):
            node.key = _filter("_hash_key", key)
        case nodes.Concat():
            return _filter("_concatenate", nodes.List(node.nodes, lineno=node.lineno))
        case nodes.Compare() if not _is_short(node):
            rest = [part for operand in node.ops for part in (nodes.Const(operand.op), operand.expr)]
            return _filter("_compare", node.expr, *rest)
    return node


def _filter(name: str, node: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _is_short(node: nodes.Compare) -> bool:
    """Return True if one side of the comparison is a literal in the template, which bounds its cost."""
    operand = node.ops[0]
    constant = _is_constant(operand.expr) or (_is_constant(node.expr) and operand.op not in ("in", "notin"))
    return constant and len(node.ops) == 1


def _is_constant(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(map(_is_constant, node.items))
    return isinstance(node, nodes.Const)
