"""Partials: files with a part of a prompt, inserted into its body on load.

Insertion is textual, so that later stages see one template. A partial must be a complete template: it cannot close a
tag that another file opened. Its role markers are structure, because they are in a file. Its variables never are.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from prompty.errors import RenderError
from prompty.model.agent import BodyLines, FileLine
from prompty.model.property import Property
from prompty.pipeline.files import Unreadable
from prompty.renderers import Include, WrongInclude

_MAX_DEPTH = 10
_MAX_INCLUDES = 1000
MAX_BODY_CHARACTERS = 1_000_000  # of a body with all its partials


class IncludeEngine(Protocol):
    """The part of a renderer that finds the tags in a template."""

    def includes(self, template: str) -> list[Include]: ...
    def variables(self, template: str) -> Mapping[str, int]: ...


class Partial(NamedTuple):
    """The body of a partial, its first line in the file, and the inputs that it declares, if any."""

    path: Path
    body: str
    first_line: int = 1
    inputs: tuple[Property, ...] | None = None


class Composition(NamedTuple):
    """A body with its partials. `hashes` has the files' hashes by their names in includes."""

    text: str
    lines: BodyLines
    hashes: dict[str, str]
    inputs: tuple[Property, ...]


class CompositionProblem(Exception):
    """A partial cannot be inserted. `place` is the line of the include, or of the mistake in the partial."""

    def __init__(self, place: FileLine, code: str, cause: str, fix: str) -> None:
        super().__init__(cause)
        self.place = place
        self.code = code
        self.cause = cause
        self.fix = fix


Read = Callable[[str], Partial]


def insert_partials(body: str, engine: object, read: Read) -> Composition | None:
    """Return a body with its partials, or None if it has none. `read` returns the partial that an include names.

    Raise CompositionProblem if one cannot be inserted. An invalid template has no partials: rendering reports it.
    """
    if not hasattr(engine, "includes"):
        return None
    composer = _Composer(cast(IncludeEngine, engine), read)
    try:
        if not composer.engine.includes(body):
            return None
    except WrongInclude as error:
        raise CompositionProblem(FileLine(None, error.line or 1), "include-form", error.cause, error.fix) from None
    except RenderError:
        return None
    return composer.compose(body)


class _Composer:
    def __init__(self, engine: IncludeEngine, read: Read) -> None:
        self.engine, self._read = engine, read
        self._pieces: list[str] = []
        self._starts: list[int] = []
        self._places: list[FileLine] = []
        self._hashes: dict[str, str] = {}
        self._inputs: list[Property] = []
        self._partials: dict[str, Partial] = {}
        self._characters = self._includes = 0
        self._line = 1

    def compose(self, body: str) -> Composition:
        self._expand(body, None, 1, ())
        lines = BodyLines(tuple(self._starts), tuple(self._places))
        return Composition("".join(self._pieces), lines, self._hashes, tuple(self._inputs))

    def _expand(self, text: str, path: Path | None, first_line: int, chain: tuple[str, ...], indent: str = "") -> None:
        position = 0
        for include in self.engine.includes(text):
            self._write(text[position : include.start], path, first_line + text.count("\n", 0, position), indent)
            place = FileLine(path, first_line + include.line - 1)
            partial = self._open(include.name, place, chain)
            inner = indent + include.indent
            if include.indent:
                self._append(include.indent)
            self._expand(partial.body, partial.path, partial.first_line, (*chain, include.name), inner)
            position = include.end
        self._write(text[position:], path, first_line + text.count("\n", 0, position), indent)

    def _open(self, name: str, place: FileLine, chain: tuple[str, ...]) -> Partial:
        self._includes += 1
        if name in chain:
            path = " → ".join((*chain[chain.index(name) :], name))
            raise CompositionProblem(
                place, "include-cycle", f"partials include each other: {path}", "Remove one include."
            )
        if len(chain) >= _MAX_DEPTH or self._includes > _MAX_INCLUDES:
            cause = f"more than {_MAX_DEPTH} nested partials, or more than {_MAX_INCLUDES} in total"
            raise CompositionProblem(place, "include-depth", cause, "Use fewer partials.")
        if name not in self._partials:
            try:
                partial = self._partials[name] = self._read(name)
            except Unreadable as error:
                raise CompositionProblem(place, error.code, error.message, error.fix) from None
            self._check(partial)
            self._hashes[name] = hashlib.sha256(partial.body.encode()).hexdigest()
            self._inputs += partial.inputs or ()
        return self._partials[name]

    def _check(self, partial: Partial) -> None:
        """Check that a partial is a complete template that only reads its own inputs."""
        if len(partial.body) > MAX_BODY_CHARACTERS:
            raise _too_large()
        try:
            variables = self.engine.variables("".join(_cut(partial.body, self.engine.includes(partial.body))))
        except RenderError as error:
            place = FileLine(partial.path, partial.first_line + (error.line or 1) - 1)
            code = "include-form" if isinstance(error, WrongInclude) else "template-syntax"
            raise CompositionProblem(place, code, error.cause, error.fix) from None
        if partial.inputs is None:
            return
        declared = {entry.name for entry in partial.inputs}
        for name, line in variables.items():
            if name not in declared:
                cause = f"the partial reads `{name}`, which is not one of its `inputs`"
                place = FileLine(partial.path, partial.first_line + line - 1)
                raise CompositionProblem(
                    place, "partial-input", cause, f"Declare `{name}` in the partial, or remove it."
                )

    def _write(self, text: str, path: Path | None, line: int, indent: str) -> None:
        """Append text of a file that starts at `line`."""
        if not text:
            return
        starts, places = self._starts, self._places
        # A line belongs to the file that started it.
        below = int((bool(places) and places[-1].path is not None and path is None) or text.startswith("\n"))
        if not below or "\n" in text:
            if starts and starts[-1] == self._line + below:
                starts.pop()
                places.pop()
            starts.append(self._line + below)
            places.append(FileLine(path, line + below))
        self._append(text.replace("\n", f"\n{indent}") if indent else text)

    def _append(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > MAX_BODY_CHARACTERS:
            raise _too_large()
        self._pieces.append(text)
        self._line += text.count("\n")


def _too_large() -> CompositionProblem:
    cause = f"the body and its partials have more than {MAX_BODY_CHARACTERS:,} characters"
    return CompositionProblem(FileLine(None, 1), "include-size", cause, "Use smaller partials.")


def _cut(text: str, includes: list[Include]) -> Iterator[str]:
    """Yield a text without its includes, but with their newlines."""
    position = 0
    for include in includes:
        yield text[position : include.start]
        yield "\n" * text.count("\n", include.start, include.end)
        position = include.end
    yield text[position:]
