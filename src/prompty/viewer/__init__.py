"""Recorded traces, looked at: read from disk, priced, and shown as one HTML page.

Above: `cli.trace`. Below: `pipeline.prices`, `model`, `errors`. Nothing here runs while a prompt does.
"""
