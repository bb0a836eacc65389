"""The schema of inputs, outputs and parameters (§2.7)."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from prompty.model.definition import Definition
from prompty.safety.redaction import MASK, is_credential_name

Kind = Literal["string", "integer", "float", "boolean", "array", "object", "thread", "image", "file", "audio"]
RICH_KINDS = frozenset({"thread", "image", "file", "audio"})

# A map value with one of these keys is a property; any other map is the default of an object.
PROPERTY_KEYS = frozenset(
    {"kind", "description", "required", "default", "example", "enumValues", "items", "properties"}
)

_KIND_OF_TYPE = {
    bool: "boolean",
    int: "integer",
    float: "float",
    str: "string",
    list: "array",
    dict: "object",
}


def kind_of(value: object) -> str:
    """The kind a plain value is of; text when there is none to go by."""
    return _KIND_OF_TYPE.get(type(value), "string")


def _name_may_come_from_the_key(schema: dict[str, Any]) -> None:
    schema.pop("required", None)


class Property(Definition):
    """One input, output or parameter."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_name_may_come_from_the_key)

    name: str
    kind: Kind = "string"
    description: str | None = None
    required: bool = False
    default: Any = Field(None, description="The value when none is given.")
    example: Any = Field(None, description="For readers; never a value.")
    enum_values: tuple[Any, ...] | None = Field(None, description="The values allowed.")
    items: "Annotated[Property, BeforeValidator(_nameless)] | None" = Field(None, description="What an array holds.")
    properties: "Properties" = Field((), description="What an object holds.")
    sensitive: bool = Field(False, description="Kept out of every trace (an extension).")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        hidden = self.sensitive or is_credential_name(self.name)
        for name, value in super().__repr_args__():
            yield name, MASK if hidden and name in ("default", "example") and value is not None else value

    @model_validator(mode="before")
    @classmethod
    def _infer_kind(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "kind" in value:
            return value
        if "properties" in value:
            return {**value, "kind": "object"}
        if "items" in value:
            return {**value, "kind": "array"}
        return {**value, "kind": kind_of(value.get("default"))}


def _named(name: str, value: Any) -> Any:
    if isinstance(value, dict) and not PROPERTY_KEYS.isdisjoint(value):
        return {**value, "name": name}
    return {"name": name, "kind": kind_of(value), "default": value}


def _as_list(value: Any) -> Any:
    if isinstance(value, dict):
        return [_named(name, entry) for name, entry in value.items()]
    return value


def _nameless(value: Any) -> Any:
    return {"name": "", **value} if isinstance(value, dict) else value


Properties = Annotated[
    tuple[Property, ...],
    BeforeValidator(_as_list, json_schema_input_type=tuple[Property, ...] | dict[str, Property | Any]),
]

Property.model_rebuild()
