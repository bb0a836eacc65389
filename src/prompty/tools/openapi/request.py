"""Arguments into an HTTP request. Pure: what leaves the process is decided here, and sent by `client`."""

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from prompty.errors import ArgumentsError
from prompty.model.message import Json
from prompty.tools.openapi import styles
from prompty.tools.openapi.bodies import FORM, JSON, MULTIPART, Body, kind_of
from prompty.tools.openapi.operations import Operation, Parameter
from prompty.wire.json_bytes import write_bytes

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_DOTS = (".", "..")
_IN_PATHS = "/:@!$&'()*+,;=%"


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRequest:
    """A request to a service. `path` and `query` are encoded, and stand behind the service's base URL."""

    method: str
    path: str = ""
    query: tuple[str, ...] = field(default=(), repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cookies: tuple[str, ...] = field(default=(), repr=False)
    content: bytes | None = None

    def with_header(self, name: str, value: str) -> "HttpRequest":
        """The request with this header, in place of any of its name."""
        others = tuple(pair for pair in self.headers if pair[0].lower() != name.lower())
        return replace(self, headers=(*others, (name, value)))


def request_of(operation: Operation, arguments: Json) -> HttpRequest:
    """The request of a call. Arguments that the operation does not have are not sent."""
    given = [one for one in operation.parameters if arguments.get(one.argument) is not None]
    by_place: dict[str, list[tuple[Parameter, Any]]] = {"path": [], "query": [], "header": [], "cookie": []}
    for parameter in given:
        by_place[parameter.place].append((parameter, _value(parameter, arguments[parameter.argument])))
    headers = [(_token(one), _header(one, value)) for one, value in by_place["header"]]
    content: bytes | None = None
    if operation.body and (body := _body(operation.body, arguments)):
        content = body[1]
        headers.append(("Content-Type", body[0]))
    return HttpRequest(
        method=operation.method,
        path=_path(operation.path, by_place["path"]),
        query=tuple(pair for one, value in by_place["query"] for pair in _query(one, value)),
        headers=tuple(headers),
        cookies=tuple(pair for one, value in by_place["cookie"] for pair in _cookie(one, value)),
        content=content,
    )


def _value(parameter: Parameter, value: Any) -> Any:
    """What a parameter writes: JSON text where the document says so, and no entries that are null."""
    if parameter.as_json:
        return write_bytes(value).decode()
    if isinstance(value, dict):
        return {name: one for name, one in value.items() if one is not None}
    return value


def _path(template: str, values: list[tuple[Parameter, Any]]) -> str:
    """The path with its parameters. No value may be empty, and none may lead to another folder."""
    texts = {f"{{{one.name}}}": _in_path(one, value) for one, value in values}
    parts = re.split(r"(\{[^{}]*\})", template)  # in one pass: what a value holds is never taken for a parameter
    missing = next((part for part in parts if part.startswith("{") and part not in texts), None)
    if missing:
        raise ArgumentsError(f"the path parameter {missing[1:-1]!r} has no value")
    path = "".join(texts[part] if part.startswith("{") else quote(part, safe=_IN_PATHS) for part in parts)
    if any(segment in _DOTS for segment in re.split(r"[/\\]", unquote(path))):
        raise ArgumentsError("a path parameter is not a name: '.' and '..' would lead to another path")
    return path


def _in_path(parameter: Parameter, value: Any) -> str:
    if value in ("", [], {}):
        raise ArgumentsError(f"{parameter.argument}: a path parameter must not be empty")
    match parameter.style:
        case "label":
            return styles.label(value, parameter.explode)
        case "matrix":
            return styles.matrix(parameter.name, value, parameter.explode)
    return styles.simple(value, parameter.explode, styles.encoded)


def _query(parameter: Parameter, value: Any) -> list[str]:
    encode = styles.encoded_but_reserved if parameter.reserved else styles.encoded
    return styles.query(parameter.name, value, parameter.style, parameter.explode, encode)


def _cookie(parameter: Parameter, value: Any) -> list[str]:
    _token(parameter)
    return styles.form(parameter.name, value, parameter.explode)


def _header(parameter: Parameter, value: Any) -> str:
    text = styles.simple(value, parameter.explode, str)
    if not (text.isascii() and text.isprintable()):
        raise ArgumentsError(f"{parameter.argument}: a header can hold printable ASCII characters only")
    return text


def _token(parameter: Parameter) -> str:
    if not _TOKEN.fullmatch(parameter.name):
        raise ArgumentsError(f"{parameter.argument}: the document gives it a name that no {parameter.place} can have")
    return parameter.name


def _body(body: Body, arguments: Json) -> tuple[str, bytes] | None:
    """The media type and the bytes of a body, if there is one."""
    if body.fields is None:
        value = arguments.get(body.argument)
        if body.argument not in arguments:
            return None
    else:
        value = {name: arguments[argument] for argument, name in body.fields.items() if argument in arguments}
        if not value and not body.required:
            return None
    match kind_of(body.media_type):
        case str(kind) if kind == JSON:
            return body.media_type, write_bytes(value)
        case str(kind) if kind == FORM:
            return body.media_type, "&".join(_form_pairs(body, value)).encode()
        case str(kind) if kind == MULTIPART:
            return _multipart(body, value)
    return body.media_type, styles.text_of(value).encode()


def _form_pairs(body: Body, value: object) -> list[str]:
    """The fields of a form: a list repeats its field, an object is JSON, unless the document says otherwise."""
    pairs: list[str] = []
    for name, one in _fields(body, value):
        if encoding := body.encodings.get(name):
            pairs.extend(styles.query(name, one, encoding.style, encoding.explode))
        else:
            texts = [styles.text_of(item) for item in (one if isinstance(one, list) else [one])]
            pairs.extend(f"{quote_plus(name)}={quote_plus(text)}" for text in texts)
    return pairs


def _multipart(body: Body, value: object) -> tuple[str, bytes]:
    parts: list[bytes] = []
    for name, one in _fields(body, value):
        shown = re.sub(r'["\r\n]', lambda found: f"%{ord(found[0]):02X}", name)
        for item in one if isinstance(one, list) else [one]:
            kind = "Content-Type: application/json\r\n" if isinstance(item, dict | list) else ""
            head = f'Content-Disposition: form-data; name="{shown}"\r\n{kind}\r\n'
            parts.append(head.encode() + styles.text_of(item).encode())
    # No text can hold the hash of itself, so no field can end the part it stands in.
    boundary = hashlib.sha256(b"\0".join(parts)).hexdigest()[:40].encode()
    content = b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts) + b"--" + boundary + b"--\r\n"
    return f"{MULTIPART}; boundary={boundary.decode()}", content


def _fields(body: Body, value: object) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ArgumentsError(f"{body.argument}: a form is an object")
    return [(name, one) for name, one in value.items() if one is not None]
