"""Compare the files of a wheel and an sdist with the files of the repository.

    python -m scripts.check_dist dist

A wheel holds the tracked files below `src` and its metadata. An sdist holds what builds that wheel. Anything else is a
surprise: a file that somebody forgot to track, a cache, a secret.
"""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

METADATA = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
BESIDE_SOURCES = {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}


def read_wheel(path: Path) -> set[str]:
    """Return the names of a wheel's files, its metadata folder as `dist-info`."""
    with zipfile.ZipFile(path) as archive:
        names = [PurePosixPath(name) for name in archive.namelist()]
    return {
        str(PurePosixPath("dist-info", *name.parts[1:])) if name.parts[0].endswith(".dist-info") else str(name)
        for name in names
    }


def read_sdist(path: Path) -> set[str]:
    """Return the names of an sdist's files, below its one folder."""
    with tarfile.open(path) as archive:
        names = [PurePosixPath(member.name) for member in archive.getmembers() if member.isfile()]
    [_] = {name.parts[0] for name in names}
    return {str(PurePosixPath(*name.parts[1:])) for name in names}


def list_tracked(root: Path, *folders: str) -> set[str]:
    """Return the files below folders that git knows."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--", *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  our own repository
    return {name for name in done.stdout.split("\0") if (root / name).is_file()}


def find_surprises(wheel: Iterable[str], sdist: Iterable[str], tracked: Iterable[str]) -> list[str]:
    """Return a sentence for each file that is missing or that nobody meant to publish."""
    tracked = set(tracked)
    sources = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    return [
        *_compare("wheel", set(wheel), sources | {f"dist-info/{name}" for name in METADATA}),
        *_compare("sdist", set(sdist), tracked | BESIDE_SOURCES),
    ]


def _compare(name: str, found: set[str], expected: set[str]) -> list[str]:
    return [
        *(f"the {name} has {file}, which is not a file of the repository" for file in sorted(found - expected)),
        *(f"the {name} lacks {file}" for file in sorted(expected - found)),
    ]


def main(folder: Path) -> None:
    """Check the only wheel and the only sdist of a folder."""
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    if surprises := find_surprises(
        read_wheel(wheel), read_sdist(sdist), list_tracked(Path(__file__).parents[1], "schemas", "src")
    ):
        sys.exit("\n".join(surprises))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
