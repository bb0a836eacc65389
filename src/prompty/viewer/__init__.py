"""Read recorded traces, price them, and show them as text or as one HTML page.

Above: `cli.trace`. Below: `pricing`, `model`, `errors`. Nothing here runs while a prompt does.
"""
