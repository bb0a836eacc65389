"""The commands of docs/how-to/batch.md do what is printed beside them."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.test_docs import ROOT, blocks, write_prompts
from tests.batch.folder import lines_of, numbers_of

pytestmark = pytest.mark.process

PAGE = ROOT / "docs" / "how-to" / "batch.md"


def test_the_commands_of_the_page_run_as_printed(tmp_path: Path) -> None:
    write_prompts(PAGE, tmp_path)
    (tmp_path / "rows.csv").write_text("text\nHello.\nGood evening.\nGoodbye.\n")
    first, _ = blocks(PAGE, "sh")
    for line in first.splitlines():
        words = shlex.split(line, comments=True)
        command = [sys.executable, "-m", "prompty.cli", *words[1:]]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=60, stdout=subprocess.DEVNULL)  # noqa: S603  our own code
    assert numbers_of(lines_of(tmp_path / "out.jsonl")) == [1, 2, 3]
