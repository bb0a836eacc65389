"""Search folders for files, without what belongs to others: hidden folders, virtual environments, and dependencies."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from prompty.cli.console import fail
from prompty.pipeline.packages import locate_prompt

_SKIPPED = frozenset({"node_modules", "site-packages", "dist-packages", "__pycache__", "__pypackages__"})


def find_files(folder: Path, *suffixes: str) -> list[Path]:
    """Return the files below a folder whose names end with one of `suffixes`, sorted. The folder itself is searched
    whatever its name is. Links to folders are not followed."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = [name for name in folders if not _is_skipped(here / name)]
        found += [here / name for name in names if name.endswith(suffixes)]
    return sorted(found)


def _is_skipped(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name in _SKIPPED:
        return True
    try:
        return (folder / "pyvenv.cfg").is_file()
    except OSError:  # no permission to enter it, or its path is too long
        return False


def find_prompts(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the given files, and the prompts in the given folders."""
    for path in paths:
        path = Path(locate_prompt(str(path)))
        found = find_files(path, ".prompty") if path.is_dir() else [path]
        if not found:
            fail(f"the folder '{path}' has no .prompty files\n    Pass a .prompty file, or a folder with such files.")
        yield from found
