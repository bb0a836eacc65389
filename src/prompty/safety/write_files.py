"""Open files for writing, and say where a path leads.

Only this module opens files to write, create or append. A folder can bring links, pipes and files with names that can
be guessed, so no part of a path below the working folder may be a link, a file must be a regular one, and temporary
names are random. A person who means the target of a link names it.

Windows has no `os.pread`, translates newlines unless a file is opened as binary, and neither renames nor deletes a
file that is open.
"""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from errno import EINVAL, EISDIR, ELOOP
from pathlib import Path
from secrets import token_hex

_BLOCK = 65536
_is_junction = getattr(os.path, "isjunction", lambda _: False)  # a link of Windows, which Python 3.11 cannot tell
_FLAGS = os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


def check_target(path: str | Path) -> None:
    """Raise OSError unless a file can be written at a path: it leads through no link, and what is there is a regular
    file."""
    refuse_links(path)
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            raise _leads_elsewhere(path, os.path.realpath(path))
        if not stat.S_ISREG(mode):
            number, reason = (EISDIR, "it is a folder") if stat.S_ISDIR(mode) else (EINVAL, "it is not a regular file")
            raise OSError(number, reason, str(path))


def refuse_links(path: str | Path) -> None:
    """Raise OSError if a part of a path below the working folder is a link."""
    if target := find_link_target(path):
        raise _leads_elsewhere(path, target)


def find_link_target(path: str | Path) -> str:
    """Return where a path leads if a part of it below the working folder is a link, or an empty text."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it was deleted
        return ""
    whole, start = os.path.abspath(path), folder.rstrip(os.sep) + os.sep
    if not whole.startswith(start) or start == os.sep:  # the links in the root are the system's
        return ""
    place = folder.rstrip(os.sep)
    for part in whole[len(start) :].split(os.sep):  # texts, which take a third of the time of Path
        place = f"{place}{os.sep}{part}"
        if os.path.islink(place) or _is_junction(place):
            return os.path.realpath(whole)
    return ""


def find_outside_target(path: str | Path) -> str:
    """Return where a path leads if links below the working folder lead out of it, or an empty text."""
    target = find_link_target(path)
    return "" if target and Path(target).is_relative_to(os.path.realpath(".")) else target


def _leads_elsewhere(path: str | Path, target: str) -> OSError:
    return OSError(ELOOP, f"it leads through a link to '{target}'", str(path))


def open_to_append(path: str | Path, *, new: bool = False) -> int:
    """Open a file that only its owner can read, and return its descriptor. Raise FileExistsError if it must be `new`
    and exists."""
    if new:
        refuse_links(os.path.dirname(path) or ".")
    else:
        check_target(path)
    flags = _FLAGS | os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
    return os.open(path, flags | os.O_EXCL if new else flags, 0o600)


def create_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder and those above it, unless they exist."""
    refuse_links(path)
    path.mkdir(mode=mode, parents=True, exist_ok=True)


def create_files(contents: Mapping[Path, bytes]) -> None:
    """Create new files. Raise FileExistsError if one of them exists, even as a link that leads nowhere."""
    if existing := [str(path) for path in contents if os.path.lexists(path)]:
        raise FileExistsError(f"{', '.join(existing)} already exists")
    for path, content in contents.items():
        refuse_links(path)
        with path.open("xb") as file:  # does not follow a link that was made since
            file.write(content)


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file in one step: another process sees the old content or the new. `mode` is that of a new file, and an
    old file gets no more rights than it had."""
    check_target(path)
    fresh = name_temporary(path)
    try:
        with open(fresh, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            fresh.chmod(stat.S_IMODE(path.stat().st_mode) & mode)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def replace_and_open(path: Path, content: bytes) -> int:
    """Replace a private file in one step, and open it to append."""
    replace_file(path, content, mode=0o600)
    return open_to_append(path)


def name_temporary(path: Path) -> Path:
    """Return a path with a random name next to another."""
    return path.with_name(f".{token_hex(8)}.new")


def append(file: int, content: bytes) -> None:
    """Write all of the content at the end of the file."""
    while content:  # a nearly full disk accepts a part
        content = content[os.write(file, content) :]


def read_at(file: int, length: int, position: int) -> bytes:
    """Return up to `length` bytes from a position. Later writes still go to the end of the file."""
    if hasattr(os, "pread"):
        return os.pread(file, length, position)
    os.lseek(file, position, os.SEEK_SET)
    return os.read(file, length)


def read_last_line(file: int) -> bytes:
    """Return the bytes after the last newline."""
    tail, position = b"", os.fstat(file).st_size
    while position > 0 and b"\n" not in tail:
        length = min(_BLOCK, position)
        position -= length
        tail = read_at(file, length, position) + tail
    return tail.rpartition(b"\n")[2]


def remove_open_file(path: Path) -> None:
    """Delete a file that this process may have open, or empty it if the system deletes no open files."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        os.truncate(path, 0)
