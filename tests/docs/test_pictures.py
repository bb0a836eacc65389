"""The pictures of terminals show what the commands print today."""

import pytest

from scripts import write_cache_picture, write_terminal_picture


def test_the_picture_of_a_cached_prompt_is_current() -> None:
    picture = write_cache_picture
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.draw_picture()


@pytest.mark.process
def test_the_picture_of_a_run_is_current() -> None:
    picture = write_terminal_picture
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.draw_picture()
