"""The table of requirements covers every normative statement of the documents, which are read in place."""

import os
from pathlib import Path

import pytest

from tests.requirements import INFORMATIVE, REQUIREMENTS
from tests.spec_statements import KEYWORD, SPEC, Statement, list_statements, read_documents

HELP = "run: python -m tests.spec_statements FINGERPRINT"


@pytest.fixture(scope="module")
def documents() -> dict[str, str]:
    if not SPEC.is_dir():
        reason = "the documents are not there; set PROMPTY_SHARED to the folder that holds spec/"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return read_documents()


@pytest.fixture(scope="module")
def statements(documents: dict[str, str]) -> dict[str, Statement]:
    return {statement.fingerprint: statement for statement in list_statements(documents)}


ROWS = {fingerprint for entries in REQUIREMENTS.values() for entry in entries for fingerprint in entry.statements}
OTHERS = {fingerprint: section for section, found in INFORMATIVE.items() for fingerprint in found.split()}


def test_the_reader_finds_every_keyword_of_the_documents(documents: dict[str, str]) -> None:
    assert len(documents) == 5
    found = "\n".join(statement.text for statement in list_statements(documents))
    assert sorted(KEYWORD.findall(found)) == sorted(KEYWORD.findall("\n".join(documents.values())))


def test_no_two_statements_have_one_fingerprint(documents: dict[str, str], statements: dict[str, Statement]) -> None:
    assert len(statements) == len(set(list_statements(documents)))


def test_every_statement_has_a_row_or_is_known_to_ask_for_nothing(statements: dict[str, Statement]) -> None:
    assert statements.keys() - ROWS - OTHERS.keys() == set(), HELP


def test_every_fingerprint_of_the_table_is_in_the_documents(statements: dict[str, Statement]) -> None:
    assert (ROWS | OTHERS.keys()) - statements.keys() == set()


def test_a_statement_that_asks_for_nothing_says_so_itself(statements: dict[str, Statement]) -> None:
    assert [fingerprint for fingerprint in OTHERS if statements[fingerprint].is_normative] == [], HELP
    assert {fingerprint: statements[fingerprint].section for fingerprint in OTHERS} == OTHERS
    assert not ROWS & OTHERS.keys()


def test_a_row_has_the_strength_of_its_statement(statements: dict[str, Statement]) -> None:
    for fingerprint, statement in statements.items():
        entries = [entry for entries in REQUIREMENTS.values() for entry in entries if fingerprint in entry.statements]
        assert statement.strengths <= {entry.strength for entry in entries}, f"{HELP} {fingerprint}"


def test_a_row_comes_from_statements_of_its_own_document(statements: dict[str, Statement]) -> None:
    for section, entries in REQUIREMENTS.items():
        for entry in entries:
            numbers = {statements[fingerprint].section[:3] for fingerprint in entry.statements}
            assert numbers == {section[:3]}, entry.text


MADE_UP = """§1 Kettles
A kettle MUST boil. It is a pot with
a lid.
§1.1 Lids
Section titled “§1.1 Lids”Kinds of lid:
| Kind | Use |
|---|---|
flat | keeps heat in |
round | MAY whistle |
function pour(kettle) → cup: cup = new cup
// Empty first if kettle.old: rinse(kettle)
return cupThe cup SHOULD be warm:
- Warm it. - Dry it (e.g. Then wait).
{ "cup": "a sample" }
${a.sub}
Section titled “${a.sub}”Tea follows.
"""


def test_a_document_is_split_into_statements_of_its_sections() -> None:
    found = list_statements({"009": MADE_UP})
    assert [(statement.section, statement.text) for statement in found] == [
        ("009 §1", "A kettle MUST boil."),
        ("009 §1", "It is a pot with a lid."),
        ("009 §1.1", "Kinds of lid:"),
        ("009 §1.1", "flat | keeps heat in"),
        ("009 §1.1", "round | MAY whistle"),
        ("009 §1.1", "function pour(kettle) → cup: cup = new cup"),
        ("009 §1.1", "// Empty first if kettle.old: rinse(kettle)"),
        ("009 §1.1", "return cup"),
        ("009 §1.1", "The cup SHOULD be warm:"),
        ("009 §1.1", "Warm it."),
        ("009 §1.1", "Dry it (e.g. Then wait)."),
        ("009 §1.1", "Tea follows."),
    ]


@pytest.mark.parametrize(
    ("text", "strengths", "is_normative"),
    [
        ("It MUST NOT leak; it SHOULD shine.", {"MUST", "SHOULD"}, True),
        ("The lidMUST fit.", {"MUST"}, True),
        ("Only a lid fits.", set(), True),
        ("A lid fits.", set(), False),
    ],
)
def test_the_words_of_a_statement_say_whether_it_needs_a_row(
    text: str, strengths: set[str], is_normative: bool
) -> None:
    statement = Statement("009 §1", text)
    assert (statement.strengths, statement.is_normative) == (strengths, is_normative)


def test_white_space_and_place_in_a_line_do_not_change_a_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "009_x.txt").write_text("§1 A\nOne MUST\nboil. Two.", encoding="utf-8")
    (tmp_path / "009_y.txt").write_text("§1 A\nOne  MUST boil.\nTwo.", encoding="utf-8")
    first, second = (list_statements({"009": path.read_text(encoding="utf-8")}) for path in sorted(tmp_path.iterdir()))
    assert first == second
    assert [len(statement.fingerprint) for statement in first] == [8, 8]
