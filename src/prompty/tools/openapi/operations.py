"""The operations of a document as functions: what the model sees of each, and how its arguments travel.

Pure. Above: `kind`. Below: `schemas`, `document`. `request` makes HTTP requests of what is described here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, cast

from prompty.errors import ToolError
from prompty.model.message import Json
from prompty.model.request import Function
from prompty.tools.openapi.bodies import Body, Field, read_body
from prompty.tools.openapi.document import Document
from prompty.tools.openapi.schemas import Schemas, is_legal
from prompty.tools.openapi.wording import argument_name, clean_description, function_name, numbered

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
Place = Literal["path", "query", "header", "cookie"]
_PLACES = ("path", "query", "header", "cookie")
_DEFAULT_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_STYLES = {
    "path": {"simple", "label", "matrix"},
    "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
    "header": {"simple"},
    "cookie": {"form"},
}
# Not for a model to choose: credentials come from the connection, the rest from the client.
_OWN_HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "cookie", "expect"}
    | {"host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
    | {"user-agent"}
)


class Selection(NamedTuple):
    """Which operations a tool offers; None is no restriction."""

    operations: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """Where an argument stands in a request, and how it is written there."""

    argument: str
    name: str
    place: Place
    style: str = "simple"
    explode: bool = False
    reserved: bool = False
    as_json: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One operation: the function that the model sees, and how to make a request of its arguments."""

    function: Function
    method: str
    path: str
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    server: str | None = None
    security: object = field(default=None)


class Found(NamedTuple):
    """An operation as it stands in the document: the name that it has for the model, and the one it has there."""

    name: str
    own_name: str
    method: str
    path: str
    item: Json
    data: Json


@lru_cache(maxsize=64)
def operations_of(document: Document, selection: Selection = Selection()) -> tuple[Operation, ...]:  # noqa: B008  a value that never changes
    """The selected operations of a document, in its order."""
    chosen = [one for one in _found(document) if _is_chosen(one, selection)]
    _check_names(document, chosen, selection)
    schemas = Schemas(document)
    return tuple(_operation(document, schemas, one) for one in chosen)


def _found(document: Document) -> Iterator[Found]:
    taken: set[str] = set()
    paths = document.data.get("paths") or {}
    for path, item in document.followed(paths).items():
        if not path.startswith("/"):
            continue  # `x-…`
        whole = document.followed(item)
        for method in METHODS:
            if isinstance(data := whole.get(method), dict):
                own = str(data.get("operationId") or f"{method}{path}")
                yield Found(numbered(function_name(own), taken), own, method, path, whole, data)


def _is_chosen(one: Found, selection: Selection) -> bool:
    tags = one.data.get("tags") if isinstance(one.data.get("tags"), list) else []
    names = {one.name, one.own_name}
    return (
        (selection.operations is None or not names.isdisjoint(selection.operations))
        and (selection.tags is None or any(tag in selection.tags for tag in cast(list[object], tags)))
        and (selection.methods is None or one.method in {method.lower() for method in selection.methods})
    )


def _check_names(document: Document, chosen: list[Found], selection: Selection) -> None:
    """A name that no operation has is a mistake, and so is a choice of nothing."""
    known = {name for one in chosen for name in (one.name, one.own_name)}
    missing = [name for name in selection.operations or () if name not in known]
    if missing:
        raise ToolError(f"{document.source}: no operation is called '{missing[0]}'", "Correct it under `operations:`.")
    if not chosen:
        raise ToolError(f"{document.source}: no operation is left", "Correct `operations:`, `tags:` or `methods:`.")


def _operation(document: Document, schemas: Schemas, one: Found) -> Operation:
    place = f"{one.method.upper()} {one.path}"
    try:
        return _projected(document, schemas, one)
    except ToolError as error:
        raise ToolError(f"{error.cause} (in {place})", error.fix) from None
    except RecursionError:
        document.refuse(f"the schemas of {place} are nested too deep", "Make them flatter")


def _projected(document: Document, schemas: Schemas, one: Found) -> Operation:
    needs: set[str] = set()
    parameters = _parameters(document, one)
    taken = {parameter.argument for parameter, _ in parameters}
    body, fields = read_body(document, one.data.get("requestBody"), taken)
    described = [_described(document, parameter, data) for parameter, data in parameters]
    all_fields = [*described, *fields]
    schema: Json = {
        "type": "object",
        "properties": {
            one.argument: _with_description(schemas.converted(one.schema, needs), one) for one in all_fields
        },
        "required": [one.argument for one in all_fields if one.required],
        "additionalProperties": False,
    }
    if definitions := schemas.definitions(needs):
        schema["$defs"] = definitions
    if not is_legal(schema):
        document.refuse("a schema is not legal JSON Schema", "Correct it")
    return Operation(
        function=Function(name=one.name, description=_description(one.data), parameters=schema),
        method=one.method.upper(),
        path=one.path,
        parameters=tuple(parameter for parameter, _ in parameters),
        body=body,
        server=_own_server(one),
        security=one.data.get("security", document.data.get("security")),
    )


def _description(data: Json) -> str | None:
    summary, more = clean_description(data.get("summary")), clean_description(data.get("description"))
    text = summary if more.startswith(summary) and summary == more else f"{summary}\n\n{more}"
    return clean_description(text) or None


def _with_description(schema: object, one: Field) -> object:
    """A parameter's own description says more than that of its schema."""
    text = clean_description(one.description)
    if not text:
        return schema
    return {**schema, "description": text} if isinstance(schema, dict) else {"description": text}


def _own_server(one: Found) -> str | None:
    servers = one.data.get("servers") or one.item.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    return server_url(first) if isinstance(first, dict) else None


def server_url(server: Mapping[str, object]) -> str:
    """The URL of a server, with its variables at their defaults."""
    url, variables = str(server.get("url", "")), server.get("variables")
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        if isinstance(variable, dict):
            url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
    return url


def _parameters(document: Document, one: Found) -> list[tuple[Parameter, Json]]:
    """The parameters of an operation: those of its path that it does not replace, then its own."""
    by_place: dict[tuple[str, str], Json] = {}
    for data in [*_listed(one.item), *_listed(one.data)]:
        found = document.followed(data)
        name, place = found.get("name"), found.get("in")
        if isinstance(name, str) and place in _PLACES and not (place == "header" and name.lower() in _OWN_HEADERS):
            by_place[name, place] = found
    repeated = Counter(argument_name(name) for name, _ in by_place)
    taken: set[str] = set()
    parameters = []
    for (name, place), data in by_place.items():
        plain = argument_name(name)
        argument = numbered(plain if repeated[plain] == 1 else argument_name(f"{place}_{plain}"), taken)
        parameters.append((_parameter(document, argument, data), data))
    return parameters


def _listed(data: Json) -> list[object]:
    found = data.get("parameters")
    return found if isinstance(found, list) else []


def _parameter(document: Document, argument: str, data: Json) -> Parameter:
    place = cast(Place, data["in"])
    style = str(data.get("style") or _DEFAULT_STYLES[place])
    if style not in _STYLES[place]:
        document.refuse(f"the style '{style[:40]}' of '{argument}' is none of a {place} parameter", "Correct it")
    explode = data.get("explode")
    return Parameter(
        argument=argument,
        name=cast(str, data["name"]),
        place=place,
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
        reserved=data.get("allowReserved") is True,
        as_json="schema" not in data and isinstance(data.get("content"), dict),
    )


def _described(document: Document, parameter: Parameter, data: Json) -> Field:
    """A parameter as one of the arguments; one with `content` has its schema inside."""
    schema: object = data.get("schema", {})
    content = data.get("content")
    if parameter.as_json and isinstance(content, dict) and content:
        schema = document.followed(next(iter(content.values()))).get("schema", {})
    required = data.get("required") is True or parameter.place == "path"
    return Field(parameter.argument, schema, required, data.get("description"))
