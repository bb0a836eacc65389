"""`${env:NAME}`, `${env:NAME:default}` and `${file:path}` in the values of a file (§2.11)."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NamedTuple

from prompty.model.connection import infer_connection_kind
from prompty.model.trust import FieldKind, FieldPath, Trust, Use, find_kind, is_address, normalize_keys
from prompty.pipeline.files import Buffers, Identity, Unreadable, is_hidden, read_file
from prompty.safety.json import read_json
from prompty.safety.origins import RESOURCE_HOSTS, Origin, TextOrigin, parse_origin
from prompty.safety.redaction import is_credential_name
from prompty.safety.yaml import YamlError, read_yaml

StrPath = str | os.PathLike[str]
_Keys = FieldPath
_BRACE = re.compile(r"[{}]")
_MAX_DEPTH = 16  # of references nested in defaults; each level is scanned again
_CONTENT = "file:"  # the protocol of a file's content, which no reference can name
# Provider-specific fields in which a value from outside is a secret, regardless of the variable's name.
_PRIVATE_KEYS = frozenset({"additionalProperties", "additional_properties"})
_ABSENT = object()  # in place of a value whose variable is not set


@dataclass
class References:
    """Resolver for one file. `variables`, `files` and `absent` files record the dependencies of the result, and
    `failures` the unresolved references.

    `env` replaces the process's environment, and `dotenv` adds variables to it. `buffers` replace the texts of files.
    With `defer`, a field whose variable is not set is left out, and the variable is in `missing`.
    """

    base_dir: Path | None
    allowed_roots: Sequence[StrPath] = ()
    env: Mapping[str, str] | None = None
    buffers: Buffers = field(default_factory=dict)
    dotenv: Mapping[str, str] = field(default_factory=dict)
    trusted: frozenset[Origin] = frozenset()
    env_allowed: frozenset[str] = frozenset()
    defer: bool = False
    variables: dict[str, str | None] = field(default_factory=dict)
    files: dict[Path, Identity] = field(default_factory=dict)
    absent: set[Path] = field(default_factory=set)
    failures: list[tuple[_Keys, Unreadable]] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)
    uses: list[Use] = field(default_factory=list)
    missing: list[Use] = field(default_factory=list)

    def resolve(self, value: object) -> object:
        """Return the data with every reference replaced. Failures are collected, so that one call reports them all."""
        resolved = self._walk(value, (), files=True)
        return None if resolved is _ABSENT else resolved

    def resolve_field(self, text: str, keys: FieldPath) -> object:
        """Return the value of a field that is not searched for references otherwise."""
        return self._resolve_text(text, keys, files=True)

    def build_trust(self, data: Mapping[str, object]) -> Trust:
        """Return the variables of the resolved data."""
        uses, secrets = [*self.uses, *self.missing], tuple(self.secrets)
        if not uses:
            return Trust(env_allowed=self.env_allowed, trusted=self.trusted, secrets=secrets)
        tools = data.get("tools")
        listed = tools.items() if isinstance(tools, dict) else enumerate(tools if isinstance(tools, list) else ())
        entries = {key: entry for key, entry in listed if isinstance(entry, dict)}
        names = {key: str(entry.get("name", key)) for key, entry in entries.items()}
        kinds: dict[str | int, str] = {names[key]: str(entry.get("kind")) for key, entry in entries.items()}
        found = [_complete(use, names, kinds) for use in uses]
        resolved, missing = tuple(found[: len(self.uses)]), tuple(found[len(self.uses) :])
        return Trust(resolved, missing, self.env_allowed, self.trusted, secrets=secrets)

    def _walk(self, value: object, keys: _Keys, *, files: bool) -> object:
        """`files` is False inside an included file, which may refer to variables, but not to other files."""
        if isinstance(value, str):
            if "${" not in value:
                return value
            resolved = self._resolve_text(value, keys, files)
            # A plain text in `bindings` can be the name of an input, but not if it is from a variable or a file.
            is_binding = len(keys) == 4 and keys[0] == "tools" and keys[2] == "bindings"
            return {"value": resolved} if is_binding and isinstance(resolved, str) else resolved
        if isinstance(value, dict):
            walked = ((key, self._walk(entry, (*keys, key), files=files)) for key, entry in value.items())
            kept = {key: entry for key, entry in walked if entry is not _ABSENT}
            if keys[-1:] == ("connection",) and len(kept) < len(value) and (kind := infer_connection_kind(value)):
                kept["kind"] = kind  # that of the whole connection, not of what is left
            return kept
        if isinstance(value, list):
            entries = [self._walk(entry, (*keys, index), files=files) for index, entry in enumerate(value)]
            return _ABSENT if _ABSENT in entries else entries
        return value

    def _resolve_text(self, value: str, keys: _Keys, files: bool) -> object:
        pieces = split_references(value)
        read: list[_Read] = []
        try:
            if files and len(pieces) == 1 and pieces[0].protocol == "file":
                content = self._read_reference(pieces[0].body, keys)
                if isinstance(content, str) and is_private(keys):
                    self.secrets.add(content)
                return content
            if files:  # before variables, which may be missing
                pieces = [self._read_piece(piece, keys) if piece.protocol == "file" else piece for piece in pieces]
            text = "".join([self._resolve_piece(piece, read) for piece in pieces])
        except Unreadable as error:
            self.failures.append((keys, error.with_traceback(None)))  # the traceback would keep its frames alive
            return value
        if unset := [entry.name for entry in read if entry.text is None]:
            self.missing += [Use(name, TextOrigin.ENVIRONMENT, keys, value, FieldKind.TEXT) for name in unset]
            if self.defer and not _is_needed(keys):
                return "" if "bindings" in keys[:3] else _ABSENT  # a binding stays: the model must not fill it in
            self.failures += [(keys, VariableMissing(name)) for name in unset]
            return value
        if read:
            self._record(keys, value, text, read)
        return text

    def _resolve_piece(self, piece: "Piece", read: "list[_Read]", depth: int = 0) -> str:
        return self._read_variable(piece.body, read, depth) if piece.protocol == "env" else piece.source

    def _read_piece(self, piece: "Piece", keys: _Keys) -> "Piece":
        """Return the content of a file that a text includes."""
        content = self._read_reference(piece.body, keys)
        if not isinstance(content, str):
            message = f"{piece.source} is structured data, which cannot be part of a text"
            fix = "Make the reference the whole value, or refer to a text file."
            raise Unreadable("file-structure", message, fix)
        return Piece(content, _CONTENT)

    def _read_variable(self, body: str, read: "list[_Read]", depth: int) -> str:
        name, colon, default = body.partition(":")
        value = self.variables[name] = (os.environ if self.env is None else self.env).get(name)
        source = TextOrigin.ENVIRONMENT
        if value is None and name in self.dotenv:
            value, source = self.dotenv[name], TextOrigin.DOTENV
        if value is not None:
            read.append(_Read(name, value, source))
            return value
        if not colon:
            read.append(_Read(name, None, source))
            return ""
        if depth == _MAX_DEPTH:
            message = f"more than {_MAX_DEPTH} references are nested in defaults"
            raise Unreadable("reference-depth", message, "Nest fewer defaults.")
        return "".join([self._resolve_piece(piece, read, depth + 1) for piece in split_references(default)])

    def _record(self, keys: _Keys, written: str, text: str, read: "Sequence[_Read]") -> None:
        """Record the variables of a resolved text."""
        if is_private(keys) or any(is_credential_name(entry.name) for entry in read):
            self.secrets |= {text, *(entry.text or "" for entry in read)}
        for name, value, source in read:
            self.uses.append(Use(name, source, keys, written, FieldKind.TEXT, _is_whole_address(value or "", text)))

    def _read_reference(self, reference: str, keys: _Keys) -> object:
        data = self.read_data(reference)
        try:
            return data if isinstance(data, str) else self._walk(data, keys, files=False)
        except RecursionError as error:
            raise _unreadable_content(reference, error) from None

    def read_data(self, reference: str) -> object:
        """Return the content of a file that a prompt names: JSON or YAML data, or text. References stay unresolved."""
        path, text = self.read_text(reference)
        if path.suffix.lower() not in (".json", ".yaml", ".yml"):
            return text
        try:
            return read_json(text) if path.suffix.lower() == ".json" else _read_strict_yaml(text)
        except (ValueError, RecursionError) as error:
            raise _unreadable_content(reference, error) from None

    def read_text(self, reference: str) -> tuple[Path, str]:
        """Return the path and the text of a file that a prompt names. It must be in an allowed folder."""
        path = self._resolve_path(reference)
        text, self.files[path] = read_file(path, reference, self.buffers, contained=True)
        return path, text

    def _resolve_path(self, reference: str) -> Path:
        if self.base_dir is None:
            message = f"${{file:{reference}}} is relative, but the prompt's text has no folder"
            raise Unreadable("file-no-base", message, "Pass base_dir= to loads().")
        try:
            path = (self.base_dir / reference).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            message = f"{reference} cannot be opened: {error}"
            raise Unreadable("file-unreadable", message, "Correct the path.") from None
        own = () if Path(reference).is_absolute() else (self.base_dir,)
        roots = [
            root for root in (Path(one).resolve() for one in (*own, *self.allowed_roots)) if path.is_relative_to(root)
        ]
        if not roots:
            fix = (
                "Move the file below the prompt's folder, or allow its folder: with --root, with `roots` in "
                "prompty.toml, or with allowed_roots= of load()."
            )
            raise Unreadable("file-outside", f"{reference} is outside allowed roots", fix)
        if is_hidden(PurePath(reference)) or all(is_hidden(path.relative_to(root)) for root in roots):
            message = f"{reference} is hidden: files such as .env hold secrets that a prompt must not send"
            raise Unreadable("file-hidden", message, "Name a file and folders that do not begin with a dot.")
        return path


class _Read(NamedTuple):
    """A variable, its value or None, and its source."""

    name: str
    text: str | None
    source: TextOrigin


class VariableMissing(Unreadable):
    """A variable without a default is not set."""

    def __init__(self, name: str) -> None:
        fix = (
            f"Set {name or 'it'}, or add a default: ${{env:{name or 'NAME'}:default}}. "
            "To load the prompt without its variables, pass missing_env='defer'."
        )
        super().__init__("env-missing", f"Environment variable '{name}' not set", fix)
        self.name = name


def _unreadable_content(reference: str, error: Exception) -> Unreadable:
    return Unreadable("file-content", f"{reference} cannot be read: {error}", "Correct that file.")


def is_private(keys: _Keys) -> bool:
    """Return True for a field in which a value from outside the file is a secret, whatever its variable is called:
    provider-specific options, headers, and the options of tools."""
    if not _PRIVATE_KEYS.isdisjoint(keys) or keys[-3:-1] == ("connection", "headers"):
        return True
    return keys[:1] + keys[2:3] == ("tools", "options")


# Fields without which a definition cannot be read.
_NEEDED = {"tools": ("name", "kind", "path", "specification"), "inputs": ("name", "kind"), "outputs": ("name", "kind")}


def _is_needed(keys: _Keys) -> bool:
    if keys[-2:] == ("connection", "kind"):
        return True
    is_definition = len(keys) == 3 or keys[0] != "tools"
    return is_definition and keys[-1] in _NEEDED.get(str(keys[0]), ()) if keys else True


def _complete(use: Use, names: Mapping[str | int, str], kinds: Mapping[str | int, str]) -> Use:
    """Return a use with the path of its field in the agent, and with its kind."""
    keys = normalize_keys(use.keys, names)
    address = use.is_address and is_address(keys)
    kind = FieldKind.FREE if address else find_kind(keys, kinds)
    return use._replace(keys=keys, kind=kind, is_address=address, key=".".join(map(str, use.keys)))


def _is_whole_address(value: str, url: str) -> bool:
    """Return True if a value is the whole origin of a URL, its whole host, or the name of an Azure resource: no other
    host gets to know it."""
    if value == url:
        return True
    origin, own = parse_origin(url), parse_origin(value)
    if origin is None:
        return False
    resources = [origin.host.removesuffix(host[1:]) for host in RESOURCE_HOSTS]
    hosts = (origin.host, f"{origin.host}:{origin.port}", *(name for name in resources if "." not in name))
    return (own == origin and url.startswith(value)) or value.lower() in hosts


class Piece(NamedTuple):
    """Part of a value: plain text, or a reference with its protocol."""

    source: str
    protocol: str = ""
    body: str = ""


def walk_texts(value: object, keys: _Keys = ()) -> Iterator[tuple[_Keys, str]]:
    """Yield each text in the data of a file with its path."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from walk_texts(entry, (*keys, key))


def split_references(value: str) -> list[Piece]:
    """Split a value. A reference without a name, as in "Write ${env:} here", is text unless it is the whole value."""
    pieces = list(_split(value))
    if len(pieces) == 1:
        return pieces
    return [piece if piece.body else Piece(piece.source) for piece in pieces]


def _split(value: str) -> Iterator[Piece]:
    """Split a value at its references in one pass. Braces inside a reference must balance."""
    done = 0
    while (start := value.find("${", done)) >= 0:
        end = _closing_brace(value, start + 2)
        if end is None:
            break
        protocol, colon, body = value[start + 2 : end].partition(":")
        if start > done:
            yield Piece(value[done:start])
        yield Piece(value[start : end + 1], protocol if colon else "", body)
        done = end + 1
    if done < len(value):
        yield Piece(value[done:])


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
