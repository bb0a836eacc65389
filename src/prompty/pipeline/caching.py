"""Prompt caching: mark the part of a request that other requests share, so that a provider reads it for a tenth.

OpenAI's models from GPT-5.6 on write every request to their cache up to its last message, for 1.25 times the price. A
call that nothing continues never reads that again, so such a request names what to write: the static prefix of its
prompt, or nothing. Anthropic writes only what is marked. A mark below the minimum of a model has no effect.

Marks are sent to the provider's own servers alone (M8). What the file writes itself wins, and `metadata: {cache:
false}` leaves requests as they are. Above: `loop.model_step`. Below: `static_prefix`, `request`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.request import Function, WireRequest
from prompty.pipeline.request import build_request
from prompty.providers import PROVIDERS, Api
from prompty.providers.profiles import ANTHROPIC, OPENAI
from prompty.wire.blocks import BlockPath, WireBlock, list_blocks

if TYPE_CHECKING:
    from prompty.pipeline.static_prefix import StaticPrefix  # see `_prove`

# A call that nothing continues, or one of several with a growing history.
CacheUse = Literal["once", "conversation"]
SWITCH = "cache"  # in the file's metadata
BYTES_PER_TOKEN = 3  # at most, for nearly all text: a mark that turns out to be too early has no effect
_LEAST_MINIMUM = 512  # of a model of Anthropic whose minimum is not known for sure
_OPENAI_MARK = "prompt_cache_breakpoint"
_ANTHROPIC_MARK = "cache_control"
# With one of these in the file, its author decides, or the beginning of the request is at the server.
_OWN_FIELDS = ("prompt_cache_options", "prompt_cache_retention", "previous_response_id", "conversation", "prompt")
_THOUGHTS = ("thinking", "redacted_thinking")
_MEDIA = ("image", "input_image", "document", "file", "input_file", "input_audio")


def choose_cache_use(agent: PromptAgent, *, is_continued: bool) -> CacheUse:
    """Return what later requests share with those of an agent. A prompt with a thread is called again with more of
    it."""
    return "conversation" if is_continued or any(one.kind == "thread" for one in agent.inputs) else "once"


class _MarkedPlace(NamedTuple):
    """The end of a prefix: the text at a path, and the characters of it that are static."""

    path: BlockPath
    length: int


def build_cached_request(
    agent: PromptAgent,
    messages: Sequence[object],
    api: Api,
    *,
    use: CacheUse | None,
    functions: Sequence[Function] | None = None,
    stream: bool = False,
    timeout: float | None = None,
) -> WireRequest:
    """Return the request for one call to a model, with marks for its provider's cache."""
    request = build_request(agent, messages, api, functions=functions, stream=stream, timeout=timeout)
    body = request.body if use is None else add_marks(agent, api, request, use)
    return request if body is request.body else replace(request, body=body, unmarked=request.body)


def add_marks(agent: PromptAgent, api: Api, request: WireRequest, use: CacheUse) -> Json:
    """Return the body of a request with marks, or the same body if its model needs none."""
    facts, body = api.facts, request.body
    if facts is None or agent.metadata.get(SWITCH) is False:
        return body
    profile = agent.registry[PROVIDERS].get(agent.model.provider).profile(agent)
    if profile is OPENAI and use == "once" and facts.known.get("cache_write_factor", 1.0) > 1:
        return _mark_openai(agent, api, request, facts.known.get("cache_min", 0))
    if profile is ANTHROPIC and facts.known.get("cache_kind") == "explicit":
        return _mark_anthropic(agent, api, request, facts.known.get("cache_min", _LEAST_MINIMUM), use)
    return body


# ---- OpenAI ----


def _mark_openai(agent: PromptAgent, api: Api, request: WireRequest, minimum: int) -> Json:
    """Return the body with one mark, or with none if nothing is worth writing."""
    body = request.body
    blocks = list_blocks(body)
    if not _may_reach(blocks, minimum) or any(name in body for name in _OWN_FIELDS) or _has_marks(blocks, _OPENAI_MARK):
        return body
    body = {**body, "prompt_cache_options": {"mode": "explicit"}}
    prefix = _prove(_Proof(agent, api, request.functions))
    place = _find_end(body, blocks, prefix, minimum, _takes_openai_mark)
    if place is None:
        return body
    mark: Json = {_OPENAI_MARK: {"mode": "explicit"}}
    kind = "input_text" if api.name == "responses" else "text"
    if place.path == ("instructions",):  # which is a text, and takes no mark
        text = cast(str, body.pop("instructions"))
        item = {"role": "developer", "content": _split(text, place.length, kind, mark)}
        body["input"] = [item, *cast(list[Json], body["input"])]
    else:
        body = _mark_text(body, place, kind, mark)
    return {"prompt_cache_key": f"prompty-{prefix.digest[:32]}", **body}


def _takes_openai_mark(body: Any, path: BlockPath) -> bool:
    return path[0] == "instructions" or (
        path[0] in ("messages", "input") and body[path[0]][path[1]].get("role") in ("system", "developer", "user")
    )


# ---- Anthropic ----


def _mark_anthropic(agent: PromptAgent, api: Api, request: WireRequest, minimum: int, use: CacheUse) -> Json:
    """Return the body with a mark after the static prefix, and in a conversation also after the last message."""
    body = request.body
    blocks = list_blocks(body)
    if not _may_reach(blocks, minimum) or _ANTHROPIC_MARK in body or _has_marks(blocks, _ANTHROPIC_MARK):
        return body
    mark: Json = {_ANTHROPIC_MARK: {"type": "ephemeral"}}
    place = _find_end(body, blocks, _prove(_Proof(agent, api, request.functions)), minimum, _takes_anthropic_mark)
    if place is not None and place.path[0] == "tools":
        body = _update(body, place.path, lambda tool: {**tool, **mark})
    elif place is not None:
        body = _mark_text(body, place, "text", mark)
    is_continued = request.functions or any(message.role == "assistant" for message in request.messages)
    return _mark_history(body, mark) if use == "conversation" and is_continued else body


def _mark_history(body: Json, mark: Json) -> Json:
    """Return the body with a mark on its last block, which the next call sends again. Thoughts take none."""
    last = len(cast(list[Json], body["messages"])) - 1
    content = cast(list[Json], cast(list[Json], body["messages"])[last]["content"])
    at = max((at for at, block in enumerate(content) if block["type"] not in _THOUGHTS), default=None)
    return body if at is None else _update(body, ("messages", last, "content", at), lambda block: {**block, **mark})


def _takes_anthropic_mark(body: Any, path: BlockPath) -> bool:
    if path[0] == "tools":
        return not body["tools"][path[1]].get("defer_loading")
    return path[0] in ("system", "messages")


# ---- Both ----


def _may_reach(blocks: Sequence[WireBlock], minimum: int) -> bool:
    """Return True if blocks may have as many tokens as are cached. Nobody knows how many an image has."""
    if any(f'"type": "{kind}' in block.head for block in blocks if not block.text for kind in _MEDIA):
        return True
    return _measure(blocks) + sum(len(block.head) for block in blocks) >= BYTES_PER_TOKEN * minimum


def _measure(blocks: Sequence[WireBlock]) -> int:
    return sum(len(block.text.encode()) for block in blocks)


def _has_marks(blocks: Sequence[WireBlock], name: str) -> bool:
    """Return True if the file marks parts or tools itself."""
    return any(f'"{name}"' in (block.text if block.path[0] == "tools" else block.head) for block in blocks)


class _Proof:
    """A key for a cache: the same objects, and equal functions."""

    __slots__ = ("agent", "api", "functions", "key")

    def __init__(self, agent: PromptAgent, api: Api, functions: Sequence[Function]) -> None:
        self.agent, self.api, self.functions = agent, api, functions
        self.key = id(agent), id(api), repr(functions)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Proof) and other.key == self.key


@lru_cache(maxsize=256)
def _prove(proof: _Proof) -> "StaticPrefix":
    """Return the static prefix of an agent's requests. To prove it takes longer than to build a request."""
    from prompty.pipeline.static_prefix import prove_static_prefix  # with both template engines, for long prompts only

    return prove_static_prefix(proof.agent, proof.api, functions=proof.functions)


def _find_end(
    body: Json,
    blocks: list[WireBlock],
    prefix: "StaticPrefix",
    minimum: int,
    takes_mark: Callable[[Json, BlockPath], bool],
) -> _MarkedPlace | None:
    """Return the last place in the prefix that takes a mark, or None if what precedes it is too short.

    A conversation that the caller passes, or that a guardrail changed, may begin in another way.
    """
    if not prefix.starts(body):
        return None
    for at in range(len(prefix.blocks) - 1, -1, -1):
        if prefix.blocks[at].text and takes_mark(body, blocks[at].path):
            is_long = _measure(prefix.blocks[: at + 1]) >= BYTES_PER_TOKEN * minimum
            return _MarkedPlace(blocks[at].path, len(prefix.blocks[at].text)) if is_long else None
    return None


def _mark_text(body: Json, place: _MarkedPlace, kind: str, mark: Json) -> Json:
    """Return the body with a mark inside the text at a place: the text becomes two parts."""
    path = place.path
    if not isinstance(path[-1], int):
        return _update(body, path, lambda text: _split(text, place.length, kind, mark))
    at = path[-1]

    def split_part(parts: list[Json]) -> list[Json]:
        pieces = _split(cast(str, parts[at]["text"]), place.length, kind, mark)
        pieces[-1] = {**parts[at], **pieces[-1]}  # a mark of its own stays at the end
        return [*parts[:at], *pieces, *parts[at + 1 :]]

    return _update(body, path[:-1], split_part)


def _split(text: str, length: int, kind: str, mark: Json) -> list[Json]:
    """Return a text as two parts, the first of them marked, or as one if nothing but blanks follows the mark."""
    head, rest = text[:length], text[length:]
    if not rest.strip():
        return [{"type": kind, "text": text, **mark}]
    return [{"type": kind, "text": head, **mark}, {"type": kind, "text": rest}]


def _update(body: Json, path: BlockPath, change: Callable[[Any], object]) -> Json:
    """Return a copy of a body in which the value at a path is changed. What is not on the path is shared."""

    def copy(value: Any, rest: BlockPath) -> Any:
        if not rest:
            return change(value)
        copied: Any = value.copy()
        copied[rest[0]] = copy(value[rest[0]], rest[1:])
        return copied

    return cast(Json, copy(body, path))
