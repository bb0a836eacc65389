"""Jinja2's sandbox with a step budget for every render, which bounds its time and memory.

The sandbox isolates a template from Python. It does not stop a template that asks for half a gigabyte of text, or for
nested loops that run for minutes. Here filters, tests, calls and operators are charged as they run; `Meter` adds
charges to a parsed template for the rest.

One rule prices everything: 1 step for 4 characters and 4 steps for each part that an operation reads, 1 step for 32
bytes of its result. The tables below list only the exceptions. A result that can be longer than its arguments is
bounded before it is computed, because afterwards it is too late. A step is about 100 ns.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import wraps
from itertools import islice
from string import Formatter
from typing import Any, NamedTuple, NoReturn

from jinja2 import TemplateAssertionError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

# Bytes are not text, and a table for `translate` can turn one character into a million.
_REFUSED_METHODS = frozenset({"encode", "from_bytes", "maketrans", "to_bytes", "translate"})
_CHARGED_TESTS = {"==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", "<=", "le", ">", "gt", "greaterthan"}


class LimitExceeded(SecurityError):
    """The template exceeded a limit."""


class Limit(NamedTuple):
    """The maximum of an amount, and the message for exceeding it."""

    maximum: int
    description: str

    def check(self, amount: int) -> int:
        """Return `amount`, or raise `LimitExceeded` if it is above the maximum."""
        if amount > self.maximum:
            raise LimitExceeded(self.description.format(self.maximum))
        return amount


STEPS = Limit(2_000_000, "more than {:,} steps")
CHARACTERS = Limit(4_000_000, "more than {:,} characters")
PARTS = Limit(100_000, "a value of more than {:,} parts")
BITS = Limit(4096, "a number of more than {} bits")
WIDE_NUMBERS = Limit(100, "more than {} numbers of more than 64 bits")  # their hashes can all be equal
SOURCE = Limit(1_000_000, "a template of more than {:,} characters")
TOKENS = Limit(10_000, "more than {:,} names, values and operators")
LOOPS = Limit(10, "more than {} nested loops")
_MAX_DEPTH = 500

_KEYS, _VALUES, _ITEMS = (type(view) for view in (vars().keys(), vars().values(), vars().items()))
CONTAINERS = (list, tuple, dict, set, frozenset, _KEYS, _VALUES, _ITEMS)
_SEARCHED_ITEM_BY_ITEM = (list, tuple, range, _VALUES)


def measure(*values: Any) -> int:
    """Return the approximate number of characters of the values as text, with everything inside them.

    A shared part counts each time it appears. A part counts for more the deeper it is, as in indented JSON.
    """
    if len(values) == 1 and isinstance(values[0], str):
        return CHARACTERS.check(len(values[0]))
    weight = parts = characters = wide_numbers = 0
    level = list(values)
    for depth in range(_MAX_DEPTH):
        below: list[Any] = []
        length = 0
        for item in level:
            if isinstance(item, str):
                length += len(item)
            elif isinstance(item, int):
                length += item.bit_length() // 3
                wide_numbers += item.bit_length() > 64
            elif isinstance(item, CONTAINERS):
                if parts + len(below) + len(item) > PARTS.maximum:
                    PARTS.check(parts + len(below) + len(item))
                below += (*item, *item.values()) if isinstance(item, dict) else item
            elif isinstance(item, range):
                parts += PARTS.check(len(item))
                length += 16 * len(item)
                wide_numbers += len(item) * (max(item.start.bit_length(), item.stop.bit_length()) > 64)
        parts += len(level)
        characters = CHARACTERS.check(characters + length)
        weight += (16 * len(level) + length) * (8 + depth) // 8
        WIDE_NUMBERS.check(wide_numbers)
        if not below:
            return weight
        level = below
    raise RecursionError


def _to_list(value: Any) -> Any:
    """Return an iterator as a list, because only a list has a length. Return any other value unchanged."""
    if not hasattr(value, "__next__"):
        return value
    items = list(islice(value, PARTS.maximum + 1))
    PARTS.check(len(items))
    return items


def call_steps(operation: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Return the cost of a filter, a test, or a method (`.upper`). Raise if its result would be too long."""
    first, *rest = (*args, *kwargs.values()) if kwargs else args
    weight = measure(*rest) if operation in _SHALLOW else measure(first, *rest)
    steps = 10 + weight // 4
    if operation in _LENGTHS:
        steps += CHARACTERS.check(_LENGTHS[operation](weight, *args, **kwargs)) // 32
    if operation in _EXTRA_STEPS:
        steps += _EXTRA_STEPS[operation](weight, *args, **kwargs)
    if operation in _EACH_ITEM and isinstance(first, Sized):
        lookups = sum(max(path.count(".") + path.count(",") - 3, 0) for path in rest if isinstance(path, str))
        steps += PARTS.check(len(first)) * 30 * (1 + lookups)
    elif rest and isinstance(first, str):  # searching for text that almost matches is slow
        longest = CHARACTERS.maximum if operation in _QUADRATIC_SEARCHES else 100
        for text in rest:
            steps += len(first) * min(len(text), longest) // 100 if isinstance(text, str) else 0
    return steps


def comparison_steps(operator: str, left: Any, right: Any) -> int:
    """Return the cost of comparing part by part up to the first difference."""
    if operator not in ("in", "notin"):
        if isinstance(left, str) and isinstance(right, str):
            return min(len(left), len(right)) // 32
        return measure(left) // 4 if isinstance(left, CONTAINERS) and isinstance(right, CONTAINERS) else 0
    weight = measure(left)
    if isinstance(right, str):
        return len(right) // 32 + len(right) * min(weight, 100) // 100
    items = len(right) if isinstance(right, _SEARCHED_ITEM_BY_ITEM) else 0
    return weight // 4 + items * (1 + weight // 64) // (1 if isinstance(right, range) else 2)


def operator_steps(operator: str, left: Any, right: Any) -> int:
    """Return the cost of an operator. Raise if its result would be too large."""
    match operator, left, right:
        case "**", int(), int():
            BITS.check(left.bit_length() * right)
        case "*", list() | tuple(), int():
            PARTS.check(len(left) * right)
        case "*", str(), int():
            return CHARACTERS.check(len(left) * right) // 32
        case "*", int(), str() | list() | tuple():
            return operator_steps("*", right, left)
        case "%", str(), _:
            weight = measure(left, right)
            return weight // 8 + CHARACTERS.check(_percent_format(weight, left, right)) // 32
        case "-", _, _ if not isinstance(left, int | float):  # the difference of two sets
            return measure(left, right) // 8
    return 0


# Filters and methods that return an existing object, whose memory is not charged again.
LIGHT = frozenset({"attr", "count", "d", "default", "first", "items", "last", "length", "random"})
LIGHT |= {".get", ".items", ".keys", ".values"}
# Filters and methods that do not look inside the items of their first argument.
_SHALLOW = LIGHT | {"map", "reject", "rejectattr", "select", "selectattr"}
# Filters that run Python code for each item. An attribute path in their arguments is looked up for each item.
_EACH_ITEM = frozenset({"batch", "dictsort", "groupby", "join", "list", "map", "max", "min", "reject", "rejectattr"})
_EACH_ITEM |= {"select", "selectattr", "slice", "sort", "sum", "unique", "xmlattr"}
_QUADRATIC_SEARCHES = frozenset({"trim", ".rfind", ".rindex", ".rpartition", ".rsplit", ".strip", ".lstrip", ".rstrip"})


# Steps of operations that take longer than the size of the arguments suggests.
_EXTRA_STEPS: dict[str, Callable[..., int]] = {
    "attr": lambda *_: 60,
    # Adding a list copies the sum so far.
    "sum": lambda weight, values, attribute=None, start=0: isinstance(start, list | tuple) * len(values) * weight // 99,
    # At each dot of a word, the rest of the word is searched.
    "urlize": lambda weight, value, *_, **__: 100 + weight * (30 + max(map(len, str(value).split()), default=0) // 8),
    # Splitting a word that is too long copies its rest.
    "wordwrap": lambda weight, text, width=79, *_, **__: 60 + weight * 8 + weight**2 // max(width, 1) // 1000,
    # Removing a comment copies the rest of the text.
    "striptags": lambda weight, text: 30 + weight * (8 + str(text).count("<!--") // 1000),
}
_EXTRA_STEPS[".striptags"] = _EXTRA_STEPS["striptags"]
_EXTRA_STEPS |= dict.fromkeys((".split", ".rsplit", ".splitlines"), lambda weight, *_, **__: weight // 2)
_EXTRA_STEPS |= dict.fromkeys(("urlencode", "wordcount"), lambda weight, *_: weight * 3)
_EXTRA_STEPS |= dict.fromkeys(("pprint", "title", ".unescape"), lambda weight, *_: weight * 8)


# Upper bounds for the length of results that can be longer than the arguments.


def _indent(weight: int, text: str, width: Any = 4, *_: Any, **__: Any) -> int:
    lines = 1 + sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
    return weight + lines * _width(width)


def _width(indent: Any) -> int:
    return len(indent) if isinstance(indent, str) else indent or 0


def _join(weight: int, values: Any, d: Any = "", *_: Any, **__: Any) -> int:
    return weight + PARTS.check(len(values)) * len(str(d))


def _percent_format(weight: int, value: Any, /, *args: Any, **kwargs: Any) -> int:
    text = str(value)
    fields = PARTS.check(text.count("%"))
    if _ODD_KEY.search(text):
        raise LimitExceeded("a format key of more than 100 characters or with brackets")
    widths = [width for field in _PERCENT_FIELD.finditer(text) for width in field.groups() if width]
    repeats = fields if kwargs or any(isinstance(value, Mapping) for value in args) else 1
    return len(text) + fields * 800 + _total_width(widths) + repeats * (weight - len(text))


def _brace_format(weight: int, text: str, /, *args: Any, **kwargs: Any) -> int:
    PARTS.check(text.count("{"))
    fields = [(name, specification or "") for _, name, specification, _ in Formatter().parse(text) if name is not None]
    widths = [width for _, specification in fields for width in re.findall(r"\d+|\{", specification)]
    lookups = sum(name.count(".") + name.count("[") for name, _ in fields)
    return len(text) + lookups * 800 + _total_width(widths) + len(fields) * (1600 + weight - len(text))


def _total_width(widths: list[str]) -> int:
    """Return the sum of field widths. A width from an argument (`*`, `{}`) is unbounded."""
    return sum(int(width) if width.isdecimal() and len(width) < 9 else CHARACTERS.maximum + 1 for width in widths)


_PERCENT_FIELD = re.compile(r"%(?:\([^()]*\))?[#0\- +]*(\*|\d+)?(?:\.(\*|\d+))?")
_ODD_KEY = re.compile(r"%\((?![^()]{0,100}\))")

_LENGTHS: dict[str, Callable[..., int]] = {
    "batch": lambda _, values, linecount, fill_with=None: linecount * 64,
    "format": _percent_format,
    "indent": _indent,
    "join": _join,
    "replace": lambda weight, text, old, new, *_, **__: weight + str(text).count(str(old)) * len(str(new)),
    "round": lambda _, number, precision=0, method="": abs(precision) * 4000,  # it computes 10 ** precision
    "slice": lambda _, values, slices, fill_with=None: slices * 64,
    "tojson": lambda weight, value, indent=0: 1600 + weight * (8 + _width(indent)) // 8,
    "urlize": lambda weight, value, *_, **__: len(str(value)) * (1 + (weight - len(str(value))) // 8),
    "wordwrap": lambda _, text, width=79, long=True, wrapstring=None, hyphens=True: len(text) * len(wrapstring or "\n"),
    ".expandtabs": lambda weight, text, tabsize=8: weight + text.count("\t") * tabsize,
    ".join": lambda weight, separator, values: _join(weight, values, separator),
}
_LENGTHS |= dict.fromkeys((".format", ".format_map"), _brace_format)
_LENGTHS[".replace"] = _LENGTHS["replace"]
_LENGTHS |= dict.fromkeys(("center", ".center", ".ljust", ".rjust", ".zfill"), lambda _, text, width=80, *__: width)
_LENGTHS |= dict.fromkeys(("divisibleby", "even", "odd"), lambda _, value, num=2: operator_steps("%", value, num))


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
        """Return the text of `{{ value }}`. A method that is not called, as in `{{ text.title }}`, is undefined: its
        text would have an address of this process."""
        if not isinstance(value, str):
            if isinstance(value, CONTAINERS):
                self.spend(CHARACTERS.check(measure(value)) // 4)
            elif callable(value) and not isinstance(value, Undefined):
                value = self.environment.undefined(name=getattr(value, "__name__", None))
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
        rounds = iterable if isinstance(iterable, Sized) else _to_list(iter(iterable))
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
        for name, right in zip(rest[::2], map(_to_list, rest[1::2]), strict=True):
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
            left, right = _to_list(left), _to_list(right)
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
        args = tuple(map(_to_list, args))
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
            args = tuple(map(_to_list, args))
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
