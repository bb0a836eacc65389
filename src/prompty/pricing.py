"""Cost of replies by the price list in genai-prices (the extra `prices`). An unknown cost is None, never 0.

The cost of a reply is also unknown if the provider ran a tool for it that has no price in the list.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from prompty.errors import MissingExtra, RequestError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.message import Reply, Usage

# Providers that have another name in the list.
_LISTED = {"foundry": "azure"}
# Tools that providers run → the list's names for their number, and for the price of a thousand.
_REQUESTS = {
    "web_search": ("web_searches", "web_searches_kcount"),
    "file_search": ("storage_searches", "storage_searches_kcount"),
}
_FREE = {"anthropic": ("web_fetch",)}  # by the list's name of the provider: only its tokens have a price


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
    requests = {_REQUESTS[tool][0]: count for tool, count in usage.requests.items() if tool in _REQUESTS}
    try:
        found = prices.calc_price(prices.Usage(**counts, **requests), model_ref=model, **place)
    except (LookupError, ValueError):
        return None
    if usage.input_tokens is None or not all(_has_price(found, *request) for request in usage.requests.items()):
        return None
    price: Decimal = found.total_price
    return price


def _has_price(found: Any, tool: str, count: int | None) -> bool:
    """Return True if the price of a provider's calls is known. The list leaves out those that it has no price for."""
    if tool in _FREE.get(found.provider.id, ()):
        return True
    return count is not None and tool in _REQUESTS and getattr(found.model_price, _REQUESTS[tool][1], None) is not None
