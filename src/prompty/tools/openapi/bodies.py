"""The body of a request: what of it the model sees as arguments, and of which media type it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from prompty.model.message import Json
from prompty.tools.openapi.document import Document
from prompty.tools.openapi.schemas import is_read_only, required_of
from prompty.tools.openapi.wording import argument_name

JSON, FORM, MULTIPART, TEXT = (
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "text/plain",
)
_MEDIA_TYPE = re.compile(r"[\w.+*-]{1,100}/[\w.+*-]{1,100}(?:\s*;\s*[\w-]{1,50}=[\w.\"-]{1,100}){0,5}")
# A schema that says more than this about an object says it about the object as a whole.
_ABOUT_PROPERTIES = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description", "deprecated", "default"}
    | {"example", "examples", "externalDocs", "xml", "$schema", "$id", "$comment"}
)


class Field(NamedTuple):
    """One argument of a function."""

    argument: str
    schema: object
    required: bool
    description: object = None


class Encoding(NamedTuple):
    """How a field of a form is written."""

    style: str
    explode: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """How arguments make a body: one of them is the whole, or several are its properties (`fields`: by argument)."""

    media_type: str
    argument: str = "body"
    fields: Mapping[str, str] | None = None
    required: bool = False
    encodings: Mapping[str, Encoding] = field(default_factory=dict)


def read_body(document: Document, data: object, taken: set[str]) -> tuple[Body | None, list[Field]]:
    """The body of an operation, and the arguments that it adds to those that are taken."""
    if data is None:
        return None, []
    body = document.followed(data)
    content = body.get("content")
    if not isinstance(content, dict) or not content:
        return None, []
    declared = min(content, key=_preference)
    if not _MEDIA_TYPE.fullmatch(declared):
        document.refuse(f"the media type {declared[:100]!r} is none", "Correct it")
    media = document.followed(content[declared])
    required = body.get("required") is True
    schema: object = media.get("schema", {})
    media_type = _concrete(declared)
    flat = _flat(document, schema, taken, required) if kind_of(media_type) != TEXT else None
    if flat is not None:
        fields = {one.argument: name for name, one in flat.items()}
        found = Body(media_type=media_type, fields=fields, required=required, encodings=_encodings(document, media))
        return found, list(flat.values())
    argument = next(name for name in ("body", "request_body", "body_of_request") if name not in taken)
    if kind_of(media_type) == TEXT:
        schema = {"type": "string"}
    whole = Body(media_type=media_type, argument=argument, required=required, encodings=_encodings(document, media))
    return whole, [Field(argument, schema, required, body.get("description"))]


def kind_of(media_type: str) -> str:
    """Which of the four ways to write a body a media type takes; what we do not know is text."""
    name = media_type.partition(";")[0].strip().lower()
    if name.endswith(("/json", "+json")):
        return JSON
    return name if name in (FORM, MULTIPART) else TEXT


def _preference(media_type: str) -> int:
    concrete = _concrete(media_type)
    return (JSON, FORM, MULTIPART, TEXT).index(kind_of(concrete)) if "/" in concrete else 4


def _concrete(media_type: str) -> str:
    """A media type that can be sent in place of a range of them."""
    if "*" not in media_type:
        return media_type
    return TEXT if media_type.startswith("text/") else JSON


def _flat(document: Document, schema: object, taken: set[str], required: bool) -> dict[str, Field] | None:
    """The properties of a body as arguments, by their names; None where the body must stay one value."""
    found = document.followed(schema) if isinstance(schema, dict) else {}
    properties = found.get("properties")
    if not isinstance(properties, dict) or not _is_plain(found) or (required_of(found) and not required):
        return None
    names = {name: argument_name(name) for name, one in properties.items() if not is_read_only(one)}
    arguments = set(names.values())
    if not names or len(arguments) < len(names) or arguments & taken:
        return None
    needed = required_of(found)
    return {name: Field(argument, properties[name], name in needed) for name, argument in names.items()}


def _is_plain(schema: Json) -> bool:
    """Whether a schema describes an object by its properties, and by nothing else."""
    said = {keyword for keyword in schema if not keyword.startswith("x-")}
    more = schema.get("additionalProperties", False)
    return schema.get("type", "object") == "object" and said <= _ABOUT_PROPERTIES and more is False


def _encodings(document: Document, media: Json) -> dict[str, Encoding]:
    found = media.get("encoding")
    encodings = {}
    for name, data in found.items() if isinstance(found, dict) else ():
        one = document.followed(data)
        if "style" in one or "explode" in one:
            style, explode = str(one.get("style", "form")), one.get("explode")
            encodings[name] = Encoding(style, explode if isinstance(explode, bool) else style == "form")
    return encodings
