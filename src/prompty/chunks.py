"""Streams that the host opened itself: a provider's chunks, as JSON or as objects of its SDK (§8.6)."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable
from secrets import token_hex

from prompty.drivers.driver import Outcome
from prompty.errors import ModelError, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.event import Delta, Done, Event, ModelReply, RunStarted
from prompty.model.message import Reply
from prompty.model.paused import Paused
from prompty.pipeline.request import process_reply
from prompty.providers import PROVIDERS
from prompty.wire.json_bytes import MALFORMED
from prompty.wire.stream import Decoder, ReplyReader


def chunk_events(agent: PromptAgent, chunks: Iterable[object]) -> Generator[Event, None, Done]:
    """Yield the events of a stream of chunks, then close it."""
    reader = ReplyReader(get_decoder(agent)())
    try:
        yield RunStarted(token_hex(16))
        for chunk in chunks:
            yield from _read_chunk(reader, chunk)
    finally:
        if close := getattr(chunks, "close", None):
            close()
    reply = _get_reply(reader)
    yield ModelReply(reply)
    done = _finish(agent, reply)
    yield done
    return done


async def chunk_events_async(
    agent: PromptAgent, chunks: AsyncIterable[object]
) -> AsyncGenerator[Event | Outcome[Done | Paused], None]:
    """The async form of `chunk_events`."""
    reader = ReplyReader(get_decoder(agent)())
    try:
        yield RunStarted(token_hex(16))
        async for chunk in chunks:
            for delta in _read_chunk(reader, chunk):
                yield delta
    finally:
        close = getattr(chunks, "aclose", None) or getattr(chunks, "close", None)
        if close and inspect.isawaitable(closing := close()):
            await closing
    reply = _get_reply(reader)
    yield ModelReply(reply)
    done = _finish(agent, reply)
    yield done
    yield Outcome(done)


def get_decoder(agent: PromptAgent) -> Callable[[], Decoder]:
    """Return the decoder of an agent's API. Raise RequestError if the API has no streams."""
    decoder = agent.registry[PROVIDERS].get(agent.model.provider).api_for(agent).decoder
    if decoder is None:
        raise RequestError(
            f"`apiType: {agent.model.api_type}` of the provider '{agent.model.provider}' has no streams",
            "Pass the whole response to process().",
        )
    return decoder


def _read_chunk(reader: ReplyReader, chunk: object) -> list[Delta]:
    try:
        return list(reader.feed_chunk(chunk))
    except (ModelError, *MALFORMED) as error:
        raise reader.cut(error) from None


def _get_reply(reader: ReplyReader) -> Reply:
    try:
        return reader.reply()
    except (ModelError, *MALFORMED) as error:
        raise reader.cut(error) from None


def _finish(agent: PromptAgent, reply: Reply) -> Done:
    result = process_reply(agent, reply)
    return Done(
        result=result,
        messages=(reply.message(),),
        usage=reply.usage,
        cost=None,
        iterations=1,
        citations=reply.citations,
        provider_calls=reply.provider_calls,
    )
