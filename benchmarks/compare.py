"""Compare what calls cost at another commit and here: `python -m benchmarks.compare --commit REV [--repeats 9]`.

The commit, this checkout and the bare OpenAI SDK are each a process. They take turns, so a busy moment of the machine
meets all. A figure is the median of the ratios of all repeats, in processor time. The benchmarks are those of this
checkout, so they use only names that are public in both.
"""

import asyncio
import gc
import os
import subprocess
import sys
import tarfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple, cast

from benchmarks.provider import allow_many_connections, fake_provider

ROOT = Path(__file__).parents[1]
BASELINE = "38d7973a"  # its costs are the bar of the plan
ROWS = ("call", "sync", "stream", "turn", "64 at once")
CROWDS = ("512 at once", "2,000 streams")  # without the SDK, whose calls time out on a busy machine
STREAMS = 2000
SIDES = ("before", "after", "openai")
CHUNKS = 2000
TIMES = 4  # a figure of less than 0.2 seconds moves by 10 % on a busy machine


class Compared(NamedTuple):
    """The processor time of one row on its sides, a figure for each repeat."""

    seconds: Mapping[str, list[float]]

    def divide(self, side: str, other: str) -> list[float]:
        return sorted(a / b for a, b in zip(self.seconds[side], self.seconds[other], strict=True))

    @property
    def shares(self) -> dict[str, float]:
        """What each commit takes of the SDK's time, if that was measured."""
        if "openai" not in self.seconds:
            return {}
        return {side: median(self.divide(side, "openai")) for side in ("before", "after")}


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.compare", description="Compare the costs of two commits.")
    parser.add_argument("--commit", default=BASELINE, help="the commit to compare with (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    compare_commit(arguments.commit, arguments.repeats)


def compare_commit(commit: str, repeats: int = 9) -> dict[str, Compared]:
    """Measure the rows in turns, and print them."""
    with extract_sources(commit) as before, fake_provider() as url, ExitStack() as stack:
        sources = {"before": before, "after": ROOT / "src", "openai": ROOT / "src"}
        workers = {side: stack.enter_context(Worker(side, sources[side], url)) for side in SIDES}
        rows: dict[str, Compared] = {}
        print(f"{'row':<14}{commit[:8]:>9}{'here':>9}{'ratio':>8}  {'range':<14}(of the SDK, and to each other)")
        for name in (*ROWS, *CROWDS):
            sides = SIDES[:2] if name in CROWDS else SIDES
            measured = [{side: workers[side].measure(name) for side in rotate(sides, n)} for n in range(repeats + 1)]
            row = rows[name] = Compared({side: [one[side] for one in measured[1:]] for side in sides})  # 0 warms up
            ratios = row.divide("after", "before")
            shares = "".join(f"{share:>9.2f}" for share in row.shares.values()) or " " * 18
            spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            print(f"{name:<14}{shares}{median(ratios):>8.2f}  {spread}", flush=True)
    return rows


def rotate(sides: Sequence[str], number: int) -> list[str]:
    """Return the sides in an order that changes with each repeat."""
    start = number % len(sides)
    return [*sides[start:], *sides[:start]]


@contextmanager
def extract_sources(commit: str) -> Iterator[Path]:
    """Write the sources of a commit into a temporary folder, and give its `src`."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", "--format=tar", commit, "src"], capture_output=True)  # noqa: S607  git as the user has it
    if archive.returncode:
        raise SystemExit(
            f"Cannot read commit {commit}: {archive.stderr.decode().strip()}\n"
            "A shallow clone lacks it; `git fetch --unshallow` gets it. A copy without the history cannot compare."
        )
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder, "src")


class Worker:
    """A process that measures the rows it is asked for, with the sources of one side."""

    def __init__(self, side: str, source: Path, url: str) -> None:
        path = os.pathsep.join((str(source), str(ROOT)))
        command = [sys.executable, "-m", "benchmarks.compare", "--work", side, url]
        self._process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._stdin, self._stdout = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        package = Path(self._stdout.readline().strip())
        assert package.is_relative_to(source), f"{side} measures {package}, not {source}"

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def measure(self, name: str) -> float:
        print(name, file=self._stdin, flush=True)
        return float(self._stdout.readline())


def work(side: str, url: str) -> None:
    """Measure rows by name, from standard input."""
    import prompty
    from benchmarks.callers import Bare, Caller, Ours
    from benchmarks.calls import at_once
    from benchmarks.turns import CALLS, ROUNDS, Desk, openai_turn, prompty_turn

    print(prompty.__file__, flush=True)
    runner = asyncio.Runner()
    kind: Callable[[str], Caller] = Bare if side == "openai" else Ours
    plain, streamed, waiting = (kind(f"{url}/{part}/1") for part in ("0/0", f"0/{CHUNKS}", "50/0"))
    together = kind(f"{url}/0/20/{STREAMS}")  # answered when all of them have asked
    allow_many_connections()
    turn = (openai_turn if side == "openai" else prompty_turn)(f"{url}/0/0/1/{CALLS}/{ROUNDS}")

    async def call_async() -> None:
        for _ in range(60):
            await plain.call_async()

    async def turns() -> None:
        for number in range(10):
            desk = Desk(number)
            desk.check(await turn(desk), ROUNDS)

    async def streams() -> None:
        await asyncio.gather(*(together.stream_async() for _ in range(STREAMS)))

    actions: dict[str, Callable[[], object]] = {
        "call": lambda: runner.run(call_async()),
        "sync": lambda: [plain.call() for _ in range(60)],
        "stream": lambda: runner.run(streamed.stream_async()),
        "turn": lambda: runner.run(turns()),
        "64 at once": lambda: runner.run(at_once(64, waiting)),
        "512 at once": lambda: runner.run(at_once(512, waiting)),
        "2,000 streams": lambda: runner.run(streams()),
    }
    for line in sys.stdin:
        gc.collect()
        start = time.process_time()
        for _ in range(1 if line.strip() in CROWDS else TIMES):
            actions[line.strip()]()
        print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
