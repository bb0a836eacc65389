"""HTTP connections that synchronous calls share."""

import prompty
from prompty.providers.foundry import connection as foundry


def close_clients() -> None:
    """Close what calls would keep for the rest of the process."""
    prompty.close()
    foundry.entra_tokens.cache_clear()  # each test has an identity of its own
    foundry._build_endpoint.cache_clear()
