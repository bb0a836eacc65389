"""A sink for people: a line when something begins and one when it is over, as a tree, on stderr."""

import sys

from prompty.safety.visible import visible
from prompty.tracing.names import REQUEST_MODEL, TOOL_NAME
from prompty.tracing.spans import Span


class ConsoleSink:
    """Writes `[prompty] ▶ name` and `[prompty] ◀ name (12.3 ms)`. Nothing of what was said is in it."""

    content, wire, immediate = False, False, True

    def started(self, span: Span, /) -> None:
        _write(span, f"▶ {span.name}{_about(span)}")

    def ended(self, span: Span, /) -> None:
        failure = f" {span.error[0]}: {span.error[1]}" if span.error else ""
        _write(span, f"◀ {span.name} ({(span.duration or 0) / 1e6:.1f} ms){_tokens(span)}{failure}")


def _about(span: Span) -> str:
    named = (
        span.attributes.get(TOOL_NAME) or span.attributes.get(REQUEST_MODEL) or span.attributes.get("gen_ai.agent.name")
    )
    return f" {named}" if named else ""


def _tokens(span: Span) -> str:
    used = span.usage
    return f" {used.get('input_tokens', 0):,} → {used.get('output_tokens', 0):,} tokens" if used else ""


def _write(span: Span, line: str) -> None:
    depth, above = 0, span.parent
    while above is not None:
        depth, above = depth + 1, above.parent
    shown = visible(line).replace("\n", " ")
    sys.stderr.write(f"[prompty] {'  ' * depth}{shown}\n")  # one write, so that lines of threads stay whole
    sys.stderr.flush()
