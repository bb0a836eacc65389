"""Cost of replies by the price list in genai-prices (the extra `prices`). An unknown cost is None, never 0.

The cost of a reply is also unknown if the provider ran a tool for it that has no price in the list, or if a kind of its
tokens has none: of writes to a cache, and of all tokens in a provider's batch.
"""

from collections.abc import Callable
from datetime import UTC, datetime
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
# Counts of tokens → the list's names for their prices.
_TOKENS = {
    "input_tokens": "input_mtok",
    "output_tokens": "output_mtok",
    "cache_read_tokens": "cache_read_mtok",
    "cache_write_tokens": "cache_write_mtok",
    "cache_write_1h_tokens": "cache_write_1h_mtok",
}
_WRITES = ("cache_write_tokens", "cache_write_1h_tokens")
_BATCH = {"processing": "batch"}  # a price context of the list
_FREE = {"anthropic": ("web_fetch",)}  # by the list's name of the provider: only its tokens have a price


def get_pricer(agent: PromptAgent, *, required: bool, batch: bool = False) -> Callable[[Reply], Decimal | None]:
    """Return a function for the cost of an agent's replies in dollars, live or from a provider's `batch`. If the cost
    is `required`, raise for an unknown price, because a budget would have no effect."""
    try:
        prices = require("genai_prices", extra="prices")
    except MissingExtra:
        if required:
            raise
        return lambda _: None
    place = _place(agent)
    if required and _price(prices, Usage(input_tokens=1), agent.model.id, place, batch=batch) is None:
        processing = " in a batch" if batch else ""
        raise RequestError(
            f"the price of the model '{agent.model.id}'{processing} is unknown",
            "Limit `tokens` or `seconds` instead of `cost`.",
        )

    def price(reply: Reply) -> Decimal | None:
        model = reply.model if isinstance(reply.model, str) else None  # a server may send anything
        return _price(prices, reply.usage, model or agent.model.id, place, batch=batch)

    return price


def _place(agent: PromptAgent) -> dict[str, str]:
    """Return the provider and endpoint of the model, which affect its price."""
    provider, endpoint = agent.model.provider, getattr(agent.model.connection, "endpoint", None)
    return {"provider_api_url": endpoint} if endpoint else {"provider_id": _LISTED.get(provider, provider)}


def _price(prices: Any, usage: Usage, model: str, place: dict[str, str], *, batch: bool) -> Decimal | None:
    counts = {name: getattr(usage, name) for name in _TOKENS}
    requests = {_REQUESTS[tool][0]: count for tool, count in usage.requests.items() if tool in _REQUESTS}
    now = datetime.now(UTC)
    try:
        found = prices.calc_price(
            prices.Usage(**counts, **requests),
            model_ref=model,
            genai_request_timestamp=now,
            price_context=_BATCH if batch else None,
            **place,
        )
    except (LookupError, ValueError):
        return None
    if usage.input_tokens is None or not all(_has_price(found, *request) for request in usage.requests.items()):
        return None
    priced = _list_batch_prices(found, now) if batch else vars(found.model_price)
    if any(counts[name] and priced.get(_TOKENS[name]) is None for name in (_TOKENS if batch else _WRITES)):
        return None
    price: Decimal = found.total_price
    return price


def _list_batch_prices(found: Any, now: datetime) -> dict[str, Any]:
    """Return the prices of a model in a batch. The list takes prices of live calls for those that it lacks, and for
    models that another provider lists."""
    if not any(found.model is model for model in found.provider.models):
        return {}
    variants = [variant for variant in found.model.price_variants or () if variant.when == _BATCH]
    active = [variant for variant in variants if variant.constraint is None or variant.constraint.active(now)]
    return {name: price for variant in active for name, price in vars(variant.prices).items() if price is not None}


def _has_price(found: Any, tool: str, count: int | None) -> bool:
    """Return True if the price of a provider's calls is known. The list leaves out those that it has no price for."""
    if tool in _FREE.get(found.provider.id, ()):
        return True
    return count is not None and tool in _REQUESTS and getattr(found.model_price, _REQUESTS[tool][1], None) is not None
