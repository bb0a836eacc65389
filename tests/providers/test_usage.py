"""Cached tokens are counted and priced on every wire, those read as well as those written."""

from decimal import Decimal
from typing import Any

import pytest

from prompty import PromptAgent, Usage
from prompty.errors import RequestError
from prompty.model.message import Reply
from prompty.pricing import get_pricer
from prompty.providers.anthropic.messages import MessagesDecoder, reply as messages_reply
from prompty.providers.openai.chat import ChatDecoder, reply as chat_reply
from tests.drivers.wires import Chat, Messages

Json = dict[str, Any]

CHAT: dict[str, tuple[Json, Usage]] = {
    "written and read": (
        {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}},
        Usage(input_tokens=9, cache_read_tokens=4, cache_write_tokens=3),
    ),
    "as DeepSeek names them": (
        {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5},
        Usage(input_tokens=9, cache_read_tokens=4),
    ),
    "none": ({"prompt_tokens": 9, "prompt_tokens_details": None}, Usage(input_tokens=9)),
}


@pytest.mark.parametrize(("usage", "expected"), CHAT.values(), ids=CHAT)
def test_chat_counts_tokens_read_from_a_cache_and_written_to_it(usage: Json, expected: Usage) -> None:
    assert chat_reply({**Chat().whole("Hi"), "usage": usage}).usage == expected
    decoder = ChatDecoder()
    decoder.feed({"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]})
    decoder.feed({"choices": [], "usage": usage})
    assert decoder.finish().usage == expected


DURATIONS = {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 300}
WRITTEN: dict[str, tuple[Json, Usage]] = {
    "with their sum": (
        {"input_tokens": 1, "cache_creation_input_tokens": 400, "cache_creation": DURATIONS},
        Usage(input_tokens=401, cache_write_tokens=400, cache_write_1h_tokens=300),
    ),
    "without it": (
        {"input_tokens": 1, "cache_creation": DURATIONS},
        Usage(input_tokens=401, cache_write_tokens=400, cache_write_1h_tokens=300),
    ),
    "not told apart": (
        {"input_tokens": 1, "cache_creation_input_tokens": 400},
        Usage(input_tokens=401, cache_write_tokens=400),
    ),
}


@pytest.mark.parametrize(("usage", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_messages_tell_writes_for_an_hour_from_those_for_five_minutes(usage: Json, expected: Usage) -> None:
    assert messages_reply({**Messages().whole("Hi"), "usage": usage}).usage == expected
    decoder = MessagesDecoder()
    decoder.feed({"type": "message_start", "message": {"usage": usage}})
    decoder.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}})
    decoder.feed({"type": "message_stop"})
    assert decoder.finish().usage == expected


def test_the_stored_form_names_writes_for_an_hour_only_if_there_are_some() -> None:
    assert "cache_write_1h_tokens" not in Usage(input_tokens=1).to_json()
    written = Usage(cache_write_tokens=4, cache_write_1h_tokens=3)
    assert Usage(**written.to_json()) == written  # type: ignore[arg-type]  # JSON of a Usage
    assert (written + written).cache_write_1h_tokens == 6


def test_a_write_for_an_hour_costs_more_than_one_for_five_minutes() -> None:
    agent = PromptAgent.model_validate({"model": {"id": "claude-sonnet-4-5", "provider": "anthropic"}})
    price = get_pricer(agent, required=True)
    counts: Json = {"input_tokens": 1000, "cache_write_tokens": 1000}
    usages = [
        Usage(input_tokens=1000),
        Usage(**counts),
        Usage(**counts, cache_write_1h_tokens=500),
        Usage(**counts, cache_write_1h_tokens=1000),
    ]
    fresh, *written = [price(Reply(usage=usage)) or Decimal(0) for usage in usages]
    # Anthropic's prices: 1.25 times the input for five minutes, twice the input for an hour.
    assert [cost / fresh for cost in written] == [Decimal("1.25"), Decimal("1.625"), Decimal(2)]


def price_of(model: str, usage: Usage, *, provider: str = "openai", batch: bool = False) -> Decimal | None:
    agent = PromptAgent.model_validate({"model": {"id": model, "provider": provider}})
    return get_pricer(agent, required=False, batch=batch)(Reply(usage=usage))


PLAIN = Usage(input_tokens=1_000_000, output_tokens=100_000)
HALF_PRICED = {
    "OpenAI": ("openai", "gpt-4.1-mini", PLAIN),
    "OpenAI, cached and written": (
        "openai",
        "gpt-5.6",
        Usage(input_tokens=9000, output_tokens=10, cache_read_tokens=4000, cache_write_tokens=3000),
    ),
    "Anthropic": ("anthropic", "claude-sonnet-5", PLAIN),
    "Anthropic, written for an hour": (
        "anthropic",
        "claude-sonnet-5",
        Usage(input_tokens=9000, output_tokens=10, cache_write_tokens=4000, cache_write_1h_tokens=3000),
    ),
}


@pytest.mark.parametrize(("provider", "model", "usage"), HALF_PRICED.values(), ids=HALF_PRICED)
def test_a_batch_costs_half(provider: str, model: str, usage: Usage) -> None:
    live = price_of(model, usage, provider=provider)
    assert live
    assert price_of(model, usage, provider=provider, batch=True) == live / 2


UNKNOWN = {
    "a model without batch prices": ("gpt-5.6-cyber", PLAIN, "openai", True),
    "cached tokens without a batch price": ("gpt-4o-mini", Usage(input_tokens=9, cache_read_tokens=4), "openai", True),
    "embeddings without a batch price": ("text-embedding-3-small", Usage(input_tokens=9), "openai", True),
    "a batch at another provider than the list's": ("gpt-5.6", Usage(input_tokens=9), "azure", True),
    "writes without a price": ("gpt-4.1", Usage(input_tokens=9, cache_write_tokens=4), "openai", False),
}


@pytest.mark.parametrize(("model", "usage", "provider", "batch"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_cost_is_unknown_instead_of_wrong(model: str, usage: Usage, provider: str, batch: bool) -> None:
    assert price_of(model, usage, provider=provider, batch=batch) is None
    assert price_of(model, Usage(input_tokens=9), provider=provider)  # the price of a plain call is known


def test_a_budget_for_a_batch_needs_a_batch_price() -> None:
    agent = PromptAgent.model_validate({"model": {"id": "text-embedding-3-small"}})
    with pytest.raises(RequestError, match="in a batch is unknown"):
        get_pricer(agent, required=True, batch=True)
