"""The conformance report understands its marks, and explains the ones it cannot read."""

import pytest

from tests.spec_report import parse_mark

NODE = "tests/x.py::test_y"


def test_a_mark_names_a_section_and_a_requirement() -> None:
    mark = pytest.mark.spec("000 §7.1.3", "no tools means no key").mark
    assert parse_mark(mark, NODE) == ("000 §7.1.3", "no tools means no key")


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
