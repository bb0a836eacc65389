"""How values are written in URLs, headers, cookies and forms: the styles of OpenAPI (RFC 6570 for most of them)."""

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

# Without the characters that end a parameter or begin another: a value must stay a value.
_RESERVED = ":/?@!$'()*,;"

Encode = Callable[[str], str]


def encoded(text: str) -> str:
    """Text in which nothing has a meaning for a URL."""
    return quote(text, safe="")


def encoded_but_reserved(text: str) -> str:
    return quote(text, safe=_RESERVED)


def text_of(value: object) -> str:
    """A value as text: what is no scalar as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def simple(value: object, explode: bool, encode: Encode) -> str:
    """`blue,black` · `R,100,G,200` · exploded `R=100,G=200`."""
    return ",".join(_items(value, explode, encode))


def label(value: object, explode: bool) -> str:
    """`.blue` · `.blue,black` · exploded `.blue.black`, `.R=100.G=200`."""
    return "." + ("." if explode else ",").join(_items(value, explode, encoded))


def matrix(name: str, value: object, explode: bool) -> str:
    """`;color=blue` · `;color=blue,black` · exploded `;color=blue;color=black`, `;R=100;G=200`."""
    return "".join(f";{pair}" for pair in form(name, value, explode))


def form(name: str, value: object, explode: bool, encode: Encode = encoded, separator: str = ",") -> list[str]:
    """`color=blue` · `color=blue,black` · exploded `color=blue`, `color=black` and `R=100`, `G=200`."""
    key = encoded(name)
    match value:
        case list() if explode:
            return [f"{key}={encode(text_of(one))}" for one in value]
        case dict() if explode:
            return _items(value, True, encode)
        case list() | dict() if not value:
            return []
    return [f"{key}={separator.join(_items(value, False, encode))}"]


def deep_object(name: str, value: object, encode: Encode = encoded) -> list[str]:
    """`color[R]=100`, `color[G]=200`; objects inside have one more pair of brackets, lists repeat theirs."""
    match value:
        case dict():
            return [pair for key, one in value.items() for pair in deep_object(f"{name}[{key}]", one, encode)]
        case list():
            return [f"{encoded(name)}={encode(text_of(one))}" for one in value]
    return [f"{encoded(name)}={encode(text_of(value))}"]


def query(name: str, value: object, style: str, explode: bool, encode: Encode = encoded) -> list[str]:
    """A parameter of a query as pairs."""
    match style:
        case "deepObject":
            return deep_object(name, value, encode)
        case "spaceDelimited":
            return form(name, value, explode, encode, "%20")
        case "pipeDelimited":
            return form(name, value, explode, encode, "%7C")
    return form(name, value, explode, encode)


def _items(value: Any, explode: bool, encode: Encode) -> list[str]:
    match value:
        case dict():
            pairs: Sequence[tuple[str, str]] = [(encode(key), encode(text_of(one))) for key, one in value.items()]
            return [f"{key}={one}" for key, one in pairs] if explode else [text for pair in pairs for text in pair]
        case list():
            return [encode(text_of(one)) for one in value]
    return [encode(text_of(value))]
