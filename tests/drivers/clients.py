"""HTTP clients that synchronous calls share."""

from prompty.providers.anthropic import client as anthropic_client
from prompty.providers.foundry import client as foundry_client
from prompty.providers.openai import client as openai_client


def close_clients() -> None:
    """Close what synchronous calls would keep for the rest of the process."""
    for connector in (openai_client.CONNECTOR, anthropic_client.CONNECTOR, foundry_client.CONNECTOR):
        while connector._transports:
            connector._transports.popitem()[1].client.close()
