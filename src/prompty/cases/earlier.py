"""Extract prompts at a git reference to a temporary folder, to run the current cases with them."""

import io
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from prompty.cases.reading import Suite
from prompty.errors import RequestError

_SECONDS = 60


@contextmanager
def open_earlier(suites: Sequence[Suite], reference: str) -> Iterator[list[Suite]]:
    """Yield the suites with the prompts and recordings at a git reference. Suites that did not exist are omitted."""
    if reference.startswith("-"):
        raise RequestError(f"'{reference}' is not a git reference", "Name a branch, a tag or a commit.")
    with TemporaryDirectory(prefix="prompty-test-") as folder:
        found = [
            earlier
            for number, suite in enumerate(suites)
            if (earlier := _extract(suite, reference, Path(folder).resolve() / str(number)))
        ]
        if not found:
            raise RequestError(f"none of these prompts exists at '{reference}'", "Name a reference that has them.")
        yield found


def _extract(suite: Suite, reference: str, target: Path) -> Suite | None:
    """Write a suite's folder at the reference to `target`. Return None if its prompt did not exist."""
    here = suite.folder.resolve()
    root = Path(_run_git(here, "rev-parse", "--show-toplevel").decode().strip()).resolve()
    _run_git(root, "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}", cause=f"git has no '{reference}'")
    prompt = suite.prompt.resolve()
    if not prompt.is_relative_to(here):
        raise RequestError(
            f"{suite.prompt} is not below {suite.folder}", "To compare a prompt, keep it next to its tests."
        )
    place = here.relative_to(root).as_posix()
    names = _run_git(root, "ls-tree", "-r", "--name-only", "-z", reference, "--", f"{place}/" if place != "." else ".")
    if prompt.relative_to(root).as_posix() not in names.decode().split("\0"):
        return None
    target.mkdir()
    with tarfile.open(fileobj=io.BytesIO(_run_git(root, "archive", reference, "--", place))) as archive:
        archive.extractall(target, filter="data")
    folder = target / place
    return replace(suite, prompt=folder / prompt.relative_to(here), earlier=folder)


def _find_git() -> str:
    git = which("git")
    if git is None:
        raise RequestError("git is not installed", "Install it, or compare with --baseline.")
    return git


def _run_git(folder: Path, *words: str, cause: str = "") -> bytes:
    try:
        done = subprocess.run(  # noqa: S603  the user's reference, after --verify
            [_find_git(), "-C", str(folder), *words], capture_output=True, check=True, timeout=_SECONDS
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().partition("\n")[0]
        raise RequestError(cause or f"git failed: {said or error}", "Run the command in the repository.") from None
    return done.stdout
