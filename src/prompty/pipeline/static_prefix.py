"""The static prefix: the beginning of a prompt's requests that is the same whatever its inputs are.

It is proved, not measured. The template's outline (`prompty.renderers.outline`) is parsed and built into a body by the
same code as any render, once for each way in which the unknown rest could change how the known beginning is sent: more
instructions move before the messages, for example. The prefix is what all these bodies have in common.

The proof is about one loaded agent, whose tools, schema and options are given. It knows nothing of renderers, parsers
and providers that a host registers.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from prompty.errors import PromptyError, RenderError
from prompty.model.agent import PromptAgent
from prompty.model.content import TextPart
from prompty.model.marker import ROLE_MARK, ROLES
from prompty.model.message import INSTRUCTION_ROLES, Json, Message
from prompty.model.property import RICH_KINDS, Property
from prompty.model.request import Function
from prompty.model.structure import ChangedMarker, mark
from prompty.parsers import PARSERS, parse_roles
from prompty.pipeline.history import normalize_history
from prompty.pipeline.request import has_kinds, list_declared_functions
from prompty.providers import PROVIDERS, Api
from prompty.providers.fitting import SameAgent, fit_agent
from prompty.renderers import RENDERERS
from prompty.renderers.outline import VARIES, Outline, find_outline
from prompty.wire.blocks import Block, BlockPath, list_blocks

_KNOWN_APIS = ("chat", "responses", "messages")


class PrefixEnd(NamedTuple):
    """The end of a prefix in a body: the path to a block, the number of its characters before the end, and True if
    that is all of it."""

    path: BlockPath
    characters: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class StaticPrefix:
    """The beginning of every request of an agent: its blocks in the order of the cache.

    The text of the last block may be only the beginning of what the body has there; all others are whole. If
    `if_spoken`, this is proved only for conversations that are more than instructions (`is_spoken`): otherwise some
    APIs get the instructions in another place. `find_end` tells for one body.
    """

    blocks: tuple[Block, ...] = ()
    is_last_whole: bool = True
    if_spoken: bool = False

    @property
    def text(self) -> str:
        """All text of the prefix, for counting tokens."""
        return "\n".join(block.text for block in self.blocks)

    @property
    def digest(self) -> str:
        """A hash of the prefix: the same for two agents whose requests begin alike."""
        return sha256("\0".join(piece for block in self.blocks for piece in block[1:]).encode()).hexdigest()

    def find_end(self, body: Json) -> PrefixEnd | None:
        """Return where the prefix ends in a body, or None if the prefix is empty or the body does not begin with it."""
        found = list_blocks(body)[: len(self.blocks)]
        if not self.blocks or len(found) < len(self.blocks):
            return None
        *whole, last = zip(found, self.blocks, strict=True)
        if any(block[1:] != own[1:] for block, own in whole):
            return None
        block, own = last
        is_same = block.text == own.text if self.is_last_whole else block.text.startswith(own.text)
        is_end = is_same and block.head == own.head
        return PrefixEnd(block.path, len(own.text), is_whole=len(block.text) == len(own.text)) if is_end else None

    def starts(self, body: Json) -> bool:
        """Return True if a body begins with this prefix."""
        return not self.blocks or self.find_end(body) is not None


NOTHING_PROVED = StaticPrefix()


def prove_static_prefix(
    agent: PromptAgent, api: Api | None = None, *, functions: Sequence[Function] | None = None
) -> StaticPrefix:
    """Return the longest beginning that all requests of an agent are proved to have, whatever the inputs are.

    `functions` are those that its tools offer. Without them, nothing is proved for tools that a server describes.
    """
    api = api or agent.registry[PROVIDERS].get(agent.model.provider).api_for(agent)
    if functions is None:
        return _prove_once(SameAgent(agent), api)
    return _prove(agent, api, functions)


@lru_cache(maxsize=256)
def _prove_once(key: SameAgent, api: Api) -> StaticPrefix:
    agent = key.agent
    try:
        return NOTHING_PROVED if has_kinds(agent) else _prove(agent, api, list_declared_functions(agent))
    except PromptyError:
        return NOTHING_PROVED


def _prove(agent: PromptAgent, api: Api, functions: Sequence[Function]) -> StaticPrefix:
    if api.name not in _KNOWN_APIS:
        return NOTHING_PROVED
    try:
        outline = outline_body(agent)
        return _find_common(agent, api, functions, outline) if outline else NOTHING_PROVED
    except PromptyError:  # then no render gives a request
        return NOTHING_PROVED


def outline_body(agent: PromptAgent) -> Outline | None:
    """Return the outline of a prompt's template, with ROLE_MARK around its role markers. Return None if its renderer
    or its parser is the host's own."""
    renderer = agent.registry[RENDERERS].get(agent.template.format.kind)
    if agent.registry[PARSERS].get(agent.template.parser.kind) is not parse_roles:
        return None
    media = {entry.name for entry in agent.inputs if set(_list_kinds(entry)) & set(RICH_KINDS)}
    threads = {entry.name for entry in agent.inputs if "thread" in _list_kinds(entry)}
    return find_outline(renderer, mark(agent.instructions), nonce=ROLE_MARK, media=media, threads=threads)


def _list_kinds(declared: Property) -> list[str]:
    """Return the kinds that the value of an input may have."""
    return [declared.kind, *(kind for branch in declared.branches for kind in _list_kinds(branch))]


def outline_request(agent: PromptAgent, api: Api) -> list[Block]:
    """Return the blocks of an agent's request, with VARIES for what inputs decide. There are none if nothing can be
    proved, or if the request would be refused."""
    try:
        outline = None if has_kinds(agent) or api.name not in _KNOWN_APIS else outline_body(agent)
        if outline is None:
            return []
        messages, roles = _parse(outline)
        asks = [Message("user", VARIES)] if "user" in roles and not is_spoken(messages) else []
        return list_blocks(api.request(fit_agent(agent, api).agent, [*messages, *asks], list_declared_functions(agent)))
    except PromptyError:
        return []


def _find_common(agent: PromptAgent, api: Api, functions: Sequence[Function], outline: Outline) -> StaticPrefix:
    fitted = fit_agent(agent, api).agent
    cases = [normalize_history(case, api.call_ids) for case in _list_cases(*_parse(outline), is_cut=outline.is_cut)]
    spoken = [case for case in cases if api.name == "chat" or is_spoken(case)] or cases
    bodies: list[list[Block]] = []
    for messages in spoken:
        try:
            bodies.append(list_blocks(api.request(fitted, messages, functions)))
        except PromptyError:
            continue  # as for every render with these messages
    return replace(_intersect(bodies), if_spoken=len(spoken) < len(cases))


def is_spoken(messages: Sequence[Message]) -> bool:
    """Return True if a conversation has more than instructions, so that every API gets them as such."""
    return any(
        message.role not in INSTRUCTION_ROLES
        and (message.role != "assistant" or message.text or message.tool_calls or message.opaque)
        for message in messages
    )


def _parse(outline: Outline) -> tuple[list[Message], Collection[str]]:
    """Return the messages of an outline, and the roles of those that may follow. A cut inside a role marker ends it
    before the marker."""
    text, roles = outline.text, outline.roles
    while True:
        try:
            return parse_roles(text, nonce=ROLE_MARK), roles
        except ChangedMarker:
            if not outline.is_cut or ROLE_MARK not in text:
                raise RenderError("no render of the template gives messages", "Run `prompty check`.") from None
            text, roles = text[: text.rindex(ROLE_MARK)] + VARIES, frozenset(ROLES)


def _list_cases(known: list[Message], roles: Collection[str], *, is_cut: bool) -> Iterator[list[Message]]:
    """Yield the known messages, with and without values, and with each kind of messages that may follow them. These
    decide how the known ones are sent."""
    starts = [known, [message if _get_static(message) else replace(message, content=()) for message in known]]
    if not is_cut:
        yield from starts
        return
    if known and not _get_static(known[-1]):
        starts.append(known[:-1])  # without text of its own it may not be sent
    unknown = [Message(role, VARIES) for role in sorted(roles)]
    ends = [[], unknown, *([message] for message in unknown)]
    if "system" in roles and "assistant" in roles:  # perhaps a thread, with messages of every API
        ends.append([Message("system", [TextPart(VARIES, extra={"cache_control": VARIES})]), *unknown])
        ends.append([Message("assistant", "", opaque={"responses_items": [{"type": "compaction", "id": VARIES}]})])
    for start in starts:
        for end in ends:
            yield [*start, *end]


def _get_static(message: Message) -> str:
    """Return the text of a message without values, if there is any."""
    return message.text.replace(VARIES, "").strip()


def _intersect(bodies: list[list[Block]]) -> StaticPrefix:
    """Return what the beginnings of all bodies have in common."""
    common: list[Block] = []
    is_last_whole = True
    for column in zip(*bodies, strict=False):
        first = column[0]
        if any(block.head != first.head for block in column) or VARIES in first.head:
            break
        text = _share([block.text for block in column]).partition(VARIES)[0]
        if any(block.text != text for block in column):
            if text := _strip_end(text):
                common.append(first._replace(text=text))
                is_last_whole = False
            break
        common.append(first)
    while common and not common[-1].text:
        common.pop()
    return StaticPrefix(tuple(common), is_last_whole)


def _strip_end(text: str) -> str:
    """Return a text without the blanks at its end: if the value after them is empty, they are removed."""
    return text.rstrip()


def _share(texts: Sequence[str]) -> str:
    """Return the longest beginning that texts have in common."""
    first, last = min(texts), max(texts)
    length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:length]
