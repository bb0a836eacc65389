"""Compose the body of a prompt: merge a variant with its base, and insert partials.

The body of a variant is its own, or its base's if it has none. A partial is a file with a part of a prompt. It is
inserted as text, so that later stages see one template. It must be a complete template: it cannot close a tag that
another file opened. Its role markers are structure, because they are in a file. Its variables never are. Findings
in the composed body are located in the file that their line comes from.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol, cast

from pydantic import ValidationError

from prompty.errors import Problem, RenderError
from prompty.model.agent import BodyLines, FileLine, PromptAgent
from prompty.model.property import Property
from prompty.pipeline.files import Unreadable
from prompty.pipeline.frontmatter import BaseBody, Document, Unclosed, normalize, read_frontmatter, split
from prompty.pipeline.references import References
from prompty.pipeline.source_map import Edit, Finding, split_lines
from prompty.registry import Registry
from prompty.renderers import RENDERERS, Include, WrongInclude
from prompty.safety.redaction import mask_line

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


# A cheap test, so that most prompts load without importing their template engine.
_MAY_INCLUDE = re.compile(r"%[-+]?\s*include\b|\{\{\s*>")
_EXTENSION = ".md"


def compose(agent: PromptAgent, base: BaseBody | None, references: References, registry: Registry) -> PromptAgent:
    """Return an agent with its whole body: merged with `base` if it is a variant, and with partials.

    Inputs of partials that the file does not declare, and that no tag around the include sets, become inputs of the
    agent. Raise CompositionProblem if a file is invalid.
    """
    kind = agent.template.format.kind
    if not registry[RENDERERS].has(kind):
        return agent
    if base is not None:
        agent = _merge_body(agent, base)
    if not _MAY_INCLUDE.search(agent.instructions):
        return agent
    return _insert_partials(agent, references, registry[RENDERERS].get(kind))


def _merge_body(agent: PromptAgent, base: BaseBody) -> PromptAgent:
    changes: dict[str, Any] = {"files": {base.path.name: base.hash}}
    if not agent.instructions.strip():
        lines = BodyLines((1,), (FileLine(base.path, base.first_line),))
        changes |= {"instructions": base.text, "body_lines": lines}
    return agent.model_copy(update=changes)


def _insert_partials(agent: PromptAgent, references: References, engine: Any) -> PromptAgent:
    merged = agent.body_lines
    try:
        composition = insert_partials(agent.instructions, engine, partial(_read_partial, references))
    except CompositionProblem as problem:
        if merged and problem.place.path is None:
            problem.place = merged.locate(problem.place.line)
        raise
    if composition is None:
        return agent
    lines = composition.lines
    if merged:
        places = tuple(place if place.path else merged.locate(place.line) for place in lines.places)
        lines = BodyLines(lines.starts, places)
    files = {**agent.files, **composition.hashes}
    changes = {"instructions": composition.text, "files": files, "body_lines": lines}
    if composition.inputs:
        declared, free = {entry.name for entry in agent.inputs}, _find_variables(engine, composition.text)
        more = {entry.name: entry for entry in composition.inputs if entry.name in free and entry.name not in declared}
        changes["inputs"] = (*agent.inputs, *more.values())
    return agent.model_copy(update=changes)


def _find_variables(engine: Any, text: str) -> Collection[str]:
    try:
        return cast(Collection[str], engine.variables(text))
    except RenderError:  # reported when it is rendered
        return ()


def _read_partial(references: References, name: str) -> Partial:
    """Return the partial that an include names. Its file must be readable by `${file:}`, with a name like `_…`."""
    if not PurePosixPath(name).name.startswith("_"):
        message = f"{name} is not a partial: its name does not start with an underscore"
        folder, slash, last = name.rpartition("/")
        fix = f"Rename the file to `_{last}`, and write `{folder}{slash}_{last}` in the include."
        raise Unreadable("include-name", message, fix)
    path, text = _read_text(references, name)
    if not path.name.startswith("_"):
        raise Unreadable("include-name", f"{name} is a link to a file that is not a partial", "Include a partial.")
    text = normalize(text)
    try:
        parts = split(text)
    except Unclosed as error:
        raise Unreadable("file-content", f"{name} cannot be read: {error}", "Correct that file.") from None
    if parts.frontmatter is None:
        return Partial(path, text.removesuffix("\n"))
    frontmatter = read_frontmatter(parts.frontmatter)
    others = ", ".join(map(str, (frontmatter.data or {}).keys() - {"inputs"}))
    if frontmatter.findings or others:
        cause = frontmatter.findings[0].problem.message if frontmatter.findings else f"it declares {others}"
        raise Unreadable("file-content", f"{name} cannot be read: {cause}", "A partial can only declare `inputs:`.")
    try:
        inputs = PromptAgent.model_validate({"inputs": (frontmatter.data or {}).get("inputs") or []}).inputs
    except ValidationError as error:
        cause = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise Unreadable("file-content", f"the inputs of {name} are not valid: {cause}", "Correct that file.") from None
    return Partial(path, parts.body, 1 + text.count("\n", 0, parts.body_start), inputs)


def _read_text(references: References, name: str) -> tuple[Path, str]:
    """Return the file with this name. A name without an extension may also mean a Markdown file."""
    try:
        return references.read_text(name)
    except Unreadable as error:
        if error.code != "file-missing" or PurePosixPath(name).suffix:
            raise
        try:
            return references.read_text(name + _EXTENSION)
        except Unreadable:
            raise error from None


class BodyPlaces:
    """Locates findings in an agent's body."""

    def __init__(self, document: Document, agent: PromptAgent) -> None:
        self._source, parts = document.source, document.parts
        self._lines, self._start = split_lines(parts.body), parts.body_start
        self._inserted, self._text = agent.body_lines, agent.instructions
        self._folder = agent.base_dir

    def problems(self, findings: Iterable[Finding]) -> list[Problem]:
        """Return findings in the agent's body as problems of files."""
        if self._inserted is None:
            return self._source.problems(findings, self._start)
        return [self._locate(finding, self._inserted) for finding in findings]

    def _locate(self, finding: Finding, inserted: BodyLines) -> Problem:
        line_start = self._text.rfind("\n", 0, finding.start) + 1
        place = inserted.locate(1 + self._text.count("\n", 0, line_start))
        column = finding.start - line_start
        line = self._text[line_start:].partition("\n")[0]
        length = min(finding.end, line_start + len(line)) - finding.start
        if place.path is None:
            own = self._lines[place.line - 1]
            start = own.start + min(column, len(own.text))
            edits = finding.edits if own.text == line else ()
            moved = tuple(Edit(start, start + edit.end - edit.start, edit.text) for edit in edits)
            [problem] = self._source.problems([Finding(start, start + length, finding.problem, moved)], self._start)
            return problem
        shown = replace(finding.problem, path=self._name(place.path), text=mask_line(line)[:200])
        return replace(shown, line=place.line, column=column + 1, end_line=place.line, end_column=column + length + 1)

    def place(self, problem: CompositionProblem) -> Problem:
        """Return a composition problem as a problem of the file that includes the partial."""
        path, line = problem.place
        found = Problem(code=problem.code, message=problem.cause, fix=problem.fix)
        if path is None:
            own = self._lines[min(line, len(self._lines)) - 1]
            [located] = self._source.problems([Finding(*own.content, found)], self._start)
            return located
        return replace(found, path=self._name(path), line=line, end_line=line)

    def _name(self, path: Path) -> str:
        """Return the path of a partial in the form in which the caller wrote the prompt's."""
        folder = self._folder.resolve() if self._folder else None
        if folder and path.is_relative_to(folder):
            return str(Path(self._source.path).parent / path.relative_to(folder))
        return str(path)
