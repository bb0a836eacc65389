"""Lines for the events of a run, and arguments and results that are short enough for one."""

from prompty.model.event import Compacted, Event, FellBack, HistoryRepaired, Retry, ToolFinished, ToolStarted
from prompty.safety.visible import visible

_MAX_CHARACTERS = 400


def shorten(text: str) -> str:
    """Return the text on one line, with its end left out if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"


def describe_event(event: Event) -> tuple[str, str] | None:
    """Return the line for an event and its style, or None for events without a line of their own."""
    match event:
        case ToolStarted(call):
            return f"→ {visible(call.name)} {visible(shorten(call.arguments))}", "magenta"
        case ToolFinished(call, result):
            style = "red" if event.is_error else "green"
            return f"← {visible(call.name)} {visible(shorten(result.text))}", style
        case Retry(attempt, seconds, reason):
            return f"attempt {attempt} failed: {visible(reason)}; retrying in {seconds:.1f} s", "yellow"
        case Compacted(messages, _):
            return f"({messages} messages were replaced by a summary)", "dim"
        case HistoryRepaired(problems):
            return f"(the stored conversation was repaired: {visible('; '.join(problems))})", "yellow"
        case FellBack(model, reason):
            return f"({visible(reason)}; continuing with {visible(model)})", "yellow"
    return None
