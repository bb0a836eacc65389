"""What being watched costs: nothing to speak of while nobody listens, and little with traces written to files."""

import asyncio
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.calls import ratio, seconds_of
from benchmarks.cost import Cost, best_of
from benchmarks.provider import fake_provider
from benchmarks.turns import CALLS, REPEATS, ROUNDS, Desk, Turn, openai_turn, prompty_turn
from prompty import trace_to
from prompty.tracing import Span, Tracer
from prompty.tracing.spans import begin

SPANS = 20_000


class Counting:
    """A sink that counts."""

    content, wire, immediate = False, False, True

    def __init__(self) -> None:
        self.spans = 0

    def started(self, _: Span, /) -> None:
        self.spans += 1

    def ended(self, _: Span, /) -> None:
        pass


def tracing_costs(rounds: int) -> list[Cost]:
    """A span that nobody sees, and a turn that is written to a file."""
    return [span_cost(5 * rounds), *turn_costs(10 * rounds)]


def span_cost(rounds: int) -> Cost:
    """The time of one span while nobody listens, in µs."""

    def spans() -> None:
        for _ in range(SPANS):
            with begin("render") as span:
                span.record("result", "text")

    Tracer.clear()
    seconds = best_of(rounds, {"spans": partial(seconds_of, spans, time.process_time)})
    return Cost(name="a span, unseen", figure=seconds["spans"] / SPANS * 1e6, unit="µs", limit=3, seconds=seconds)


def turn_costs(rounds: int) -> list[Cost]:
    """A turn with its trace in a file beside the same loop written by hand on the OpenAI SDK; and how many spans that
    is."""
    with fake_provider() as provider, asyncio.Runner() as runner, TemporaryDirectory() as folder:
        url = f"{provider}/0/0/1/{CALLS}/{ROUNDS}"
        turn = prompty_turn(url)
        works = {
            "openai": partial(_untraced, runner, openai_turn(url)),
            "untraced": partial(_untraced, runner, turn),
            "traced": partial(_traced, runner, turn, f"file:{folder}"),
        }
        seconds = best_of(rounds, {name: partial(seconds_of, work, time.process_time) for name, work in works.items()})
        assert len(list(Path(folder).glob("*.jsonl"))) == REPEATS * rounds
        spans = _spans(runner, turn)
    # About 45 µs a span go into the two lines of the file, which Python puts together.
    traced = ratio(f"traced turn, {ROUNDS} × {CALLS} tools", 0.525, seconds, "traced")
    return [traced, Cost(name="spans of that turn", figure=spans, unit="spans", limit=40, seconds={})]


async def _turns(turn: Turn, repeats: int) -> None:
    for number in range(repeats):
        desk = Desk(number)
        desk.check(await turn(desk), ROUNDS)


def _untraced(runner: asyncio.Runner, turn: Turn) -> None:
    runner.run(_turns(turn, REPEATS))


def _traced(runner: asyncio.Runner, turn: Turn, sink: str) -> None:
    trace_to(sink)
    try:
        runner.run(_turns(turn, REPEATS))
    finally:
        Tracer.clear()


def _spans(runner: asyncio.Runner, turn: Turn) -> int:
    counting = Counting()
    Tracer.add("counting", counting)
    try:
        runner.run(_turns(turn, 1))
    finally:
        Tracer.clear()
    return counting.spans
