"""What forty rows of two public judge prompts cost, over HTTPS under the providers' own names."""

import os
from decimal import Decimal

import pytest

from benchmarks.cache_costs import measure
from tests.v1.corpus import ROOT

if not ROOT.exists() and not os.environ.get("CI"):
    pytest.skip("the corpus is not part of the repository", allow_module_level=True)

LEAST = {"task_completion": Decimal("0.15"), "tool_call_accuracy": Decimal("0.40")}


@pytest.mark.parametrize(("prompt", "least"), LEAST.items())
def test_rows_for_openai_cost_less_than_with_implicit_writes(
    prompt: str, least: Decimal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now = [
        measure(prompt, "gpt-5.6", rows=40, marked=marked, environment=monkeypatch.setenv, at_once=4)
        for marked in (False, True)
    ]
    assert before.usage.cache_write_tokens == before.usage.input_tokens  # every row, for nothing
    assert before.usage.cache_read_tokens == 0
    assert (now.usage.input_tokens, now.usage.output_tokens) == (before.usage.input_tokens, 40 * 200)
    assert 1 - now.cost / before.cost >= least


def test_rows_for_claude_cost_what_the_prices_say(monkeypatch: pytest.MonkeyPatch) -> None:
    bill = measure(
        "tool_call_accuracy", "claude-sonnet-5", rows=40, marked=True, environment=monkeypatch.setenv, at_once=4
    )
    usage = bill.usage
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    prefix = (read + written) // 40
    assert written in [prefix * rows for rows in range(1, 5)]  # of the rows that ran before the first had ended
    fresh = (usage.input_tokens or 0) - read - written
    by_hand = 2 * fresh + Decimal("2.5") * written + Decimal("0.2") * read + 10 * (usage.output_tokens or 0)
    assert bill.cost == by_hand / 1_000_000
    uncached = 2 * (usage.input_tokens or 0) + 10 * (usage.output_tokens or 0)
    assert bill.cost < Decimal(uncached) / 1_000_000 * Decimal("0.65")
