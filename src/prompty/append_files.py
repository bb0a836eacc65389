"""Files to which a process appends whole records, on every system.

Windows has no `os.pread`, translates newlines unless a file is opened as binary, and neither renames nor deletes a
file that is open. Used by `batches.ledger`, `cases.answers` and `tracing.files`.
"""

import os
from pathlib import Path

_BLOCK = 65536


def open_to_append(path: str | Path, *, new: bool = False) -> int:
    """Open a file that only its owner can read, and return its descriptor. Raise FileExistsError if it must be `new`
    and exists."""
    flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
    return os.open(path, flags | os.O_EXCL if new else flags, 0o600)


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


def replace_and_open(path: Path, content: bytes) -> int:
    """Replace a file in one step, and open it. Another process sees the old file or the new one."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    file = open_to_append(fresh, new=True)
    try:
        append(file, content)
    finally:
        os.close(file)  # before it is renamed
    fresh.replace(path)
    return open_to_append(path)


def remove_open_file(path: Path) -> None:
    """Delete a file that this process may have open, or empty it if the system deletes no open files."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        os.truncate(path, 0)
