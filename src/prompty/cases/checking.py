"""Check a prompt or a test file as part of its project, for the command line and editors."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from prompty.analysis.check import check
from prompty.cases.project_file import find_project
from prompty.errors import Problem
from prompty.pipeline.dotenv import load_env
from prompty.pipeline.references import StrPath


def check_in_project(
    prompt: Path,
    *,
    variant: str | None = None,
    portable: bool = False,
    roots: Sequence[StrPath] = (),
    buffers: Mapping[StrPath, str] | None = None,
) -> list[Problem]:
    """Return the problems of a prompt, with the `.env` file and the project file that belong to it.

    Raise LoadError if one of those cannot be read.
    """
    load_env(prompt=prompt)
    project = find_project(prompt)
    allowed = (*roots, *project.roots)
    found = check(prompt, variant=variant, portable=portable, allowed_roots=allowed, buffers=buffers)
    return [problem for problem in found if not (project.model and problem.code == "missing-model")]
