"""The examples of `turn`'s options in the reference run as they stand."""

from pathlib import Path
from typing import Any

import pytest

import prompty
from prompty.memory import SqliteMemory
from prompty.testing import Script
from scripts.write_api_docs import TURN_TASKS

PROMPT = "---\nname: shop\nmodel: gpt-6-luna\ninputs: {question: {kind: string}}\n---\nuser:\n{{ question }}\n"


def find_order(number: int) -> str:
    """Return where an order is."""
    return f"order {number} is on its way"


def refund(number: int) -> str:
    """Pay the price of an order back."""
    return f"order {number} is paid back"


@pytest.mark.parametrize("title", TURN_TASKS)
def test_an_example_of_a_task_runs(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.prompty").write_text(PROMPT)
    names: dict[str, Any] = {
        "turn": prompty.turn,
        "inputs": {"question": "Where is it?"},
        "find_order": find_order,
        "refund": refund,
        "SqliteMemory": SqliteMemory,
        "Budget": prompty.Budget,
    }
    example, options = TURN_TASKS[title]
    assert any(f"{option}=" in example for option in options)
    with Script("Done."):
        assert eval(example, names) == "Done."  # noqa: S307  our own example
