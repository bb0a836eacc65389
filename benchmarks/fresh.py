"""What a fresh process pays before its first prompt is ready or answered, measured in imports of `openai`.

Processor time of whole interpreters, less that of one that does nothing.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

from benchmarks.cost import Cost, Measure, best_of
from benchmarks.prompts import CALL, CHAT, INPUTS
from benchmarks.provider import fake_provider

PROGRAMS = {
    "bare interpreter": "pass",
    "import openai": "import openai",
    "import prompty": "import prompty",
    "load and prepare": f"import prompty\nprompty.prepare(prompty.load({str(CHAT)!r}), {INPUTS!r})",
}
ANSWER = f"import prompty\nprint(prompty.invoke({str(CALL)!r}, {INPUTS!r}))"
LIST_MODULES = (
    "\nimport sys\nprint(*(name for name in sys.modules if name.partition('.')[0] not in ('prompty', '__main__')))"
)


def fresh_costs(rounds: int) -> list[Cost]:
    """Importing the package, going from nothing to messages, and from nothing to an answer."""
    with TemporaryDirectory() as bytecode, fake_provider() as url:
        environment = {**environment_with(bytecode), "BENCHMARK_URL": f"{url}/0/0/1"}
        sides: dict[str, Measure] = {
            name: partial(processor_seconds, program, environment) for name, program in PROGRAMS.items()
        }
        modules = output_of(ANSWER + LIST_MODULES, environment).splitlines()[-1].split()
        sides["answer"] = partial(processor_seconds, ANSWER, environment)
        sides["imports of answer"] = partial(processor_seconds, import_all(modules), environment)
        best_of(1, sides)  # compiles the modules
        seconds = best_of(rounds, sides)
    return [
        cost_of("import prompty", 0.1, seconds),
        cost_of("load and prepare", 0.45, seconds),
        answer_cost(0.75, seconds),
    ]


def environment_with(bytecode: str) -> dict[str, str]:
    """An environment in which every module is compiled once, as in an installed package, and nothing is left behind."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": bytecode}


def import_all(modules: Sequence[str]) -> str:
    """A program that imports modules of other packages, without which nothing of ours could run."""
    return f"""
from contextlib import suppress
from importlib import import_module
for name in {list(modules)!r}:
    with suppress(ImportError):
        import_module(name)
"""


def output_of(program: str, environment: Mapping[str, str]) -> str:
    """The text that a program prints."""
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return run.stdout


def processor_seconds(program: str, environment: Mapping[str, str]) -> float:
    """The user and system time of an interpreter that runs the program."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def cost_of(name: str, limit: float, seconds: Mapping[str, float]) -> Cost:
    """A program's time over that of importing `openai`, both without the interpreter's own."""
    bare, unit = seconds["bare interpreter"], "import openai"
    figure = (seconds[name] - bare) / (seconds[unit] - bare)
    used = {side: seconds[side] for side in (name, unit, "bare interpreter")}
    return Cost(name=f"fresh process: {name}", figure=figure, unit=f"times {unit}", limit=limit, seconds=used)


def answer_cost(limit: float, seconds: Mapping[str, float]) -> Cost:
    """The cost of a first answer; beside it, the time of the imports of other packages alone."""
    cost, imports = cost_of("answer", limit, seconds), "imports of answer"
    return replace(cost, seconds={**cost.seconds, imports: seconds[imports]})
