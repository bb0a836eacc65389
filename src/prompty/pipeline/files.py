"""Read the files of a prompt, and create new ones.

Only this module opens a prompt's files, so an editor can pass unsaved buffers here.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

MAX_FILE_BYTES = 4_000_000

# Opening a pipe must not block. A contained path was resolved and checked before, so opening it must not follow a new
# link. Not every system has these flags.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
_CONTAINED_FLAGS = _FLAGS | getattr(os, "O_NOFOLLOW", 0)

Identity = tuple[int, int, int, int]
Buffers = Mapping[Path, str]
_UNSAVED: Identity = (0, 0, 0, 0)


class Unreadable(Exception):
    """A file or a reference cannot be read. `message` says why, `fix` what to do."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix


def identify(status: os.stat_result) -> Identity:
    """Return an identity that changes whenever the file does, without reading it."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def read_file(path: Path, label: str, buffers: Buffers, *, contained: bool = False) -> tuple[str, Identity]:
    """Return the text and the identity of a file, named `label` in errors.

    It must be a regular file. A text in `buffers`, whose keys are resolved paths, replaces the file's. The path of a
    `contained` file must be resolved.
    """
    if buffers and (text := buffers.get(path.resolve())) is not None:
        return text, _UNSAVED
    try:
        with open(path, "rb", opener=_open_contained if contained else _open) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable("file-kind", f"{label} is not a regular file", "Use a regular file.")
            content = file.read(MAX_FILE_BYTES + 1) if status.st_size <= MAX_FILE_BYTES else b""
    except OSError as error:
        raise _cannot_open(label, error) from None
    except ValueError:  # a null character, or a lone surrogate
        raise Unreadable("file-missing", f"{label!r} is not a valid path", "Correct the path.") from None
    if max(len(content), status.st_size) > MAX_FILE_BYTES:
        raise Unreadable("file-size", f"{label} has more than {MAX_FILE_BYTES:,} bytes", "Use a smaller file.")
    try:
        return content.decode("utf-8-sig"), identify(status)
    except UnicodeDecodeError as error:
        message = f"{label} is not UTF-8 text (byte {error.start})"
        raise Unreadable("file-encoding", message, "Save it as UTF-8.") from None


def create_files(contents: Mapping[Path, bytes]) -> None:
    """Create new files. Raise FileExistsError if one of them exists, even as a link that leads nowhere."""
    if existing := [str(path) for path in contents if os.path.lexists(path)]:
        raise FileExistsError(f"{', '.join(existing)} already exists")
    for path, content in contents.items():
        with path.open("xb") as file:  # does not follow a link that was made since
            file.write(content)


def _open(path: str, _: int) -> int:
    return os.open(path, _FLAGS)


def _open_contained(path: str, _: int) -> int:
    return os.open(path, _CONTAINED_FLAGS)


def _cannot_open(label: str, error: OSError) -> Unreadable:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Unreadable("file-missing", f"{label} does not exist", "Correct the path or create the file.")
    if isinstance(error, IsADirectoryError):
        return Unreadable("file-kind", f"{label} is a folder", "Name a file in it.")
    return Unreadable("file-unreadable", f"{label} cannot be opened: {error.strerror}", "Correct the path.")
