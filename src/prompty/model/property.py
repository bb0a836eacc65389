"""The schema of inputs, outputs and parameters (§2.7)."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from prompty.model.definition import Definition
from prompty.model.synonyms import KIND_SYNONYMS
from prompty.safety.redaction import MASK, is_credential_name

Kind = Literal["string", "integer", "float", "boolean", "array", "object", "thread", "image", "file", "audio"]
RICH_KINDS = frozenset({"thread", "image", "file", "audio"})

# Other runtimes accept these as a `kind`.
AcceptedSynonym = Literal["number", "int", "bool", "text"]
ACCEPTED_SYNONYMS = frozenset(get_args(AcceptedSynonym))


def _replace_synonym(value: Any) -> Any:
    return KIND_SYNONYMS[value] if isinstance(value, str) and value in ACCEPTED_SYNONYMS else value


# A mapping with one of these keys is a property. Any other mapping is an object's default.
PROPERTY_KEYS = frozenset(
    {"kind", "description", "required", "default", "example", "enumValues", "items", "properties"}
)

_KINDS_BY_TYPE = {
    bool: "boolean",
    int: "integer",
    float: "float",
    str: "string",
    list: "array",
    dict: "object",
}


def kind_of_value(value: object) -> str:
    """Return the kind of a plain value, or `string` if its type has no kind."""
    return _KINDS_BY_TYPE.get(type(value), "string")


def _make_name_optional(schema: dict[str, Any]) -> None:
    schema.pop("required", None)


class Property(Definition):
    """One input, output or parameter."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_make_name_optional)

    name: str
    kind: Annotated[Kind, BeforeValidator(_replace_synonym, json_schema_input_type=Kind | AcceptedSynonym)] = "string"
    description: str | None = None
    required: bool = False
    default: Any = Field(None, description="The value if none is passed.")
    example: Any = Field(None, description="An example for readers. It is never used as a value.")
    enum_values: tuple[Any, ...] | None = Field(None, description="The allowed values.")
    items: "Annotated[Property, BeforeValidator(_add_empty_name)] | None" = Field(
        None, description="The items of an array."
    )
    properties: "Properties" = Field((), description="The properties of an object.")
    sensitive: bool = Field(False, description="Masked in every trace (an extension).")

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
        return {**value, "kind": kind_of_value(value.get("default"))}


def _entry_to_property(name: str, value: Any) -> Any:
    if isinstance(value, dict) and not PROPERTY_KEYS.isdisjoint(value):
        return {**value, "name": name}
    return {"name": name, "kind": kind_of_value(value), "default": value}


def _mapping_to_list(value: Any) -> Any:
    if isinstance(value, dict):
        return [_entry_to_property(name, entry) for name, entry in value.items()]
    return value


def _add_empty_name(value: Any) -> Any:
    return {"name": "", **value} if isinstance(value, dict) else value


Properties = Annotated[
    tuple[Property, ...],
    BeforeValidator(_mapping_to_list, json_schema_input_type=tuple[Property, ...] | dict[str, Property | Any]),
]

Property.model_rebuild()
