"""The script that compares the facts with the SDKs of the providers."""

import shutil
from importlib.metadata import distribution
from pathlib import Path

import pytest

from scripts.compare_model_facts import compare

SOURCES = (
    "openai/types/shared/chat_model.py",
    "openai/types/shared/reasoning_effort.py",
    "anthropic/types/model_param.py",
    "anthropic/resources/messages/messages.py",
    "genai_prices/data.py",
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The sources that it reads, of the SDKs that the tests use."""
    installed = Path(str(distribution("openai").locate_file("")))
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(installed / name, tmp_path / name)
    return tmp_path


def list_differences(site: Path) -> list[str]:
    return [line for line in compare(site) if not line.startswith("prices:")]


def test_the_facts_agree_with_the_sdks_of_the_tests(site: Path) -> None:
    assert list_differences(site) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "difference"),
    [
        (SOURCES[0], '"gpt-6-luna",', '"gpt-6-luna",\n    "gpt-7-nova",', "openai: gpt-7-nova has no row"),
        (SOURCES[0], "2026-12-11", "2026-12-24", "openai: gpt-5 ends on 2026-12-24 by the SDK"),
        (SOURCES[1], '"max"', '"max", "most"', "openai: the effort 'most' is new"),
        (SOURCES[2], '"claude-haiku-5-5",', '"claude-haiku-6",', "anthropic: claude-haiku-6 has no row"),
        (SOURCES[3], "November 30th, 2026", "December 1st, 2026", "anthropic: claude-sonnet-4-5 ends on 2026-12-01"),
        (SOURCES[3], "DEPRECATED_MODELS = {", "RETIRED = {", "anthropic: the SDK has no dates where it had them"),
    ],
)
def test_a_difference_is_named(site: Path, name: str, old: str, new: str, difference: str) -> None:
    text = (site / name).read_text(encoding="utf-8")
    assert old in text
    (site / name).write_text(text.replace(old, new), encoding="utf-8")
    assert any(line.startswith(difference) for line in list_differences(site))
