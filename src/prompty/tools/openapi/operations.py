"""Describe a document's operations: the function that the model sees, and where its arguments go in a request.

Pure. `request` builds HTTP requests from what it returns.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

from prompty.errors import ToolError
from prompty.model.message import Json
from prompty.model.request import Function
from prompty.safety.schemas import is_legal
from prompty.tools.openapi.document import (
    ApiDocument,
    Schemas,
    argument_name,
    clean_description,
    function_name,
    is_read_only,
    make_unique,
    required_properties,
)

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
Location = Literal["path", "query", "header", "cookie"]
_DEFAULT_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_STYLES = {
    "path": {"simple"},
    "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
    "header": {"simple"},
    "cookie": {"form"},
}
# Headers that a model must not set: credentials come from the connection, the rest from the client.
_OWN_HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "cookie", "expect"}
    | {"host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
    | {"user-agent"}
)
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
MULTIPART, TEXT = "multipart/form-data", "text/plain"
_MEDIA_TYPE = re.compile(r"[\w.+*-]{1,100}/[\w.+*-]{1,100}(?:\s*;\s*[\w-]{1,50}=[\w.\"-]{1,100}){0,5}")
# Any other keyword constrains the object as a whole, so its properties cannot become separate arguments.
_PROPERTY_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description", "deprecated", "default"}
    | {"example", "examples", "externalDocs", "xml", "$schema", "$id", "$comment"}
)
_ALTERNATIVES = ("allOf", "anyOf", "oneOf", "if", "then", "else")


class Selection(NamedTuple):
    """The operations that a tool offers. None means no restriction."""

    operations: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """Location and encoding of an argument in a request."""

    argument: str
    name: str
    location: Location
    style: str = "simple"
    explode: bool = False
    reserved: bool = False
    as_json: bool = False


class Encoding(NamedTuple):
    """Encoding of a form field."""

    style: str
    explode: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class BodyShape:
    """Mapping of arguments to a body: `argument` is the whole body, or `fields` maps arguments to its properties.
    `properties` are those of a body that is one argument, which bindings cannot set."""

    media_type: str
    argument: str = "body"
    fields: Mapping[str, str] | None = None
    required: bool = False
    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    properties: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One operation: the function that the model sees, and how to build a request from its arguments."""

    function: Function
    method: str
    path: str
    parameters: tuple[Parameter, ...] = ()
    body: BodyShape | None = None
    server: str | None = None
    security: object = field(default=None)

    @property
    def argument_names(self) -> set[str]:
        body = () if self.body is None else self.body.fields or (self.body.argument,)
        return {*(parameter.argument for parameter in self.parameters), *body}


class _Declared(NamedTuple):
    """An operation in the document, with its name for the model and in the document."""

    name: str
    own_name: str
    method: str
    path: str
    item: Json
    data: Json


class _Argument(NamedTuple):
    """One argument of a function."""

    name: str
    schema: object
    required: bool
    description: object = None


EVERYTHING = Selection()
_MAX_SELECTIONS = 16


def list_operations(document: ApiDocument, selection: Selection = EVERYTHING) -> tuple[Operation, ...]:
    """Return the selected operations of a document, in its order. The document keeps those of a few selections."""
    if (kept := document.operations.get(selection)) is None:
        kept = _list_operations(document, selection)
        if len(document.operations) < _MAX_SELECTIONS:
            document.operations[selection] = kept
    return kept


def _list_operations(document: ApiDocument, selection: Selection) -> tuple[Operation, ...]:
    selected = [declared for declared in _walk(document) if _is_selected(declared, selection)]
    names = {name for declared in selected for name in (declared.name, declared.own_name)}
    unknown = next((name for name in selection.operations or () if name not in names), None)
    if unknown is not None:
        raise ToolError(f"{document.source}: there is no operation '{unknown}'", "Correct it in `operations:`.")
    if not selected:
        fix = "Correct `operations:`, `tags:` or `methods:`."
        raise ToolError(f"{document.source}: the selection matches no operation", fix)
    schemas = Schemas(document)
    return tuple(_describe(document, schemas, declared) for declared in selected)


def _walk(document: ApiDocument) -> Iterator[_Declared]:
    taken: set[str] = set()
    for path, item in document.resolve(document.data.get("paths") or {}).items():
        if not path.startswith("/"):
            continue  # `x-…`
        resolved = document.resolve(item)
        for method in METHODS:
            if isinstance(data := resolved.get(method), dict):
                own_name = str(data.get("operationId") or f"{method}{path}")
                yield _Declared(make_unique(function_name(own_name), taken), own_name, method, path, resolved, data)


def _is_selected(declared: _Declared, selection: Selection) -> bool:
    tags = declared.data.get("tags")
    return (
        (selection.operations is None or not {declared.name, declared.own_name}.isdisjoint(selection.operations))
        and (selection.tags is None or any(tag in selection.tags for tag in _as_list(tags)))
        and (selection.methods is None or declared.method in {method.lower() for method in selection.methods})
    )


def _describe(document: ApiDocument, schemas: Schemas, declared: _Declared) -> Operation:
    place = f"{declared.method.upper()} {declared.path}"
    try:
        return _to_operation(document, schemas, declared)
    except ToolError as error:
        raise ToolError(f"{error.cause} (in {place})", error.fix) from None
    except RecursionError:
        document.refuse(f"the schemas of {place} are nested too deep", "Flatten them")


def _to_operation(document: ApiDocument, schemas: Schemas, declared: _Declared) -> Operation:
    references: set[str] = set()
    parameters = _read_parameters(document, declared)
    taken = {parameter.argument for parameter, _ in parameters}
    body, body_arguments = _read_body(document, declared.data.get("requestBody"), taken)
    arguments = [_to_argument(document, parameter, data) for parameter, data in parameters] + body_arguments
    properties: Json = {}
    for argument in arguments:
        converted = schemas.convert(argument.schema, references)
        if own := clean_description(argument.description):  # more specific than the schema's description
            converted = {**(converted if isinstance(converted, dict) else {}), "description": own}
        properties[argument.name] = converted
    schema: Json = {
        "type": "object",
        "properties": properties,
        "required": [argument.name for argument in arguments if argument.required],
        "additionalProperties": False,
    }
    if definitions := schemas.collect_definitions(references):
        schema["$defs"] = definitions
    if not is_legal(schema):
        document.refuse("a schema is not legal JSON Schema", "Correct it")
    summary, description = (clean_description(declared.data.get(key)) for key in ("summary", "description"))
    text = summary if summary == description else f"{summary}\n\n{description}"
    servers = declared.data.get("servers") or declared.item.get("servers")
    return Operation(
        function=Function(name=declared.name, description=clean_description(text) or None, parameters=schema),
        method=declared.method.upper(),
        path=declared.path,
        parameters=tuple(parameter for parameter, _ in parameters),
        body=body,
        server=first_server_url(servers),
        security=declared.data.get("security", document.data.get("security")),
    )


def first_server_url(servers: object) -> str | None:
    """Return the URL of the first server, with variables set to their defaults."""
    first = servers[0] if isinstance(servers, list) and servers else None
    if not isinstance(first, dict):
        return None
    url, variables = str(first.get("url", "")), first.get("variables")
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        if isinstance(variable, dict):
            url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
    return url


# Parameters.


def _read_parameters(document: ApiDocument, declared: _Declared) -> list[tuple[Parameter, Json]]:
    """Return the path's parameters that the operation does not override, then its own, each with its data."""
    by_location: dict[tuple[str, str], Json] = {}
    for reference in [*_as_list(declared.item.get("parameters")), *_as_list(declared.data.get("parameters"))]:
        data = document.resolve(reference)
        name, location = data.get("name"), data.get("in")
        if not isinstance(name, str) or not isinstance(location, str) or location not in _STYLES:
            continue
        if location != "header" or name.lower() not in _OWN_HEADERS:
            by_location[name, location] = data
    repeated = Counter(argument_name(name) for name, _ in by_location)
    taken: set[str] = set()
    parameters = []
    for (name, location), data in by_location.items():
        plain = argument_name(name)
        argument = make_unique(plain if repeated[plain] == 1 else argument_name(f"{location}_{plain}"), taken)
        parameters.append((_read_parameter(document, argument, data), data))
    return parameters


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _read_parameter(document: ApiDocument, argument: str, data: Json) -> Parameter:
    location = cast(Location, data["in"])
    style = str(data.get("style") or _DEFAULT_STYLES[location])
    if location == "path" and style in ("label", "matrix"):
        cause = f"the path parameter '{data['name']}' has the style '{style}', which prompty does not write"
        document.refuse(cause, "Declare `style: simple` if the service reads it")
    if style not in _STYLES[location]:
        document.refuse(f"'{style[:40]}' is not a style for a {location} parameter ('{argument}')", "Correct it")
    explode = data.get("explode")
    return Parameter(
        argument=argument,
        name=cast(str, data["name"]),
        location=location,
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
        reserved=data.get("allowReserved") is True,
        as_json="schema" not in data and isinstance(data.get("content"), dict),
    )


def _to_argument(document: ApiDocument, parameter: Parameter, data: Json) -> _Argument:
    """Describe a parameter as an argument. If it has `content`, its schema is in there."""
    schema: object = data.get("schema", {})
    content = data.get("content")
    if parameter.as_json and isinstance(content, dict) and content:
        schema = document.resolve(next(iter(content.values()))).get("schema", {})
    required = data.get("required") is True or parameter.location == "path"
    return _Argument(parameter.argument, schema, required, data.get("description"))


# Bodies.


def _read_body(document: ApiDocument, data: object, taken: set[str]) -> tuple[BodyShape | None, list[_Argument]]:
    """Return an operation's body, and the arguments that it adds."""
    body = document.resolve(data) if data is not None else {}
    content = body.get("content")
    if not isinstance(content, dict) or not content:
        return None, []
    declared = min(content, key=_preference)
    if not _MEDIA_TYPE.fullmatch(declared):
        document.refuse(f"{declared[:100]!r} is not a media type", "Correct it")
    media = document.resolve(content[declared])
    schema: object = media.get("schema", {})
    required = body.get("required") is True
    media_type = _concrete(declared)
    encodings = _read_encodings(document, media)
    is_text = body_format(media_type) == TEXT
    by_property = None if is_text else _flatten(document, schema, taken, required)
    if by_property is not None:
        fields = {argument.name: name for name, argument in by_property.items()}
        flat = BodyShape(media_type=media_type, fields=fields, required=required, encodings=encodings)
        return flat, list(by_property.values())
    name = next(name for name in ("body", "request_body", "body_of_request") if name not in taken)
    properties = frozenset() if is_text else frozenset(_inner_properties(document, schema, set()))
    whole = BodyShape(
        media_type=media_type, argument=name, required=required, encodings=encodings, properties=properties
    )
    return whole, [_Argument(name, {"type": "string"} if is_text else schema, required, body.get("description"))]


def body_format(media_type: str) -> str:
    """Return the body format for a media type. An unknown type is text."""
    name = media_type.partition(";")[0].strip().lower()
    if name.endswith(("/json", "+json")):
        return JSON
    return name if name in (FORM, MULTIPART) else TEXT


def _preference(media_type: str) -> int:
    concrete = _concrete(media_type)
    return (JSON, FORM, MULTIPART, TEXT).index(body_format(concrete)) if "/" in concrete else 4


def _concrete(media_type: str) -> str:
    """Return a media type to send for a range."""
    if "*" not in media_type:
        return media_type
    return TEXT if media_type.startswith("text/") else JSON


def _flatten(document: ApiDocument, schema: object, taken: set[str], required: bool) -> dict[str, _Argument] | None:
    """Return a body's properties as arguments, or None if the body must stay one argument."""
    resolved = document.resolve(schema) if isinstance(schema, dict) else {}
    properties, needed = resolved.get("properties"), required_properties(resolved)
    if not isinstance(properties, dict) or not _has_only_properties(resolved) or (needed and not required):
        return None
    names = {name: argument_name(name) for name, entry in properties.items() if not is_read_only(entry)}
    arguments = set(names.values())
    if not names or len(arguments) < len(names) or arguments & taken:
        return None
    return {name: _Argument(argument, properties[name], name in needed) for name, argument in names.items()}


def _inner_properties(document: ApiDocument, schema: object, seen: set[int]) -> Iterator[str]:
    """Yield the properties of an object and of all its alternatives."""
    if not isinstance(schema, dict) or id(schema) in seen:
        return
    seen.add(id(schema))
    if "$ref" in schema:
        yield from _inner_properties(document, document.resolve(schema), seen)
    properties = schema.get("properties")
    yield from properties if isinstance(properties, dict) else ()
    for keyword in _ALTERNATIVES:
        entry = schema.get(keyword)
        for alternative in entry if isinstance(entry, list) else [entry]:
            yield from _inner_properties(document, alternative, seen)


def _has_only_properties(schema: Json) -> bool:
    """Return True if a schema describes an object only by its properties."""
    keywords = {keyword for keyword in schema if not keyword.startswith("x-")}
    is_closed = schema.get("additionalProperties", False) is False
    return schema.get("type", "object") == "object" and keywords <= _PROPERTY_KEYWORDS and is_closed


def _read_encodings(document: ApiDocument, media: Json) -> dict[str, Encoding]:
    declared = media.get("encoding")
    encodings = {}
    for name, reference in declared.items() if isinstance(declared, dict) else ():
        data = document.resolve(reference)
        if "style" in data or "explode" in data:
            style, explode = str(data.get("style", "form")), data.get("explode")
            encodings[name] = Encoding(style, explode if isinstance(explode, bool) else style == "form")
    return encodings
