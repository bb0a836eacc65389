"""One input of a target, and what may come of it."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from prompty.errors import PromptyError


@dataclass(frozen=True, slots=True)
class Case:
    """One input: its text, as a person replays it, its size in bytes, and the code that reads it."""

    shown: object
    size: int
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Target:
    """A reader of the package. `allowed` are the errors that it documents."""

    name: str
    make: Callable[[Random], Case]
    allowed: tuple[type[Exception], ...] = (PromptyError,)
