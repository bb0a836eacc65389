"""Locate findings in a composed body: in the prompt, or in the partial or base that a line comes from."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from prompty.errors import Problem
from prompty.model.agent import BodyLines, PromptAgent
from prompty.pipeline.frontmatter import Document
from prompty.pipeline.partials import CompositionProblem
from prompty.pipeline.source_map import Edit, Finding, split_lines
from prompty.safety.redaction import mask_line


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
