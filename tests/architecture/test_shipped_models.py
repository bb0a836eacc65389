"""What we ship names current models, and pairs no model with an option that it refuses (M6)."""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import pytest

from prompty import PromptAgent
from prompty.analysis.check import check_text
from prompty.model.agent import Model
from prompty.providers.facts import find_model_facts, read_package_facts
from prompty.providers.profiles import PROFILES
from scripts.write_default_models import FORMER, ROOT, list_shipped_files, replace_former_models

FILES = list(list_shipped_files())
NOTICE = timedelta(days=120)
# Any word can be the id of a model.
_WORD = re.compile(r"(?<![\w.-])[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*(?![\w-])")
_PROMPT = re.compile(r"^```[^\n]*\n(---\n.*?)^```$", re.MULTILINE | re.DOTALL)
CODES = {"model-ends", "model-refuses", "option-refused"}
# Prompts that show what `check` says. KEPT lists the files that name old models.
SHOWN = {"name: poem": "a model that refuses an option"}


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def list_words() -> dict[str, list[str]]:
    """Return every word that could be the id of a model, with the files that have it."""
    words: dict[str, list[str]] = {}
    for path in FILES:
        for word in {word for word in _WORD.findall(read(path)) if re.search(r"[\d-]", word)}:
            words.setdefault(word, []).append(path.relative_to(ROOT).as_posix())
    return words


def find_end(word: str) -> date | None:
    """Return the day when the first server ends the model of this name, or None if there is no such day or model."""
    agent = PromptAgent(model=Model(id=word))
    found = [facts for profile in PROFILES if (facts := find_model_facts(agent, profile))]
    return min((date.fromisoformat(end) for facts in found if (end := facts.find("ends")[0])), default=None)


def list_ending(day: date) -> dict[str, list[str]]:
    found = ((word, files, find_end(word)) for word, files in list_words().items())
    return {word: files for word, files, end in found if end and end <= day + NOTICE}


def test_the_default_models_stand_where_former_ones_stood() -> None:
    changed = [path for path in FILES if replace_former_models(read(path)) != read(path)]
    assert changed == [], "run: python -m scripts.write_default_models"


@pytest.mark.parametrize("choice", FORMER)
def test_a_former_default_is_replaced_as_a_whole_name_only(choice: str) -> None:
    default = read_package_facts()["choices"][choice]
    for former in FORMER[choice]:
        assert default not in FORMER[choice]
        text = f"{former} openai:{former}, `{former}`. With {former}. {former}-tts my-{former} {former}.txt"
        changed = f"{default} openai:{default}, `{default}`. With {default}. {former}-tts my-{former} {former}.txt"
        assert replace_former_models(text) == changed
        assert replace_former_models(changed) == changed


def test_no_model_ends_soon_after_the_facts_were_checked() -> None:
    assert find_end("gpt-4o") is not None
    assert list_ending(date.fromisoformat(read_package_facts()["checked"])) == {}


@pytest.mark.nightly
def test_no_model_ends_soon() -> None:
    assert list_ending(date.today()) == {}


def list_prompts() -> Iterator[tuple[str, str, Path]]:
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".prompty":
            yield name, read(path), path
        elif path.suffix == ".md":
            prompts = (text for text in _PROMPT.findall(read(path)) if not any(word in text for word in SHOWN))
            yield from ((name, text, path) for text in prompts)


PROMPTS = list(list_prompts())


@pytest.mark.parametrize(("name", "text", "path"), PROMPTS, ids=[name for name, *_ in PROMPTS])
def test_no_prompt_pairs_a_model_with_what_it_refuses(name: str, text: str, path: Path) -> None:
    problems = check_text(text, path.name, path.parent, env={})
    assert [problem for problem in problems if problem.code in CODES and problem.severity != "info"] == []
