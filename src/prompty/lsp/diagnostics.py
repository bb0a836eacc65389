"""The problems of open documents, and of the files that they use, as diagnostics and quick fixes.

An open prompt or test file is a root: `check` runs for it, and may find problems in its partials, its base, its
variants and its test file. A file shows the problems that any root has in it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prompty.errors import LoadError, Problem
from prompty.lsp.documents import Text, to_path, to_uri
from prompty.pipeline.files import Unreadable, read_file

_SEVERITIES = {"error": 1, "warning": 2, "info": 3}
_TEST_SUFFIXES = (".test.yaml", ".test.yml")

FileProblems = dict[str, list[Problem]]  # by URI


def is_test_file(uri: str) -> bool:
    return uri.endswith(_TEST_SUFFIXES)


def is_root(uri: str, language: str = "") -> bool:
    """Return True for a prompt or a test file. Other open files only replace those on the disk."""
    name = Path(to_path(uri) or "").name
    is_partial = name.startswith("_") and not is_test_file(uri)
    return is_test_file(uri) or (not is_partial and (name.endswith(".prompty") or (not name and language == "prompty")))


class Workspace:
    """The open documents by URI, and the problems of each root."""

    def __init__(self) -> None:
        self.texts: dict[str, Text] = {}
        self.languages: dict[str, str] = {}
        self.found: dict[str, FileProblems] = {}
        self._uris: dict[Path, str] = {}  # as the client writes them

    def open(self, uri: str, text: str, language: str) -> None:
        self.texts[uri], self.languages[uri] = Text(text), language
        if path := _resolve(to_path(uri)):
            self._uris[path] = uri

    def close(self, uri: str) -> None:
        for known in (self.texts, self.languages, self.found):
            known.pop(uri, None)
        self._uris = {path: known for path, known in self._uris.items() if known != uri}

    @property
    def buffers(self) -> dict[Path, str]:
        return {path: self.texts[uri].text for path, uri in self._uris.items()}

    def list_roots(self) -> list[str]:
        return [uri for uri in self.texts if is_root(uri, self.languages[uri]) and self.get_owner(uri) == uri]

    def get_owner(self, uri: str) -> str:
        """Return the root whose check covers a document: an open base covers its variants."""
        path = _resolve(to_path(uri))
        stem, dot, _ = path.stem.rpartition(".") if path and path.suffix == ".prompty" else ("", "", "")
        return self._uris.get(path.with_name(f"{stem}.prompty"), uri) if path and stem and dot else uri

    def get_uri(self, path: str | Path) -> str:
        """Return the URI of a file, as the client writes it if the file is open."""
        resolved = _resolve(Path(path))
        return self._uris.get(resolved, "") or to_uri(path) if resolved else to_uri(path)

    def get_text(self, uri: str) -> Text | None:
        """Return the text of a document, open or not, or None if it cannot be read."""
        if uri in self.texts:
            return self.texts[uri]
        path = to_path(uri)
        try:
            return Text(read_file(path, path.name, {})[0]) if path else None
        except Unreadable:
            return None

    def check(self, uri: str) -> None:
        """Check a root, and keep its problems by the files that they are in."""
        self.found[uri] = found = FileProblems()
        for problem in find_problems(uri, self.texts[uri].text, self.buffers):
            target = self.get_uri(problem.path) if to_path(uri) else uri
            found.setdefault(target, []).append(problem)

    def list_problems(self, uri: str) -> list[Problem]:
        """Return the problems in a file, of all roots."""
        return list(dict.fromkeys(problem for found in self.found.values() for problem in found.get(uri, ())))

    def build_diagnostics(self, uri: str) -> list[dict[str, Any]]:
        problems = self.list_problems(uri)
        text = (self.get_text(uri) or Text("")) if problems else Text("")
        return [build_diagnostic(problem, text) for problem in problems]


def _resolve(path: Path | None) -> Path | None:
    try:
        return path.resolve() if path else None
    except (OSError, RuntimeError):
        return None


def find_problems(uri: str, text: str, buffers: Mapping[Path, str]) -> list[Problem]:
    """Return the problems of a prompt with its test file, or of a test file."""
    from prompty.analysis.check import check_text  # the server answers `initialize` before this import
    from prompty.cases.checking import check_in_project  # as above
    from prompty.cases.file_names import find_test_file  # as above

    path = to_path(uri)
    try:
        if path is None:
            return check_text(text)
        is_prompt = not is_test_file(uri)
        problems = check_in_project(path, buffers=dict(buffers.items())) if is_prompt else []
        if tests := find_test_file(path) if is_prompt else path:
            from prompty.cases.reading import check_suite  # most prompts have no test file

            problems += check_suite(tests, buffers)
    except LoadError as error:  # of the project file, or of `.env`
        return list(error.problems)
    return problems


def build_diagnostic(problem: Problem, text: Text) -> dict[str, Any]:
    return {
        "range": _build_range(problem, text),
        "severity": _SEVERITIES[problem.severity],
        "code": problem.code,
        **({"codeDescription": {"href": problem.url}} if problem.url else {}),
        "source": "prompty",
        "message": f"{problem.message}\n{problem.fix}",
    }


def _build_range(part: Any, text: Text) -> dict[str, dict[str, int]]:
    return {"start": text.place(part.line, part.column), "end": text.place(part.end_line, part.end_column)}


def build_fixes(problems: list[Problem], uri: str, text: Text, start: int, end: int) -> list[dict[str, Any]]:
    """Return the quick fixes of the problems that touch a range of offsets."""
    fixes = []
    for problem in problems:
        place = _build_range(problem, text)
        touches = text.to_offset(place["start"]) <= end and start <= text.to_offset(place["end"])
        if not problem.edits or not touches:
            continue
        first, *others = problem.edits
        fixes.append(
            {
                "title": problem.fix if others else f"Replace with `{first.text}`",
                "kind": "quickfix",
                "isPreferred": True,
                "diagnostics": [build_diagnostic(problem, text)],
                "edit": {
                    "changes": {uri: [{"range": _build_range(e, text), "newText": e.text} for e in problem.edits]}
                },
            }
        )
    return fixes
