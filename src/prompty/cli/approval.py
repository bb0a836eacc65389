"""Approve tool calls on the terminal."""

import json
from collections.abc import Callable, Collection

from rich.console import Console
from rich.text import Text

from prompty.loop.effects import Verdict
from prompty.loop.policy import ALLOW, deny, later
from prompty.model.paused import GatedCall
from prompty.safety.visible import visible

ReadLine = Callable[[], str | None]


class Approver:
    """Gate that asks the person at the terminal. Calls of the tools in `allowed` run without a question.

    `read_line` returns None at the end of the input, which denies the call. Without `read_line` the turn pauses.
    """

    def __init__(self, console: Console, read_line: ReadLine | None, allowed: Collection[str] = ()) -> None:
        self._console = console
        self._read_line = read_line
        self._allowed = allowed
        self._trusted: set[tuple[str, str]] = set()  # name and hash of each tool's definition

    def decide_all(self, calls: list[GatedCall]) -> list[Verdict]:
        return [self._decide(call) for call in calls]

    def _decide(self, call: GatedCall) -> Verdict:
        definition = (call.name, call.definition)
        if not call.needs_approval or call.name in self._allowed or definition in self._trusted:
            return ALLOW
        if self._read_line is None:
            return later()
        question = f"allow {describe_call(call)}? [y]es, [n]o, [a]lways, or a reason to deny: "
        self._console.print(Text(question, "bold yellow"), end="", soft_wrap=True)
        line = self._read_line()
        if line is None:
            self._console.print()
        reply = (line or "no").strip()
        match reply.lower():
            case "a" | "always":
                self._trusted.add(definition)
                return ALLOW
            case "y" | "yes":
                return ALLOW
            case "n" | "no" | "":
                return deny("the user said no")
        return deny(reply)


def describe_call(call: GatedCall) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))
    return visible(f"{call.name} {arguments}")
