"""Recorded traces, looked at: read from disk, priced, and shown as one HTML page.

Above: `cli.trace`. Below: `pricing`, `model`, `errors`. Nothing here runs while a prompt does.
"""
