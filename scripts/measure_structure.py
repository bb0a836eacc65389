"""Measure how many files and functions a call passes through, how large the source is, and which names it has twice.

    python scripts/measure_structure.py            print the figures
    python scripts/measure_structure.py --limits   fail if a limit is exceeded

Calls go to the scripted provider, or over HTTP to a server on loopback, warm (the second one counts) and with tracing
off. To measure another checkout, put its sources first: PYTHONPATH=../other/src python scripts/measure_structure.py
"""

import argparse
import ast
import asyncio
import json
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple

import prompty
from prompty.testing import Script, call

PACKAGE = Path(prompty.__file__).parent
HTTP = "turn + 1 tool, HTTP"
MOST_FILES = {"invoke": 27, "turn + 1 tool": 40, HTTP: 46}
MOST_SPAN_ENDS = 2
MOST_SHARED_NAMES = 14
_CONVENTIONS = ("TypeVar", "ParamSpec", "getLogger")  # a name of one of these means the same in every module


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


class ChatHandler(BaseHTTPRequestHandler):
    """Answers the first request of a turn with a tool call, and the second with a text."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "a"}'}}
        is_second = request["messages"][-1]["role"] == "tool"
        message = {"role": "assistant", **({"content": "Done."} if is_second else {"tool_calls": [asked]})}
        reason = "stop" if is_second else "tool_calls"
        body = json.dumps({"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}]})
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def serve_chat() -> Iterator[str]:
    """Serve OpenAI's chat API on loopback, and give its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ChatHandler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


def measure_http() -> Route:
    """Measure a turn with one tool over HTTP, from a file."""
    with serve_chat() as url, TemporaryDirectory() as folder:
        file = Path(folder, "look.prompty")
        model = f"{{id: m, provider: openai, connection: {{kind: anonymous, endpoint: '{url}'}}}}"
        file.write_text(f"---\nmodel: {model}\ninputs: {{q: Hi}}\n---\nuser:\n{{{{q}}}}")
        os.utime(file, (0, 0))  # a file that has just changed is not cached
        return measured(lambda: prompty.turn(file, {"q": "Look."}, tools=[look]))


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
        HTTP: measure_http(),
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


def public_names(file: Path) -> set[str]:
    """Return the classes, functions and constants that a module defines for others."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not ast.unparse(node.value).startswith(_CONVENTIONS):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
    return {name for name in names if not name.startswith("_") and name != "TYPE_CHECKING"}


def shared_names(*, with_durable: bool) -> dict[str, list[str]]:
    """Return the public names that two or more modules define, with those modules."""
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for file in sources():
        path = file.relative_to(PACKAGE)
        if with_durable or path.parts[0] != "durable":
            for name in public_names(file):
                modules[name].append(str(path))
    return {name: paths for name, paths in sorted(modules.items()) if len(paths) > 1}


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
    print(f"{'but durable':<14}{files.total() - files['durable']:>7}{lines.total() - lines['durable']:>8}")
    print(f"files per 1,000 lines: {1000 * files.total() / lines.total():.1f}")
    print(f"\npublic names: {len(dir(prompty))}")


def exceeded(calls: dict[str, Route], ends: list[str], decided: list[str], shared: int) -> list[str]:
    """Return the limits that are exceeded, in words."""
    found = [
        f"{name} enters {calls[name].files} files; the limit is {most}"
        for name, most in MOST_FILES.items()
        if calls[name].files > most
    ]
    if len(ends) > MOST_SPAN_ENDS:
        found.append(f"spans end in {len(ends)} places; the limit is {MOST_SPAN_ENDS}")
    if shared > MOST_SHARED_NAMES:
        found.append(f"{shared} public names are in two modules or more; the limit is {MOST_SHARED_NAMES}")
    return [*found, *(f"the identity of an object decides: {one}" for one in decided)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how many files a call passes through.")
    parser.add_argument("--limits", action="store_true", help="fail if a limit is exceeded")
    limits = parser.parse_args().limits
    calls, ends, decided = measured_calls(), span_ends(), identities()
    shared, everywhere = shared_names(with_durable=False), shared_names(with_durable=True)
    print(f"prompty {prompty.__version__} in {PACKAGE}\n")
    print(f"{'call':<24}{'calls':>7}{'functions':>11}{'files':>7}{'switches':>10}")
    for name, route in calls.items():
        print(f"{name:<24}{route.calls:>7}{route.functions:>11}{route.files:>7}{route.switches:>10}")
    print_sizes()
    print(f"\nspans end in {len(ends)} places", *ends, sep="\n    ")
    print(f"\nthe identity of an object decides in {len(decided)} places", *decided, sep="\n    ")
    print(f"\npublic names in two modules or more: {len(shared)}, with durable {len(everywhere)}")
    for name, modules in shared.items():
        print(f"    {name}: {', '.join(modules)}")
    if limits and (found := exceeded(calls, ends, decided, len(shared))):
        sys.exit("\n" + "\n".join(found))


if __name__ == "__main__":
    main()
