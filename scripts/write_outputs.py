"""Run pages of the documentation, and write what their commands print into the pages.

    python -m scripts.write_outputs [PAGE…]

Outputs that already match are left alone, so a `…` in an output stays.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.pages import ROOT, find_pages, read_blocks, write_blocks
from scripts.run_page import NOWHERE, Outcome, make_environment, matches, run_page

PAGES = [page for page in find_pages("how-to", "explanation") if any(block.steps for block in read_blocks(page))]


def write_outputs(text: str, outcomes: Iterable[Outcome]) -> str:
    """Return a page with what its commands printed."""
    return write_blocks(text, {outcome.block.line: _write_steps(outcome) for outcome in outcomes})


def _write_steps(outcome: Outcome) -> str:
    pairs = zip(outcome.block.steps, outcome.outputs, strict=True)
    return "".join(
        f"$ {step.command}\n{step.output if matches(step.output, output) else output}" for step, output in pairs
    )


def run(page: Path) -> list[Outcome]:
    """Run a page in a folder of its own."""
    with TemporaryDirectory() as temporary:
        work, home = Path(temporary, "work"), Path(temporary, "home")
        work.mkdir()
        home.mkdir()
        return list(run_page(page, work, make_environment(home)))


def main(pages: list[Path]) -> None:
    """Run each page, and write it if it prints something else."""
    for page in pages:
        outcomes = run(page)
        if unseen := [outcome for outcome in outcomes if outcome.block.line == NOWHERE and outcome.differences]:
            sys.exit(f"{page.relative_to(ROOT)}: nothing shows what this prints: {unseen}")
        text = page.read_text(encoding="utf-8")
        if (written := write_outputs(text, outcomes)) != text:
            page.write_text(written, encoding="utf-8")
        print(page.relative_to(ROOT), "" if written == text else "written", flush=True)


if __name__ == "__main__":
    main([Path(name).resolve() for name in sys.argv[1:]] or PAGES)
