"""Show what a batch would cost: `prompty batch --estimate`."""

from decimal import Decimal

from rich.table import Table

from prompty.batches.estimate import BatchEstimate, PriceRange, TokenRange
from prompty.cli.console import out, print_json, show

_TITLES = {"live": "live", "batch": "provider batch"}


def print_estimate(estimate: BatchEstimate, as_json: bool) -> None:
    """Print an estimate as a table, or as JSON."""
    if as_json:
        print_json(estimate.to_json())
        return
    failing = f" ({estimate.failing:,} can't be rendered)" if estimate.failing else ""
    out.print(f"{estimate.rows:,} rows{failing}")
    counted = f"{estimate.counted:,} rows {estimate.source}"
    out.print(show(f"input   {_format_tokens(estimate, estimate.input)} tokens: {counted}"))
    out.print(show(f"output  {_format_tokens(estimate, estimate.output)} tokens: {estimate.output_source}"))
    table = Table("", "low", "high", box=None, pad_edge=False)
    for name, price in estimate.prices.items():
        table.add_row(_TITLES[name], *_format_prices(price))
    out.print(table)
    for note in estimate.notes:
        out.print(show(note))


def _format_tokens(estimate: BatchEstimate, tokens: TokenRange) -> str:
    low, high = round(tokens.low * estimate.rows), tokens.high and round(tokens.high * estimate.rows)
    if high is None:
        return f"{low:,} or more"
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _format_prices(price: PriceRange) -> tuple[str, str]:
    return _format_price(price.low), _format_price(price.high)


def _format_price(price: Decimal | None) -> str:
    if price is None:
        return "unknown"
    return f"${price:,.2f}" if price >= 1 else f"${price:.4f}"
