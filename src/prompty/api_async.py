"""The `_async` twins of the public functions: same arguments, same results.

They stand apart from `api` so that synchronous programs do not pay for importing asyncio.
"""

from asyncio import to_thread
from collections.abc import Mapping, Sequence

from prompty.model.agent import PromptAgent
from prompty.model.message import Message
from prompty.pipeline.load import StrPath, load
from prompty.pipeline.prepare import parse, prepare, render


async def load_async(
    path: StrPath, *, allowed_roots: Sequence[StrPath] = (), env: Mapping[str, str] | None = None
) -> PromptAgent:
    """Like `load`, with the reading done in a thread."""
    return await to_thread(load, path, allowed_roots=allowed_roots, env=env)


async def render_async(agent: PromptAgent, inputs: Mapping[str, object] | None = None, *, strict: bool = False) -> str:
    """Like `render`; nothing in it waits."""
    return render(agent, inputs, strict=strict)


async def parse_async(agent: PromptAgent, text: str, *, nonce: str | None = None) -> list[Message]:
    """Like `parse`; nothing in it waits."""
    return parse(agent, text, nonce=nonce)


async def prepare_async(
    agent: PromptAgent, inputs: Mapping[str, object] | None = None, *, strict: bool = False
) -> list[Message]:
    """Like `prepare`; nothing in it waits."""
    return prepare(agent, inputs, strict=strict)
