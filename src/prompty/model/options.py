"""Model options (§2.6)."""

from typing import Any

from pydantic import Field

from prompty.model.definition import Definition


class ModelOptions(Definition):
    """Options of a model call. Options that a provider does not support are not sent."""

    temperature: float | None = Field(None, description="Sampling temperature, 0.0 to 2.0.")
    max_output_tokens: int | None = Field(None, description="Maximum number of tokens in the completion.")
    top_p: float | None = Field(None, description="Nucleus sampling threshold.")
    top_k: int | None = Field(None, description="Top-K sampling. Not every provider supports it.")
    frequency_penalty: float | None = Field(None, description="Frequency penalty, -2.0 to 2.0.")
    presence_penalty: float | None = Field(None, description="Presence penalty, -2.0 to 2.0.")
    seed: int | None = Field(None, description="Random seed for reproducible answers.")
    stop_sequences: tuple[str, ...] | None = Field(None, description="Sequences that stop the generation.")
    allow_multiple_tool_calls: bool | None = Field(None, description="Allow several tool calls in one reply.")
    additional_properties: dict[str, Any] | None = Field(
        None, description="Options of a specific provider, passed through unchanged."
    )
