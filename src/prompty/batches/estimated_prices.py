"""Price ranges of a batch: run live, with the beginning of the prompt from the provider's cache, and as a batch of the
provider. An unknown price is None, never 0."""

from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil, floor
from typing import NamedTuple

from prompty.model.agent import PromptAgent
from prompty.model.message import Reply, Usage
from prompty.pricing import get_pricer
from prompty.providers.facts import ModelFacts


class TokenRange(NamedTuple):
    """Tokens of one row. `high` is None if nothing limits them."""

    low: float
    high: float | None


class PriceRange(NamedTuple):
    """Dollars of all rows. `low` is None if it is unknown, and `high` also if the output has no limit."""

    low: Decimal | None
    high: Decimal | None
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowTokens:
    """Tokens of a row, on average. `prefix` is the part of the `mean_input` that all rows begin with."""

    mean_input: float
    input: TokenRange
    output: TokenRange
    prefix: float

    @property
    def low(self) -> Usage:
        return Usage(input_tokens=floor(self.input.low), output_tokens=floor(self.output.low))

    @property
    def high(self) -> Usage | None:
        if self.input.high is None or self.output.high is None:
            return None
        return Usage(input_tokens=ceil(self.input.high), output_tokens=ceil(self.output.high))


def price_live(agent: PromptAgent, rows: int, tokens: RowTokens) -> PriceRange:
    """Return the price of rows without a cache."""
    return _explain(_Pricer(agent), rows, tokens)


def price_batch(agent: PromptAgent, rows: int, tokens: RowTokens) -> PriceRange:
    """Return the price of rows in a batch of the provider, without a cache: nothing is promised for it there."""
    return _explain(_Pricer(agent, batch=True), rows, tokens)


def price_cached(agent: PromptAgent, facts: ModelFacts | None, rows: int, tokens: RowTokens) -> PriceRange:
    """Return the price if one row writes the prefix and all others read it (low), and if no row finds it (high)."""
    minimum = facts.find("cache_min")[0] if facts else None
    if facts is None or minimum is None:
        return PriceRange(None, None, "nothing is known about this model's cache")
    prefix, share = floor(tokens.prefix), tokens.prefix / max(tokens.mean_input, 1)
    if prefix < minimum:
        alike = f"requests begin alike for about {prefix:,} tokens, and this model caches from {minimum:,}"
        return price_live(agent, rows, tokens)._replace(note=f"nothing to cache: {alike}")
    pays, pricer, low, high = _pays_for_writes(facts), _Pricer(agent), tokens.low, tokens.high
    first = pricer.price(_cache(low, share, write=pays), 1)
    others = pricer.price(_cache(low, share, read=True), rows - 1)
    worst = pricer.price(high and _cache(high, share, write=pays), rows)
    if first is None or others is None:
        return PriceRange(None, worst, "the price is unknown")
    return PriceRange(
        first + others, worst, f"if all rows but one find {prefix:,} tokens in the cache, and if none does"
    )


def _cache(usage: Usage, share: float, *, read: bool = False, write: bool = False) -> Usage:
    """Return the usage of a row that reads or writes this share of its input."""
    count = min(floor((usage.input_tokens or 0) * share), usage.input_tokens or 0)
    return replace(usage, cache_read_tokens=count if read else None, cache_write_tokens=count if write else None)


def _pays_for_writes(facts: ModelFacts) -> bool:
    return bool((facts.find("cache_write_factor")[0] or 1) > 1 or facts.find("cache_kind")[0] == "explicit")


class _Pricer:
    def __init__(self, agent: PromptAgent, *, batch: bool = False) -> None:
        self._price = get_pricer(agent, required=False, batch=batch)

    def price(self, usage: Usage | None, rows: int) -> Decimal | None:
        """Return the price of rows that use these tokens each. Large requests may have another price per token."""
        cost = None if usage is None else self._price(Reply(usage=usage))
        return None if cost is None else cost * rows


def _explain(pricer: _Pricer, rows: int, tokens: RowTokens) -> PriceRange:
    low = pricer.price(tokens.low, rows)
    high = pricer.price(tokens.high, rows)
    return PriceRange(low, high, "the price is unknown" if low is None else "")
