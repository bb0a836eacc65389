"""Prompt caching: mark the part of a request that other requests share, so that a provider reads it for a tenth.

That part is declared by the shape of the template: everything before its first tag is the same in every request. A
comment is no tag, and partials are part of the template by now. No value is followed, and nothing is proved.

OpenAI's models from GPT-5.6 on write every request to their cache up to its last message, for 1.25 times the price. A
call that nothing continues never reads that again, so such a request names what to write: the static text of its
prompt, or nothing. Anthropic writes only what is marked. A mark below the minimum of a model has no effect.

Marks are sent to the provider's own servers alone. What the file writes itself wins, and `metadata: {cache: false}`
leaves requests as they are. Above: `loop.model_step`. Below: `request`.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Literal, NamedTuple, cast

from prompty.errors import PromptyError
from prompty.model.agent import PromptAgent
from prompty.model.marker import ROLE_MARK
from prompty.model.message import Json
from prompty.model.request import Function, WireRequest
from prompty.model.structure import mark, read_template
from prompty.parsers import parse_roles
from prompty.pipeline.request import build_request
from prompty.providers import PROVIDERS, Api, RequestBase
from prompty.providers.profiles import ANTHROPIC, OPENAI
from prompty.registry import DEFAULT
from prompty.renderers import RENDERERS

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
BEFORE_TEXT = ("response_format", "text", "output_config", "tools")  # a provider reads these before the instructions
_PARAGRAPH = "\n\n"  # between instructions that an API gets as one text
# The comments and the first tag of each template engine, by its format kind.
_TAGS = {"jinja2": re.compile(r"\{#.*?#\}|\{[{%#]", re.DOTALL), "mustache": re.compile(r"\{\{!.*?\}\}|\{\{", re.DOTALL)}
_OPEN_MARKER = re.compile(r"[ \t]*#?[ \t]*\w+[ \t]*\[[^\n]*\Z")  # a role marker with a tag among its attributes

Path = tuple[str | int, ...]


def choose_cache_use(agent: PromptAgent, *, is_continued: bool) -> CacheUse:
    """Return what later requests share with those of an agent. A prompt with a thread is called again with more of
    it."""
    return "conversation" if is_continued or any(one.kind == "thread" for one in agent.inputs) else "once"


def build_cached_request(
    agent: PromptAgent,
    messages: Sequence[object],
    base: RequestBase,
    *,
    use: CacheUse | None,
    functions: Sequence[Function] | None = None,
    stream: bool = False,
    timeout: float | None = None,
) -> WireRequest:
    """Return the request for one call to a model, with marks for its provider's cache."""
    request = build_request(agent, messages, base, functions=functions, stream=stream, timeout=timeout)
    body = request.body if use is None else add_marks(agent, base.api, request, use)
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
        return _mark_anthropic(agent, request, facts.known.get("cache_min", _LEAST_MINIMUM), use)
    return body


# ---- Static text ----


def find_static_texts(agent: PromptAgent) -> tuple[str, ...]:
    """Return the texts with which the messages of every request begin. Only the last may be part of a message's text.

    There are none for a template engine or a parser of the host.
    """
    is_ours = agent.template.format.kind in _TAGS and agent.template.parser.kind == "prompty"
    if not is_ours:
        return ()
    known, kind = read_template(agent.instructions), agent.template.format.kind
    if kind not in known.static:
        known.static[kind] = _read_static(agent.instructions, kind)
    return known.static[kind]


def _read_static(template: str, kind: str) -> tuple[str, ...]:
    head = cut_at_tag(template, kind)
    try:
        text = DEFAULT[RENDERERS].get(kind)(mark(head), {}, nonce=ROLE_MARK, strict=False)
        messages = parse_roles(text, nonce=ROLE_MARK)
    except PromptyError:  # then no render gives a request
        return ()
    *whole, last = [message.text for message in messages] or [""]
    if head != template:
        last = last.rstrip()  # if the value of the tag is empty, blanks before it are at the end of the message
    return tuple(filter(str.strip, (*whole, last)))


def cut_at_tag(template: str, kind: str) -> str:
    """Return a template up to its first tag, without a role marker that the tag is part of."""
    tags = (found.start() for found in _TAGS[kind].finditer(template) if not found[0].endswith(("#}", "}}")))
    head = template[: next(tags, len(template))]
    marker = None if head == template else _OPEN_MARKER.match(head, head.rfind("\n") + 1)
    return head[: marker.start()] if marker else head


class _Place(NamedTuple):
    """The end of the static text in a body: the path to a text, and the characters of it that are static. `size` is the
    number of bytes up to there."""

    path: Path
    length: int
    size: int


def _find_places(body: Json, texts: Sequence[str]) -> Iterator[_Place]:
    """Yield where each static text ends in a body, in the order in which a provider compares bodies.

    A conversation that the caller passes, or that a guardrail changed, may begin in another way.
    """
    waiting, size = list(texts), _measure(body)
    for path, text in list_texts(body):
        at = 0
        while waiting and text.startswith(waiting[0], at):
            at += len(waiting[0])
            size += len(waiting.pop(0).encode())
            yield _Place(path, at, size)
            at += len(_PARAGRAPH) * text.startswith(_PARAGRAPH, at)
        if not waiting or not text or text[at:].strip():
            return


def list_texts(body: Json) -> Iterator[tuple[Path, str]]:
    """Yield the texts of a body for chat, Responses or Messages in the order of the cache, with their paths. Another
    part of a message has the text ""."""
    for path, part in _list_parts(body):
        text = part.get("text") if isinstance(part, dict) else part
        yield path, text if isinstance(text, str) else ""


def _list_parts(body: Json) -> Iterator[tuple[Path, Any]]:
    """Yield the parts of instructions and messages. A content that is a text is one part."""
    contents: list[tuple[Path, Any]] = [((key,), body[key]) for key in ("instructions", "system") if body.get(key)]
    for key in ("messages", "input"):
        entries = body.get(key)
        for at, message in enumerate(entries if isinstance(entries, list) else ()):
            contents.append(((key, at, "content"), message.get("content")))
    for path, content in contents:
        if isinstance(content, str):
            yield path, content
        for at, part in enumerate(content if isinstance(content, list) else ()):
            yield (*path, at), part


# ---- OpenAI ----


def _mark_openai(agent: PromptAgent, api: Api, request: WireRequest, minimum: int) -> Json:
    """Return the body with one mark, or with none if nothing is worth writing."""
    body = request.body
    if not _may_reach(body, minimum) or any(name in body for name in _OWN_FIELDS) or _has_marks(body, _OPENAI_MARK):
        return body
    body = {**body, "prompt_cache_options": {"mode": "explicit"}}
    texts = find_static_texts(agent)
    place = _find_end(body, texts, minimum, _takes_openai_mark)
    if place is None:
        return body
    mark: Json = {_OPENAI_MARK: {"mode": "explicit"}}
    kind = "input_text" if api.name == "responses" else "text"
    digest = sha256(json.dumps([*texts, *(body.get(name) for name in BEFORE_TEXT)]).encode()).hexdigest()
    if place.path == ("instructions",):  # which is a text, and takes no mark
        text = cast(str, body.pop("instructions"))
        item = {"role": "developer", "content": _split(text, place.length, kind, mark)}
        body["input"] = [item, *cast(list[Json], body["input"])]
    else:
        body = _mark_text(body, place, kind, mark)
    return {"prompt_cache_key": f"prompty-{digest[:32]}", **body}


def _takes_openai_mark(body: Any, path: Path) -> bool:
    return path[0] == "instructions" or body[path[0]][path[1]].get("role") in ("system", "developer", "user")


# ---- Anthropic ----


def _mark_anthropic(agent: PromptAgent, request: WireRequest, minimum: int, use: CacheUse) -> Json:
    """Return the body with a mark after the static text, and in a conversation also after the last message."""
    body = request.body
    if not _may_reach(body, minimum) or _ANTHROPIC_MARK in body or _has_marks(body, _ANTHROPIC_MARK):
        return body
    mark: Json = {_ANTHROPIC_MARK: {"type": "ephemeral"}}
    if place := _find_end(body, find_static_texts(agent), minimum, lambda body, path: True):
        body = _mark_text(body, place, "text", mark)
    is_continued = request.functions or any(message.role == "assistant" for message in request.messages)
    return _mark_history(body, mark) if use == "conversation" and is_continued else body


def _mark_history(body: Json, mark: Json) -> Json:
    """Return the body with a mark on its last block, which the next call sends again. Thoughts take none."""
    last = len(cast(list[Json], body["messages"])) - 1
    content = cast(list[Json], cast(list[Json], body["messages"])[last]["content"])
    at = max((at for at, block in enumerate(content) if block["type"] not in _THOUGHTS), default=None)
    return body if at is None else _update(body, ("messages", last, "content", at), lambda block: {**block, **mark})


# ---- Both ----


def _may_reach(body: Json, minimum: int) -> bool:
    """Return True if a body may have as many tokens as are cached. Nobody knows how many an image has."""
    if any(str(part.get("type")).startswith(_MEDIA) for _, part in _list_parts(body) if isinstance(part, dict)):
        return True
    return _measure(body) + sum(len(text.encode()) for _, text in list_texts(body)) >= BYTES_PER_TOKEN * minimum


def _measure(body: Json) -> int:
    """Return the size of what a provider reads before the instructions."""
    return sum(len(json.dumps(body[name], ensure_ascii=False).encode()) for name in BEFORE_TEXT if body.get(name))


def _has_marks(body: Json, name: str) -> bool:
    """Return True if the file marks parts or tools itself."""
    tools = cast(list[Json], body.get("tools") or [])
    return any(name in one for one in (*tools, *(part for _, part in _list_parts(body))) if isinstance(one, dict))


def _find_end(
    body: Json, texts: Sequence[str], minimum: int, takes_mark: Callable[[Json, Path], bool]
) -> _Place | None:
    """Return the last place in the static text that takes a mark, or None if what precedes it is too short."""
    places = [place for place in _find_places(body, texts) if takes_mark(body, place.path)]
    return places[-1] if places and places[-1].size >= BYTES_PER_TOKEN * minimum else None


def _mark_text(body: Json, place: _Place, kind: str, mark: Json) -> Json:
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


def _update(body: Json, path: Path, change: Callable[[Any], object]) -> Json:
    """Return a copy of a body in which the value at a path is changed. What is not on the path is shared."""

    def copy(value: Any, rest: Path) -> Any:
        if not rest:
            return change(value)
        copied: Any = value.copy()
        copied[rest[0]] = copy(value[rest[0]], rest[1:])
        return copied

    return cast(Json, copy(body, path))
