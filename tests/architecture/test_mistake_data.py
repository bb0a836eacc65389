"""The mistakes of `benchmarks/mistakes`: the data are whole, and a few of them still say what is stored."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.mistakes.__main__ import show_side_by_side, summarise
from benchmarks.mistakes.mistake import SERVERS, get_fingerprint, load_grades, load_mistakes, read_yaml
from benchmarks.mistakes.perform import perform
from tests.drivers.clients import close_clients

MISTAKES = {mistake.id: mistake for mistake in load_mistakes()}
SAMPLE = (
    "tab-in-the-frontmatter",
    "file-in-a-code-fence",
    "misspelt-role",
    "open-if",
    "no-key",
    "wrong-key",
    "misspelt-command",
    "missing-input",
    "temperature-as-an-option",
    "check-without-a-level",
    "column-of-another-name",
    "function-without-a-list",
)


def test_there_are_206_mistakes_each_with_its_own_id() -> None:
    counts = Counter(mistake.id for mistake in load_mistakes())
    assert [name for name, count in counts.items() if count > 1] == []
    assert len(counts) == 206
    assert all(name == name.lower() and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in counts)


def test_no_two_mistakes_are_made_in_the_same_way() -> None:
    told = {"id": "", "does": "", "says": "", "should": {}}
    made = Counter(str(replace(mistake, **told)) for mistake in MISTAKES.values())  # type: ignore[arg-type]  # by name
    assert [one for one, count in made.items() if count > 1] == []


def test_each_says_what_a_person_does_and_what_the_message_should_name() -> None:
    assert [
        name for name, mistake in MISTAKES.items() if not (mistake.does[0].isupper() and mistake.does[-1] == ".")
    ] == []
    assert {tuple(mistake.should) for mistake in MISTAKES.values()} == {("place", "cause", "fix")}
    assert [name for name, mistake in MISTAKES.items() if not all(mistake.should.values())] == []


def test_each_has_a_command_or_a_program_and_servers_that_exist() -> None:
    assert [name for name, mistake in MISTAKES.items() if bool(mistake.command) == bool(mistake.python)] == []
    assert {mistake.command.partition(" ")[0] for mistake in MISTAKES.values()} == {"prompty", ""}
    assert {mistake.server for mistake in MISTAKES.values()} == {*read_yaml(SERVERS), ""}


def test_grades_are_good_half_or_poor_with_a_reason_and_belong_to_a_mistake() -> None:
    grades = load_grades()
    assert set(grades) <= set(MISTAKES)
    assert {grade["grade"] for grade in grades.values()} <= {"good", "half", "poor"}
    assert [name for name, grade in grades.items() if not grade.get("reason")] == []


def test_a_message_that_changes_after_its_grade_is_named() -> None:
    one, other = load_mistakes()[:2]
    messages = {one.id: one.says, other.id: f"{other.says}!"}
    new_grades = {one.id: {"grade": "good"}, other.id: {"grade": "poor"}}
    summary = "2 mistakes: 1 good, 0 half, 1 poor, 0 ungraded"
    assert summarise([one, other], messages, new_grades) == f"{summary}\nchanged since graded:\n  {other.id} (poor)"
    stamped = {name: {**grade, "fingerprint": get_fingerprint(messages[name])} for name, grade in new_grades.items()}
    assert summarise([one, other], messages, stamped) == summary


def test_lines_that_differ_are_side_by_side_with_a_bar() -> None:
    rows = show_side_by_side("same\nold", "same\nnew").splitlines()[1:]
    assert [row.split() for row in rows] == [["same", "same"], ["old", "|", "new"]]


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_mistake_still_says_what_is_stored(name: str, tmp_path: Path) -> None:
    assert perform(MISTAKES[name], tmp_path.resolve()) == MISTAKES[name].says
    close_clients()
