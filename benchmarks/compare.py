"""Compare the costs of two checkouts in one run: `python -m benchmarks.compare BEFORE/src AFTER/src [--pairs 15]`.

Each side is a process with its own sources. The sides alternate, so a busy moment of the machine meets both, and a
figure is the median of the ratios of all pairs.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import IO, cast

from benchmarks.provider import allow_many_connections, fake_provider

ROWS = ("call, async", "call, sync", "stream, async", "stream, sync", "turn", "64 at once", "512 at once")
FRESH = ("10,000 in flight", "10,000 in flight, MB", "first answer")
CHUNKS, CROWD = 2000, 10_000


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.compare", description="Compare the costs of two checkouts.")
    parser.add_argument("before", type=Path, help="the folder `src` of one checkout")
    parser.add_argument("after", type=Path, help="the folder `src` of the other")
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    sides = {"before": arguments.before, "after": arguments.after}
    ratios: dict[str, list[float]] = {}
    seconds: dict[str, dict[str, list[float]]] = {}

    def keep(name: str, measured: dict[str, float]) -> None:
        ratios.setdefault(name, []).append(measured["after"] / measured["before"])
        for side, value in measured.items():
            seconds.setdefault(name, {}).setdefault(side, []).append(value)

    with fake_provider() as url:
        workers = {side: Worker(source, url) for side, source in sides.items()}
        for pair in range(arguments.pairs + 1):
            for name in ROWS:
                measured = {side: workers[side].measure(name) for side in order(pair)}
                if pair:  # the first one warms up
                    keep(name, measured)
        for pair in range(arguments.pairs):
            crowds = {side: run_fresh(sides[side], "crowd", url) for side in order(pair)}
            for index, name in enumerate(FRESH[:2]):
                keep(name, {side: crowd[index] for side, crowd in crowds.items()})
            keep(FRESH[2], {side: run_fresh(sides[side], "first", url)[0] for side in order(pair)})
    print(f"{'row':<24}{'before':>10}{'after':>10}{'ratio':>8}   (medians of {arguments.pairs} pairs)")
    for name, found in ratios.items():
        before, after = (median(seconds[name][side]) for side in sides)
        print(f"{name:<24}{before:>10.4g}{after:>10.4g}{median(found):>8.3f}")


def order(pair: int) -> tuple[str, str]:
    return ("before", "after") if pair % 2 else ("after", "before")


def environment_of(source: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{source.resolve()}{os.pathsep}{Path(__file__).parents[1]}"}


class Worker:
    """A process that measures the rows it is asked for, with the sources of one side."""

    def __init__(self, source: Path, url: str) -> None:
        command = [sys.executable, "-m", __spec__.name, "--work", url]
        self._process = subprocess.Popen(
            command, env=environment_of(source), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def measure(self, name: str) -> float:
        stdin, stdout = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        print(name, file=stdin, flush=True)
        return float(stdout.readline())


def run_fresh(source: Path, what: str, url: str) -> list[float]:
    """Return what a process of its own prints of itself."""
    command = [sys.executable, "-m", __spec__.name, f"--{what}", url]
    done = subprocess.run(
        command, env=environment_of(source), stdout=subprocess.PIPE, text=True, check=True, timeout=280
    )
    found: list[float] = json.loads(done.stdout)
    return found


def work(url: str) -> None:
    """Measure rows by name, from standard input."""
    from benchmarks.callers import Ours
    from benchmarks.calls import at_once
    from benchmarks.turns import CALLS, ROUNDS, Desk, prompty_turn

    runner = asyncio.Runner()
    plain, streamed, waiting = (Ours(f"{url}/{part}/1") for part in ("0/0", f"0/{CHUNKS}", "50/0"))
    turn = prompty_turn(f"{url}/0/0/1/{CALLS}/{ROUNDS}")

    async def call_async() -> None:
        for _ in range(60):
            await plain.call_async()

    async def turns() -> None:
        for number in range(10):
            desk = Desk(number)
            desk.check(await turn(desk), ROUNDS)

    actions: dict[str, Callable[[], object]] = {
        "call, async": lambda: runner.run(call_async()),
        "call, sync": lambda: [plain.call() for _ in range(60)],
        "stream, async": lambda: runner.run(streamed.stream_async()),
        "stream, sync": streamed.stream,
        "turn": lambda: runner.run(turns()),
        "64 at once": lambda: runner.run(at_once(64, waiting)),
        "512 at once": lambda: runner.run(at_once(512, waiting)),
    }
    for line in sys.stdin:
        gc.collect()
        start = time.process_time()
        actions[line.strip()]()
        print(time.process_time() - start, flush=True)


def crowd(url: str) -> None:
    from benchmarks.crowd import call_at_once, peak_memory

    allow_many_connections()
    asyncio.run(call_at_once(f"{url}/0/0/{CROWD}", CROWD))
    print(json.dumps([time.process_time(), peak_memory()]))


def first(url: str) -> None:
    from benchmarks.prompts import CALL, INPUTS

    os.environ["BENCHMARK_URL"] = f"{url}/0/0/1"
    start = time.process_time()
    import prompty

    prompty.invoke(str(CALL), INPUTS)
    print(json.dumps([time.process_time() - start]))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ("--work", "--crowd", "--first"):
        {"--work": work, "--crowd": crowd, "--first": first}[sys.argv[1]](sys.argv[2])
    else:
        main()
