"""Two ways to make the same calls: the OpenAI SDK by itself, and a prompt that is loaded."""

import re
from pathlib import Path
from typing import Any, Protocol

from openai import AsyncOpenAI, OpenAI

from benchmarks.prompts import CHAT, INPUTS
from prompty import PromptAgent, invoke, invoke_async, loads

KEY = "sk-not-a-secret"
SYSTEM = """\
You work in an outdoor shop and answer questions about what it sells.
Be brief, be friendly, and say so when you do not know.

# Customer
You are talking to {customer}.
They are looking at the {product}; speak of nothing else."""
OPTIONS = {"model": "gpt-6-luna", "reasoning_effort": "none", "temperature": 0.3, "max_completion_tokens": 600}


class Caller(Protocol):
    """Streams give the number of their chunks with text."""

    def call(self) -> str: ...
    async def call_async(self) -> str: ...
    def stream(self) -> int: ...
    async def stream_async(self) -> int: ...


class Bare:
    """The SDK as its documents show it, with messages made by `str.format`. On a busy machine many calls at once take
    longer to connect than the five seconds it gives them."""

    def __init__(self, url: str) -> None:
        self.chat: Any = OpenAI(base_url=url, api_key=KEY, timeout=60).chat.completions
        self.chat_async: Any = AsyncOpenAI(base_url=url, api_key=KEY, timeout=60).chat.completions

    def call(self) -> str:
        content: str = self.chat.create(messages=messages(), **OPTIONS).choices[0].message.content
        return content

    async def call_async(self) -> str:
        content: str = (await self.chat_async.create(messages=messages(), **OPTIONS)).choices[0].message.content
        return content

    def stream(self) -> int:
        chunks = self.chat.create(messages=messages(), stream=True, **OPTIONS)
        return len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content])

    async def stream_async(self) -> int:
        chunks = await self.chat_async.create(messages=messages(), stream=True, **OPTIONS)
        return len([chunk async for chunk in chunks if chunk.choices and chunk.choices[0].delta.content])


def messages() -> list[dict[str, str]]:
    system, question = SYSTEM.format(**INPUTS), INPUTS["question"]
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


class Ours:
    """A prompt that is loaded; preparing it is part of the call."""

    def __init__(self, url: str) -> None:
        self.agent = agent_at(url)

    def call(self) -> str:
        return str(invoke(self.agent, INPUTS))

    async def call_async(self) -> str:
        return str(await invoke_async(self.agent, INPUTS))

    def stream(self) -> int:
        return len(list(invoke(self.agent, INPUTS, stream=True)))

    async def stream_async(self) -> int:
        return len([text async for text in await invoke_async(self.agent, INPUTS, stream=True)])


def agent_at(url: str, path: Path = CHAT) -> PromptAgent:
    """The prompt that is measured, with the provider at this URL."""
    connection = f"{{kind: key, endpoint: '{url}', apiKey: {KEY}}}"
    return loads(re.sub(r"connection:\n( {4}.*\n)+", f"connection: {connection}\n", path.read_text(encoding="utf-8")))
