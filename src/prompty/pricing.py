"""Cost of replies by the price list in genai-prices (the extra `prices`). An unknown cost is None, never 0."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from prompty.errors import MissingExtra, RequestError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.message import Reply, Usage

# Providers that have another name in the list.
_LISTED = {"foundry": "azure"}


def get_pricer(agent: PromptAgent, *, required: bool) -> Callable[[Reply], Decimal | None]:
    """Return a function for the cost of an agent's replies in dollars. If the cost is `required`, raise for an unknown
    price, because a budget would have no effect."""
    try:
        prices = require("genai_prices", extra="prices")
    except MissingExtra:
        if required:
            raise
        return lambda _: None
    place = _place(agent)
    if required and _price(prices, Usage(input_tokens=1), agent.model.id, place) is None:
        raise RequestError(
            f"the price of the model '{agent.model.id}' is unknown", "Limit `tokens` or `seconds` instead of `cost`."
        )

    def price(reply: Reply) -> Decimal | None:
        model = reply.model if isinstance(reply.model, str) else None  # a server may send anything
        return _price(prices, reply.usage, model or agent.model.id, place)

    return price


def _place(agent: PromptAgent) -> dict[str, str]:
    """Return the provider and endpoint of the model, which affect its price."""
    provider, endpoint = agent.model.provider, getattr(agent.model.connection, "endpoint", None)
    return {"provider_api_url": endpoint} if endpoint else {"provider_id": _LISTED.get(provider, provider)}


def _price(prices: Any, usage: Usage, model: str, place: dict[str, str]) -> Decimal | None:
    counts = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cache_write_1h_tokens": usage.cache_write_1h_tokens,
    }
    try:
        price: Decimal = prices.calc_price(prices.Usage(**counts), model_ref=model, **place).total_price
    except (LookupError, ValueError):
        return None
    return price if usage.input_tokens is not None else None
