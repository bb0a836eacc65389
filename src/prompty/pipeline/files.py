"""Read the files of a prompt.

Only this module opens a prompt's files, so an editor can pass unsaved buffers here.
"""

import errno
import os
import stat
import warnings
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from prompty.errors import PromptyWarning

MAX_FILE_BYTES = 4_000_000
MAX_SEARCHED = 100_000  # files and folders
_PACKAGES = ("site-packages", "dist-packages")  # of others, whose prompts are no part of a project

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


def is_hidden(path: PurePath) -> bool:
    """Return True if a part of a path begins with a dot: such files hold keys, not text (`.env`, `.ssh/id`)."""
    return any(part.startswith(".") and part != ".." for part in path.parts)


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


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file, however large. Raise OSError for a pipe or a device: it may never end."""
    with open(path, "rb", opener=_open) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read()


def list_folders_above(path: Path) -> Iterator[Path]:
    """Yield the folders in which a file that holds for a prompt can be, such as `.env`: from that of the prompt itself,
    not of a link to it, up to the root of the repository, or the home directory. Installed packages have none."""
    try:
        start, home = path.resolve(), Path.home().resolve()
    except (OSError, RuntimeError, ValueError):
        return
    for folder in (start, *start.parents) if start.is_dir() else start.parents:
        if folder.name in _PACKAGES:
            return
        yield folder
        if folder == home or (folder / ".git").exists():
            return


def is_foreign(status: os.stat_result) -> bool:
    """Return True if a file belongs to another user, who must not decide what this one runs."""
    return hasattr(os, "geteuid") and status.st_uid != os.geteuid()


def warn_of_owner(file: Path, *, stacklevel: int) -> None:
    """Warn that a file is not used."""
    warnings.warn(f"{file} is not used: it belongs to another user", PromptyWarning, stacklevel=stacklevel + 1)


def find_matches(folder: Path, pattern: str) -> Iterator[str]:
    """Yield the paths of files below a folder that match a pattern with `*` and `**`.

    Links to folders are not followed, and of a huge folder only a part is searched.
    """
    parts, searched = pattern.removeprefix("./").split("/"), 0
    for place, folders, names in os.walk(folder):
        inside = Path(place).relative_to(folder).parts
        searched += len(folders) + len(names)
        if searched > MAX_SEARCHED or ("**" not in parts and len(inside) + 1 >= len(parts)):
            folders.clear()
        yield from ("/".join((*inside, name)) for name in names if _matches((*inside, name), parts))


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return True if a path matches a pattern. The time does not depend on how many `**` the pattern has."""
    reached = _pass_stars({0}, pattern)  # how many parts of the pattern may stand for the path so far
    for part in path:
        left = {place for place in reached if place < len(pattern)}
        steps = {place + (pattern[place] != "**") for place in left if fnmatchcase(part, pattern[place])}
        reached = _pass_stars(steps, pattern)
    return len(pattern) in reached


def _pass_stars(reached: set[int], pattern: Sequence[str]) -> set[int]:
    """Add the places behind each `**`, which may stand for nothing."""
    for place in range(len(pattern)):
        if place in reached and pattern[place] == "**":
            reached.add(place + 1)
    return reached


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
