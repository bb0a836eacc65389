"""What a command costs before it does anything: `python -m benchmarks.command_start [--rounds 15]`.

Processor time of whole processes, in imports of the packages that the command line is built on. The sides take turns,
and each figure is made from their medians.
"""

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from functools import partial
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.cost import Cost, Measure, take_turns
from benchmarks.fresh import environment_with
from benchmarks.prompts import CALL

TURN = CALL.with_name("turn.prompty")
IMPORTS = "import typer, pydantic, jinja2, yaml"
COMMANDS = {
    "--help": (["--help"], 1.2),
    "check, a prompt": (["check", str(CALL)], 2.5),
    "check, an agent": (["check", str(TURN)], 2.5),
}


def start_costs(rounds: int) -> list[Cost]:
    """The costs of help, and of checking a prompt and an agent with tools."""
    with TemporaryDirectory() as bytecode:
        environment = environment_with(bytecode)
        sides: dict[str, Measure] = {IMPORTS: partial(processor_seconds, ["-c", IMPORTS], environment)}
        for name, (words, _) in COMMANDS.items():
            sides[name] = partial(processor_seconds, ["-m", "prompty", *words], environment)
        take_turns(1, sides)  # compiles the modules
        times = take_turns(rounds, sides)
    seconds = {name: median(time[name] for time in times) for name in sides}
    return [
        Cost(
            name=f"prompty {name}",
            figure=seconds[name] / seconds[IMPORTS],
            unit="times its imports",
            limit=limit,
            seconds={name: seconds[name], IMPORTS: seconds[IMPORTS]},
        )
        for name, (_, limit) in COMMANDS.items()
    ]


def processor_seconds(words: Sequence[str], environment: Mapping[str, str]) -> float:
    """The user and system time of an interpreter with these arguments."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    parser = ArgumentParser(prog="python -m benchmarks.command_start", description="Measure how commands start.")
    parser.add_argument("--rounds", type=int, default=15)
    for cost in start_costs(parser.parse_args().rounds):
        taken = ", ".join(f"{name} {value:.3f} s" for name, value in cost.seconds.items())
        print(f"{cost.name:<24}{cost.figure:>6.2f} times, limit {cost.limit:g}  ({taken})")
