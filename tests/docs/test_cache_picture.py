"""The picture on the page about caches shows what the command prints today."""

from scripts.write_cache_picture import PICTURE, draw_picture


def test_the_picture_is_current() -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw_picture()
