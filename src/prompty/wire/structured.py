"""JSON Schema of parameters and outputs (§7.1.3, §7.1.4), and structured results (§7.7)."""

from collections.abc import Iterable
from typing import Any, TypeVar, cast as cast_type, get_type_hints, is_typeddict

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from prompty.errors import ResultError, WrongArgument
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.property import Property
from prompty.model.request import Function, OutputSchema
from prompty.model.tool import FunctionTool
from prompty.safety.json import may_have_surrogates, read_json, repair_json

# A model returns rich kinds as text.
_TYPES = {"integer": "integer", "float": "number", "boolean": "boolean", "array": "array", "object": "object"}
T = TypeVar("T")
SCHEMA_NAME = "structured_output"


def build_function(tool: FunctionTool) -> Function:
    """Return a function tool as the model sees it, without bound parameters (§2.9.1)."""
    visible = [parameter for parameter in tool.parameters if parameter.name not in tool.bindings]
    parameters = build_schema(visible, strict=tool.strict)
    return Function(name=tool.name, description=tool.description, parameters=parameters, strict=tool.strict)


def build_schema(properties: Iterable[Property], *, strict: bool = False) -> Json:
    """Return an object schema of these properties.

    Strict mode requires every property and allows no others. A property with `required: false` can then be null.
    """
    declared = list(properties)
    schema: Json = {"type": "object", "properties": {item.name: _build_property(item, strict) for item in declared}}
    if required := [item.name for item in declared if strict or item.required]:
        schema["required"] = required
    if strict:
        schema["additionalProperties"] = False
    return schema


def _build_property(declared: Property, strict: bool) -> Json:
    schema: Json = _build_type(declared, strict)
    if declared.description:
        schema["description"] = declared.description
    if declared.enum_values:
        schema["enum"] = list(declared.enum_values)
    if strict and "required" in declared.model_fields_set and not declared.required:
        schema["type"] = [schema["type"], "null"]
        if declared.enum_values:
            schema["enum"] = [*declared.enum_values, None]
    return schema


def _build_type(declared: Property, strict: bool) -> Json:
    if declared.kind == "object" and (declared.properties or strict):
        return build_schema(declared.properties, strict=strict)
    if declared.kind == "array":
        return {"type": "array", "items": _build_items(declared, strict)}
    return {"type": _TYPES.get(declared.kind, "string")}


def _build_items(declared: Property, strict: bool) -> Json:
    """Return the schema of an array's items. APIs require one, and strict mode also requires a type."""
    if declared.items is not None:
        return _build_property(declared.items, strict)
    return {"type": "string"} if strict else {}


class StructuredResult(dict[str, Any]):
    """A dict that keeps the JSON text it was parsed from, so that `cast` decodes once."""

    raw: str

    def __init__(self, values: dict[str, Any], raw: str) -> None:
        super().__init__(values)
        self.raw = raw


def output_schema(agent: PromptAgent) -> Json | None:
    """Return the strict schema of a prompt's `outputs`, or None if it declares none."""
    return build_schema(agent.outputs, strict=True) if agent.outputs else None


def parse_structured(text: str) -> object:
    """Parse JSON text. An object keeps its text. Text that is not JSON is returned unchanged."""
    try:
        value = read_json(text, unique=False)
        value = repair_json(value) if may_have_surrogates(text) else value
    except (ValueError, RecursionError):
        return text
    return StructuredResult(value, text) if isinstance(value, dict) else value


def cast(result: object, output_type: type[T]) -> T:
    """Convert a result to a dataclass, TypedDict, pydantic model, msgspec struct or any type that pydantic supports.

    Raise ResultError if it does not match.
    """
    if hasattr(output_type, "__struct_fields__"):
        return _cast_to_struct(result, output_type)
    adapter = create_adapter(output_type)
    try:
        if isinstance(result, StructuredResult):
            return adapter.validate_json(result.raw)
        if isinstance(result, str) and output_type is not str:
            return adapter.validate_json(result)
        return adapter.validate_python(result)
    except ValidationError as error:
        raise ResultError(output_type, error) from None


# Raised by pydantic for anything that is not a type.
_UNUSABLE = (AttributeError, LookupError, NameError, RecursionError, TypeError, ValueError)


def create_adapter(output_type: type[T]) -> TypeAdapter[T]:
    """Return the adapter of a type. Raise WrongArgument if pydantic does not support it."""
    if not isinstance(output_type, str | bytes | int | float):
        try:
            return TypeAdapter(adapt_type(output_type))
        except (*_UNUSABLE, PydanticUserError, PydanticSchemaGenerationError):
            pass
    fix = "Pass a dataclass, a TypedDict, a pydantic model or a type such as list[int]."
    raise WrongArgument("output_type", output_type, "a type that pydantic can validate", fix)


def adapt_type(output_type: type[T]) -> type[T]:
    """Return a type that pydantic accepts: before Python 3.12 it only accepts the TypedDict of typing_extensions."""
    if not is_typeddict(output_type):
        return output_type
    fields = get_type_hints(output_type, include_extras=True)
    total = getattr(output_type, "__total__", True)
    return cast_type("type[T]", TypedDict(output_type.__name__, fields, total=total))  # type: ignore[operator]  # mypy wants a literal


def _cast_to_struct(result: object, output_type: type[T]) -> T:
    msgspec = require("msgspec", extra="openai")
    text = result.raw if isinstance(result, StructuredResult) else result
    try:
        decoded: T = (
            msgspec.json.decode(text, type=output_type)
            if isinstance(text, str)
            else msgspec.convert(text, type=output_type)
        )
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ResultError(output_type, error) from None
    return decoded


def get_output_schema(agent: PromptAgent) -> OutputSchema | None:
    """Return the schema of an agent's answer: from its `outputs`, or from the caller's `output_type`."""
    if agent.outputs:
        return OutputSchema(output_schema(agent) or {}, strict=True)
    return agent.result_schema
