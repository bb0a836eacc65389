"""A sink that keeps what it is told, as trees of names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prompty.tracing import Span, Tracer

Tree = tuple[str, list[Any]]


class Seen:
    """Spans as they began, and as they ended."""

    content, wire, immediate = True, False, True

    def __init__(self) -> None:
        self.begun: list[Span] = []
        self.over: list[Span] = []

    def started(self, span: Span, /) -> None:
        self.begun.append(span)

    def ended(self, span: Span, /) -> None:
        self.over.append(span)

    def trees(self) -> list[Tree]:
        """Every trace as its names, in the order in which the spans began."""
        return [self._tree(span) for span in self.begun if span.parent is None]

    def _tree(self, span: Span) -> Tree:
        return span.name, [self._tree(one) for one in self.begun if one.parent is span]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.begun if span.name == name]

    def one(self, name: str) -> Span:
        [span] = self.named(name)
        return span

    def assert_complete(self) -> None:
        """Whatever began is over, and once."""
        assert sorted(span.id for span in self.begun) == sorted(span.id for span in self.over)
        for span in self.begun:
            assert span.duration is not None
            if span.parent:
                assert span.trace is span.parent.trace
                assert span.parent.start <= span.start


@contextmanager
def watching() -> Iterator[Seen]:
    seen = Seen()
    Tracer.add("seen", seen)
    try:
        yield seen
    finally:
        Tracer.clear()
