"""What the host says about what goes to a model, what comes from it, and what it calls. It fails closed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prompty.loop.effects import Rewrite, Verdict
from prompty.loop.gate import ALLOW, NO_VERDICT
from prompty.model.message import Message
from prompty.model.paused import GatedCall

Answer = object | Awaitable[object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Guardrails:
    """Functions of the host, sync or async. Each returns True, `deny("reason")`, or `rewrite(value)`.

    `input` sees the messages of a request and may put others in their place; `output` sees the answer as a message and
    may put another text in its place; `tool` sees a call and may put other arguments in their place.
    """

    input: Callable[[list[Message]], Answer] | None = None
    output: Callable[[Message], Answer] | None = None
    tool: Callable[[GatedCall], Answer] | None = None

    def kinds(self) -> frozenset[str]:
        return frozenset(kind for kind in ("input", "output", "tool") if getattr(self, kind))


def rewrite(value: object) -> Rewrite:
    """Let it pass with this in its place."""
    return Rewrite(value)


def read(answer: object) -> Verdict | Rewrite:
    """What a guardrail said; what it did not clearly allow is denied."""
    if isinstance(answer, Verdict | Rewrite):
        return answer
    if answer is True:
        return ALLOW
    if answer is False:
        return Verdict(False)
    return Verdict(False, "the guardrail gave no verdict") if answer is None else NO_VERDICT
