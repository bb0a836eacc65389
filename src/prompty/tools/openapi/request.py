"""Build a call's HTTP request from its arguments. Pure: `client` sends it.

Values are encoded in OpenAPI's styles (mostly RFC 6570).
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from prompty.errors import ArgumentsError
from prompty.model.message import Json
from prompty.tools.openapi.operations import FORM, JSON, MULTIPART, BodyShape, Operation, Parameter, body_format
from prompty.wire.json_bytes import write_bytes

_SEPARATORS = re.compile(r"[\s.-]")
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")  # the name of a header or a cookie
_LEGAL_IN_PATHS = "/:@!$&'()*+,;=%"
# Without the separators of parameters, so that a value cannot add one.
_RESERVED = ":/?@!$'()*,;"

Encode = Callable[[str], str]


def is_same_parameter(name: str, other: str) -> bool:
    """Return True if a server could confuse one name with the other, or with a part of it.

    A server may ignore the case of a name, take `-`, `.` and spaces for `_`, or read `name[…]` and `name.…` as parts of
    `name`.
    """
    first, second = _fold(name), _fold(other)
    if _SEPARATORS.sub("_", first) == _SEPARATORS.sub("_", second):
        return True
    shorter, longer = sorted((first, second), key=len)
    return longer.startswith((f"{shorter}[", f"{shorter}."))


def _fold(name: str) -> str:
    return name.partition("\0")[0].strip().casefold()


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRequest:
    """A request to a service. `path` and `query` are encoded and follow the service's base URL."""

    method: str
    path: str = ""
    query: tuple[str, ...] = field(default=(), repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cookies: tuple[str, ...] = field(default=(), repr=False)
    content: bytes | None = None

    def with_header(self, name: str, value: str) -> "HttpRequest":
        """Return the request with this header, replacing any that a server could confuse with it."""
        others = tuple(pair for pair in self.headers if not is_same_parameter(pair[0], name))
        return replace(self, headers=(*others, (name, value)))


class _Written(NamedTuple):
    """The `name=value` pairs of one argument. `explodes` is True if the names come from its value."""

    argument: str
    pairs: Sequence[str]
    explodes: bool = False


def build_call(operation: Operation, arguments: Json, bound: Collection[str] = ()) -> HttpRequest:
    """Return a call's request. Arguments that the operation does not have are not sent.

    `bound` are the arguments that the host fills in. Raise `ArgumentsError` if another argument would add a value
    under the name of one of them.
    """
    values: dict[str, list[tuple[Parameter, Any]]] = {"path": [], "query": [], "header": [], "cookie": []}
    for parameter in operation.parameters:
        if (value := arguments.get(parameter.argument)) is not None:
            values[parameter.location].append((parameter, _prepare_value(parameter, value)))
    headers = [(_check_token(parameter), _encode_header(parameter, value)) for parameter, value in values["header"]]
    query = [_write(parameter, value, _encode_query(parameter, value)) for parameter, value in values["query"]]
    cookies = [
        _write(parameter, value, form(_check_token(parameter), value, parameter.explode))
        for parameter, value in values["cookie"]
    ]
    header_pairs = [_write_name(parameter.argument, parameter.name) for parameter, _ in values["header"]]
    written_at = {"query": query, "header": header_pairs, "cookie": cookies}
    for location, written in written_at.items():
        declared = {one.argument: one.name for one in operation.parameters if one.location == location}
        _check_names(written, declared, bound)
    content: bytes | None = None
    if operation.body and (body := _encode_body(operation.body, arguments, bound)):
        media_type, content = body
        headers.append(("Content-Type", media_type))
    return HttpRequest(
        method=operation.method,
        path=_encode_path(operation.path, values["path"]),
        query=_join(query),
        headers=tuple(headers),
        cookies=_join(cookies),
        content=content,
    )


def _write(parameter: Parameter, value: Any, pairs: Sequence[str]) -> _Written:
    return _Written(parameter.argument, pairs, explodes=isinstance(value, dict))


def _write_name(argument: str, name: str) -> _Written:
    return _Written(argument, [percent_encode(name)])


def _join(written: Iterable[_Written]) -> tuple[str, ...]:
    return tuple(pair for entry in written for pair in entry.pairs)


def _check_names(written: Sequence[_Written], declared: dict[str, str], bound: Collection[str]) -> None:
    """Raise `ArgumentsError` if a pair overrides a bound parameter, or if a name from an exploded object is that of
    another parameter: bindings and approval conditions would not see that value."""
    fixed = {name for argument, name in declared.items() if argument in bound}
    fixed.update(name for entry in written if entry.argument in bound for name in _names(entry))
    if not fixed and not any(entry.explodes for entry in written):
        return
    for entry in written:
        if entry.argument in bound:
            continue
        chosen = (name for argument, name in declared.items() if argument != entry.argument) if entry.explodes else ()
        taken = sorted({*fixed, *chosen})
        for name in _names(entry):
            if other := next((other for other in taken if is_same_parameter(name, other)), None):
                raise ArgumentsError(f"{entry.argument}: {name!r} would be read as the parameter '{other}'")


def _names(entry: _Written) -> list[str]:
    """Return the names that a server may read. Some split pairs at semicolons, which `allowReserved` permits."""
    pieces = (piece for pair in entry.pairs for piece in pair.split(";"))
    return [unquote_plus(piece.partition("=")[0]) for piece in pieces]


def _prepare_value(parameter: Parameter, value: Any) -> Any:
    """Return JSON text if the document asks for it, and drop null entries of objects."""
    if parameter.as_json:
        return write_bytes(value).decode()
    if isinstance(value, dict):
        return {name: entry for name, entry in value.items() if entry is not None}
    return value


def _encode_path(template: str, values: list[tuple[Parameter, Any]]) -> str:
    """Return the path with its parameters. No value may be empty or change the folder."""
    texts = {f"{{{parameter.name}}}": _encode_path_value(parameter, value) for parameter, value in values}
    parts = re.split(r"(\{[^{}]*\})", template)  # in one pass, so that braces in a value are not parsed
    missing = next((part for part in parts if part.startswith("{") and part not in texts), None)
    if missing:
        raise ArgumentsError(f"the path parameter {missing[1:-1]!r} has no value")
    path = "".join(texts[part] if part.startswith("{") else quote(part, safe=_LEGAL_IN_PATHS) for part in parts)
    if any(segment in (".", "..") for segment in re.split(r"[/\\]", unquote(path))):
        raise ArgumentsError("a path parameter is '.' or '..', which would lead to another path")
    return path


def _encode_path_value(parameter: Parameter, value: Any) -> str:
    if value in ("", [], {}):
        raise ArgumentsError(f"{parameter.argument}: a path parameter must not be empty")
    return simple(value, parameter.explode, percent_encode)


def _encode_query(parameter: Parameter, value: Any) -> list[str]:
    encode = partial(quote, safe=_RESERVED) if parameter.reserved else percent_encode
    return query(parameter.name, value, parameter.style, parameter.explode, encode)


def _encode_header(parameter: Parameter, value: Any) -> str:
    text = simple(value, parameter.explode, str)
    if not (text.isascii() and text.isprintable()):
        raise ArgumentsError(f"{parameter.argument}: a header can only contain printable ASCII characters")
    return text


def _check_token(parameter: Parameter) -> str:
    if not TOKEN.fullmatch(parameter.name):
        raise ArgumentsError(f"{parameter.argument}: its name in the document is not legal for a {parameter.location}")
    return parameter.name


def _encode_body(body: BodyShape, arguments: Json, bound: Collection[str]) -> tuple[str, bytes] | None:
    """Return the media type and the bytes of a body, or None if the call has none."""
    if body.fields is None:
        value = arguments.get(body.argument)
        if body.argument not in arguments:
            return None
    else:
        given = {argument: name for argument, name in body.fields.items() if argument in arguments}
        _check_names([_write_name(argument, name) for argument, name in given.items()], dict(body.fields), bound)
        value = {name: arguments[argument] for argument, name in given.items()}
        if not value and not body.required:
            return None
    format = body_format(body.media_type)
    if format == JSON:
        return body.media_type, write_bytes(value)
    if format == FORM:
        return body.media_type, "&".join(_encode_form(body, value, bound)).encode()
    return _encode_multipart(body, value) if format == MULTIPART else (body.media_type, _to_text(value).encode())


def _encode_form(body: BodyShape, value: object, bound: Collection[str]) -> tuple[str, ...]:
    """Return a form's pairs. By default a list repeats its field, and an object is JSON."""
    declared = dict(body.fields or {})
    arguments = {name: argument for argument, name in declared.items()}
    written: list[_Written] = []
    for name, entry in _form_fields(body, value):
        encoding = body.encodings.get(name)
        if encoding:
            pairs = query(name, entry, encoding.style, encoding.explode)
        else:
            texts = [_to_text(item) for item in (entry if isinstance(entry, list) else [entry])]
            pairs = [f"{quote_plus(name)}={quote_plus(text)}" for text in texts]
        explodes = encoding is not None and isinstance(entry, dict)
        written.append(_Written(arguments.get(name, body.argument), pairs, explodes))
    _check_names(written, declared, bound)
    return _join(written)


def _encode_multipart(body: BodyShape, value: object) -> tuple[str, bytes]:
    parts: list[bytes] = []
    for name, entry in _form_fields(body, value):
        quoted = re.sub(r'["\r\n]', lambda match: f"%{ord(match[0]):02X}", name)
        for item in entry if isinstance(entry, list) else [entry]:
            content_type = "Content-Type: application/json\r\n" if isinstance(item, dict | list) else ""
            head = f'Content-Disposition: form-data; name="{quoted}"\r\n{content_type}\r\n'
            parts.append(head.encode() + _to_text(item).encode())
    # No text can contain its own hash, so no field can end its part early.
    boundary = hashlib.sha256(b"\0".join(parts)).hexdigest()[:40].encode()
    content = b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts) + b"--" + boundary + b"--\r\n"
    return f"{MULTIPART}; boundary={boundary.decode()}", content


def _form_fields(body: BodyShape, value: object) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ArgumentsError(f"{body.argument}: a form must be an object")
    return [(name, entry) for name, entry in value.items() if entry is not None]


# The styles.


def percent_encode(text: str) -> str:
    """Encode every character that has a meaning in a URL."""
    return quote(text, safe="")


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def simple(value: object, explode: bool, encode: Encode) -> str:
    """`blue,black` · `R,100,G,200` · exploded `R=100,G=200`."""
    return ",".join(_encode_items(value, explode, encode))


def form(name: str, value: object, explode: bool, encode: Encode = percent_encode, separator: str = ",") -> list[str]:
    """`color=blue` · `color=blue,black` · exploded `color=blue`, `color=black` and `R=100`, `G=200`."""
    key = percent_encode(name)
    match value:
        case list() if explode:
            return [f"{key}={encode(_to_text(item))}" for item in value]
        case dict() if explode:  # names are always percent-encoded: reserved characters could separate parameters
            return [f"{percent_encode(name)}={encode(_to_text(entry))}" for name, entry in value.items()]
        case list() | dict() if not value:
            return []
    return [f"{key}={separator.join(_encode_items(value, False, encode))}"]


def deep_object(name: str, value: object, encode: Encode = percent_encode) -> list[str]:
    """`color[R]=100`, `color[G]=200`; a nested object adds a pair of brackets, a list repeats its name."""
    match value:
        case dict():
            return [pair for key, entry in value.items() for pair in deep_object(f"{name}[{key}]", entry, encode)]
        case list():
            return [f"{percent_encode(name)}={encode(_to_text(item))}" for item in value]
    return [f"{percent_encode(name)}={encode(_to_text(value))}"]


def query(name: str, value: object, style: str, explode: bool, encode: Encode = percent_encode) -> list[str]:
    match style:
        case "deepObject":
            return deep_object(name, value, encode)
        case "spaceDelimited":
            return form(name, value, explode, encode, "%20")
        case "pipeDelimited":
            return form(name, value, explode, encode, "%7C")
    return form(name, value, explode, encode)


def _encode_items(value: Any, explode: bool, encode: Encode) -> list[str]:
    match value:
        case dict():
            pairs = [(encode(key), encode(_to_text(entry))) for key, entry in value.items()]
            return [f"{key}={text}" for key, text in pairs] if explode else [text for pair in pairs for text in pair]
        case list():
            return [encode(_to_text(item)) for item in value]
    return [encode(_to_text(value))]
