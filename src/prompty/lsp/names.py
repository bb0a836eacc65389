"""Definitions, references, renames and symbols, from the names in a prompt, its variants, partials and test files."""

import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prompty.cases.file_names import SUFFIXES, strip_suffix
from prompty.lsp.diagnostics import Workspace, is_test_file
from prompty.lsp.documents import Text, to_path
from prompty.lsp.outline import FileOutline, NameKind, Occurrence
from prompty.lsp.wire import REFUSED, RequestFailed
from prompty.model.marker import read_marker
from prompty.pipeline.source_map import split_lines
from prompty.pipeline.variants import find_base, variants

_SYMBOL_KINDS: dict[NameKind, int] = {
    "input": 13,
    "tool": 12,
    "case": 24,
}  # variable, function, event
_KEY, _STRING = 20, 15
_MAX_TEST_FILES = 200


class Names:
    """The names of the documents that belong to one document."""

    def __init__(self, uri: str, workspace: Workspace) -> None:
        self.uri: str = uri
        self._workspace = workspace
        self._outlines: dict[str, FileOutline] = {}
        self.own: FileOutline = self.read(uri)
        path = to_path(uri)
        self.prompt: Path | None = self._find_prompt(path, self.own) if is_test_file(uri) and path else path

    def read(self, uri: str) -> FileOutline:
        """Return the outline of a document, open or not."""
        if uri not in self._outlines:
            text = self._workspace.get_text(uri)
            self._outlines[uri] = FileOutline(text.text if text else "", is_test=is_test_file(uri))
        return self._outlines[uri]

    def _find_prompt(self, path: Path, outline: FileOutline) -> Path:
        named = outline.data.get("prompt")
        return path.parent / (named if isinstance(named, str) else f"{strip_suffix(path)}.prompty")

    def list_prompts(self) -> list[str]:
        """Return the URIs of the prompt and the files that declare its names: its base, and the base's variants."""
        if self.prompt is None:
            return [self.uri]
        base = find_base(self.prompt) or self.prompt
        files = [base, *(base.with_name(f"{base.stem}.{name}.prompty") for name in variants(base))]
        uris = [self._workspace.get_uri(file) for file in files]
        return uris if self.uri in uris or self.own.is_test else [self.uri, *uris]

    def list_partials(self) -> list[str]:
        """Return the URIs of the partials that the prompts include directly."""
        found = dict[str, None]()
        for uri in self.list_prompts():
            for name in self.read(uri).names:
                target = self.find_file(name.text, uri) if name.kind == "file" else None
                if target and Path(to_path(target) or "").name.startswith("_"):
                    found[target] = None
        return list(found)

    def list_test_files(self) -> list[str]:
        """Return the URIs of the test files of the prompt, in its folder."""
        if self.prompt is None:
            return []
        base = find_base(self.prompt) or self.prompt
        try:
            files = sorted(file for suffix in SUFFIXES for file in base.parent.glob(f"*{suffix}"))[:_MAX_TEST_FILES]
            uris = [self._workspace.get_uri(file) for file in files]
            paths = {
                uri: self._find_prompt(file, self.read(uri)).resolve() for file, uri in zip(files, uris, strict=True)
            }
            return [uri for uri, path in paths.items() if path == base.resolve()]
        except OSError:
            return []

    def find_file(self, name: str, uri: str) -> str | None:
        """Return the URI of a file that a document names, if it exists. A partial may lack its extension."""
        path = to_path(uri)
        for candidate in (name, f"{name}.md") if path else ():
            target = self._workspace.get_uri((path or Path()).parent / candidate)
            if self._workspace.get_text(target) is not None:
                return target
        return None

    def define(self, offset: int) -> list[dict[str, Any]]:
        """Return the locations that declare the name at an offset, or the file that it names."""
        name = self.own.find(offset)
        if name is None:
            return []
        if name.kind == "file":
            target = self.find_file(name.text, self.uri)
            return [{"uri": target, "range": Text("").to_range(0, 0)}] if target else []
        name = _strip_call(name)
        places = [self.uri, *self.list_prompts(), *self.list_partials()]
        found = [(uri, one) for uri in dict.fromkeys(places) for one in self._find(uri, name) if one.is_declaration]
        return [self._locate(uri, one) for uri, one in found[:1]]

    def refer(self, offset: int) -> Iterator[tuple[str, Occurrence]]:
        """Yield each place of the input or tool at an offset, in all documents that belong together."""
        name = self.own.find(offset)
        if name is None or name.kind not in ("input", "tool"):
            return
        uris = [*self.list_prompts(), *self.list_partials(), *self.list_test_files()]
        for uri in dict.fromkeys([self.uri, *uris]):
            for one in self._find(uri, _strip_call(name)):
                yield uri, one

    def list_references(self, offset: int, *, include_declaration: bool) -> list[dict[str, Any]]:
        found = list(self.refer(offset))
        return [self._locate(uri, one) for uri, one in found if include_declaration or not one.is_declaration]

    def check_rename(self, offset: int) -> Occurrence:
        """Return the input at an offset, or raise RequestFailed if it cannot be renamed."""
        name = self.own.find(offset)
        if name is None or name.kind != "input":
            raise RequestFailed(REFUSED, "only inputs can be renamed")
        found = list(self.refer(offset))
        if not any(one.is_declaration for _, one in found):
            raise RequestFailed(REFUSED, f"`{name.text}` is not declared under `inputs`")
        if any(one.is_local for _, one in found):
            raise RequestFailed(REFUSED, f"the template sets `{name.text}` itself: rename it by hand")
        partials = set(self.list_partials())
        if files := [uri.rpartition("/")[2] for uri, _ in found if uri in partials]:
            raise RequestFailed(REFUSED, f"{files[0]} reads `{name.text}`, and other prompts may use that file")
        return name

    def rename(self, offset: int, new: str) -> dict[str, Any]:
        """Return the edits that rename an input everywhere."""
        name = self.check_rename(offset)
        if not re.fullmatch(r"[^\W\d]\w*", new) or keyword.iskeyword(new):
            raise RequestFailed(REFUSED, f"`{new[:100]}` is no name: write letters, digits and underscores")
        uris = [*self.list_prompts(), *self.list_partials(), *self.list_test_files()]
        if new != name.text and any(self._find(uri, name._replace(text=new)) for uri in uris):
            raise RequestFailed(REFUSED, f"the name `{new}` is already used")
        changes: dict[str, list[dict[str, Any]]] = {}
        for uri, one in self.refer(offset):
            changes.setdefault(uri, []).append({"range": self._locate(uri, one)["range"], "newText": new})
        return {"changes": changes}

    def _find(self, uri: str, name: Occurrence) -> list[Occurrence]:
        named = (_strip_call(one) for one in self.read(uri).names if one.kind == name.kind)
        return [one for one in named if one.text == name.text]

    def _locate(self, uri: str, name: Occurrence) -> dict[str, Any]:
        text = self._workspace.get_text(uri) or Text("")
        return {"uri": uri, "range": text.to_range(name.start, name.end)}


def _strip_call(name: Occurrence) -> Occurrence:
    """Return the tool that `look 2`, its second call in a test file, names."""
    text = re.sub(r" \d+\Z", "", name.text) if name.kind == "tool" else name.text
    return name._replace(text=text, end=name.start + len(text))


_TOP_KEY = re.compile(r"^([A-Za-z]\w*)[ ]*:", re.MULTILINE)


def list_symbols(outline: FileOutline, text: Text) -> list[dict[str, Any]]:
    """Return the keys of a document with the names below them, and the messages of its body."""
    keys = list(_TOP_KEY.finditer(outline.text, outline.start, outline.end))
    ends = [*(key.start() for key in keys[1:]), outline.end]
    symbols = [(key[1], _KEY, *key.span(1), end) for key, end in zip(keys, ends, strict=False)]
    lines = [line for line in split_lines(outline.body) if (line.text.strip() and read_marker(line.text))]
    starts = [outline.body_start + line.content[0] for line in lines]
    for line, start, end in zip(lines, starts, [*starts[1:], len(outline.text)], strict=False):
        symbols.append((line.text.strip().rstrip(":"), _STRING, start, start + len(line.text.strip()), end))
    named = [one for one in outline.names if one.is_declaration]
    return [
        {
            "name": label,
            "kind": kind,
            "range": text.to_range(start, max(last, end)),
            "selectionRange": text.to_range(start, end),
            "children": [_build_symbol(one, text) for one in named if start <= one.start < last],
        }
        for label, kind, start, end, last in symbols
    ]


def _build_symbol(name: Occurrence, text: Text) -> dict[str, Any]:
    place = text.to_range(name.start, name.end)
    return {"name": name.text, "kind": _SYMBOL_KINDS[name.kind], "range": place, "selectionRange": place}


def list_lenses(uri: str, outline: FileOutline, text: Text) -> list[dict[str, Any]]:
    """Return `Run`, `Test` and `Preview` at the top of a prompt, and `Test` at each case of a test file."""
    first = text.to_range(0, 0)
    if not is_test_file(uri):
        commands = {"Run": "prompty.run", "Test": "prompty.test", "Preview": "prompty.preview"}
        return [_build_lens(first, title, command, uri) for title, command in commands.items()]
    cases = [one for one in outline.names if one.kind == "case"]
    lenses = [_build_lens(text.to_range(one.start, one.end), "Test", "prompty.test", uri, one.text) for one in cases]
    return [_build_lens(first, "Test", "prompty.test", uri), *lenses]


def _build_lens(place: dict[str, Any], title: str, command: str, *arguments: str) -> dict[str, Any]:
    return {"range": place, "command": {"title": title, "command": command, "arguments": list(arguments)}}
