"""Citations and provider calls in the answers of Chat, Responses and Messages.

Pure functions and one small class. An answer without a source or a call never gets here. What a server sends is not
trusted: an entry that cannot be read is left out, because the answer is still usable.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prompty.model.citation import CallStatus, Citation, CitationKind, ProviderCall, shift_citation
from prompty.safety.json import read_json
from prompty.wire.json_bytes import as_count
from prompty.wire.request import is_url

Entry = dict[str, Any]
Requests = dict[str, int | None]
Cited = tuple[str, Sequence[Citation]]

_FILES = ("file_citation", "container_file_citation", "file_path")
# Items of the Responses API → the tool, and the fields that are its input.
_ITEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "web_search_call": ("web_search", ()),
    "file_search_call": ("file_search", ("queries",)),
    "code_interpreter_call": ("code_interpreter", ("code", "container_id")),
    "image_generation_call": ("image_generation", ("revised_prompt", "size", "quality", "output_format", "action")),
    "mcp_call": ("mcp", ()),
    "tool_search_call": ("tool_search", ("arguments",)),
    "shell_call": ("shell", ("action",)),
}
PROVIDER_ITEMS = tuple(_ITEMS)
_STATUSES: dict[str, CallStatus] = {"completed": "completed", "failed": "failed", "incomplete": "incomplete"}
# Names of Anthropic's tools that other providers call by another name.
_TOOLS = {
    "code_execution": "code_interpreter",
    "bash_code_execution": "code_interpreter",
    "text_editor_code_execution": "code_interpreter",
    "tool_search_tool_regex": "tool_search",
    "tool_search_tool_bm25": "tool_search",
}
_CALL_BLOCKS = ("server_tool_use", "mcp_tool_use")


def join_cited(pieces: Iterable[Cited]) -> tuple[str, tuple[Citation, ...]]:
    """Join texts, and move the citations of each to its place in the whole.

    The offsets of a piece's citations are those in its own text. A gap between two texts is a piece without citations.
    """
    texts: list[str] = []
    citations: list[Citation] = []
    length = 0
    for text, cited in pieces:
        citations += [shift_citation(citation, length) for citation in cited]
        texts.append(text)
        length += len(text)
    return "".join(texts), tuple(citations)


@dataclass(slots=True)
class TextPlaces:
    """Where the parts of a streamed answer begin in its text, for the offsets of their citations."""

    _length: int = 0
    _starts: dict[object, int] = field(default_factory=dict)
    _lengths: dict[object, int] = field(default_factory=dict)

    def add(self, part: object, text: str) -> None:
        """Add a piece of a part's text. A gap belongs to the part None."""
        self._starts.setdefault(part, self._length)
        self._length += len(text)
        self._lengths[part] = self._lengths.get(part, 0) + len(text)

    def cite(self, part: object, annotation: object) -> Iterator[Citation]:
        """Yield the citation of an annotation, whose offsets are those in its part."""
        if part in self._starts:
            for citation in parse_annotations([annotation], None):
                yield shift_citation(citation, self._starts[part])

    def cite_all(self, part: object, entries: Sequence[object]) -> Iterator[Citation]:
        """Yield citations of the whole text of a part."""
        if part in self._starts:
            for citation in parse_block_citations(entries, self._lengths[part]):
                yield shift_citation(citation, self._starts[part])


def parse_annotations(entries: object, length: int | None) -> list[Citation]:
    """Parse the annotations of a text of Chat or Responses. Offsets outside of the text are unknown."""
    citations = []
    for entry in entries if isinstance(entries, list) else ():
        annotation = _unwrap(entry)
        if annotation is None or (citation := _parse_citation(annotation)) is None:
            continue
        start, end = _get_offsets(annotation)
        fits = start is not None and end is not None and start <= end and (length is None or end <= length)
        citations.append(replace(citation, start=start, end=end) if fits else citation)
    return citations


def _unwrap(entry: object) -> Entry | None:
    """Return the fields of an annotation. Chat has them under the name of its type."""
    if not isinstance(entry, dict):
        return None
    inner = entry.get(str(entry.get("type")))
    return {"type": entry.get("type"), **inner} if isinstance(inner, dict) else entry


def _get_offsets(annotation: Entry) -> tuple[int | None, int | None]:
    """Return the cited range. A file citation has the place of its mark, and a file path has none."""
    if annotation.get("type") == "file_citation":
        index = as_count(annotation.get("index"))
        return index, index
    return as_count(annotation.get("start_index")), as_count(annotation.get("end_index"))


def parse_block_citations(entries: object, length: int) -> list[Citation]:
    """Parse the citations of a text block of Messages, which are those of its whole text."""
    listed = entries if isinstance(entries, list) else ()
    found = [_parse_citation(entry) for entry in listed if isinstance(entry, dict)]
    return [replace(citation, start=0, end=length) for citation in found if citation is not None]


def _parse_citation(raw: Entry) -> Citation | None:
    """Parse the source of a citation, or return None if it names none."""
    url, file_id = _text(raw.get("url")), _text(raw.get("file_id"))
    title = _text(raw.get("title")) or _text(raw.get("document_title")) or _text(raw.get("filename"))
    source = _text(raw.get("source"))  # of a search result that the request contained
    if source:
        url, title = (url or source, title) if is_url(source) else (url, title or source)
    quote = _text(raw.get("cited_text"))
    kind: CitationKind = "file" if raw.get("type") in _FILES else "document"
    if not source and url:
        kind = "web"
    if not (url or file_id or title or quote):
        return None
    return Citation(kind=kind, url=url, file_id=file_id, title=title, quote=quote, raw=raw)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def parse_item_calls(items: Sequence[Entry]) -> tuple[ProviderCall, ...]:
    """Parse the calls among the items of an answer of Responses."""
    return tuple([parse_item_call(item) for item in items if item.get("type") in PROVIDER_ITEMS])


def parse_item_call(item: Entry) -> ProviderCall:
    """Parse an item of a provider's tool, begun or complete."""
    tool, names = _ITEMS[item["type"]]
    given: Entry = {name: item[name] for name in names if item.get(name) is not None}
    if tool == "web_search":  # its sources are results
        given = {name: value for name, value in _mapping(item.get("action")).items() if name != "sources"}
    elif tool == "mcp":
        tool, given = _get_mcp_name(item.get("server_label"), item), _parse_arguments(item.get("arguments"))
    error = _describe_error(item.get("error"))
    status = _STATUSES.get(str(item.get("status")), "in_progress")
    if item.get("status") is None:  # optional on `mcp_call`
        status = "completed"
    identifier = _text(item.get("id")) or _text(item.get("call_id")) or ""
    return ProviderCall(id=identifier, tool=tool, input=given, status="failed" if error else status, error=error)


def _get_mcp_name(server: object, call: Entry) -> str:
    return f"{_text(server) or ''}/{_text(call.get('name')) or ''}"


def _parse_arguments(arguments: object) -> Entry:
    try:
        value = read_json(arguments) if isinstance(arguments, str) and arguments else arguments
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments} if arguments else {}


def _describe_error(error: object) -> str | None:
    """Return the text of an error, which may be an object, or None."""
    if not error:
        return None
    fields = _mapping(error)
    return _text(error) or _text(fields.get("message")) or _join_content(fields.get("content")) or str(error)


def _join_content(content: object) -> str:
    """Return the texts of a result."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) or "" for part in content if isinstance(part, dict))
    return _text(content) or ""


def count_items(data: Entry, items: Sequence[Entry]) -> Requests:
    """Count the calls of an answer of Responses by tool.

    Of the actions of a web search, only a search has a price, and each of its queries has it.
    """
    counts: Counter[str] = Counter()
    for item in items:
        tool = _ITEMS[item["type"]][0] if item.get("type") in PROVIDER_ITEMS else None
        if tool == "web_search":
            action = _mapping(item.get("action"))
            if action.get("type", "search") == "search":
                queries = action.get("queries")
                counts[_get_search_name(data)] += len(queries) if isinstance(queries, list) and queries else 1
        elif tool:
            counts[tool] += 1
    return dict(counts)


def _get_search_name(data: Entry) -> str:
    """Return the name of the search tool. The price of the old one depends on the model, and is not listed."""
    tools = data.get("tools")
    kinds = [str(_mapping(tool).get("type")) for tool in tools] if isinstance(tools, list) else []
    return "web_search_preview" if any(kind.startswith("web_search_preview") for kind in kinds) else "web_search"


def parse_block_calls(blocks: Sequence[Entry]) -> tuple[ProviderCall, ...]:
    """Parse the calls among the blocks of an answer of Messages. A call without a result has not ended."""
    results = {str(block["tool_use_id"]): block for block in blocks if block.get("tool_use_id")}
    return tuple(
        [parse_block_call(block, results.get(str(block.get("id")))) for block in filter(is_call_block, blocks)]
    )


def is_call_block(block: Entry) -> bool:
    """Return True for the block of a call that the provider runs."""
    return block.get("type") in _CALL_BLOCKS


def parse_block_call(block: Entry, result: Entry | None = None) -> ProviderCall:
    """Parse the block of a call, with that of its result."""
    is_mcp = block.get("type") == "mcp_tool_use"
    name = _get_mcp_name(block.get("server_name"), block) if is_mcp else _text(block.get("name")) or ""
    error = _get_result_error(result) if result else None
    status: CallStatus = "failed" if error else "completed" if result else "in_progress"
    given = block.get("input")
    return ProviderCall(
        id=_text(block.get("id")) or "",
        tool=name if is_mcp else _TOOLS.get(name, name),
        input=given if isinstance(given, dict) else {},
        status=status,
        error=error,
    )


def begin_call(result: Entry) -> Entry:
    """Return the block of a call that only its result is known of: it began in an earlier piece of the answer."""
    kind = str(result.get("type"))
    name = kind.removesuffix("_tool_result")
    return {"type": "server_tool_use", "id": result.get("tool_use_id"), "name": name}


def _get_result_error(result: Entry) -> str | None:
    """Return the error of a result block. The API sends it with the status 200."""
    content = result.get("content")
    if result.get("is_error"):
        return _join_content(content) or "the server reported an error"
    return _text(_mapping(content).get("error_code"))


def count_blocks(blocks: Sequence[Entry], usage: object) -> Requests:
    """Count the calls of an answer of Messages by tool. The API's own counts take precedence."""
    calls = filter(is_call_block, blocks)
    counts: Requests = dict(
        Counter("mcp" if block["type"] == "mcp_tool_use" else parse_block_call(block).tool for block in calls)
    )
    for name, reported in _mapping(_mapping(usage).get("server_tool_use")).items():
        if name.endswith("_requests") and (count := as_count(reported)) is not None:
            counts[name.removesuffix("_requests")] = count
    return {tool: count for tool, count in counts.items() if count}
