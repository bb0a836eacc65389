"""Every code of a problem has a section in the reference."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [
    *(ROOT / "src/prompty/analysis").glob("*.py"),
    *(ROOT / "src/prompty/pipeline").glob("*.py"),
    ROOT / "src/prompty/providers/fitting.py",
    ROOT / "src/prompty/cases/project_file.py",
]
_CODE = re.compile(r'"([a-z]+(?:-[a-z0-9]+)+)"')
NO_CODES = {
    "anthropic-beta",
    "site-packages",
    "dist-packages",
    "date-time",
    "utf-8",
    "utf-8-sig",
    "invalid-id",
    "default-only",
    "effort-none-only",
    "refused-while-thinking",
}


def test_every_code_of_a_problem_has_a_section_in_the_reference() -> None:
    used = {code for source in SOURCES for code in _CODE.findall(source.read_text("utf-8"))} - NO_CODES
    described = set(re.findall(r"^### (.+)$", (ROOT / "docs/reference/problems.md").read_text("utf-8"), re.MULTILINE))
    assert used | {"extension"} == described
