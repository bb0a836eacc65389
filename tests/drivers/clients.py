"""HTTP connections that synchronous calls share."""

import prompty


def close_clients() -> None:
    """Close what calls would keep for the rest of the process."""
    prompty.close()
