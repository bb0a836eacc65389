"""Agents and tools for durable runs."""

from typing import Any

from prompty import PromptAgent, tool

Script = list[Any]


def scripted(script: Script, **parts: Any) -> PromptAgent:
    """An agent whose model answers by a script that it brings along: any process can go on with it."""
    model = {"id": "m", "provider": "scripted", "script": script}
    body = {"instructions": "system:\nBe brief.\nuser:\n{{q}}", "inputs": {"q": "Hi"}}
    return PromptAgent.model_validate({"model": model, **body, **parts})


def rounds(name: str, count: int, calls: int) -> Script:
    """So many answers with so many calls of a tool each, and an answer in words."""
    return [[{"call": name, "arguments": {"at": f"{n}/{at}"}} for at in range(calls)] for n in range(count)] + ["Done."]


class Desk:
    """A tool that notes what it does."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @tool
    async def look(self, at: str) -> str:
        """Look at something."""
        self.seen.append(at)
        return f"seen {at}"
