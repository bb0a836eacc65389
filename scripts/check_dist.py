"""Compare the files of a wheel and an sdist with the files of the repository, and print a list of both.

    python -m scripts.check_dist dist

A wheel holds the tracked files below `src` and its metadata. An sdist holds what builds that wheel. Anything else is a
surprise: a file that somebody forgot to track, a cache, a secret.
"""

import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

METADATA = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
PACKAGES = {"prompty", "prompty_runtime"}
BESIDE_SOURCES = {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
FOLDERS = {"schemas", "src"}
SUFFIXES = {".css", ".html", ".js", ".json", ".md", ".png", ".prompty", ".py", ".typed"}


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
        *(f"src/{name} is in no package" for name in sorted(sources) if PurePosixPath(name).parts[0] not in PACKAGES),
        *(
            f"{name} has a suffix that no file of ours has"
            for name in sorted(tracked)
            if Path(name).suffix not in SUFFIXES
        ),
    ]


def _compare(name: str, found: set[str], expected: set[str]) -> list[str]:
    return [
        *(f"the {name} has {file}, which is not a file of the repository" for file in sorted(found - expected)),
        *(f"the {name} lacks {file}" for file in sorted(expected - found)),
    ]


def summarize(names: Iterable[str]) -> str:
    """Return one line for each entry at the top, and below `prompty` and `src`, with its number of files."""
    counts = Counter("/".join(PurePosixPath(name).parts[:2]) for name in names)
    return "\n".join(f"  {count:4} {entry}" for entry, count in sorted(counts.items()))


def main(folder: Path) -> None:
    """Check the only wheel and the only sdist of a folder."""
    [wheel_path], [sdist_path] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    wheel, sdist = read_wheel(wheel_path), read_sdist(sdist_path)
    for path, names in ((wheel_path, wheel), (sdist_path, sdist)):
        print(f"{path.name}: {len(names)} files, {path.stat().st_size // 1024} KB\n{summarize(names)}")
    if surprises := find_surprises(wheel, sdist, list_tracked(Path(__file__).parents[1], *FOLDERS)):
        sys.exit("\n".join(surprises))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
