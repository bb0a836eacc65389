"""Write the default models of this release over former ones, in everything that we ship.

    python -m scripts.write_default_models

facts/models.yaml chooses the default models, and nothing else does. Whoever chooses others adds the former ones here.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from prompty.providers.facts import read_package_facts

ROOT = Path(__file__).parents[1]
FORMER = {
    "default_model_openai": ("gpt-4o", "gpt-4o-mini", "gpt-5-mini"),
    "default_model_anthropic": ("claude-sonnet-4-5",),
}
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
        yield from sorted(path for path in found if path.suffix in SUFFIXES and path.is_file() and not _is_kept(path))


def _is_kept(path: Path) -> bool:
    places = [path.relative_to(ROOT), *path.relative_to(ROOT).parents]
    return any(place.as_posix() in KEPT for place in places)


def replace_former_models(text: str) -> str:
    """Return a text that names the default models of this release where it named former ones."""
    for choice, former in FORMER.items():
        names = "|".join(re.escape(name) for name in former)
        # Not `gpt-4o-mini-tts` or `gpt-4o.txt`, but `gpt-4o.` at the end of a sentence.
        text = re.sub(rf"(?<![\w.-])({names})(?![\w-]|\.\w)", read_package_facts()["choices"][choice], text)
    return text


if __name__ == "__main__":
    for path in list_shipped_files():
        text = path.read_text(encoding="utf-8")
        if (written := replace_former_models(text)) != text:
            path.write_text(written, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
