"""Run pages of the documentation, and write what their commands print into their snippets.

    python -m scripts.write_snippets [PAGE…]

Outputs that already match are left alone, so a `…` in an output stays.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.pages import ROOT, Outcome, make_environment, matches, run_page

PAGES = [
    page
    for folder in ("how-to", "explanation")
    for page in sorted((ROOT / "docs" / folder).rglob("*.md"))
    if "--8<--" in page.read_text(encoding="utf-8")
]


def write_output(outcome: Outcome) -> None:
    """Rewrite the snippet of a console block with what its commands printed."""
    source = outcome.block.source
    if source is None:
        if outcome.differences:
            sys.exit(f"not in docs/snippets, and printed something else:\n{outcome.block.text}{outcome.outputs}")
        return
    pairs = zip(outcome.block.steps, outcome.outputs, strict=True)
    parts = [f"$ {step.command}\n{step.output if matches(step.output, output) else output}" for step, output in pairs]
    if "".join(parts) != outcome.block.text:
        source.write_text("".join(parts), encoding="utf-8")
        print(f"wrote {source.relative_to(ROOT)}")


def main(pages: list[Path]) -> None:
    """Run each page in a folder of its own."""
    for page in pages:
        print(page.relative_to(ROOT))
        with TemporaryDirectory() as temporary:
            work, home = Path(temporary, "work"), Path(temporary, "home")
            work.mkdir()
            home.mkdir()
            for outcome in run_page(page, work, make_environment(home)):
                write_output(outcome)


if __name__ == "__main__":
    main([Path(name).resolve() for name in sys.argv[1:]] or PAGES)
