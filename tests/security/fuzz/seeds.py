"""Valid inputs that mutations start from: the shared corpora where they are at hand, and some of our own."""

import json
from functools import cache
from typing import Any

import yaml

from prompty import ToolCall, Usage
from prompty.model.message import Reply
from prompty.testing.encoding import WIRES
from tests.public_data import SHARED

MAX_SEED = 3_000

FRONTMATTER: dict[str, Any] = {
    "name": "desk",
    "description": "Keeps the books",
    "metadata": {"authors": ["a"], "tags": ["x"], "reasoning": "none"},
    "model": {
        "id": "m",
        "provider": "openai",
        "apiType": "chat",
        "connection": {"kind": "key", "endpoint": "https://a.example", "apiKey": "${env:KEY}"},
        "options": {
            "temperature": 0.5,
            "maxOutputTokens": 10,
            "stopSequences": ["x"],
            "additionalProperties": {"a": 1},
        },
    },
    "inputs": [
        {"name": "q", "kind": "string", "default": "Hi", "enumValues": ["Hi", "Ho"], "required": True},
        {"name": "n", "kind": "array", "items": {"kind": "object", "properties": {"a": "integer"}}, "example": []},
        {"name": "p", "kind": "image"},
        {"name": "t", "kind": "thread", "sensitive": True},
    ],
    "outputs": {"answer": {"kind": "object", "properties": {"x": {"kind": "float", "description": "d"}}}},
    "tools": [
        {
            "name": "pay",
            "kind": "function",
            "description": "Pays",
            "parameters": [{"name": "amount", "kind": "integer", "default": 1}, {"name": "to", "kind": "string"}],
            "bindings": {"to": {"input": "q"}},
            "approvalMode": {"when": {"amount": {"minimum": 100}}},
            "strict": True,
        },
        {"name": "files", "kind": "mcp", "serverName": "s", "allowedTools": ["a"], "approvalMode": {"kind": "never"}},
        {"name": "api", "kind": "openapi", "specification": "./api.json", "connection": {"kind": "anonymous"}},
        {"name": "child", "kind": "prompty", "path": "./child.prompty", "mode": "single"},
    ],
    "template": {"format": {"kind": "jinja2"}, "parser": {"kind": "prompty"}},
}
BODIES = (
    'system:\nBe brief.\n\nuser[name="{{ n }}"]:\n{{ q }}\n',
    "{% for a in n %}{{ a.x|upper }}{% else %}none{% endfor %}{% if q is defined %}{{ q[:3] }}{% endif %}",
    "{% macro m(a, b=2) %}{{ a ~ b }}{% endmacro %}{{ m(q) }}{% set ns = namespace(i=0) %}{% set ns.i = ns.i + 1 %}",
    "{{ n|map(attribute='a')|join(', ') }}{{ n|tojson }}{{ '%s'|format(q) }}{{ q.replace('a', 'b') }}{# c #}",
    "{{#n}}{{a}}{{^b}}-{{/b}}{{/n}}{{{q}}}{{&q}}{{!c}}{{=<% %>=}}<%q%>",
    "assistant:\n{% raw %}{{ x }}{% endraw %}\n# user:\n{{ n[0].a }}\ntool[a=1,b='c']:\n{{ p }}",
)


@cache
def prompts() -> tuple[str, ...]:
    """Return texts of prompt files."""
    own = [f"---\n{yaml.safe_dump(FRONTMATTER, sort_keys=False)}---\n{body}" for body in BODIES]
    own += [f"---\nname: x\n---\n{body}" for body in BODIES]
    files = sorted([*SHARED.glob("corpus/**/*.prompty"), *SHARED.glob("vectors/fixtures/*.prompty")])
    return (*own, *(text for file in files if len(text := file.read_text(encoding="utf-8")) <= MAX_SEED))


@cache
def frontmatters() -> tuple[Any, ...]:
    """Return the data of frontmatters."""
    found = [FRONTMATTER, *({name: value} for name, value in FRONTMATTER.items())]
    found += [one["input"]["frontmatter"] for one in _vectors("load") if "frontmatter" in one["input"]]
    return tuple(found)


@cache
def templates() -> tuple[str, ...]:
    bodies = [text.partition("\n---\n")[2] for text in prompts()]
    return (*BODIES, *(one["input"]["template"] for one in _vectors("render")), *filter(None, bodies))


@cache
def inputs() -> tuple[Any, ...]:
    own = {
        "q": "What?",
        "n": [{"a": 1, "x": "y"}, {"a": None}],
        "p": "data:image/png;base64,AA==",
        "x": {"y": [1, "z"]},
    }
    return (own, {"t": [{"role": "user", "content": "Hi"}]}, *(one["input"]["inputs"] for one in _vectors("render")))


@cache
def rendered() -> tuple[str, ...]:
    return (*BODIES, *(one["input"]["rendered"] for one in _vectors("parse")), 'user[a="b", c=1]:\nHi\n\nassistant:\nx')


def _vectors(name: str) -> list[Any]:
    path = SHARED / "vectors" / f"{name}.json"
    found: list[Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return found


CALLS = (
    ToolCall(id="call_1", name="pay", arguments='{"amount": 5, "to": "a"}'),
    ToolCall(id="call_2", name="look", arguments='{"at": "the sky"}', extra={"google": {"s": "x"}}),
)
REPLIES = (
    Reply(text="Hello there, you.", id="r1", model="m", usage=Usage(input_tokens=3, output_tokens=2)),
    Reply(text='{"answer": {"x": 1.5}}', reasoning="Well then.", id="r2", model="m", finish_reason="length"),
    Reply(
        tool_calls=CALLS, id="r3", model="m", opaque={"reasoning_details": [{"type": "reasoning.text", "text": "t"}]}
    ),
    Reply(text="Both.", tool_calls=CALLS[:1], reasoning="Hm.", id="r4", model="m", opaque={"encrypted_content": "e"}),
    Reply(refusal="No.", id="r5", model="m", finish_reason="content_filter"),
)
EMBEDDINGS = {
    "object": "list",
    "data": [{"index": 0, "embedding": [0.1, 2]}],
    "model": "m",
    "usage": {"prompt_tokens": 1},
}
IMAGES = {
    "created": 1,
    "data": [{"url": "https://a.example/i.png"}, {"b64_json": "AA=="}],
    "usage": {"input_tokens": 1},
}
APIS = {"/chat/completions": "chat", "/responses": "responses", "/v1/messages": "messages"}


@cache
def answers() -> tuple[tuple[str, Any], ...]:
    """Return the API and the JSON of whole answers."""
    own = [(APIS[path], wire.whole(reply)) for path, wire in WIRES.items() for reply in REPLIES]
    shared = [_as_answer(one["input"]) for one in _vectors("process")]
    failed = {"error": {"message": "m", "type": "overloaded_error", "code": 5}}
    rest = [("embedding", EMBEDDINGS), ("image", IMAGES), ("responses", {**failed, "status": "failed", "output": []})]
    return (*own, *shared, *rest, *((api, failed) for api in APIS.values()))


def _as_answer(data: Any) -> tuple[str, Any]:
    return "messages" if data["provider"] == "anthropic" else data["apiType"], data["response"]


@cache
def streams() -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return the API and the events of streams."""
    return tuple(
        (
            APIS[path],
            tuple(json.loads(event.partition(b"data: ")[2]) for event in wire.events(reply) if b"[DONE]" not in event),
        )
        for path, wire in WIRES.items()
        for reply in REPLIES
    )


SCHEMAS: tuple[Any, ...] = (
    {"type": "object", "properties": {"amount": {"type": "integer", "minimum": 1}, "to": {"type": "string"}}},
    {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 3},
            "b": {"enum": [1, "x", None]},
            "c": {"anyOf": [{"type": "number"}, {"type": "object", "additionalProperties": False}]},
            "d": {"type": "string", "pattern": "^[a-z]+$", "format": "date"},
        },
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}, "v": {"type": "number"}}}},
    },
    {"type": "object", "additionalProperties": {"type": "string"}, "propertyNames": {"maxLength": 5}},
    {},
)
ARGUMENTS: tuple[Any, ...] = (
    {"amount": 5, "to": "a"},
    {"a": [{"n": {"n": {"v": 1.5}}}], "b": "x", "c": {}, "d": "abc"},
    {"x": "y", "": "é"},
    {},
)
OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "servers": [{"url": "https://{h}.example/v1", "variables": {"h": {"default": "a", "enum": ["a"]}}}],
    "security": [{"key": []}],
    "paths": {
        "/pets/{id}": {
            "parameters": [{"$ref": "#/components/parameters/id"}],
            "get": {
                "operationId": "getPet",
                "summary": "Gets",
                "tags": ["pets"],
                "parameters": [
                    {"name": "q", "in": "query", "style": "deepObject", "explode": True, "schema": {"type": "object"}},
                    {"name": "h", "in": "header", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "c", "in": "cookie", "required": True, "content": {"application/json": {"schema": {}}}},
                ],
                "responses": {"200": {"description": "d"}},
            },
            "put": {
                "operationId": "putPet",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/x-www-form-urlencoded": {
                            "schema": {"$ref": "#/components/schemas/Pet"},
                            "encoding": {"tags": {"style": "pipeDelimited", "contentType": "text/plain"}},
                        }
                    },
                },
            },
        }
    },
    "components": {
        "parameters": {
            "id": {"name": "id", "in": "path", "required": True, "style": "simple", "schema": {"type": "string"}}
        },
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "nullable": True, "maxLength": 9, "pattern": "^a", "readOnly": False},
                    "tags": {"type": "array", "items": {"$ref": "#/components/schemas/Tag"}},
                    "kind": {"oneOf": [{"const": 1}, {"enum": ["a"]}], "discriminator": {"propertyName": "x"}},
                },
                "allOf": [{"properties": {"more": {"exclusiveMinimum": True, "minimum": 1}}}],
            },
            "Tag": {"type": "object", "properties": {"pet": {"$ref": "#/components/schemas/Pet"}}},
        },
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "b": {"type": "http", "scheme": "bearer"},
        },
    },
}


@cache
def documents() -> tuple[Any, ...]:
    """Return OpenAPI documents: one of ours, and single operations of the shared one with the schemas they need."""
    path = SHARED / "openapi" / "openai.json"
    if not path.exists():
        return (OPENAPI,)
    whole = json.loads(path.read_text(encoding="utf-8"))
    single = [
        {**whole, "paths": {name: item}, "components": _needed(whole, item)} for name, item in whole["paths"].items()
    ]
    return (OPENAPI, *(one for one in single if len(json.dumps(one)) <= 2 * MAX_SEED))


def _needed(whole: Any, value: Any) -> dict[str, Any]:
    """Return the components that a value refers to, and those that they refer to."""
    found: dict[str, Any] = {}
    queue = [value]
    while queue:
        match queue.pop():
            case {"$ref": str(reference)}:
                _, _, section, name = reference.split("/")
                if name not in found.setdefault(section, {}):
                    found[section][name] = whole["components"][section][name]
                    queue.append(found[section][name])
            case dict(entries):
                queue += entries.values()
            case list(entries):
                queue += entries
    return found


MCP_TOOLS: dict[str, Any] = {
    "tools": [
        {
            "name": "print",
            "title": "Print",
            "description": "Prints a text",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "string", "description": "d"}},
                "required": ["a"],
            },
            "outputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
            "_meta": {"x": 1},
        },
        {
            "name": "a.b/c",
            "inputSchema": {"type": "object", "$defs": {"n": {}}, "properties": {"n": {"$ref": "#/$defs/n"}}},
        },
    ],
    "nextCursor": None,
}
MCP_RESULTS: tuple[dict[str, Any], ...] = (
    {"content": [{"type": "text", "text": "printed"}], "isError": False},
    {
        "content": [
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "audio", "data": "AA==", "mimeType": "a/b"},
        ]
    },
    {
        "content": [
            {"type": "resource_link", "name": "n", "uri": "file:///a", "description": "d"},
            {"type": "resource", "resource": {"uri": "file:///a/b", "mimeType": "text/plain", "text": "t"}},
            {"type": "resource", "resource": {"uri": "file:///a/b", "mimeType": "image/png", "blob": "AA=="}},
        ],
        "structuredContent": {"a": [1, None, {"b": 2.5}]},
        "isError": True,
    },
    {"content": [], "structuredContent": {"a": 1}},
)
MCP_MESSAGES: tuple[dict[str, Any], ...] = (
    {"jsonrpc": "2.0", "id": 1, "result": MCP_RESULTS[0]},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "Connection closed", "data": {"a": 1}}},
    {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"level": "info", "data": {"m": "x"}, "logger": "l"},
    },
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 0.5, "total": 1}},
)
