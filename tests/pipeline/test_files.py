"""Reading files: what is no file."""

from pathlib import Path

import pytest

from prompty.pipeline.files import Unreadable, read_file


def test_a_path_that_no_file_can_have_is_an_error_with_a_fix(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="is not a valid path"):
        read_file(tmp_path / "a\0b", "a\0b", {})
