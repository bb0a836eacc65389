"""Figures as people read them."""

from decimal import Decimal

from prompty.viewer.trace import Frame


def duration_in_words(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "did not finish"
    if milliseconds < 1:
        return f"{milliseconds:.2f} ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 59_950:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds:02} s"


def tokens_in_words(usage: dict[str, int]) -> str:
    """Tokens in and out, like `1,204 → 56`; nothing where nothing was counted."""
    if not usage:
        return ""
    return f"{usage.get('input_tokens', 0):,} → {usage.get('output_tokens', 0):,}"


def cost_in_words(frame: Frame) -> str:
    """Dollars; `≥` where the price of a part is not known, nothing where none is."""
    if frame.cost is None:
        return ""
    return f"{'≥ ' if frame.cost_is_partial else ''}${dollars(frame.cost)}"


def dollars(cost: Decimal) -> str:
    """Two decimals, and as many more as a small sum needs for two figures that tell something."""
    decimals = 2 if cost >= 1 or cost == 0 else max(2, 1 - cost.adjusted())
    return f"{cost:.{decimals}f}"
