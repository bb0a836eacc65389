"""The picture of a terminal shows what the command prints today."""

import pytest

from scripts import write_terminal_picture


@pytest.mark.process
def test_the_picture_of_a_run_is_current() -> None:
    picture = write_terminal_picture
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.draw_picture()
