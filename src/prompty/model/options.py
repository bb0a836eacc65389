"""Model options (§2.6)."""

from typing import Any

from pydantic import Field

from prompty.model.definition import Definition


class ModelOptions(Definition):
    """What a model may be asked for beside the messages; what a provider does not know is left out for it."""

    temperature: float | None = Field(None, description="Sampling temperature, 0.0 to 2.0.")
    max_output_tokens: int | None = Field(None, description="The most tokens the completion may have.")
    top_p: float | None = Field(None, description="Nucleus sampling threshold.")
    top_k: int | None = Field(None, description="Top-K sampling; not every provider has it.")
    frequency_penalty: float | None = Field(None, description="Frequency penalty, -2.0 to 2.0.")
    presence_penalty: float | None = Field(None, description="Presence penalty, -2.0 to 2.0.")
    seed: int | None = Field(None, description="Random seed for reproducible answers.")
    stop_sequences: tuple[str, ...] | None = Field(None, description="Sequences that stop the generation.")
    allow_multiple_tool_calls: bool | None = Field(None, description="Whether one turn may call several tools.")
    additional_properties: dict[str, Any] | None = Field(
        None, description="Options of one provider, passed on as they are."
    )
