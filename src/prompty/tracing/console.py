"""Console sink: the tree of spans on stderr, one line at the start of a span and one at its end."""

import sys

from prompty.safety.visible import visible
from prompty.tracing.names import AGENT_NAME, REQUEST_MODEL, TOOL_NAME
from prompty.tracing.spans import Span


class ConsoleSink:
    """Writes `[prompty] ▶ name` and `[prompty] ◀ name (12.3 ms)`, without inputs and results."""

    content = wire = False
    immediate = True

    def started(self, span: Span, /) -> None:
        known = filter(None, map(span.attributes.get, (TOOL_NAME, REQUEST_MODEL, AGENT_NAME)))
        _write(span, f"▶ {span.name} {next(known, '')}".rstrip())

    def ended(self, span: Span, /) -> None:
        usage = span.usage
        tokens = f" {usage.get('input_tokens', 0):,} → {usage.get('output_tokens', 0):,} tokens" if usage else ""
        failure = f" {span.error[0]}: {span.error[1]}" if span.error else ""
        _write(span, f"◀ {span.name} ({(span.duration or 0) / 1e6:.1f} ms){tokens}{failure}")


def _write(span: Span, line: str) -> None:
    depth, parent = 0, span.parent
    while parent is not None:
        depth, parent = depth + 1, parent.parent
    escaped = visible(line).replace("\n", " ")
    sys.stderr.write(f"[prompty] {'  ' * depth}{escaped}\n")  # one write, so that threads do not split lines
    sys.stderr.flush()
