"""The prompts that are measured, and inputs for them."""

from pathlib import Path

CHAT = Path(__file__).parent / "chat.prompty"
PARTIALS = Path(__file__).parent / "partials.prompty"  # the same text in four partials
CALL = Path(__file__).parent / "call.prompty"  # the same with a connection of its own
INPUTS = {"customer": "Ada Lovelace", "product": "TrailMaster X4 tent", "question": "Does it keep out heavy rain?"}
