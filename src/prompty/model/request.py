"""Requests, and the functions that they offer to a model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from prompty.model.message import Json, Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Function:
    """A tool as the model sees it."""

    name: str
    description: str | None
    parameters: Json
    strict: bool = False


class OutputSchema(NamedTuple):
    """The schema of an answer. A strict schema is enforced by the API: it lists every property and allows no other."""

    schema: Json
    strict: bool


class Content(Protocol):
    """Bytes of a known length that need not be in memory at once."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class WireRequest:
    """A request: the path below the endpoint, the body, and additional headers. A `GET` and a `DELETE` have no body.

    `content` is sent in place of the body, to a server over HTTP. `max_answer` is the most bytes of an answer, if it is
    not the usual number. `messages` and `functions` are the values the body was built from, for traces. `omitted` are
    options of the file that the model refuses, so that they are not in the body, with the reason.
    """

    path: str
    body: Json
    headers: Mapping[str, str]
    stream: bool = False
    timeout: float | None = None
    method: str = "POST"
    content: Content | None = field(default=None, repr=False)
    max_answer: int | None = None
    messages: Sequence[Message] = field(default=(), compare=False, repr=False)
    functions: Sequence[Function] = field(default=(), compare=False, repr=False)
    omitted: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


class WrittenTool(NamedTuple):
    """A tool that the provider runs, as its API takes it: an entry of `tools`, and of `mcp_servers` if there is one.

    `refused` are the keys of the file that the API cannot apply, with the reason and what to do.
    """

    entry: Json
    server: Json | None = None
    refused: Mapping[str, tuple[str, str]] = {}
