"""Read recorded traces, price them, and show them as text or as one HTML page.

Above: `cli.trace`. Below: `pricing`, `model`, `errors`. Nothing here runs during a prompt.
"""

from prompty.viewer.trace import RecordedTrace, find_traces, read_trace

__all__ = ["RecordedTrace", "find_traces", "read_trace"]
