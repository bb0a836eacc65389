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

ROOT = Path(__file__).parents[2]
# Whoever chooses other default models adds the former ones here.
FORMER = ("gpt-4o", "gpt-4o-mini", "gpt-5-mini", "claude-sonnet-4-5")
SHIPPED = ("README.md", "benchmarks", "docs", "examples", "schemas", "src")
SUFFIXES = {".console", ".ipynb", ".json", ".jsonl", ".md", ".prompty", ".py", ".svg", ".toml", ".txt", ".yaml", ".yml"}
# These name old models on purpose.
KEPT = {
    "docs/how-to/migrate-from-v1.md": "it is about old files",
    "docs/reference/model-facts.md": "written from the facts",
    "src/prompty/providers/model_facts.json": "written from the facts",
}


def list_shipped_files() -> Iterator[Path]:
    """Yield the text files that we ship, but for those that name old models on purpose."""
    for name in SHIPPED:
        found = (ROOT / name).rglob("*") if (ROOT / name).is_dir() else (ROOT / name,)
        yield from sorted(path for path in found if path.suffix in SUFFIXES and path.is_file() and not is_kept(path))


def is_kept(path: Path) -> bool:
    places = [path.relative_to(ROOT), *path.relative_to(ROOT).parents]
    return any(place.as_posix() in KEPT for place in places)


FILES = list(list_shipped_files())
# Not `gpt-4o-mini-tts` or `gpt-4o.txt`, but `gpt-4o.` at the end of a sentence.
_FORMER = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, FORMER))})(?![\w-]|\.\w)")
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


def test_no_file_names_a_former_default_model() -> None:
    defaults = read_package_facts()["choices"]
    assert not {defaults["default_model_openai"], defaults["default_model_anthropic"]} & {*FORMER}
    named = {path.relative_to(ROOT).as_posix(): found[0] for path in FILES if (found := _FORMER.search(read(path)))}
    assert named == {}, f"write the default models of facts/models.yaml: {defaults}"


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
