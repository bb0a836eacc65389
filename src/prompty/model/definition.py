"""The ground all definitions of a file stand on."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


class Definition(BaseModel):
    """Part of what a file says: snake_case here, camelCase in the file, never changed after loading."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _an_empty_key_is_an_absent_key(cls, value: Any) -> Any:
        if isinstance(value, dict) and None in value.values():
            return {key: entry for key, entry in value.items() if entry is not None}
        return value
