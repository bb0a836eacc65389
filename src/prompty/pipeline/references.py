"""`${env:NAME}`, `${env:NAME:default}` and `${file:path}` in the values of a file (§2.11)."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NamedTuple
from urllib.parse import urlsplit

from prompty.model.definition import UnsetReference
from prompty.model.provenance import Exposure, Provenance
from prompty.model.unset import Unset
from prompty.pipeline.files import Buffers, Identity, Unreadable, is_hidden, read_file
from prompty.safety.json import read_json
from prompty.safety.origins import Origin, TextOrigin, parse_origin
from prompty.safety.redaction import is_credential_name
from prompty.safety.yaml import YamlError, read_yaml

StrPath = str | os.PathLike[str]
_Keys = tuple[str | int, ...]
_BRACE = re.compile(r"[{}]")
_MAX_DEPTH = 16  # of references nested in defaults; each level is scanned again
_CONTENT = "file:"  # the protocol of a file's content, which no reference can name
_ENDPOINT_KEYS = frozenset({"endpoint", "tokenUrl", "token_url", "specification"})  # of a connection or a tool
# Provider-specific fields in which a value from outside is a secret, regardless of the variable's name.
_PRIVATE_KEYS = frozenset({"additionalProperties", "additional_properties"})
_SENT_KEYS = frozenset({"name", "description", "model", "inputs", "outputs", "tools", "fallbacks"})
_CREDENTIAL_KEYS = frozenset({"apiKey", "api_key", "clientSecret", "client_secret"})  # of a connection
_UNRESTRICTED = Exposure("", TextOrigin.FILE, ())


@dataclass
class References:
    """Resolver for one file. `variables`, `files` and `absent` files record the dependencies of the result, and
    `failures` the unresolved references. Those in `unset` fail a call, but not the load (F15).

    `env` replaces the process's environment, and `dotenv` adds variables to it. `buffers` replace the texts of files.
    The values of the variables in `env_allowed` may go anywhere, except for credentials.
    """

    base_dir: Path | None
    allowed_roots: Sequence[StrPath] = ()
    env: Mapping[str, str] | None = None
    buffers: Buffers = field(default_factory=dict)
    dotenv: Mapping[str, str] = field(default_factory=dict)
    trusted: frozenset[Origin] = frozenset()
    env_allowed: frozenset[str] = frozenset()
    variables: dict[str, str | None] = field(default_factory=dict)
    files: dict[Path, Identity] = field(default_factory=dict)
    absent: set[Path] = field(default_factory=set)
    failures: list[tuple[_Keys, Unreadable]] = field(default_factory=list)
    texts: dict[str, TextOrigin] = field(default_factory=dict)
    endpoints: dict[str, TextOrigin] = field(default_factory=dict)
    exposed: dict[tuple[object, ...], Exposure] = field(default_factory=dict)  # the first of each part of the file
    carriers: dict[str, Exposure] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)
    unset: list[Unset] = field(default_factory=list)

    def resolve(self, value: object) -> object:
        """Return the data with every reference replaced. Failures are collected, so that one call reports them all."""
        return self._walk(value, (), files=True)

    def resolve_again(self, reference: Unset) -> object:
        """Return the value of a reference that was not set before. If its variable is not set now, it is in `unset`."""
        return self._resolve_text(reference.text, reference.keys, reference.reads_files)

    @property
    def provenance(self) -> Provenance:
        """The sources of the resolved values."""
        return Provenance(
            self.texts,
            self.endpoints,
            self.carriers,
            tuple(self.exposed.values()),
            self.trusted,
            unset=tuple(self.unset),
            env=self.env,
            env_allowed=self.env_allowed,
            secrets=frozenset(self.secrets),
        )

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
            return {key: self._walk(entry, (*keys, key), files=files) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._walk(entry, (*keys, index), files=files) for index, entry in enumerate(value)]
        return value

    def _resolve_text(self, value: str, keys: _Keys, files: bool) -> object:
        pieces = split_references(value)
        read: list[_Read] = []
        try:
            if files and len(pieces) == 1 and pieces[0].protocol == "file":
                content = self._read_reference(pieces[0].body, keys)
                if isinstance(content, str):
                    self._record(keys, content, [_Read(content, TextOrigin.ENVIRONMENT)])
                return content
            if files:  # before variables, which a call may set
                pieces = [self._read_piece(piece, keys) if piece.protocol == "file" else piece for piece in pieces]
            text = "".join([self._resolve_piece(piece, keys, read) for piece in pieces])
        except Unreadable as error:
            unset = isinstance(error, VariableMissing) and Unset.create(keys, value, error.name, reads_files=files)
            if unset:
                self.unset.append(unset)
                value = UnsetReference(value)
            else:
                self.failures.append((keys, error.with_traceback(None)))  # the traceback would keep its frames alive
            whole = len(pieces) == 1
            names = [(piece.source, piece.body.partition(":")[0]) for piece in pieces if piece.protocol == "env"]
            if names:  # `check` continues with unset variables
                read = [_Read(text, TextOrigin.ENVIRONMENT, name, whole=whole, is_set=False) for text, name in names]
                self._record(keys, value, read)
                self.secrets -= {value, *(entry.text for entry in read)}
            return value
        if read:
            self._record(keys, text, read)
        return text

    def _resolve_piece(self, piece: "Piece", keys: _Keys, read: "list[_Read]", depth: int = 0) -> str:
        if piece.protocol == "env":
            return self._read_variable(piece.body, keys, read, depth)
        if piece.protocol == _CONTENT:
            read.append(_Read(piece.source, TextOrigin.ENVIRONMENT))
        return piece.source

    def _read_piece(self, piece: "Piece", keys: _Keys) -> "Piece":
        """Return the content of a file that a text includes."""
        content = self._read_reference(piece.body, keys)
        if not isinstance(content, str):
            message = f"{piece.source} is structured data, which cannot be part of a text"
            fix = "Make the reference the whole value, or refer to a text file."
            raise Unreadable("file-structure", message, fix)
        return Piece(content, _CONTENT)

    def _read_variable(self, body: str, keys: _Keys, read: "list[_Read]", depth: int) -> str:
        name, colon, default = body.partition(":")
        value = self.variables[name] = (os.environ if self.env is None else self.env).get(name)
        source = TextOrigin.ENVIRONMENT
        if value is None and name in self.dotenv:
            value, source = self.dotenv[name], TextOrigin.DOTENV
        if value is not None:
            read.append(_Read(value, source, name, whole=True))
            return value
        if not colon:
            fix = f"Set {name or 'it'}, or add a default: ${{env:{name or 'NAME'}:default}}."
            raise VariableMissing(name, fix)
        if depth == _MAX_DEPTH:
            message = f"more than {_MAX_DEPTH} references are nested in defaults"
            raise Unreadable("reference-depth", message, "Nest fewer defaults.")
        inner: list[_Read] = []
        pieces = split_references(default)
        text = "".join([self._resolve_piece(piece, keys, inner, depth + 1) for piece in pieces])
        read += [entry._replace(whole=False) for entry in inner]  # a default is part of the file
        return text

    def _record(self, keys: _Keys, text: str, read: "Sequence[_Read]") -> None:
        """Record the sources of a resolved text."""
        is_secret = any(is_credential_name(entry.name or "") for entry in read)
        if is_secret or is_private(keys):
            self.secrets |= {text, *(entry.text for entry in read)}
        name = _find_address(keys)
        is_endpoint = name in _ENDPOINT_KEYS
        if is_endpoint and read[0].whole and (text == read[0].text or _have_one_origin(text, read[0].text)):
            self.endpoints[text] = read[0].source  # text around the reference can only add a path
        if name not in _CREDENTIAL_KEYS:
            read = [entry for entry in read if entry.name not in self.env_allowed]
        if not read:
            return
        source = max(entry.source for entry in read)
        self.texts[text] = max(source, self.texts.get(text, source))
        if is_endpoint:
            read = [entry for entry in read if not _is_host(entry.text, text)]
        elif not _is_exposed(keys):
            return
        for entry in read:
            if entry.name is None:
                continue
            exposure = Exposure(entry.name, entry.source, keys, entry.is_set)
            if not is_endpoint:
                self.exposed.setdefault((entry.name, keys[0], exposure.is_readable), exposure)
            elif entry.source > self.carriers.get(text, _UNRESTRICTED).source:
                self.carriers[text] = exposure

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
    """Text from outside the file, and its variable, or None for that of a file. `whole` is True if a reference is only
    this text."""

    text: str
    source: TextOrigin
    name: str | None = None
    whole: bool = False
    is_set: bool = True


class VariableMissing(Unreadable):
    """A variable without a default is not set."""

    def __init__(self, name: str, fix: str) -> None:
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


def _is_exposed(keys: _Keys) -> bool:
    """Return True for a field that the model's server may get. Credentials, bound values and the connections of tools
    are checked against their own endpoints."""
    if not keys or (keys[0] not in _SENT_KEYS and keys[:2] != ("metadata", "fallbacks")):
        return False
    if keys[0] == "tools" and keys[2:3] in (("bindings",), ("connection",)):
        return False
    return _find_address(keys) not in _CREDENTIAL_KEYS


def _find_address(keys: _Keys) -> str:
    """Return the name of a field of a connection, or of the address of a tool's document, else "". A default or an
    option of that name is an ordinary value."""
    match keys:
        case ("model", "connection", str(name)) | ("tools" | "fallbacks", _, "connection", str(name)):
            return name
        case ("metadata", "fallbacks", _, "connection", str(name)) | ("tools", _, "specification" as name):
            return name
    return ""


def _is_host(text: str, url: str) -> bool:
    """Return True if a text is the whole origin of a URL, or its whole host: no other host gets to know it.

    A reference at the start of a URL counts as its origin while its variable is not set.
    """
    if text.startswith("${") and url.startswith(text):
        return True
    try:
        host = urlsplit(url).netloc
    except ValueError:
        return False
    return text.lower() in (host.lower(), host.rpartition(":")[0].lower()) or _have_one_origin(text, url)


def _have_one_origin(first: str, second: str) -> bool:
    origin = parse_origin(first)
    return origin is not None and origin == parse_origin(second)


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
