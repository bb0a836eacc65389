"""Read the files of a git revision into a private folder, without what the repository can name.

A repository can bring settings that start programs: filters, hooks, a pager, a file monitor, and the command that
fetches what a partial clone lacks. So git runs three commands that read objects, `rev-parse`, `ls-tree` and `cat-file`,
which use no index and no work tree, and its environment forbids every transport. No other module starts git.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Timer
from typing import IO, NamedTuple

from prompty.errors import RequestError
from prompty.safety.write_files import create_files, create_folder

_MIB = 1 << 20
MAX_FILE = 16 * _MIB
MAX_TOTAL = 256 * _MIB
MAX_FILES = 20_000
MAX_ENTRIES = 500_000  # a tree can contain another many times
SECONDS = 10.0
_MAX_PATH = 1_000
_SUFFIXES = (
    *(".prompty", ".md", ".txt", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".tsv", ".toml"),
    *(".j2", ".jinja", ".jinja2", ".mustache", ".html", ".xml"),
)
# Names that mean something else on some system: parts `.`, `..` and `.git`, devices of Windows, hidden characters.
_ODD_NAME = re.compile(
    r"(?i)(^|/)(\.{0,2}|\.git|git~\d+|(con|prn|aux|nul|com\d|lpt\d)(\.[^/]*)?|[^/]*[ .])(/|$)"
    r"|[\x00-\x1f\x7f\\:<>\"|?*\u200b-\u200f\u202a-\u202e\u2066-\u206f\ufeff]"
)
_SAFE = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


class Revision(NamedTuple):
    """The needed files of a commit, in a folder. `skipped` has the paths of the others, with the reason."""

    commit: str
    folder: Path
    skipped: dict[str, str]


def find_repository(folder: Path) -> Path:
    """Return the root of the repository that a folder is in. Raise RequestError if there is none."""
    start = folder.resolve()
    for place in (start, *start.parents):
        if os.path.lexists(place / ".git"):
            return place
    raise RequestError(f"'{folder}' is not in a git repository", "Run the command in one, or compare with --baseline.")


@contextmanager
def open_revision(root: Path, revision: str) -> Iterator[Revision]:
    """Yield the files that prompts can read at a revision of the repository at `root`. The folder is removed after.

    Raise RequestError if the revision cannot be read within ten seconds and the limits.
    """
    if revision.startswith("-"):
        raise RequestError(f"'{revision}' is not a git reference", "Name a branch, a tag or a commit.")
    git = _Git(root, revision)
    commit = git.resolve_commit()
    skipped: dict[str, str] = {}
    blobs = _list_files(git, commit, skipped)
    sizes = _read_sizes(git, blobs, skipped)
    with TemporaryDirectory(prefix="prompty-revision-") as name:
        folder = Path(name).resolve()
        create_folder(folder / ".git")  # a search for the project's file ends here
        _write_files(git, {path: blobs[path] for path in sizes}, sizes, folder, skipped)
        yield Revision(commit, folder, skipped)


def _list_files(git: "_Git", commit: str, skipped: dict[str, str]) -> dict[str, bytes]:
    """Return the needed paths of a commit with the ids of their contents."""
    found: dict[str, bytes] = {}
    folded: set[str] = set()  # a file system may not tell names apart that differ in case
    with git.start("ls-tree", "-r", "-z", "--full-tree", commit) as output:
        for entry in _split_entries(output):
            kind, _, raw = entry.partition(b"\t")
            mode, _, blob = kind.split(b" ")
            path = raw.decode("utf-8", "backslashreplace")
            if not path.lower().endswith(_SUFFIXES):
                continue
            if not mode.startswith(b"100"):
                skipped[path] = "it is a link, or not a file"
            elif _ODD_NAME.search(path) or len(raw) > _MAX_PATH:
                skipped[path] = "not every system allows its name"
            elif path.casefold() in folded:
                skipped[path] = "another file has its name, but for upper and lower case"
            else:
                found[path] = blob
                folded.add(path.casefold())
            if len(found) > MAX_FILES:
                raise git.refuse(f"it has more than {MAX_FILES:,} files that prompts could read")
    return found


def _split_entries(output: IO[bytes]) -> Iterator[bytes]:
    """Yield the entries of a tree. Raise EOFError if the last is not complete."""
    rest, count = b"", 0
    while piece := output.read(_MIB):
        *entries, rest = (rest + piece).split(b"\0")
        count += len(entries)
        if count > MAX_ENTRIES or len(rest) > _MIB:
            raise RequestError(f"the revision has more than {MAX_ENTRIES:,} files", "Compare with --baseline.")
        yield from entries
    if rest:
        raise EOFError


def _read_sizes(git: "_Git", blobs: dict[str, bytes], skipped: dict[str, str]) -> dict[str, int]:
    """Return the sizes of the files that are not too large, before any is read."""
    sizes: dict[str, int] = {}
    with git.start("cat-file", "--batch-check", names=blobs.values()) as output:
        for path in blobs:
            kind, size = _parse_header(output, git)
            if kind == b"blob" and size <= MAX_FILE:
                sizes[path] = size
            else:
                skipped[path] = f"it has {size // _MIB} MiB" if kind == b"blob" else "it is not a file"
    if sum(sizes.values()) > MAX_TOTAL:
        raise git.refuse(f"its files have {sum(sizes.values()) // _MIB} MiB, and the limit is {MAX_TOTAL // _MIB} MiB")
    return sizes


def _parse_header(output: IO[bytes], git: "_Git") -> tuple[bytes, int]:
    words = output.readline(200).split()
    if len(words) == 2 and words[1] == b"missing":
        raise git.refuse("not all of it is on this machine, as in a partial or shallow clone", "Run git fetch first.")
    if len(words) != 3:
        raise EOFError
    return words[1], int(words[2])


def _write_files(
    git: "_Git", blobs: dict[str, bytes], sizes: dict[str, int], folder: Path, skipped: dict[str, str]
) -> None:
    with git.start("cat-file", "--batch", names=blobs.values()) as output:
        for path in blobs:
            _, size = _parse_header(output, git)
            if size != sizes[path]:
                raise EOFError
            content = output.read(size + 1)  # and a newline
            if len(content) != size + 1:
                raise EOFError
            try:
                create_folder((folder / path).parent)
                create_files({folder / path: content[:-1]})
            except OSError as error:
                skipped[path] = f"it cannot be written: {error.strerror or error}"


class _Git:
    """The program `git`, for one revision, with ten seconds for all of its commands."""

    def __init__(self, root: Path, revision: str) -> None:
        self.root, self.revision = root, revision
        self._program = _find_program(root)
        self._end = time.monotonic() + SECONDS
        kept = {name: value for name, value in os.environ.items() if _is_kept(name)}
        self._environment = {**kept, **_SAFE, "GIT_CEILING_DIRECTORIES": str(root.parent)}

    def resolve_commit(self) -> str:
        """Return the id of the commit that the revision names."""
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{self.revision}^{{commit}}")
        with self.start(*words) as output:
            return output.read(200).decode("ascii", "replace").strip()

    @contextmanager
    def start(self, *words: str, names: Iterable[bytes] = ()) -> Iterator[IO[bytes]]:
        """Run a command, with the names of objects as its input, and yield its output.

        Raise RequestError if it fails, or if the reader of the output raises EOFError.
        """
        with TemporaryFile() as errors, TemporaryFile() as given:
            given.write(b"".join(b"%s\n" % name for name in names))
            given.seek(0)
            command = [self._program, "-c", "core.fsmonitor=false", *words]
            process = subprocess.Popen(  # noqa: S603  found outside the repository, and the revision is verified
                command, cwd=self.root, stdin=given, stdout=subprocess.PIPE, stderr=errors, env=self._environment
            )
            assert process.stdout is not None  # noqa: S101  it is a pipe
            timer = Timer(max(self._end - time.monotonic(), 0.01), process.kill)
            timer.start()
            is_cut = False
            try:
                yield process.stdout
                code = process.wait()
            except RequestError:
                raise
            except (EOFError, ValueError):  # git has ended early, or says something else than it should
                process.stdout.close()  # so that git does not wait for a reader
                is_cut, code = True, process.wait()
            finally:
                timer.cancel()
                process.kill()
                process.stdout.close()
                process.wait()
            if code or is_cut:
                errors.seek(0)
                raise self._explain(words[0], errors.read(2_000).decode("utf-8", "replace").strip())

    def refuse(self, cause: str, fix: str = "Compare with --baseline.") -> RequestError:
        return RequestError(f"'{self.revision}' cannot be read: {cause}", fix)

    def _explain(self, command: str, text: str) -> RequestError:
        if time.monotonic() >= self._end:
            return self.refuse(f"git needs more than {SECONDS:g} seconds")
        if any(word in text for word in ("lazy fetching", "promisor", "not allowed")):
            return self.refuse("this is a partial clone, and a part is not on this machine", "Run git fetch first.")
        if "dubious ownership" in text:
            fix = "Run it as that user, or see `git help config` for safe.directory."
            return self.refuse("the repository is another user's", fix)
        if not text and command == "rev-parse":
            fix = "Name a branch, a tag or a commit of this repository. If it is on the server, run git fetch first."
            return RequestError(f"git has no '{self.revision}'", fix)
        last = text.splitlines()[-1] if text else "it ended early"
        return self.refuse(f"git {command}: {last}", "Run git fsck to find what is damaged.")


def _is_kept(name: str) -> bool:
    """Return False for variables that name a repository, an index or a program: a git hook sets them."""
    return not name.startswith("GIT_") or name.startswith("GIT_CONFIG_")


def _find_program(root: Path) -> str:
    """Return the path of git, which must be outside the repository."""
    for place in map(Path, os.environ.get("PATH", os.defpath).split(os.pathsep)):
        program = shutil.which(place / "git") if place.is_absolute() else None
        if program is not None and not Path(program).resolve().is_relative_to(root):
            return program
    raise RequestError("there is no git outside the repository", "Install it, or compare with --baseline.")
