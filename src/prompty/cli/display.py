"""One-line descriptions of events, arguments and results."""

from prompty.model.event import Compacted, Event, FellBack, HistoryRepaired, Retry, ToolFinished, ToolStarted
from prompty.safety.visible import visible

_MAX_CHARACTERS = 400


def shorten(text: str) -> str:
    """Return the text on one line, truncated if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"


def describe_event(event: Event) -> tuple[str, str] | None:
    """Return the line for an event and its style, or None for an event that is not shown on its own."""
    match event:
        case ToolStarted(call):
            return f"→ {visible(call.name)} {visible(shorten(call.arguments))}", "magenta"
        case ToolFinished(call, result):
            style = "red" if event.is_error else "green"
            return f"← {visible(call.name)} {visible(shorten(result.text))}", style
        case Retry(attempt, seconds, reason):
            return f"attempt {attempt} failed: {visible(reason)}; retrying in {seconds:.1f} s", "yellow"
        case Compacted(messages, _):
            return f"(replaced {messages} messages with a summary)", "dim"
        case HistoryRepaired(problems):
            return f"(repaired the stored conversation: {visible('; '.join(problems))})", "yellow"
        case FellBack(model, reason):
            return f"({visible(reason)}; continuing with {visible(model)})", "yellow"
    return None
