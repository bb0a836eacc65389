"""Schemas that lead out of themselves, and the places that take schemas from outside.

As a program, it gives all schemas to one place under an audit hook: `python -m tests.security.foreign_schemas PLACE
FOLDER URL`. It prints the events that touch anything planted, and the texts that each place has for each schema.
"""

import json
import runpy
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types

from prompty import PromptyError, loads, turn
from prompty.loop.effects import OfferedTool
from prompty.loop.tool_step import Toolset
from prompty.testing import Script
from prompty.testing.script import create_call
from prompty.tools import Function
from prompty.tools.mcp.content import describe_tools
from prompty.tools.openapi.document import parse_document
from prompty.tools.openapi.operations import list_operations
from tests.tools.openapi_parts import one_operation

SECRET = "planted-value-51c7"
PLANTED = ("planted.json", "planted.fifo")  # beside the prompts; names that occur in nothing else
LOOK_UPS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
Json = dict[str, Any]
Action = Callable[[], object]

_REFERENCES = {
    "a file": "FILE",
    "a value in a file": "FILE#/const",
    "a file on this host": "FILE_ON_HOST",
    "a file in capitals": "FILE_IN_CAPITALS",
    "a pipe": "FIFO",
    "a server": "URL/x",
    "a value at a server": "URL/x#/const",
    "a server in capitals": "URL_IN_CAPITALS/x",
    "a server with a user": "URL_WITH_USER/x",
    "a neighbour": "planted.json",
    "a neighbour by dots": "./planted.json#/const",
    "a pipe beside": "planted.fifo",
    "a host alone": "//HOST/x",
}
_OLD = "http://json-schema.org/draft-0{}/schema#"
_NEW = "https://json-schema.org/draft/20{}/schema"
SCHEMAS: dict[str, Json] = {
    **{f"$ref to {name}": {"$ref": reference} for name, reference in _REFERENCES.items()},
    "in properties": {"properties": {"a": {"$ref": "FILE"}}},
    "in items": {"items": {"$ref": "URL/x"}},
    "in prefixItems": {"prefixItems": [{"$ref": "FILE"}]},
    "in allOf": {"allOf": [{"anyOf": [{"oneOf": [{"$ref": "URL/x"}]}]}]},
    "in not": {"not": {"$ref": "FILE#/const"}},
    "in if": {"if": {"$ref": "URL/x"}, "then": {"$ref": "FILE"}, "else": {"$ref": "FIFO"}},
    "in $defs": {"$defs": {"a": {"$ref": "FILE"}}, "$ref": "#/$defs/a"},
    "in unused $defs": {"$defs": {"a": {"$ref": "URL/x"}}},
    "in dependentSchemas": {"dependentSchemas": {"a": {"$ref": "URL/x"}}},
    "in patternProperties": {"patternProperties": {"^a": {"$ref": "FILE"}}, "propertyNames": {"$ref": "URL/x"}},
    "in unevaluatedProperties": {"unevaluatedProperties": {"$ref": "FILE"}, "unevaluatedItems": {"$ref": "URL/x"}},
    "in contentSchema": {"contentMediaType": "application/json", "contentSchema": {"$ref": "URL/x"}},
    "$dynamicRef to a server": {"$dynamicRef": "URL/x#node"},
    "$dynamicRef to a file": {"$dynamicRef": "FILE#node"},
    "$dynamicRef by $id": {"$id": "URL/base/", "$dynamicAnchor": "node", "items": {"$dynamicRef": "x#node"}},
    "$recursiveRef": {"$schema": _NEW.format("19-09"), "$recursiveRef": "URL/x"},
    "$id of a server": {"$id": "URL/base/", "$ref": "x"},
    "$id of a folder": {"$id": "FOLDER/", "$ref": "planted.json"},
    "$id inside": {"properties": {"a": {"$id": "FOLDER/", "items": {"$ref": "planted.fifo"}}}},
    "id of draft 4": {"$schema": _OLD.format(4), "id": "URL/base/", "allOf": [{"$ref": "x"}]},
    "draft 7": {"$schema": _OLD.format(7), "definitions": {"a": {"$id": "URL/y", "$ref": "FILE"}}, "$ref": "URL/x"},
    "$schema at a server": {"$schema": "URL/dialect"},
    "$schema in a file": {"$schema": "FILE"},
    "$schema in a pipe": {"$schema": "FIFO"},
    "$schema inside": {"$defs": {"a": {"$id": "urn:a", "$schema": "URL/dialect", "$ref": "URL/x"}}},
    "$schema and $ref": {"$schema": "URL/dialect", "$ref": "FILE", "$vocabulary": {"URL/words": True}},
    "references as data": {"enum": [{"$ref": "FILE"}], "default": {"$ref": "URL/x"}, "examples": [{"$ref": "FIFO"}]},
}


def write_schemas(folder: Path, url: str) -> dict[str, Json]:
    """Return the schemas with these places in them."""
    host = url.removeprefix("http://")
    places = {
        "FILE_ON_HOST": f"file://localhost{folder}/planted.json",
        "FILE_IN_CAPITALS": f"FILE://{folder}/planted.json",
        "FILE": f"file://{folder}/planted.json",
        "FIFO": f"file://{folder}/planted.fifo",
        "FOLDER": f"file://{folder}",
        "URL_IN_CAPITALS": f"HTTP://{host}",
        "URL_WITH_USER": f"http://a:b@{host}",
        "URL": url,
        "HOST": host,
    }
    text = json.dumps(SCHEMAS)
    for name, place in places.items():
        text = text.replace(name, place)
    return dict(json.loads(text))


def write_test_files(folder: Path, schemas: dict[str, Json]) -> None:
    """Write a test file for each schema, because a file with a mistake has no cases that run."""
    for number, schema in enumerate(schemas.values()):
        prompt, cases = folder / f"p{number}.prompty", folder / f"p{number}.test.yaml"
        prompt.write_text("---\nmodel: gpt-4o\ninputs: {q: {kind: string}}\n---\nuser:\nHi {{q}}\n")
        cases.write_text(f"cases:\n- {{inputs: {{q: x}}, expect: {{render: {{json_schema: {json.dumps(schema)}}}}}}}\n")


def run_program(*arguments: str) -> None:
    sys.argv = list(arguments)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def check(folder: Path, schemas: dict[str, Json]) -> None:
    write_test_files(folder, schemas)
    run_program("prompty", "check", str(folder))


def test(folder: Path, schemas: dict[str, Json]) -> None:
    write_test_files(folder, schemas)
    run_program("prompty", "test", str(folder))


def collect(folder: Path, schemas: dict[str, Json]) -> None:
    write_test_files(folder, schemas)
    (folder / "pytest.ini").write_text("[pytest]\nprompty_collect = true\n")
    run_program("pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "--rootdir", ".")


def list_functions(folder: Path, schema: Json) -> Iterator[Action]:
    """Parameters of a file's tools, and those of any tool as a turn is given them."""
    for parameters in ({"a": schema}, {"properties": {"a": schema}}, [{"name": "a", "kind": "object", **schema}]):
        tool = {"name": "act", "kind": "function", "parameters": parameters}
        yield partial(play, {"tools": [tool]}, tools={"act": act})
    inside: Json = {"type": "object", "properties": {"a": schema}}
    for whole in (schema, inside):
        yield partial(Toolset, [OfferedTool(function=Function(name="act", description=None, parameters=whole))])


def list_conditions(folder: Path, schema: Json) -> Iterator[Action]:
    """Conditions for approval, of the host and of the file."""
    policy = {"when": {"a": schema}}
    yield partial(play, {}, tools=[act], approval={"act": policy})
    tool = {"name": "act", "kind": "function", "parameters": {"a": "string"}, "approval": policy}
    yield partial(play, {"tools": [tool]}, tools={"act": act})


def list_api_operations(folder: Path, schema: Json) -> Iterator[Action]:
    """A parameter, a body and a component of an OpenAPI document."""
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    component = {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/a"}}}}}
    query = {"parameters": [{"name": "a", "in": "query", "schema": schema}]}
    dialect = {"jsonSchemaDialect": schema.get("$schema", "urn:none")}
    parts: list[tuple[Json, Json]] = [
        (query, {}),
        (body, dialect),
        (component, {"components": {"schemas": {"a": schema}}}),
    ]
    for operation, others in parts:
        document = one_operation(operation, method="post", **others)
        yield partial(offer_operations, json.dumps(document).encode())


def offer_operations(document: bytes) -> object:
    operations = list_operations(parse_document(document, "api.json"))
    return Toolset(OfferedTool(function=operation.function) for operation in operations)


def list_mcp_tools(folder: Path, schema: Json) -> Iterator[Action]:
    """The listing of an MCP server, as it comes over the wire."""
    for given in (schema, {"type": "object", "properties": {"a": schema}}):
        listing = json.dumps({"tools": [{"name": "act", "inputSchema": given, "outputSchema": given}]})
        tools = mcp_types.ListToolsResult.model_validate_json(listing).tools
        yield partial(lambda tools: list(describe_tools(tools, "own")), tools)


def list_outputs(folder: Path, schema: Json) -> Iterator[Action]:
    """The outputs of a file."""
    for outputs in ({"a": schema}, {"a": {"kind": "object", **schema}}, schema):
        yield partial(play, {"outputs": outputs})


def act(a: object = None) -> str:
    return "acted"


def play(parts: Json, **options: Any) -> object:
    """Load a file with these parts and run a turn in which the model calls `act`, and then answers with JSON."""
    text = json.dumps({"model": {"id": "m", "provider": "scripted"}, **parts})
    with Script(create_call("act", {"a": SECRET}), *[json.dumps({"a": SECRET})] * 3):
        return turn(loads(f"---\n{text}\n---\nuser:\nHi"), **options)


def try_all(list_actions: Callable[[Path, Json], Iterator[Action]]) -> Callable[[Path, dict[str, Json]], None]:
    """Return a place that writes down what each of its actions does with each schema: a result, or an error of ours."""

    def run(folder: Path, schemas: dict[str, Json]) -> None:
        for name, schema in schemas.items():
            for action in list_actions(folder, schema):
                try:
                    outcome = action()
                except PromptyError as error:
                    outcome = error
                sys.stdout.write(f"{name}: {type(outcome).__name__} {outcome}\n".replace(SECRET, "the argument"))

    return run


PLACES: dict[str, Callable[[Path, dict[str, Json]], None]] = {
    "prompty check": check,
    "prompty test": test,
    "pytest": collect,
    "function tools": try_all(list_functions),
    "approval conditions": try_all(list_conditions),
    "OpenAPI documents": try_all(list_api_operations),
    "MCP listings": try_all(list_mcp_tools),
    "outputs": try_all(list_outputs),
}


def watch(port: str) -> None:
    """Print each event of the interpreter that concerns a planted file or the server, and each look-up of a host."""

    def note(event: str, arguments: tuple[object, ...]) -> None:
        family, text = event.partition(".")[0], repr(arguments)
        touches = any(name in text for name in (port, *PLANTED))
        if event in LOOK_UPS or (family in ("open", "os", "socket", "subprocess") and touches):
            sys.stdout.write(f"AUDIT {event} {text}\n")

    sys.addaudithook(note)


if __name__ == "__main__":
    place, folder, url = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    warnings.simplefilter("ignore")
    schemas = write_schemas(folder, url)
    watch(url.rpartition(":")[2])
    PLACES[place](folder, schemas)
