"""What the loop asks a driver to do. An effect is a value; `yield from` it to get the driver's answer."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic, Self, TypeVar, cast

from prompty.model.event import Event
from prompty.model.reply import Reply
from prompty.providers import WireRequest

Answer = TypeVar("Answer", covariant=True)
Result = TypeVar("Result")


class Effect(Generic[Answer]):
    """Something to be done by a driver, answered with an `Answer`."""

    __slots__ = ()

    def __iter__(self) -> Generator[Self, object, Answer]:
        return cast(Answer, (yield self))


@dataclass(frozen=True, slots=True)
class CallModel(Effect[Reply]):
    """Send a request and give its reply; a failure comes as ModelError."""

    request: WireRequest


@dataclass(frozen=True, slots=True)
class Wait(Effect[None]):
    """Let time pass. Drivers add a random part, so that those who wait together do not return together."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit(Effect[None]):
    """Tell whoever listens."""

    event: Event


Loop = Generator[Effect[object], object, Result]
