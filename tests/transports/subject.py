"""A transport under test, and what it is excused from."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from openai import AsyncOpenAI, OpenAI

from prompty import PromptAgent
from prompty.providers import register_connection

T = TypeVar("T")
NAMES = ("httpx2", "sdk")
KEY = "sk-planted-key-0123456789"
ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"}]}

# What a transport need not do, and why. Everything else holds for all of them.
EXEMPT: dict[tuple[str, str], str] = {
    ("sdk", "redirects"): "the client of a host follows them",
    ("sdk", "cookies"): "the client of a host keeps them",
    ("sdk", "encodings"): "the client of a host asks for its own and decompresses them",
    ("sdk", "environment"): "the client of a host reads the environment when the host builds it",
    ("sdk", "fork"): "the client of a host belongs to the process that built it",
    ("sdk", "very many connections"): "the client of a host has 1,000 of them, unless the host says otherwise",
    ("sdk", "closes with the loop"): "the client of a host is closed by the host",
}


def create_agent(url: str, key: str) -> PromptAgent:
    """An agent that calls with a key."""
    return _create_agent({"kind": "key", "endpoint": url, "apiKey": key})


def _create_agent(connection: Mapping[str, str]) -> PromptAgent:
    model = {"id": "m", "provider": "openai", "connection": connection}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi"})


class Subject:
    """One transport: agents that use it, and event loops at whose end the host closes its own clients."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._client: Any = None
        self._async_client: Any = None

    def is_exempt(self, duty: str) -> bool:
        return (self.name, duty) in EXEMPT

    def agent(self, url: str) -> PromptAgent:
        """An agent whose calls go to a URL."""
        if self.name != "sdk":
            return create_agent(f"{url}/v1", KEY)
        options: Any = {"base_url": f"{url}/v1", "api_key": KEY, "max_retries": 0}
        self.close()
        self._client, self._async_client = OpenAI(**options), AsyncOpenAI(**options)
        register_connection("suite", self._client, self._async_client)
        return _create_agent({"kind": "reference", "name": "suite"})

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in an event loop of its own."""

        async def main() -> T:
            try:
                return await work
            finally:
                if self._async_client is not None:
                    await self._async_client.close()

        return asyncio.run(main())

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
