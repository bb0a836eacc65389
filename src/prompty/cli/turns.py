"""Show the events of a turn on the terminal, and ask for approval of its calls."""

import json
from collections.abc import Callable, Collection, Iterable

from rich.console import Console
from rich.text import Text

from prompty.cli.console import show
from prompty.loop.effects import Verdict
from prompty.loop.policy import ALLOW, deny, later
from prompty.model.citation import Citation, ProviderCall, describe_source, list_sources
from prompty.model.event import (
    Compacted,
    Event,
    FellBack,
    HistoryRepaired,
    OutputRejected,
    ProviderCallDone,
    ProviderCallStarted,
    Retry,
    ToolFinished,
    ToolStarted,
)
from prompty.model.paused import GatedCall
from prompty.safety.visible import visible

_MAX_CHARACTERS = 400
BLOCKED = "The provider's content filter blocked the answer."


def truncate_line(text: str) -> str:
    """Return the text on one line, truncated if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"


def describe_event(event: Event) -> tuple[str, str] | None:
    """Return the line for an event and its style, or None for an event that is not shown on its own."""
    match event:
        case ToolStarted(call):
            return f"→ {visible(call.name)} {visible(truncate_line(call.arguments))}", "magenta"
        case ToolFinished(call, result):
            style = "red" if event.is_error else "green"
            return f"← {visible(call.name)} {visible(truncate_line(result.text))}", style
        case ProviderCallStarted(started):
            return f"→ {describe_provider_call(started)}", "magenta"
        case ProviderCallDone(done) if done.status != "completed":
            return f"← {show(truncate_line(f'{done.tool} {done.error or done.status}'))}", "red"
        case Retry(attempt, seconds, reason):
            return f"attempt {attempt} failed: {visible(reason)}; retrying in {seconds:.1f} s", "yellow"
        case Compacted(messages, _):
            return f"(replaced {messages} messages with a summary)", "dim"
        case HistoryRepaired(problems):
            return f"(repaired the stored conversation: {visible('; '.join(problems))})", "yellow"
        case FellBack(model, reason):
            return f"({visible(reason)}; continuing with {visible(model)})", "yellow"
        case OutputRejected(_, cause):
            return f"({visible(cause)}; asking the model to correct it)", "yellow"
    return None


def describe_provider_call(call: ProviderCall) -> str:
    """Return a call of the provider's own tool on one line."""
    given = json.dumps(call.input, ensure_ascii=False, separators=(",", ":")) if call.input else ""
    return show(truncate_line(f"{call.tool} {given}"))


def describe_sources(citations: Iterable[Citation]) -> str:
    """Return the sources of an answer as numbered lines. What a page wrote about itself stays on its line."""
    lines = [show(truncate_line(describe_source(citation))) for citation in list_sources(citations)]
    return "\n".join(["Sources", *[f"{number}. {line}" for number, line in enumerate(lines, 1)]]) if lines else ""


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
