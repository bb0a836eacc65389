"""The conformance report understands its marks, admits every gap, and its page is fresh."""

import re
from collections import Counter
from pathlib import Path

import pytest

from scripts.write_conformance import PAGE, build_page
from tests.requirements import REQUIREMENTS, must
from tests.spec_report import find_faults, parse_mark, scan_marks

NODE = "tests/x.py::test_y"
ROOT = Path(__file__).parents[2]
KNOWN = ("000 §7.1.3", "no tools means no key")


def test_a_mark_names_a_section_and_a_requirement() -> None:
    assert parse_mark(pytest.mark.spec(*KNOWN).mark, NODE) == KNOWN


WRONG = {
    "a section alone": pytest.mark.spec("003 §2.2"),
    "three arguments": pytest.mark.spec("000 §7", "a", "b"),
    "a number": pytest.mark.spec("000 §7", 3),
    "a keyword beside both": pytest.mark.spec("000 §7", "a", because="x"),
    "keywords only": pytest.mark.spec(section="000 §7"),
}


@pytest.mark.parametrize("mark", WRONG.values(), ids=WRONG)
def test_a_mark_of_another_shape_is_an_error_that_names_the_test_and_the_right_shape(
    mark: pytest.MarkDecorator,
) -> None:
    with pytest.raises(pytest.UsageError, match=r"tests/x\.py::test_y: .* takes a section and a requirement"):
        parse_mark(mark.mark, NODE)


def test_every_mark_names_a_requirement_and_every_gap_is_admitted() -> None:
    assert find_faults(scan_marks()) == []


TABLE = {"009 §1": (must("boils", "1"), must("whistles", "2", missing="no lid"))}
FAULTS = {
    "all is well": ({("009 §1", "boils"): {"test_a.py"}}, None),
    "a test of nothing known": ({("009 §1", "boils"): {"test_a.py"}, ("009 §1", "sings"): {"test_a.py"}}, "'sings'"),
    "no test": ({}, "no test proves 'boils'"),
    "a gap that is closed": ({("009 §1", "boils"): {"a"}, ("009 §1", "whistles"): {"a"}}, "'whistles' has a test"),
}


@pytest.mark.parametrize(("proofs", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_table_that_disagrees_with_its_tests_has_a_fault(
    proofs: dict[tuple[str, str], set[str]], fault: str | None
) -> None:
    found = find_faults(proofs, TABLE)
    assert len(found) == (fault is not None)
    assert (fault or "") in "".join(found)


def test_marks_are_read_from_the_text_of_tests(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        '@pytest.mark.spec("009 §1", "boils")\n@pytest.mark.spec("009 §1", name)\ndef test_a(): ...\n'
        'MARKS = {"a": [pytest.mark.spec("009 §1", "whistles")]}\n'
    )
    assert scan_marks(tmp_path) == {("009 §1", "boils"): {"test_a.py"}, ("009 §1", "whistles"): {"test_a.py"}}


def test_a_requirement_stands_once_in_its_section() -> None:
    texts = Counter((section, entry.text) for section, entries in REQUIREMENTS.items() for entry in entries)
    assert [key for key, number in texts.items() if number > 1] == []


def test_every_departure_is_a_row_of_the_differences() -> None:
    page = (ROOT / "docs" / "explanation" / "differences.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| ([A-Z]\d+) \|", page, re.MULTILINE))
    departures = {entry.departs for entries in REQUIREMENTS.values() for entry in entries if entry.departs}
    assert departures - listed == set()


def test_the_page_of_the_table_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == build_page(scan_marks()), "run: make docs"
