"""What a file says, as definitions (003 §2.3–§2.9)."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from pydantic import BaseModel, SecretStr, TypeAdapter

from prompty import PromptAgent, loads
from prompty.model.agent import Frontmatter
from prompty.model.connection import Connection
from prompty.model.property import Property
from prompty.model.tool import CustomTool, FunctionTool, McpTool, OpenApiTool, PromptyTool, SkillsTool
from prompty.pipeline.frontmatter import split
from scripts.write_schema import PATH, schema_text

CONNECTIONS: dict[str, dict[str, Any]] = {
    "key": {"endpoint": "e", "apiKey": "k", "apiVersion": "v"},
    "reference": {"name": "n", "target": "t"},
    "remote": {"name": "n", "endpoint": "e", "target": "t", "authenticationMode": "m"},
    "anonymous": {"endpoint": "e"},
    "foundry": {"endpoint": "e", "name": "n", "connectionType": "c", "apiVersion": "v"},
    "oauth": {
        "endpoint": "e",
        "authenticationMode": "m",
        "clientId": "i",
        "clientSecret": "s",
        "tokenUrl": "u",
        "scopes": ["a"],
    },
}


def connection_of(data: dict[str, Any]) -> BaseModel:
    connection: BaseModel = TypeAdapter(Connection).validate_python(data)
    return connection


@pytest.mark.spec("003 §2.5", "six kinds of connection")
@pytest.mark.parametrize(("kind", "fields"), CONNECTIONS.items(), ids=CONNECTIONS)
def test_each_kind_of_connection_keeps_its_fields(kind: str, fields: dict[str, Any]) -> None:
    connection = connection_of({"kind": kind, **fields})
    dumped = json.loads(connection.model_dump_json())
    assert dumped["kind"] == kind
    for name, value in fields.items():
        assert dumped[name] == ("**********" if name in ("apiKey", "clientSecret") else value)


@pytest.mark.spec("003 §2.5", "a connection without its required fields does not load")
@pytest.mark.parametrize("kind", CONNECTIONS)
def test_a_connection_loads_without_its_required_fields(kind: str) -> None:
    assert connection_of({"kind": kind}).model_dump()["kind"] == kind


OBVIOUS = {
    "key": {"apiKey": "k"},
    "reference": {"name": "n"},
    "remote": {"endpoint": "e", "target": "t"},
    "anonymous": {"endpoint": "e"},
    "foundry": {"endpoint": "e", "connectionType": "c"},
    "oauth": {"endpoint": "e", "clientId": "i"},
}


@pytest.mark.parametrize(("kind", "fields"), OBVIOUS.items(), ids=OBVIOUS)
def test_the_kind_of_a_connection_may_be_left_out_when_its_fields_tell(kind: str, fields: dict[str, Any]) -> None:
    assert connection_of(fields).model_dump()["kind"] == kind


OPTIONS = {
    "temperature": 0.5,
    "maxOutputTokens": 10,
    "topP": 0.9,
    "topK": 3,
    "frequencyPenalty": 0.1,
    "presencePenalty": 0.2,
    "seed": 7,
    "stopSequences": ["a", "b"],
    "reasoningEffort": "low",
    "allowMultipleToolCalls": False,
    "additionalProperties": {"logprobs": True},
}


@pytest.mark.spec("003 §2.6", "all options")
def test_all_options_are_read() -> None:
    agent = PromptAgent.model_validate({"model": {"options": OPTIONS}})
    assert agent.model.options.model_dump(mode="json") == OPTIONS
    assert agent.model.options.max_output_tokens == 10


def test_an_option_may_come_from_the_environment_as_text() -> None:
    agent = loads(
        "---\nmodel: {options: {temperature: '${env:T}', maxOutputTokens: '${env:M:7}'}}\n---\n", env={"T": "0.5"}
    )
    assert (agent.model.options.temperature, agent.model.options.max_output_tokens) == (0.5, 7)


@pytest.mark.spec("003 §2.4", "the API type is chat unless the file says otherwise")
@pytest.mark.spec(
    "004 When to Use Responses API vs Chat Completions", "the API type is chat unless the file says otherwise"
)
@pytest.mark.spec("003 §2.4", "a string is the model's id")
@pytest.mark.spec("003 §2.4", "a model without a provider has none")
def test_a_model_as_text_is_its_id() -> None:
    short, full = loads("---\nmodel: gpt-4\n---\n"), loads("---\nmodel: {id: gpt-4}\n---\n")
    assert short == full
    assert (short.model.id, short.model.provider, short.model.api_type) == ("gpt-4", "openai", "chat")


@pytest.mark.spec("003 §2.3", "every property of the frontmatter is read")
@pytest.mark.spec("003 §2.4", "a model has an id, a provider, an API type, a connection and options")
def test_every_property_of_a_file_is_read() -> None:
    agent = loads("""---
name: n
displayName: D
description: d
metadata: {authors: [a]}
model:
  id: m
  provider: anthropic
  apiType: responses
  connection: {kind: anonymous, endpoint: e}
  options: {temperature: 0.5}
inputs: {i: {kind: string}}
outputs: {o: {kind: integer}}
tools: [{name: t, kind: function}]
template: mustache
---
""")
    assert (agent.name, agent.display_name, agent.description, agent.metadata) == ("n", "D", "d", {"authors": ["a"]})
    assert (agent.model.id, agent.model.provider, agent.model.api_type) == ("m", "anthropic", "responses")
    assert agent.model.connection == connection_of({"kind": "anonymous", "endpoint": "e"})
    assert agent.model.options.temperature == 0.5
    assert [(one.name, one.kind) for one in (*agent.inputs, *agent.outputs)] == [("i", "string"), ("o", "integer")]
    assert ([tool.name for tool in agent.tools], agent.template.format.kind) == (["t"], "mustache")


SCALARS: dict[str, tuple[Any, str]] = {
    "text": ("Jane", "string"),
    "whole": (5, "integer"),
    "decimal": (0.5, "float"),
    "truth": (True, "boolean"),
    "list": ([1, 2], "array"),
    "mapping": ({"a": 1, "type": "x"}, "object"),
}


@pytest.mark.spec("003 §2.7", "a scalar is a default")
@pytest.mark.spec("003 §2.7", "the kind is inferred")
@pytest.mark.parametrize(("value", "kind"), SCALARS.values(), ids=SCALARS)
def test_a_value_stands_for_a_property_with_that_default(value: Any, kind: str) -> None:
    [found] = PromptAgent.model_validate({"inputs": {"x": value}}).inputs
    assert (found.name, found.kind, found.default) == ("x", kind, value)


@pytest.mark.spec("003 §2.7", "a map in place of a property is a default")
@pytest.mark.parametrize(
    "entry", [{"description": "d"}, {"required": True}, {"example": "e"}, {"enumValues": ["a"]}, {"kind": "string"}]
)
def test_a_mapping_with_any_key_of_a_property_is_a_property(entry: dict[str, Any]) -> None:
    [found] = PromptAgent.model_validate({"inputs": {"x": entry}}).inputs
    assert (found.kind, found.default) == ("string", None)


INFERRED: dict[str, tuple[dict[str, Any], str]] = {
    "from a default": ({"default": 3}, "integer"),
    "from items": ({"items": {"kind": "string"}}, "array"),
    "from properties": ({"properties": {"a": 1}}, "object"),
    "from nothing": ({"description": "d"}, "string"),
    "said": ({"kind": "float", "default": 3}, "float"),
}


@pytest.mark.parametrize(("entry", "kind"), INFERRED.values(), ids=INFERRED)
def test_a_property_without_a_kind_has_it_inferred(entry: dict[str, Any], kind: str) -> None:
    assert Property.model_validate({"name": "x", **entry}).kind == kind


@pytest.mark.spec("003 §2.7", "all kinds")
@pytest.mark.parametrize(
    "kind", ["string", "integer", "float", "boolean", "array", "object", "thread", "image", "file", "audio"]
)
def test_all_kinds_of_property(kind: str) -> None:
    assert Property.model_validate({"name": "x", "kind": kind}).kind == kind


@pytest.mark.spec("003 §2.7", "a property has a description, an example and allowed values")
def test_a_property_keeps_what_the_file_says_of_it() -> None:
    told = {"description": "d", "required": True, "default": "a", "example": "b", "enumValues": ["a", "b"]}
    [found] = PromptAgent.model_validate({"inputs": {"x": told}}).inputs
    assert (found.description, found.required, found.default) == ("d", True, "a")
    assert (found.example, list(found.enum_values or [])) == ("b", ["a", "b"])


@pytest.mark.spec("003 §2.3", "inputs and outputs are a list or a map")
def test_list_and_map_forms_are_the_same_also_nested() -> None:
    listed = {
        "outputs": [
            {
                "name": "a",
                "kind": "object",
                "properties": [
                    {
                        "name": "b",
                        "kind": "array",
                        "items": {"kind": "object", "properties": [{"name": "c", "kind": "string"}]},
                    }
                ],
            }
        ]
    }
    mapped = {"outputs": {"a": {"properties": {"b": {"items": {"properties": {"c": {"kind": "string"}}}}}}}}
    assert PromptAgent.model_validate(listed).outputs == PromptAgent.model_validate(mapped).outputs


TOOLS: dict[str, tuple[dict[str, Any], type[BaseModel], dict[str, Any]]] = {
    "function": (
        {"kind": "function", "parameters": {"a": {"kind": "integer"}}, "strict": True},
        FunctionTool,
        {"strict": True},
    ),
    "prompty": ({"kind": "prompty", "path": "./x.prompty"}, PromptyTool, {"path": "./x.prompty", "mode": "single"}),
    "mcp": (
        {"kind": "mcp", "serverName": "s", "approvalMode": {"kind": "always"}, "allowedTools": ["a"]},
        McpTool,
        {"server_name": "s", "approval_mode": {"kind": "always"}, "allowed_tools": ("a",)},
    ),
    "openapi": ({"kind": "openapi", "specification": "./a.json"}, OpenApiTool, {"specification": "./a.json"}),
    "skills": ({"kind": "skills", "path": "./skills"}, SkillsTool, {"path": "./skills"}),
}


@pytest.mark.spec("003 §2.9", "every tool has a name, a description and bindings")
@pytest.mark.spec("003 §2.9", "tools are a list, and their kind says what they are")
@pytest.mark.spec("003 §2.9.2", "the mode is single unless the file says otherwise")
@pytest.mark.spec("003 §2.9", "four known kinds")
@pytest.mark.spec("003 §2.9.2", "a prompty tool has a path and a mode")
@pytest.mark.parametrize(("data", "definition", "fields"), TOOLS.values(), ids=TOOLS)
def test_known_kinds_of_tool(data: dict[str, Any], definition: type[BaseModel], fields: dict[str, Any]) -> None:
    [tool] = PromptAgent.model_validate({"tools": [{"name": "t", "description": "d", **data}]}).tools
    assert type(tool) is definition
    assert (tool.name, tool.description) == ("t", "d")
    for name, value in fields.items():
        assert getattr(tool, name) == value


@pytest.mark.spec("003 §2.9", "an unknown kind is a custom tool")
@pytest.mark.parametrize("kind", ["*", "my_provider", "Function", "sql"])
def test_any_other_kind_is_a_custom_tool(kind: str) -> None:
    [tool] = PromptAgent.model_validate({"tools": [{"name": "t", "kind": kind, "options": {"a": 1}}]}).tools
    assert isinstance(tool, CustomTool)
    assert (tool.kind, tool.options) == (kind, {"a": 1})


@pytest.mark.spec("003 §2.9", "a custom tool has options and a connection")
def test_a_custom_tool_has_options_and_a_connection() -> None:
    told = {"kind": "anonymous", "endpoint": "e"}
    data = {"name": "t", "kind": "sql", "options": {"a": 1}, "connection": told}
    [tool] = PromptAgent.model_validate({"tools": [data]}).tools
    assert isinstance(tool, CustomTool)
    assert (tool.options, tool.connection) == ({"a": 1}, connection_of(told))


@pytest.mark.spec("003 §2.9.1", "a bound value is always static")
@pytest.mark.spec("003 §2.9", "every tool has a name, a description and bindings")
def test_a_binding_is_a_secret_value_or_an_input_s_name() -> None:
    bindings = {"a": 3, "b": {"input": "who"}, "c": {"input": "x", "more": 1}, "d": [1]}
    [tool] = PromptAgent.model_validate({"tools": [{"name": "t", "kind": "function", "bindings": bindings}]}).tools
    values = {name: one.value.get_secret_value() for name, one in tool.bindings.items() if one.value}
    assert values == {"a": 3, "c": {"input": "x", "more": 1}, "d": [1]}
    assert tool.bindings["b"].input == "who"


@pytest.mark.spec("003 §2.8", "no template means jinja2 and prompty")
@pytest.mark.spec("003 §2.8", "a string is the format kind")
@pytest.mark.parametrize(
    ("frontmatter", "engine"),
    [
        ("name: x", "jinja2"),
        ("template: mustache", "mustache"),
        ("template: {format: {kind: mustache}}", "mustache"),
        ("template: {parser: {kind: prompty}}", "jinja2"),
    ],
)
def test_template(frontmatter: str, engine: str) -> None:
    template = loads(f"---\n{frontmatter}\n---\n").template
    assert (template.format.kind, template.parser.kind) == (engine, "prompty")


def test_names_are_snake_case_here_and_camel_case_in_the_file() -> None:
    agent = PromptAgent.model_validate({"displayName": "D", "model": {"apiType": "responses"}})
    assert (agent.display_name, agent.model.api_type) == ("D", "responses")
    assert agent.model_dump()["displayName"] == "D"
    assert PromptAgent(display_name="D").display_name == "D"


def test_a_key_is_a_secret_type() -> None:
    connection = loads("---\nmodel: {connection: {kind: key, apiKey: k}}\n---\n").model.connection
    assert isinstance(getattr(connection, "api_key", None), SecretStr)


def test_the_schema_in_the_repository_is_fresh() -> None:
    assert PATH.read_text(encoding="utf-8") == schema_text(), "run: make docs"


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.prompty"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_schema_accepts_the_examples(file: Path) -> None:
    frontmatter = yaml.safe_load(split(file.read_text(encoding="utf-8")).frontmatter or "{}")
    jsonschema_rs.Draft202012Validator(json.loads(schema_text())).validate(frontmatter)


SHORT_AND_WRONG: dict[str, tuple[dict[str, Any], bool]] = {
    "model as text": ({"model": "gpt-4"}, True),
    "template as text": ({"template": "mustache"}, True),
    "inputs as a map": ({"inputs": {"a": 1}}, True),
    "unknown keys": ({"anything": 1}, True),
    "a reference": ({"model": {"options": {"additionalProperties": {"x": "${env:X}"}}}}, True),
    "a connection without a kind": ({"model": {"connection": {"endpoint": "e"}}}, True),
    "a connection of no known kind": ({"model": {"connection": {"kind": "x"}}}, False),
    "items without a name": ({"outputs": [{"name": "a", "kind": "array", "items": {"kind": "string"}}]}, True),
    "a kind of property nobody knows": ({"outputs": [{"name": "a", "kind": "date"}]}, False),
    "a tool of one's own kind": ({"tools": [{"name": "a", "kind": "sql"}]}, True),
    "a prompty tool without a path": ({"tools": [{"name": "a", "kind": "prompty"}]}, False),
    "a number as a name": ({"name": 1}, False),
    "tools as text": ({"tools": "x"}, False),
}


@pytest.mark.parametrize(("data", "valid"), SHORT_AND_WRONG.values(), ids=SHORT_AND_WRONG)
def test_the_schema_knows_the_short_forms(data: dict[str, Any], valid: bool) -> None:
    schema = Frontmatter.model_json_schema(by_alias=True, mode="validation")
    assert jsonschema_rs.Draft202012Validator(schema).is_valid(data) is valid
