"""Reading and writing files: what is no file, and what is there already."""

from pathlib import Path

import pytest

from prompty.pipeline.files import Unreadable, create_files, read_file, write_file


def test_a_path_that_no_file_can_have_is_an_error_with_a_fix(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="is not a valid path"):
        read_file(tmp_path / "a\0b", "a\0b", {})


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "link", "theirs")
    assert (tmp_path / "target").read_text() == "mine"


def test_nothing_is_created_if_one_of_the_files_exists_even_as_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "there").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="there already exists"):
        create_files({tmp_path / "new": b"", tmp_path / "there": b""})
    assert not (tmp_path / "new").exists()
