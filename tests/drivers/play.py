"""Play scenes and note what can be seen of them from outside: results, errors, events, requests and spans."""

import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import prompty
from prompty import Message, Paused, pipeline
from prompty.testing import Script
from prompty.tracing import Tracer

# Random ids, and hashes of what has such an id in it.
_ID = re.compile(r"\b(?:[0-9a-f]{32}){1,2}\b|(?<=__PROMPTY_THREAD_)[0-9a-f]+")
_PLACE = re.compile(r"127\.0\.0\.1:\d+")
_HIDDEN_ATTRIBUTES = {"server.port", "gen_ai.response.time_to_first_chunk"}  # different in every run
_ERROR_FIELDS = ("status", "retryable", "retry_after", "limit", "reason", "refusal", "name", "messages")


def plain(value: Any) -> Any:
    """Return any value of the package as JSON, with the names of types, so that two ways can be compared."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [plain(entry) for entry in value]
        case BaseException():
            shown = {name: plain(entry) for name in _ERROR_FIELDS if (entry := getattr(value, name, None)) is not None}
            return {"type": type(value).__name__, "text": str(value), **shown}
        case Enum() | Decimal():
            return str(value)
        case Path():
            return value.name
        case Message() | Paused():
            return value.to_json()
        case BaseModel():
            return value.model_dump(mode="json")
    assert is_dataclass(value), f"{type(value).__name__} has no plain form"
    return {"type": type(value).__name__, **{entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}}


@dataclass(frozen=True)
class Way:
    """How a function is called."""

    asynchronous: bool
    streamed: bool

    def __str__(self) -> str:
        return ("async" if self.asynchronous else "sync") + (" stream" if self.streamed else "")


WAYS = tuple(Way(asynchronous, streamed) for asynchronous in (False, True) for streamed in (False, True))
WHOLE = tuple(way for way in WAYS if not way.streamed)


class Spans:
    """A sink that keeps every span."""

    content, wire, immediate = True, False, True

    def __init__(self) -> None:
        self._begun: list[Any] = []

    def started(self, span: Any, /) -> None:
        self._begun.append(span)

    def ended(self, span: Any, /) -> None: ...

    def trees(self) -> list[Any]:
        return [self._tree(span) for span in self._begun if span.parent is None]

    def _tree(self, span: Any) -> dict[str, Any]:
        noted = {name: value for name, value in span.attributes.items() if name not in _HIDDEN_ATTRIBUTES}
        inside = [self._tree(one) for one in self._begun if one.parent is span]
        return {
            "name": span.name,
            "title": span.title,
            "kind": span.kind,
            "ended": span.duration is not None,
            "error": plain(span.error),
            "attributes": plain(noted),
            "content": plain(span.content),
            "usage": plain(span.usage),
            "inside": _in_order(inside),
        }


def _in_order(spans: list[Any]) -> list[Any]:
    """Sort spans of calls that ran beside each other: which began first is a matter of threads."""
    ordered: list[Any] = []
    for tool_calls, group in _grouped(spans, lambda span: span["name"] == "execute_tool"):
        ordered += sorted(group, key=lambda span: str(span["attributes"])) if tool_calls else group
    return ordered


def in_order(events: list[Any]) -> list[Any]:
    """Sort what tools that run beside each other tell, by their calls."""
    ordered: list[Any] = []
    for tool_events, group in _grouped(events, lambda event: event["type"] in ("ToolStarted", "ToolFinished")):
        ordered += sorted(group, key=lambda event: event["call"]["id"]) if tool_events else group
    return ordered


def _grouped(items: Iterable[Any], belongs: Callable[[Any], bool]) -> Iterator[tuple[bool, list[Any]]]:
    group: list[Any] = []
    before = False
    for item in items:
        if group and belongs(item) != before:
            yield before, group
            group = []
        before = belongs(item)
        group.append(item)
    if group:
        yield before, group


@dataclass
class Play:
    """One scene in one way."""

    way: Way
    folder: Path
    steps: list[Any] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)

    @contextmanager
    def script(self, *items: Any) -> Iterator[None]:
        """Answer with these items, and keep what was sent."""
        script = Script(*items)
        try:
            with script:
                yield
        finally:
            self.requests += script.requests

    def note(self, value: object) -> None:
        self.steps.append({"noted": plain(value)})

    def call(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """Call a public function in this way, and note what comes of it; an error of the package is noted too."""
        step: dict[str, Any] = {"verb": verb, "events": [], "heard": []}
        self.steps.append(step)
        heard: list[Any] = []
        if verb in ("turn", "resume"):
            options["on_event"] = heard.append
        result: Any = None
        try:
            if self.way.asynchronous:
                result = asyncio.run(self._called_async(step, verb, arguments, options))
            else:
                result = self._called(step, verb, arguments, options)
            step["result"] = plain(result)
        except Exception as error:
            step["error"] = plain(error)
        step["heard"] = in_order([plain(event) for event in heard])
        step["events"] = in_order(step["events"])
        return result

    def _called(self, step: dict[str, Any], verb: str, arguments: Any, options: Any) -> Any:
        function = getattr(pipeline if verb == "run" else prompty, verb)
        if not self.way.streamed:
            return function(*arguments, **options)
        with function(*arguments, stream=True, **options) as stream:
            for event in stream.events():
                step["events"].append(plain(event))
            result = stream.result
            step["usage"], step["messages"] = plain(stream.usage), plain(stream.messages)
            return result

    async def _called_async(self, step: dict[str, Any], verb: str, arguments: Any, options: Any) -> Any:
        function = getattr(pipeline if verb == "run" else prompty, f"{verb}_async")
        if not self.way.streamed:
            return await function(*arguments, **options)
        async with await function(*arguments, stream=True, **options) as stream:
            async for event in stream.events():
                step["events"].append(plain(event))
            result = await stream.result()
            step["usage"], step["messages"] = plain(stream.usage), plain(stream.messages)
            return result


Scene = Callable[[Play], None]
SCENES: dict[str, tuple[Scene, tuple[Way, ...]]] = {}


def scene(*ways: Way) -> Callable[[Scene], Scene]:
    """Register a scene, to be played in these ways; in all four without any."""

    def registered(function: Scene) -> Scene:
        SCENES[function.__name__] = function, ways or WAYS
        return function

    return registered


def played(function: Scene, way: Way) -> Any:
    """Return everything that a scene shows."""
    spans = Spans()
    Tracer.add("scene", spans)
    with tempfile.TemporaryDirectory(prefix="scene-") as name:
        play = Play(way, Path(name))
        try:
            function(play)
        finally:
            Tracer.remove("scene")
        shown = {"steps": play.steps, "requests": plain(play.requests), "spans": spans.trees()}
        text = json.dumps(shown).replace(name, "<folder>")
    return json.loads(_PLACE.sub("<place>", _ID.sub("<id>", text)))
