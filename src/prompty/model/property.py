"""The schema of inputs, outputs and parameters (§2.7)."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from prompty.model.definition import Definition
from prompty.model.synonyms import KIND_SYNONYMS
from prompty.safety.redaction import MASK, is_credential_name

Kind = Literal["string", "integer", "float", "boolean", "array", "object", "union", "thread", "image", "file", "audio"]
RICH_KINDS = frozenset({"thread", "image", "file", "audio"})

# Other runtimes accept these as a `kind`.
AcceptedSynonym = Literal["number", "int", "bool", "text"]
ACCEPTED_SYNONYMS = frozenset(get_args(AcceptedSynonym))


def _replace_synonym(value: Any) -> Any:
    return KIND_SYNONYMS[value] if isinstance(value, str) and value in ACCEPTED_SYNONYMS else value


# A mapping with one of these keys is a property. Any other mapping is an object's default.
PROPERTY_KEYS = frozenset(
    {
        *("kind", "description", "required", "nullable", "default", "example", "enumValues"),
        *("items", "properties", "oneOf", "anyOf"),
    }
)

_BRANCH_KEYS = frozenset({"oneOf", "anyOf", "one_of", "any_of"})

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


def _complete_schema(schema: dict[str, Any]) -> None:
    """Make the name optional, and require exactly one list of branches for a union."""
    schema.pop("required", None)
    schema["if"] = {"properties": {"kind": {"const": "union"}}, "required": ["kind"]}
    schema["then"] = {"oneOf": [{"required": ["oneOf"]}, {"required": ["anyOf"]}]}


def _is_empty(value: object) -> bool:
    return not value


class Property(Definition):
    """One input, output or parameter."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_complete_schema)

    name: str
    kind: Annotated[Kind, BeforeValidator(_replace_synonym, json_schema_input_type=Kind | AcceptedSynonym)] = "string"
    description: str | None = None
    required: bool = False
    nullable: bool = Field(False, exclude_if=_is_empty, description="Allows null as a value.")
    default: Any = Field(None, description="The value if none is passed.")
    example: Any = Field(None, description="An example for readers. It is never used as a value.")
    enum_values: tuple[Any, ...] | None = Field(None, description="The allowed values.")
    items: "Annotated[Property, BeforeValidator(_add_empty_name)] | None" = Field(
        None, description="The items of an array."
    )
    properties: "Properties" = Field((), description="The properties of an object.")
    one_of: "Branches" = Field(
        (), exclude_if=_is_empty, description="The branches of a union: a value fits exactly one of them."
    )
    any_of: "Branches" = Field(
        (), exclude_if=_is_empty, description="The branches of a union: a value fits at least one of them."
    )
    sensitive: bool = Field(False, description="Masked in every trace (an extension).")

    @property
    def branches(self) -> "tuple[Property, ...]":
        """The alternatives of a union."""
        return self.one_of or self.any_of

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        hidden = self.sensitive or is_credential_name(self.name)
        for name, value in super().__repr_args__():
            yield name, MASK if hidden and name in ("default", "example") and value is not None else value

    @model_validator(mode="before")
    @classmethod
    def _infer_kind(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if not _BRANCH_KEYS.isdisjoint(value):
            sensitive = {"sensitive": True} if _has_sensitive_branch(value) else {}
            value = {"kind": "union", **value, **sensitive}
        if "kind" in value:
            return value
        if "properties" in value:
            return {**value, "kind": "object"}
        if "items" in value:
            return {**value, "kind": "array"}
        return {**value, "kind": kind_of_value(value.get("default"))}

    @model_validator(mode="after")
    def _check_branches(self) -> Self:
        if self.kind == "union":
            if bool(self.one_of) == bool(self.any_of):
                cause = "both `oneOf` and `anyOf`" if self.one_of else "neither `oneOf` nor `anyOf`"
                raise _wrong_branches(f"this union has {cause}", "Write one of them, with the list of its branches.")
        elif self.branches:
            key = "oneOf" if self.one_of else "anyOf"
            raise _wrong_branches(f"`{key}` belongs to a union, not to the kind `{self.kind}`", "Write `kind: union`.")
        return self


def _has_sensitive_branch(value: dict[str, Any]) -> bool:
    """Return True if a branch is sensitive: then the whole union is."""
    lists = [value[key] for key in _BRANCH_KEYS & value.keys() if isinstance(value[key], list | tuple)]
    for branch in (branch for branches in lists for branch in branches):
        inner = branch if isinstance(branch, dict) else {"sensitive": getattr(branch, "sensitive", False)}
        if inner.get("sensitive") is True or _has_sensitive_branch(inner):
            return True
    return False


def _wrong_branches(message: str, fix: str) -> PydanticCustomError:
    return PydanticCustomError("branches", "{message}", {"message": message, "fix": fix})


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


Branches = tuple[Annotated[Property, BeforeValidator(_add_empty_name)], ...]
Properties = Annotated[
    tuple[Property, ...],
    BeforeValidator(_mapping_to_list, json_schema_input_type=tuple[Property, ...] | dict[str, Property | Any]),
]


class NestedProperty(NamedTuple):
    """A property at any depth: the keys that lead to it in the file, its path for people, such as `order.lines[]`, and
    the name of the property that contains it."""

    keys: tuple[str | int, ...]
    path: str
    root: str
    declared: Property


def walk_properties(properties: Sequence[Property], keys: tuple[str | int, ...]) -> Iterator[NestedProperty]:
    """Yield properties and everything inside them. A branch of a union has the union's path."""
    for index, declared in enumerate(properties):
        yield from _walk(declared, (*keys, index), declared.name, declared.name)


def _walk(declared: Property, keys: tuple[str | int, ...], path: str, root: str) -> Iterator[NestedProperty]:
    yield NestedProperty(keys, path, root, declared)
    for index, inner in enumerate(declared.properties):
        yield from _walk(inner, (*keys, "properties", index), f"{path}.{inner.name}", root)
    for index, branch in enumerate(declared.branches):
        yield from _walk(branch, (*keys, "oneOf" if declared.one_of else "anyOf", index), path, root)
    if declared.items is not None:
        yield from _walk(declared.items, (*keys, "items"), f"{path}[]", root)
