"""Draw `docs/images/batch-bill.svg`: what 10,000 rows cost live and in a provider's batch, by the price list."""

from decimal import Decimal
from html import escape
from pathlib import Path
from typing import NamedTuple

from prompty import PromptAgent, Usage
from prompty.model.message import Reply
from prompty.pricing import get_pricer

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "batch-bill.svg"
MODELS = ("openai:gpt-5.6", "openai:gpt-6-luna", "anthropic:claude-opus-5", "anthropic:claude-sonnet-5")
ROWS, INPUT, OUTPUT = 10_000, 2_500, 200
WIDTH, LEFT, ROW, BAR = 760, 170, 58, 20
HEAD = f"{ROWS:,} rows with {INPUT:,} input and {OUTPUT} output tokens each"


class Bill(NamedTuple):
    """The dollars of all rows with one model."""

    model: str
    live: Decimal
    batch: Decimal


def compute_bill(model: str) -> Bill:
    """Return what the rows cost. Raise RequestError if the list has no price for a batch."""
    provider, _, id = model.partition(":")
    agent = PromptAgent.model_validate({"name": "bill", "model": {"id": id, "provider": provider}})
    reply = Reply(usage=Usage(input_tokens=INPUT, output_tokens=OUTPUT))
    costs = [get_pricer(agent, required=True, batch=batch)(reply) or Decimal() for batch in (False, True)]
    return Bill(id, costs[0] * ROWS, costs[1] * ROWS)


def draw(bills: list[Bill]) -> str:
    """Return the picture: two bars for each model."""
    scale = (WIDTH - LEFT - 110) / float(max(bill.live for bill in bills))
    height = 70 + ROW * len(bills)
    texts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="14">',
        f"<title>{escape(HEAD)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        f'<text x="20" y="32" font-weight="600" fill="#1f2430">{escape(HEAD)}</text>',
    ]
    for position, bill in enumerate(bills):
        top = 52 + position * ROW
        texts.append(f'<text x="20" y="{top + 26}" fill="#1f2430">{escape(bill.model)}</text>')
        bars = ((bill.live, "#9aa4b5", "live"), (bill.batch, "#2f7d5b", "provider batch"))
        for line, (dollars, colour, name) in enumerate(bars):
            y, width = top + line * (BAR + 3), float(dollars) * scale
            texts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3" fill="{colour}"/>')
            label = f"${dollars:,.2f} {name}" if position == 0 else f"${dollars:,.2f}"
            texts.append(f'<text x="{LEFT + width + 8:.1f}" y="{y + 15}" fill="#1f2430">{label}</text>')
    return "\n".join([*texts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw([compute_bill(model) for model in MODELS]))
