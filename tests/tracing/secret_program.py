"""A program that is watched in every way there is: `python -m tests.tracing.secret_program PLAN.json`.

It runs the scenes of the plan, whose prompts, inputs and tools hold secrets, and keeps everything that could show one:
what a tracer of its own gets, the lines of traces while they are written, a recording, its log, and representations.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception
from typing import Any

from prompty import PromptAgent, PromptyError, ToolContext, load, turn, turn_async
from prompty.testing import Recorder
from prompty.tracing import Span, Tracer
from prompty.tracing.spans import SINKS

Scene = dict[str, Any]


class Lines:
    """Keeps the lines of traces, which are gone when a trace is whole."""

    content, wire, immediate = False, False, True

    def __init__(self, folder: Path, kept: Path) -> None:
        self.folder, self.kept = folder, kept

    def started(self, span: Span, /) -> None:
        pass

    def ended(self, span: Span, /) -> None:
        if span.name in ("execute", "execute_tool", "process"):
            with self.kept.open("ab") as file:
                file.writelines(path.read_bytes() for path in self.folder.glob("*.jsonl"))


def writing(path: Path) -> Callable[..., Any]:
    """A tracer as the documents have it: a function that opens a span and takes keys and values."""

    @contextmanager
    def opened(name: str) -> Iterator[Callable[[str, object], object]]:
        with path.open("a") as file:
            yield lambda key, value: file.write(f"{name} {key} {value} {value!r} {json.dumps(value)}\n")

    return opened


class Shown:
    """What was seen of agents, and of everything else."""

    def __init__(self) -> None:
        self.agents: list[str] = []
        self.others: list[str] = []


def tools_of(scene: Scene, shown: Shown) -> list[Callable[..., object]]:
    def login(
        city: str, password: str, payload: str, about: str, pin: str, account: str, user: str, context: ToolContext
    ) -> Any:
        """Log in."""
        shown.others.append(f"{context!r} {context}")
        context.progress(1, 2, scene["progress"])
        return scene["result"]

    async def fails(city: str) -> str:
        """Fail."""
        raise RuntimeError(scene["failure"])

    return [login, fails]


def options_of(scene: Scene, shown: Shown) -> dict[str, Any]:
    def gate(calls: list[Any]) -> list[bool]:
        raise RuntimeError(scene["gate"])

    def listener(event: object) -> None:
        raise RuntimeError(scene["listener"])

    hooks = {"gate": gate, "on_event": listener} if "gate" in scene else {}
    return {"tools": tools_of(scene, shown), "max_retries": 0, **hooks}


async def streamed(agent: PromptAgent, scene: Scene, options: dict[str, Any]) -> None:
    async with await turn_async(agent, scene["inputs"], stream=True, **options) as stream:
        async for _ in stream:
            pass


def play(scene: Scene, shown: Shown) -> None:
    """A turn of a scene; what can be said of it is shown."""
    try:
        agent = load(scene["file"])
        shown.agents.append(f"{agent!r} {agent} {agent.model.connection!r} {agent.tools!r}")
        options = options_of(scene, shown)
        if scene["stream"]:
            asyncio.run(streamed(agent, scene, options))
        else:
            turn(agent, scene["inputs"], **options)
    except PromptyError as error:
        shown.others.append(f"{error!r} {error} {''.join(format_exception(error))}")


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(plan["folder"])
    log = logging.FileHandler(folder / "prompty.log", encoding="utf-8")
    logging.getLogger("prompty").addHandler(log)
    logging.getLogger("prompty").setLevel(logging.DEBUG)
    SINKS.list()  # those that the environment names come first
    Tracer.add("own", writing(folder / "factory.txt"))
    Tracer.add("lines", Lines(folder / "traces", folder / "lines.txt"))
    shown = Shown()
    with Recorder(folder / "recording.jsonl"):
        for scene in plan["scenes"]:
            play(scene, shown)
    Tracer.flush(20)
    (folder / "agents.txt").write_text("\n".join(shown.agents))
    (folder / "errors.txt").write_text("\n".join(shown.others))


if __name__ == "__main__":
    main()
