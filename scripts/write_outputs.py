"""Run pages of the documentation, and write what their commands print into the pages.

    python -m scripts.write_outputs [--check] [PAGE…]

Outputs that already match are left alone, so a `…` in an output stays. With `--check` nothing is written, and a page
that says something else fails.
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


def main(pages: list[Path], *, check: bool) -> None:
    """Run each page, and write it or compare it."""
    different = []
    for page in pages:
        outcomes = run(page)
        if unseen := [outcome for outcome in outcomes if outcome.block.line == NOWHERE and outcome.differences]:
            sys.exit(f"{page.relative_to(ROOT)}: nothing shows what this prints: {unseen}")
        text = page.read_text(encoding="utf-8")
        written = write_outputs(text, outcomes)
        print(page.relative_to(ROOT), "" if written == text else "differs" if check else "written", flush=True)
        if written != text:
            different.append(page)
            if not check:
                page.write_text(written, encoding="utf-8")
    if check and different:
        sys.exit("run: python -m scripts.write_outputs " + " ".join(str(page.relative_to(ROOT)) for page in different))


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--check"]
    main([Path(name).resolve() for name in names] or PAGES, check="--check" in sys.argv)
