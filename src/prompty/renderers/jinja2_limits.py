"""What a template may ask for, and what one render has spent of it.

A step is about 100 nanoseconds of a slow machine. Memory is paid for in steps too, so that one number bounds both.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from jinja2.exceptions import SecurityError
from jinja2.runtime import Context

MAX_STEPS = 2_000_000
MAX_CHARACTERS = 4_000_000
MAX_PARTS = 100_000
MAX_BITS = 4096

CHARACTERS_PER_STEP = 32
STEPS_PER_PART = 4
_CALL, _OUTPUT = 100, 4

_EMPTY: dict[str, str] = {}
CONTAINERS = (list, tuple, dict, set, frozenset, type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items()))


class LimitExceeded(SecurityError):
    """The template asked for more than a prompt can need."""


def bounded(characters: int) -> int:
    """The length of a text to be made, if it may be made."""
    if characters > MAX_CHARACTERS:
        raise LimitExceeded(f"more than {MAX_CHARACTERS:,} characters")
    return characters


def bounded_parts(parts: int) -> int:
    """The length of a list to be made, if it may be made."""
    if parts > MAX_PARTS:
        raise LimitExceeded(f"a value of more than {MAX_PARTS:,} parts")
    return parts


def bounded_bits(bits: int) -> int:
    """The size of a number to be made, if it may be made."""
    if bits > MAX_BITS:
        raise LimitExceeded(f"a number of more than {MAX_BITS} bits")
    return bits


class Size(NamedTuple):
    parts: int
    characters: int

    @property
    def steps(self) -> int:
        return self.parts * STEPS_PER_PART + self.characters // CHARACTERS_PER_STEP

    @property
    def as_text(self) -> int:
        """About how many characters it is as text: each part has quotes, commas or digits of its own."""
        return self.parts * 8 + self.characters


def measure(*values: Any) -> Size:
    """How large values are together. Lists may share parts: these count each time, as they would in text."""
    if len(values) == 1 and isinstance(values[0], str):
        return Size(1, bounded(len(values[0])))
    return _measured(values, {})


def _measured(container: Any, known: dict[int, Size]) -> Size:
    parts, characters = bounded_parts(len(container)), 0
    for item in contents(container):
        if isinstance(item, str):
            characters += len(item)
        elif isinstance(item, int):
            characters += item.bit_length() // 3
        elif isinstance(item, CONTAINERS):
            size = known.get(id(item)) or _measured(item, known)
            parts += size.parts
            characters += size.characters
    known[id(container)] = size = Size(bounded_parts(parts), bounded(characters))
    return size


def contents(container: Any) -> Any:
    return (*container, *container.values()) if isinstance(container, dict) else container


def listed(value: Any) -> Any:
    """What is only counted by going through it, as a list."""
    if not (hasattr(value, "__next__") and hasattr(value, "__iter__")):
        return value
    items = list(islice(value, MAX_PARTS + 1))
    bounded_parts(len(items))
    return items


class Budget:
    """What one render has spent so far."""

    def __init__(self) -> None:
        self.steps = self.characters = self.depth = 0

    def spend(self, steps: float) -> None:
        if steps > 0:  # a price can come from a number of the template, and be negative or no number at all
            self.steps += int(steps)
        if self.steps > MAX_STEPS:
            raise LimitExceeded(f"more than {MAX_STEPS:,} steps")

    def write(self, text: str) -> str:
        self.spend(_OUTPUT)
        self.characters += len(text)
        bounded(self.characters)
        return text

    def made(self, value: Any) -> Any:
        """Pay for the memory of a new value."""
        if isinstance(value, str):
            bounded(len(value))
            self.spend(value.__sizeof__() // CHARACTERS_PER_STEP)
        elif isinstance(value, list | tuple | dict):
            self.spend(2 * bounded_parts(len(value)))
        elif isinstance(value, int):
            bounded_bits(value.bit_length())
        return value

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Pay for a call from a template to itself: the deeper, the more, or a few lines could call for hours."""
        self.depth += 1
        try:
            self.spend(_CALL * self.depth)
            yield
        finally:
            self.depth -= 1


class BudgetedContext(Context):
    """The state of one render, with its budget."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.budget = Budget()

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        context = super().derived(locals)
        if isinstance(context, BudgetedContext):
            context.budget = self.budget
        return context
