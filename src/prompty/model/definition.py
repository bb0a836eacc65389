"""Base class of the definitions in a .prompty file."""

from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel

from prompty.safety.redaction import MASK, is_credential_name, mask_secrets, mask_url


def _mask(value: Any) -> Any:
    """Return a field's value without secrets."""
    if isinstance(value, str):
        return mask_url(value) if "://" in value else mask_secrets(value)
    if isinstance(value, dict):
        return {key: MASK if is_credential_name(str(key)) else _mask(entry) for key, entry in value.items()}
    return [_mask(entry) for entry in value] if isinstance(value, list) else value


class Definition(BaseModel):
    """A part of a file, immutable. Fields are in snake_case here and in camelCase in the file."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        defer_build=True,  # a validator is built on first use, and most parts are only used inside an agent's
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: Any) -> None:
        """Set the keys of the fields, which pydantic would only do with the validator."""
        for name, field in cls.model_fields.items():
            field.alias = to_camel(name)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Mask secrets: an endpoint can contain a password, and a default can be one."""
        for name, value in super().__repr_args__():
            yield name, _mask(value)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_keys(cls, value: Any) -> Any:
        if isinstance(value, dict) and None in value.values():
            return {key: entry for key, entry in value.items() if entry is not None}
        return value
