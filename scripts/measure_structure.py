"""Measure how many files and functions a call passes through, and how large the source is.

    python scripts/measure_structure.py            print the figures
    python scripts/measure_structure.py --limits   fail if a limit is exceeded

Calls go to the scripted provider, warm (the second one counts) and with tracing off. To measure another checkout, put
its sources first: PYTHONPATH=../other/src python scripts/measure_structure.py
"""

import argparse
import ast
import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import prompty
from prompty.testing import Script, call

PACKAGE = Path(prompty.__file__).parent
MOST_FILES = {"invoke": 25, "turn + 1 tool": 40}
MOST_SPAN_ENDS = 2


class Route(NamedTuple):
    """What a call has passed through."""

    calls: int
    functions: int
    files: int
    switches: int


class Profile:
    """Counts calls of functions of the package, as `sys.setprofile` tells them. Resuming a generator is one, too.

    `prompty.testing` does not count: it stands where the network is.
    """

    def __init__(self) -> None:
        self._folder, self._network = f"{PACKAGE}/", f"{PACKAGE}/testing/"
        self._functions: Counter[tuple[str, str]] = Counter()
        self._files: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_qualname
        if event != "call" or name.endswith("comp>") or not file.startswith(self._folder):
            return
        if not file.startswith(self._network):
            self._functions[file, name] += 1
            self._files.append(file)

    def route(self) -> Route:
        switches = sum(before != after for before, after in zip(self._files, self._files[1:], strict=False))
        return Route(len(self._files), len(self._functions), len(set(self._files)), switches)


def measured(function: Callable[[], object]) -> Route:
    """Measure the second of two calls."""
    function()
    profile = Profile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return profile.route()


def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def measured_calls() -> dict[str, Route]:
    os.environ.pop("PROMPTY_TRACE", None)
    model = {"id": "m", "provider": "scripted"}
    agent = prompty.PromptAgent.model_validate(
        {"model": model, "instructions": "system:\nBe brief.\nuser:\n{{q}}", "inputs": {"q": "Hi"}}
    )

    def turn(**options: Any) -> Any:
        with Script(call("look", at="a"), "Done."):
            result: Any = prompty.turn(agent, tools=[look], **options)
            return result.result if options else result

    def turn_async() -> Any:
        with Script(call("look", at="a"), "Done."):
            return asyncio.run(prompty.turn_async(agent, tools=[look]))

    def invoke(**options: Any) -> Any:
        with Script("Hello."):
            result: Any = prompty.invoke(agent, **options)
            return result.result if options else result

    return {
        "invoke": measured(invoke),
        "invoke(stream)": measured(lambda: invoke(stream=True)),
        "turn + 1 tool": measured(turn),
        "turn(stream) + 1 tool": measured(lambda: turn(stream=True)),
        "turn_async + 1 tool": measured(turn_async),
    }


def sources(*folders: str) -> Iterator[Path]:
    """Return the files of some folders of the package, or of all of it."""
    for folder in folders or ("",):
        yield from sorted((PACKAGE / folder).rglob("*.py"))


def place(file: Path, node: ast.AST) -> str:
    return f"{file.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"


def span_ends() -> list[str]:
    """Find the calls of `Span.end`: those of an `end` on something that is called a span."""
    found = []
    for file in sources():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "end":
                holder = ast.unparse(node.func.value).rpartition(".")[2]
                found += [f"{place(file, node)}  {ast.unparse(node)}"] if "span" in holder else []
    return found


def identities() -> list[str]:
    """Find where the identity of an object decides: `id(…)`, and `is` between values that are no constants.

    Sentinels (names in capitals, classes) are constants.
    """
    found = []
    for file in sources("drivers", "loop"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if _is_id(node) or _compares_identity(node):
                found.append(f"{place(file, node)}  {ast.unparse(node)}")
    return found


def _is_id(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id"


def _compares_identity(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Is | ast.IsNot):
        return False
    return not any(_is_constant(one) for one in (node.left, node.comparators[0]))


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    name = ast.unparse(node).rpartition(".")[2].lstrip("_")
    return name.isidentifier() and not name[0].islower()  # SENTINEL or Class


def print_sizes() -> None:
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for file in sources():
        parts = file.relative_to(PACKAGE).parts
        package = parts[0] if len(parts) > 1 else "(top)"
        lines[package] += len(file.read_text(encoding="utf-8").splitlines())
        files[package] += 1
    print(f"\n{'package':<14}{'files':>7}{'lines':>8}")
    for package in sorted(lines):
        print(f"{package:<14}{files[package]:>7}{lines[package]:>8}")
    print(f"{'all':<14}{files.total():>7}{lines.total():>8}")
    print(f"\npublic names: {len(dir(prompty))}")


def exceeded(calls: dict[str, Route], ends: list[str], decided: list[str]) -> list[str]:
    """Return the limits that are exceeded, in words."""
    found = [
        f"{name} enters {calls[name].files} files; the limit is {most}"
        for name, most in MOST_FILES.items()
        if calls[name].files > most
    ]
    if len(ends) > MOST_SPAN_ENDS:
        found.append(f"spans end in {len(ends)} places; the limit is {MOST_SPAN_ENDS}")
    return [*found, *(f"the identity of an object decides: {one}" for one in decided)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how many files a call passes through.")
    parser.add_argument("--limits", action="store_true", help="fail if a limit is exceeded")
    limits = parser.parse_args().limits
    calls, ends, decided = measured_calls(), span_ends(), identities()
    print(f"prompty {prompty.__version__} in {PACKAGE}\n")
    print(f"{'call':<24}{'calls':>7}{'functions':>11}{'files':>7}{'switches':>10}")
    for name, route in calls.items():
        print(f"{name:<24}{route.calls:>7}{route.functions:>11}{route.files:>7}{route.switches:>10}")
    print_sizes()
    print(f"\nspans end in {len(ends)} places", *ends, sep="\n    ")
    print(f"\nthe identity of an object decides in {len(decided)} places", *decided, sep="\n    ")
    if limits and (found := exceeded(calls, ends, decided)):
        sys.exit("\n" + "\n".join(found))


if __name__ == "__main__":
    main()
