"""`${env:NAME}`, `${env:NAME:default}` and `${file:path}` in the values of a file (§2.11)."""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from prompty.pipeline.yaml_data import read_yaml
from prompty.wire.strict_json import read_json

MAX_FILE_BYTES = 4_000_000

# The path was resolved before it is opened: following a link now would lead somewhere else. And opening a pipe
# must not wait for its other end. Not every system has these flags.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_BRACE = re.compile(r"[{}]")

Identity = tuple[int, int, int, int]


class Failure(NamedTuple):
    """A reference that could not be resolved."""

    keys: tuple[str | int, ...]
    code: str
    message: str
    fix: str


class _Unresolved(Exception):
    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.code, self.message, self.fix = code, message, fix


@dataclass
class References:
    """Resolves what a file refers to, and remembers what it depended on."""

    base_dir: Path | None
    allowed_roots: Sequence[Path] = ()
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    variables: dict[str, str | None] = field(default_factory=dict)
    files: dict[Path, Identity] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def resolve(self, value: object, keys: tuple[str | int, ...] = ()) -> object:
        """The same data with every reference replaced; failures are collected, so that one run names them all."""
        return self._walk(value, keys, self._text)

    def _walk(self, value: object, keys: tuple[str | int, ...], text: Callable[[str], object]) -> object:
        if isinstance(value, str):
            return self._tried(value, keys, text) if "${" in value else value
        if isinstance(value, dict):
            return {key: self._walk(entry, (*keys, key), text) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._walk(entry, (*keys, index), text) for index, entry in enumerate(value)]
        return value

    def _tried(self, value: str, keys: tuple[str | int, ...], text: Callable[[str], object]) -> object:
        try:
            return text(value)
        except _Unresolved as error:
            self.failures.append(Failure(keys, error.code, error.message, error.fix))
            return value

    def _text(self, value: str) -> object:
        pieces = list(_pieces(value))
        if len(pieces) == 1 and pieces[0].protocol == "file":
            return self._file(pieces[0].body)
        return "".join(self._embedded(piece) for piece in pieces)

    def _only_env(self, value: str) -> str:
        return "".join(self._env(piece.body) if piece.protocol == "env" else piece.source for piece in _pieces(value))

    def _embedded(self, piece: "_Piece") -> str:
        if piece.protocol == "env":
            return self._env(piece.body)
        if piece.protocol != "file":
            return piece.source
        content = self._file(piece.body)
        if not isinstance(content, str):
            raise _Unresolved(
                "file-structure",
                f"{piece.source} holds a structure, which cannot stand inside a longer text",
                "Make the reference the whole value, or refer to a text file.",
            )
        return content

    def _env(self, body: str) -> str:
        name, colon, default = body.partition(":")
        value = self.variables[name] = self.env.get(name)
        if value is not None:
            return value
        if not colon:
            raise _Unresolved(
                "env-missing",
                f"Environment variable '{name}' not set",
                f"Set {name or 'it'}, or give a default: ${{env:{name or 'NAME'}:default}}.",
            )
        return self._only_env(default) if "${" in default else default

    def _file(self, reference: str) -> object:
        path = self._contained(reference)
        text = self._read(path, reference)
        if path.suffix.lower() not in (".json", ".yaml", ".yml"):
            return text
        try:
            data = read_json(text) if path.suffix.lower() == ".json" else _only_clean_yaml(text)
            return self._walk(data, (), self._only_env)
        except (ValueError, RecursionError) as error:
            raise _Unresolved("file-content", f"{reference} cannot be read: {error}", "Correct that file.") from None

    def _contained(self, reference: str) -> Path:
        if self.base_dir is None:
            raise _Unresolved(
                "file-no-base",
                f"${{file:{reference}}} has nothing to be relative to",
                "Pass base_dir= to loads().",
            )
        try:
            path = (self.base_dir / reference).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise _missing(reference, error) from None
        own = () if Path(reference).is_absolute() else (self.base_dir,)
        roots = [*own, *self.allowed_roots]
        if not any(path.is_relative_to(root.resolve()) for root in roots):
            raise _Unresolved(
                "file-outside",
                f"{reference} is outside allowed roots",
                "Keep the file below the prompt's own directory, or have the host pass allowed_roots=.",
            )
        return path

    def _read(self, path: Path, reference: str) -> str:
        try:
            with open(path, "rb", opener=_open_as_it_is) as file:
                status = os.fstat(file.fileno())
                _check_readable(status, reference)
                self.files[path] = identity(status)
                return file.read(MAX_FILE_BYTES).decode("utf-8-sig")
        except OSError as error:
            raise _missing(reference, error) from None
        except UnicodeDecodeError:
            raise _Unresolved("file-encoding", f"{reference} is not UTF-8 text", "Save it as UTF-8.") from None


def _open_as_it_is(path: str, _: int) -> int:
    return os.open(path, _OPEN_FLAGS)


def _check_readable(status: os.stat_result, reference: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _Unresolved("file-kind", f"{reference} is not a regular file", "Refer to a regular file.")
    if status.st_size > MAX_FILE_BYTES:
        cause = f"{reference} has more than {MAX_FILE_BYTES:,} bytes"
        raise _Unresolved("file-size", cause, "Refer to a smaller file.")


def identity(status: os.stat_result) -> Identity:
    """What tells one state of a file from another without reading it."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class _Piece(NamedTuple):
    """A stretch of a value: plain text, or a reference with its protocol."""

    source: str
    protocol: str = ""
    body: str = ""


def _pieces(value: str) -> Iterator[_Piece]:
    """Cut a value at its references; one pass, braces inside a reference balance."""
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


def _only_clean_yaml(text: str) -> object:
    data, problems = read_yaml(text)
    if problems:
        raise ValueError(f"{problems[0].message} (line {problems[0].line + 1})")
    return data


def _missing(reference: str, error: Exception) -> _Unresolved:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return _Unresolved("file-missing", f"{reference} does not exist", "Correct the path or create the file.")
    if isinstance(error, IsADirectoryError):
        return _Unresolved("file-kind", f"{reference} is not a regular file", "Refer to a regular file.")
    return _Unresolved("file-unreadable", f"{reference} cannot be opened: {error}", "Correct the path.")
