"""HTTP connections that synchronous calls share."""

from prompty.providers.anthropic.connection import TRANSPORTS as ANTHROPIC
from prompty.providers.foundry import connection as foundry
from prompty.providers.openai.connection import TRANSPORTS as OPENAI


def close_clients() -> None:
    """Close what synchronous calls would keep for the rest of the process."""
    for transports in (OPENAI, ANTHROPIC, foundry.TRANSPORTS):
        transports.close()
    foundry.entra_tokens.cache_clear()  # each test has an identity of its own
    foundry._build_endpoint.cache_clear()
