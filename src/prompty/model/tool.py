"""The tools of a prompt (§2.9): built-in kinds, and custom kinds that a host registers."""

from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Secret, Tag, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from prompty.model.connection import Connection
from prompty.model.definition import Definition
from prompty.model.property import Properties


class Binding(Definition):
    """A parameter that the model never sees (§2.9.1). The host fills it with a fixed value or with an input."""

    input: str | None = None
    value: Secret[Any] | None = None
    # A text that is not the name of a declared input. An input of that name that the caller passes replaces it.
    is_plain: SkipJsonSchema[bool] = Field(False, exclude=True, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, _WrongEntry):
            raise PydanticCustomError("binding_entry", "expected a parameter, and an input or a value")
        if isinstance(value, dict) and tuple(value) in (("input",), ("value",)):
            return value
        return {"value": value, "is_plain": True} if isinstance(value, str) else {"value": value}

    @property
    def plain_text(self) -> str | None:
        """The text that can also be the name of an input, or None."""
        return self.value.get_secret_value() if self.is_plain and self.value is not None else None


def unwrap_properties(value: Any) -> Any:
    """Return the list in `{properties: […]}`, a form of §2.9.1, or any other value unchanged."""
    match value:
        case {"properties": list(parameters), **others} if not others and all(map(_is_mapping, parameters)):
            return parameters
    return value


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


Parameters = Annotated[Properties, BeforeValidator(unwrap_properties)]


class BindingEntry(Definition):
    """A binding in a list: the name of its parameter, and an input or a value."""

    name: str
    input: str | None = None
    value: Any = None


class _WrongEntry:
    """An entry of a list of bindings that cannot be read."""


def _bindings_to_mapping(value: Any) -> Any:
    """Return a list of bindings by parameter. An entry that is wrong keeps its index as its key, for the error."""
    if not isinstance(value, list | tuple):
        return value
    bindings = dict[str, Any]()
    for index, entry in enumerate(value):
        match entry:
            case {"name": str(name), "input": found} | {"name": str(name), "value": found} if (
                len(entry) == 2 and name not in bindings
            ):
                bindings[name] = {"input" if "input" in entry else "value": found}
            case _:
                bindings[str(index)] = _WrongEntry()
    return bindings


DeclaredBindings = Annotated[
    dict[str, Binding],
    BeforeValidator(_bindings_to_mapping, json_schema_input_type=dict[str, Binding | Any] | tuple[BindingEntry, ...]),
]


def _make_name_optional(schema: dict[str, Any]) -> None:
    """The key of a mapping of tools is the name."""
    schema["required"] = [name for name in schema["required"] if name != "name"]


class ToolDefinition(Definition):
    """Fields that every tool has."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_make_name_optional)

    name: str
    kind: str
    description: str | None = None
    bindings: DeclaredBindings = Field({}, description="Parameters that the host fills with a value or an input.")
    approval_mode: str | dict[str, Any] | None = Field(None, description="When a person must approve a call.")


class FunctionTool(ToolDefinition):
    """A function of the host."""

    kind: Literal["function"]
    parameters: Parameters = ()
    strict: bool = False


class PromptyTool(ToolDefinition):
    """Another .prompty file."""

    kind: Literal["prompty"]
    path: str
    mode: Literal["single", "agentic"] = "single"
    parameters: Parameters = ()


class McpTool(ToolDefinition):
    """The tools of an MCP server."""

    kind: Literal["mcp"]
    connection: Connection | None = None
    server_name: str | None = None
    server_description: str | None = Field(None, description="What the server does, for readers of the file.")
    allowed_tools: tuple[str, ...] | None = None
    execution: Literal["host", "provider"] = Field(
        "host", description="Who calls the server: this program, or the model's provider."
    )


class OpenApiTool(ToolDefinition):
    """The operations of an HTTP service that an OpenAPI document describes."""

    kind: Literal["openapi"]
    connection: Connection | None = None
    specification: str
    operations: tuple[str, ...] | None = Field(None, description="Offer only these operations, by operationId.")
    tags: tuple[str, ...] | None = Field(None, description="Offer only operations with one of these tags.")
    methods: tuple[str, ...] | None = Field(None, description="Offer only operations with these HTTP methods.")


READ_SKILL = "read_skill"  # the function of a skills tool


class SkillsTool(ToolDefinition):
    """A folder of skills that the model can read."""

    kind: Literal["skills"]
    path: str = Field(description="A folder whose folders have a SKILL.md each, relative to this file.")


class ProviderTool(ToolDefinition):
    """A tool that the model's provider runs. The host never sees its calls before they have ended."""

    options: dict[str, Any] | None = Field(
        None, description="Fields of the provider's own entry for the tool, sent as they are."
    )


class UserLocation(Definition):
    """Where the user is, roughly."""

    city: str | None = None
    region: str | None = None
    country: str | None = Field(None, description="A code of two letters, such as DE.")
    timezone: str | None = Field(None, description="A name such as Europe/Berlin.")


class WebSearchTool(ProviderTool):
    """A search of the web."""

    kind: Literal["web_search"]
    allowed_domains: tuple[str, ...] | None = Field(None, min_length=1, description="Search only these domains.")
    blocked_domains: tuple[str, ...] | None = Field(None, min_length=1, description="Search all but these domains.")
    max_uses: int | None = Field(None, ge=1, description="How often the model may search for one answer.")
    location: UserLocation | None = None


class WebFetchTool(ProviderTool):
    """Reads a page of the web."""

    kind: Literal["web_fetch"]
    allowed_domains: tuple[str, ...] | None = Field(None, min_length=1, description="Read only pages of these domains.")
    blocked_domains: tuple[str, ...] | None = Field(None, min_length=1, description="Read no pages of these domains.")
    max_uses: int | None = Field(None, ge=1, description="How many pages the model may read for one answer.")


class FileSearchTool(ProviderTool):
    """A search in files that were uploaded to the provider."""

    kind: Literal["file_search"]
    vector_store_ids: tuple[str, ...] = Field(min_length=1, description="The vector stores to search.")
    maximum_result_count: int | None = Field(None, ge=1)


class CodeInterpreterTool(ProviderTool):
    """Runs code that the model writes, in a container of the provider."""

    kind: Literal["code_interpreter"]
    file_ids: tuple[str, ...] | None = Field(None, description="Uploaded files that the code can read.")


class RawTool(ProviderTool):
    """Any other tool of the provider: `options` is its entry in the request."""

    kind: Literal["provider"]
    options: dict[str, Any] = Field(description="The entry as the API takes it, with its `type`.")


KNOWN_TOOL_KINDS = (
    *("function", "prompty", "mcp", "openapi", "skills"),
    *("web_search", "web_fetch", "file_search", "code_interpreter", "provider"),
)


class CustomTool(ToolDefinition):
    """A tool of a kind that the host registers a handler for."""

    kind: str = Field(json_schema_extra={"not": {"enum": [*KNOWN_TOOL_KINDS]}})
    connection: Connection | None = None
    options: dict[str, Any] | None = None


def _tag(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    if not isinstance(kind, str):
        return None
    return kind if kind in KNOWN_TOOL_KINDS else "*"


Tool = Annotated[
    Annotated[FunctionTool, Tag("function")]
    | Annotated[PromptyTool, Tag("prompty")]
    | Annotated[McpTool, Tag("mcp")]
    | Annotated[OpenApiTool, Tag("openapi")]
    | Annotated[SkillsTool, Tag("skills")]
    | Annotated[WebSearchTool, Tag("web_search")]
    | Annotated[WebFetchTool, Tag("web_fetch")]
    | Annotated[FileSearchTool, Tag("file_search")]
    | Annotated[CodeInterpreterTool, Tag("code_interpreter")]
    | Annotated[RawTool, Tag("provider")]
    | Annotated[CustomTool, Tag("*")],
    Discriminator(_tag, custom_error_type="tool_kind", custom_error_message="a tool needs a `kind`"),
]


def runs_at_provider(tool: ToolDefinition) -> bool:
    """Return True if the model's provider runs a tool."""
    return isinstance(tool, ProviderTool) or (isinstance(tool, McpTool) and tool.execution == "provider")


def _tools_to_list(value: Any) -> Any:
    if isinstance(value, dict):
        return [{**tool, "name": name} if isinstance(tool, dict) else tool for name, tool in value.items()]
    return value


_NamedTool = Annotated[Tool, Field(json_schema_extra={"required": ["name"]})]
DeclaredTools = Annotated[
    tuple[Tool, ...],
    BeforeValidator(_tools_to_list, json_schema_input_type=tuple[_NamedTool, ...] | dict[str, Tool]),
]


def bind_inputs(tool: Tool, names: Collection[str]) -> Tool:
    """Return a tool whose plain texts are bound to the inputs of these names. Other texts stay plain."""
    bound = {
        parameter: Binding.model_validate({"input": binding.plain_text})
        for parameter, binding in tool.bindings.items()
        if binding.plain_text in names
    }
    return tool.model_copy(update={"bindings": {**tool.bindings, **bound}}) if bound else tool


def fix_texts(tool: Tool) -> Tool:
    """Return a tool whose plain texts are values, regardless of the caller's inputs."""
    fixed = {name: binding.model_copy(update={"is_plain": False}) for name, binding in tool.bindings.items()}
    return tool.model_copy(update={"bindings": fixed}) if fixed else tool
