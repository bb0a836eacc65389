"""What calls cost, measured in the same calls made with the bare OpenAI SDK."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from typing import Protocol

from openai import AsyncOpenAI, DefaultAioHttpClient, OpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import SecretStr

from benchmarks.cost import Cost, best_of
from benchmarks.prompts import CHAT, INPUTS
from benchmarks.provider import fake_provider
from prompty import PromptAgent, invoke, invoke_async, load, register_connection
from prompty.model.connection import ApiKeyConnection

REPEATS = 30
CHUNKS = 2000
KEY = "sk-not-a-secret"
MODEL = "gpt-4o-mini"
SYSTEM = """\
You work in an outdoor shop and answer questions about what it sells.
Be brief, be friendly, and say so when you do not know.

# Customer
You are talking to {customer}.
They are looking at the {product}; speak of nothing else."""
WAITED = Path("/proc/self/schedstat")


class Caller(Protocol):
    """One way to make the same calls."""

    def call(self) -> object: ...
    async def call_async(self) -> object: ...
    def stream(self) -> int: ...
    async def stream_async(self) -> int: ...


class Bare:
    """The SDK by itself, as its documents show it."""

    def __init__(self, url: str) -> None:
        self.chat = OpenAI(base_url=url, api_key=KEY).chat.completions
        self.chat_async = AsyncOpenAI(base_url=url, api_key=KEY).chat.completions

    def call(self) -> object:
        done = self.chat.create(model=MODEL, messages=messages(), temperature=0.3, max_completion_tokens=600)
        return done.choices[0].message.content

    async def call_async(self) -> object:
        done = await self.chat_async.create(
            model=MODEL, messages=messages(), temperature=0.3, max_completion_tokens=600
        )
        return done.choices[0].message.content

    def stream(self) -> int:
        stream = self.chat.create(
            model=MODEL, messages=messages(), temperature=0.3, max_completion_tokens=600, stream=True
        )
        return sum(1 for chunk in stream if chunk.choices and chunk.choices[0].delta.content)

    async def stream_async(self) -> int:
        stream = await self.chat_async.create(
            model=MODEL, messages=messages(), temperature=0.3, max_completion_tokens=600, stream=True
        )
        return len([chunk async for chunk in stream if chunk.choices and chunk.choices[0].delta.content])


def messages() -> list[ChatCompletionMessageParam]:
    return [
        {"role": "system", "content": SYSTEM.format(**INPUTS)},
        {"role": "user", "content": INPUTS["question"]},
    ]


class Ours:
    """A prompt that is loaded."""

    def __init__(self, agent: PromptAgent) -> None:
        self.agent = agent

    def call(self) -> object:
        return invoke(self.agent, INPUTS)

    async def call_async(self) -> object:
        return await invoke_async(self.agent, INPUTS)

    def stream(self) -> int:
        return sum(1 for _ in invoke(self.agent, INPUTS, stream=True))

    async def stream_async(self) -> int:
        return len([text async for text in await invoke_async(self.agent, INPUTS, stream=True)])
