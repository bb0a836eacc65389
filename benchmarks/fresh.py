"""What a fresh process pays before its first prompt is ready, measured in imports of `openai`.

Processor time of whole interpreters, less that of one that does nothing.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

from benchmarks.cost import Cost, Measure, best_of
from benchmarks.prompts import CHAT, INPUTS

PROGRAMS = {
    "bare interpreter": "pass",
    "import openai": "import openai",
    "import prompty": "import prompty",
    "load and prepare": f"import prompty\nprompty.prepare(prompty.load({str(CHAT)!r}), {INPUTS!r})",
}


def fresh_costs(rounds: int) -> list[Cost]:
    """Importing the package, and going from nothing to messages."""
    with TemporaryDirectory() as bytecode:
        environment = environment_with(bytecode)
        sides: dict[str, Measure] = {
            name: partial(processor_seconds, program, environment) for name, program in PROGRAMS.items()
        }
        best_of(1, sides)  # compiles the modules
        seconds = best_of(rounds, sides)
    return [cost_of("import prompty", 0.1, seconds), cost_of("load and prepare", 0.45, seconds)]


def environment_with(bytecode: str) -> dict[str, str]:
    """An environment in which every module is compiled once, as in an installed package, and nothing is left behind."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": bytecode}


def processor_seconds(program: str, environment: Mapping[str, str]) -> float:
    """The user and system time of an interpreter that runs the program."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def cost_of(name: str, limit: float, seconds: Mapping[str, float]) -> Cost:
    """A program's time over that of importing `openai`, both without the interpreter's own."""
    bare, unit = seconds["bare interpreter"], "import openai"
    figure = (seconds[name] - bare) / (seconds[unit] - bare)
    used = {side: seconds[side] for side in (name, unit, "bare interpreter")}
    return Cost(name=f"fresh process: {name}", figure=figure, unit=f"times {unit}", limit=limit, seconds=used)
