"""Model options by their names on the wire (000 §7.6, W7)."""

from typing import Any

import pytest

from prompty.model.agent import ModelOptions
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, responses
from prompty.wire.request import list_dropped_options, map_options

ALL: dict[str, Any] = {
    "temperature": 0.5,
    "maxOutputTokens": 9,
    "topP": 0.9,
    "topK": 3,
    "frequencyPenalty": 0.1,
    "presencePenalty": 0.2,
    "seed": 0,
    "stopSequences": ["a"],
}
WIRE: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "chat": (
        chat.OPTIONS,
        {
            "temperature": 0.5,
            "max_completion_tokens": 9,
            "top_p": 0.9,
            "frequency_penalty": 0.1,
            "presence_penalty": 0.2,
            "seed": 0,
            "stop": ["a"],
        },
        ["topK"],
    ),
    "responses": (
        responses.OPTIONS,
        {"temperature": 0.5, "max_output_tokens": 9, "top_p": 0.9},
        ["topK", "frequencyPenalty", "presencePenalty", "seed", "stopSequences"],
    ),
    "messages": (
        messages.OPTIONS,
        {"temperature": 0.5, "max_tokens": 9, "top_p": 0.9, "top_k": 3, "stop_sequences": ["a"]},
        ["frequencyPenalty", "presencePenalty", "seed"],
    ),
    "neither": ({}, {}, list(ALL)),
}


@pytest.mark.spec("000 §7.6", "options have their names for chat")
@pytest.mark.spec("000 §7.6", "options have their names for Anthropic")
@pytest.mark.spec("000 §7.6", "an option that a provider does not have is left out silently")
@pytest.mark.parametrize(("table", "expected", "dropped"), WIRE.values(), ids=WIRE)
def test_options_have_the_names_of_the_table_and_the_rest_is_left_out(
    table: Any, expected: dict[str, Any], dropped: list[str]
) -> None:
    options = ModelOptions.model_validate(ALL)
    assert map_options(options, table) == expected
    assert list_dropped_options(options, table) == dropped


@pytest.mark.spec("000 §7.1.5", "without options nothing is sent")
@pytest.mark.parametrize("table", [table for table, _, _ in WIRE.values()], ids=WIRE)
def test_what_is_not_set_is_neither_sent_nor_missed(table: Any) -> None:
    assert map_options(ModelOptions(), table) == {}
    assert list_dropped_options(ModelOptions(), table) == []


@pytest.mark.spec("000 §7.1.5", "additional properties pass through and override nothing")
@pytest.mark.spec("003 §2.6", "provider-specific options pass through")
def test_additional_properties_cross_and_override_nothing() -> None:
    options = ModelOptions.model_validate({"topP": 0.9, "additionalProperties": {"top_p": 0.1, "logprobs": True}})
    assert map_options(options, chat.OPTIONS) == {"top_p": 0.9, "logprobs": True}
    assert list_dropped_options(options, chat.OPTIONS) == []
