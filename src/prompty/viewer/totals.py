"""Tokens and cost of every frame, what is below it included.

Cost is a matter of looking, not of running: price lists change, and a trace holds what they are applied to.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import cache

from prompty.model.agent import Model, PromptAgent
from prompty.model.reply import Reply, Usage
from prompty.pricing import price_of
from prompty.viewer.trace import MODEL_CALL, Frame

_USAGE_ATTRIBUTES = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
# Telemetry names some providers otherwise than price lists do.
_LISTED = {"azure.ai.openai": "azure"}


def add_usage(frames: list[Frame]) -> None:
    """Fill in the tokens a frame does not state: those of a model call's attributes, or the sum of what is below."""
    sums: list[dict[str, int]] = [{} for _ in frames]
    for position in reversed(range(len(frames))):
        frame = frames[position]
        frame.usage = frame.usage or _stated(frame) or sums[position]
        if frame.parent is not None:
            above = sums[frame.parent]
            above.update({name: above.get(name, 0) + count for name, count in frame.usage.items()})


def _stated(frame: Frame) -> dict[str, int]:
    if frame.name != MODEL_CALL:
        return {}
    found = {name: frame.attributes.get(key) for name, key in _USAGE_ATTRIBUTES.items()}
    return {name: count for name, count in found.items() if isinstance(count, int) and not isinstance(count, bool)}


def add_costs(frames: list[Frame]) -> None:
    """Price the model calls and sum upward. A sum that lacks the price of a call says that it is partial."""
    for frame in reversed(frames):
        if frame.name == MODEL_CALL:
            own = _cost(frame)
            frame.cost = frame.cost if own is None else own
            frame.cost_is_partial = frame.cost is None and frame.error is None
        if frame.parent is not None:
            _add(frames[frame.parent], frame)


def _add(parent: Frame, child: Frame) -> None:
    parent.cost_is_partial = parent.cost_is_partial or child.cost_is_partial
    if child.cost is not None:
        parent.cost = child.cost + (parent.cost or Decimal(0))


def _cost(frame: Frame) -> Decimal | None:
    provider = str(frame.attributes.get("gen_ai.provider.name") or "")
    usage = Usage(**{name: count for name, count in frame.usage.items() if name in _USAGE_ATTRIBUTES})
    for attribute in ("gen_ai.response.model", "gen_ai.request.model"):
        model = str(frame.attributes.get(attribute) or "")
        found = _price(_LISTED.get(provider, provider), model)(Reply(usage=usage)) if provider and model else None
        if found is not None:
            return found
    return None


@cache
def _price(provider: str, model: str) -> Callable[[Reply], Decimal | None]:
    return price_of(PromptAgent(model=Model(id=model, provider=provider)), required=False)
