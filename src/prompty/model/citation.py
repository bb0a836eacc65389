"""Citations of an answer, and the tool calls that the provider ran for it: types, and their JSON.

Titles, quotes and URLs come from the web or from files. They are text for people, never markup or instructions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self, get_args

CitationKind = Literal["web", "file", "document"]
CallStatus = Literal["in_progress", "completed", "incomplete", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Citation:
    """A source of an answer: a page, a file at the provider, or a document of the request.

    `start` and `end` are the offsets of the cited passage in the answer's text, or None if they are not known. `quote`
    is the text of the source that supports it. `raw` is the citation as the provider sent it.
    """

    kind: CitationKind
    url: str | None = None
    file_id: str | None = None
    title: str | None = None
    quote: str | None = None
    start: int | None = None
    end: int | None = None
    raw: Mapping[str, object] = field(default_factory=dict, hash=False, repr=False)

    @property
    def source(self) -> str:
        """The URL, file id, title or quote, whichever is there first: the same for two citations of one source."""
        return self.url or self.file_id or self.title or self.quote or ""

    def to_json(self) -> dict[str, object]:
        """Return the citation as plain JSON. Fields without a value are omitted."""
        json: dict[str, object] = {"kind": self.kind}
        for name, key in _CITATION_KEYS.items():
            if (value := getattr(self, name)) is not None:
                json[key] = value
        return {**json, "raw": self.raw} if self.raw else json

    @classmethod
    def from_json(cls, value: object) -> Self | None:
        """Parse the result of `to_json`. Return None for anything else: other programs name other things citations."""
        if not isinstance(value, Mapping) or value.get("kind") not in get_args(CitationKind):
            return None
        texts = {name: _text(value.get(key)) for name, key in _CITATION_KEYS.items() if name not in ("start", "end")}
        start, end = _offset(value.get("start")), _offset(value.get("end"))
        raw = value.get("raw")
        return cls(kind=value["kind"], **texts, start=start, end=end, raw=raw if isinstance(raw, dict) else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderCall:
    """A call of a tool that the provider ran itself, such as a web search. It is done: nothing runs it again.

    `tool` is the kind of the tool, such as `web_search`, or `server/tool` for a hosted MCP server. `error` is the
    provider's reason for a call that failed.
    """

    id: str
    tool: str
    input: Mapping[str, object] = field(default_factory=dict, hash=False)
    status: CallStatus = "completed"
    error: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the call as plain JSON."""
        json: dict[str, object] = {"id": self.id, "tool": self.tool, "input": self.input, "status": self.status}
        return json if self.error is None else {**json, "error": self.error}

    @classmethod
    def from_json(cls, value: object) -> Self | None:
        """Parse the result of `to_json`. Return None for anything else."""
        if not isinstance(value, Mapping) or value.get("status") not in get_args(CallStatus):
            return None
        identifier, tool, given = value.get("id"), value.get("tool"), value.get("input")
        if not isinstance(identifier, str) or not isinstance(tool, str) or not isinstance(given, dict):
            return None
        return cls(id=identifier, tool=tool, input=given, status=value["status"], error=_text(value.get("error")))


_CITATION_KEYS = {
    "url": "url",
    "file_id": "fileId",
    "title": "title",
    "quote": "quote",
    "start": "start",
    "end": "end",
}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _offset(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def shift_citation(citation: Citation, by: int) -> Citation:
    """Return a citation whose offsets are larger by a number of characters."""
    if citation.start is None or citation.end is None or not by:
        return citation
    return replace(citation, start=citation.start + by, end=citation.end + by)


def describe_source(citation: Citation) -> str:
    """Return the title and the address of a source, for people: `Tides — https://a.example/tides`."""
    named = dict.fromkeys(filter(None, (citation.title, citation.url or citation.file_id)))
    return " — ".join(named) or citation.source


def list_sources(citations: Iterable[Citation]) -> list[Citation]:
    """Return the first citation of each source."""
    first: dict[str, Citation] = {}
    for citation in citations:
        first.setdefault(citation.source, citation)
    return list(first.values())


def parse_citations(value: object) -> tuple[Citation, ...]:
    """Parse a list of citations as `Citation.to_json` wrote them. Other entries are left out."""
    entries = value if isinstance(value, list | tuple) else ()
    return tuple([citation for entry in entries if (citation := Citation.from_json(entry)) is not None])


def parse_provider_calls(value: object) -> tuple[ProviderCall, ...]:
    """Parse a list of calls as `ProviderCall.to_json` wrote them. Other entries are left out."""
    entries = value if isinstance(value, list | tuple) else ()
    return tuple([call for entry in entries if (call := ProviderCall.from_json(entry)) is not None])
