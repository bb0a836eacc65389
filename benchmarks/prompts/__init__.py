"""The prompt that is measured, and inputs for it."""

from pathlib import Path

CHAT = Path(__file__).parent / "chat.prompty"
INPUTS = {"customer": "Ada Lovelace", "product": "TrailMaster X4 tent", "question": "Does it keep out heavy rain?"}
