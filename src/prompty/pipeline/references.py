"""`${env:NAME}`, `${env:NAME:default}` and `${file:path}` in the values of a file (§2.11)."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from prompty.pipeline.files import Buffers, Identity, Unreadable, read_file
from prompty.safety.json import read_json
from prompty.safety.yaml import YamlError, read_yaml

StrPath = str | os.PathLike[str]
_Keys = tuple[str | int, ...]
_BRACE = re.compile(r"[{}]")


@dataclass
class References:
    """Resolver for one file. `variables` and `files` record what the result depends on, `failures` what is missing.

    `env` replaces the environment of the process. `buffers` are texts that replace those of files.
    """

    base_dir: Path | None
    allowed_roots: Sequence[StrPath] = ()
    env: Mapping[str, str] | None = None
    buffers: Buffers = field(default_factory=dict)
    variables: dict[str, str | None] = field(default_factory=dict)
    files: dict[Path, Identity] = field(default_factory=dict)
    failures: list[tuple[_Keys, Unreadable]] = field(default_factory=list)

    def resolve(self, value: object) -> object:
        """Return the data with every reference replaced. Failures are collected, so that one call reports them all."""
        return self._walk(value, (), files=True)

    def _walk(self, value: object, keys: _Keys, *, files: bool) -> object:
        """`files` is False for the data of a file: it may refer to variables, but not to other files."""
        if isinstance(value, str):
            try:
                return self._resolve_text(value, files) if "${" in value else value
            except Unreadable as error:
                self.failures.append((keys, error))
        elif isinstance(value, dict):
            return {key: self._walk(entry, (*keys, key), files=files) for key, entry in value.items()}
        elif isinstance(value, list):
            return [self._walk(entry, (*keys, index), files=files) for index, entry in enumerate(value)]
        return value

    def _resolve_text(self, value: str, files: bool) -> object:
        pieces = list(_split(value))
        if files and len(pieces) == 1 and pieces[0].protocol == "file":
            return self._read_reference(pieces[0].body)
        return "".join(self._resolve_piece(piece, files) for piece in pieces)

    def _resolve_piece(self, piece: "_Piece", files: bool) -> str:
        if piece.protocol == "env":
            return self._read_variable(piece.body)
        if piece.protocol != "file" or not files:
            return piece.source
        content = self._read_reference(piece.body)
        if not isinstance(content, str):
            message = f"{piece.source} is structured data, which cannot be part of a longer text"
            fix = "Make the reference the whole value, or refer to a text file."
            raise Unreadable("file-structure", message, fix)
        return content

    def _read_variable(self, body: str) -> str:
        name, colon, default = body.partition(":")
        value = self.variables[name] = (os.environ if self.env is None else self.env).get(name)
        if value is not None:
            return value
        if not colon:
            fix = f"Set {name or 'it'}, or give a default: ${{env:{name or 'NAME'}:default}}."
            raise Unreadable("env-missing", f"Environment variable '{name}' not set", fix)
        return "".join(self._resolve_piece(piece, files=False) for piece in _split(default))

    def _read_reference(self, reference: str) -> object:
        path = self._resolve_path(reference)
        text, self.files[path] = read_file(path, reference, self.buffers, contained=True)
        if path.suffix.lower() not in (".json", ".yaml", ".yml"):
            return text
        try:
            data = read_json(text) if path.suffix.lower() == ".json" else _read_strict_yaml(text)
            return self._walk(data, (), files=False)
        except (ValueError, RecursionError) as error:
            raise Unreadable("file-content", f"{reference} cannot be read: {error}", "Correct that file.") from None

    def _resolve_path(self, reference: str) -> Path:
        if self.base_dir is None:
            message = f"${{file:{reference}}} is relative, but the text has no directory"
            raise Unreadable("file-no-base", message, "Pass base_dir= to loads().")
        try:
            path = (self.base_dir / reference).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            message = f"{reference} cannot be opened: {error}"
            raise Unreadable("file-unreadable", message, "Correct the path.") from None
        own = () if Path(reference).is_absolute() else (self.base_dir,)
        if not any(path.is_relative_to(Path(root).resolve()) for root in (*own, *self.allowed_roots)):
            fix = "Keep the file below the prompt's own directory, or pass allowed_roots= to load()."
            raise Unreadable("file-outside", f"{reference} is outside allowed roots", fix)
        return path


class _Piece(NamedTuple):
    """Part of a value: plain text, or a reference with its protocol."""

    source: str
    protocol: str = ""
    body: str = ""


def _split(value: str) -> Iterator[_Piece]:
    """Split a value at its references in one pass. Braces inside a reference must balance."""
    done = 0
    while (start := value.find("${", done)) >= 0:
        end = _closing_brace(value, start + 2)
        if end is None:
            break
        protocol, colon, body = value[start + 2 : end].partition(":")
        if start > done:
            yield _Piece(value[done:start])
        yield _Piece(value[start : end + 1], protocol if colon else "", body)
        done = end + 1
    if done < len(value):
        yield _Piece(value[done:])


def _closing_brace(value: str, position: int) -> int | None:
    depth = 1
    for brace in _BRACE.finditer(value, position):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return None


def _read_strict_yaml(text: str) -> object:
    data, problems = read_yaml(text)
    if problems:
        raise YamlError(problems[0])
    return data
