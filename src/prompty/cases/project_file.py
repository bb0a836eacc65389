"""The project file of the command line and of pytest: `prompty.toml`, or `[tool.prompty]` in `pyproject.toml`.

It comes with the prompts, so it is trusted no more than they are: it can name folders inside its own and a model for
prompts without one, but no host, no credential, no program and no path outside. `load()` does not read it.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any

from prompty.errors import LoadError, Problem, did_you_mean, nearest
from prompty.model.agent import PromptAgent
from prompty.pipeline.files import Unreadable, is_foreign, is_hidden, list_folders_above, read_file, warn_of_owner
from prompty.pipeline.model_override import find_default_model, needs_model, override_model, split_model

NAMES = ("prompty.toml", "pyproject.toml")
_KEYS = ("roots", "model", "trace", "test")
_TEST_KEYS = ("concurrency", "max_cost")
_MAX_MODEL_LENGTH = 200


@dataclass(frozen=True, kw_only=True)
class Project:
    """What a project file says. `roots` are folders whose files prompts may read, `model` is for prompts that name
    none, and traces go to the folder `trace`. The rest are defaults of `prompty test`."""

    path: Path | None = None
    roots: tuple[Path, ...] = ()
    model: str | None = None
    trace: Path | None = None
    concurrency: int | None = None
    max_cost: float | None = None


NO_PROJECT = Project()


def find_project(prompt: str | os.PathLike[str]) -> Project:
    """Return the nearest project file above a prompt, or an empty one.

    The search ends at the root of the repository, and at the home directory. A prompt of a package has none. Raise
    LoadError if the file is invalid. A file of another user is ignored, with a warning.
    """
    if os.fspath(prompt).startswith("pkg:"):
        return NO_PROJECT
    for folder in list_folders_above(Path(prompt)):
        for name in NAMES:
            file = folder / name
            if (table := _read_table(file)) is not None:
                return _Reader(file, table).read()
    return NO_PROJECT


def override_in_project(
    agent: PromptAgent,
    project: Project,
    model: str | None = None,
    options: Mapping[str, object] | None = None,
    *,
    provider: str | None = None,
    api_type: str | None = None,
) -> PromptAgent:
    """Return the agent with the caller's model, or with the project's if neither caller, file nor PROMPTY_MODEL names
    one."""
    if model is None and provider is None and project.model and uses_model(agent, project):
        return override_model(agent, project.model, options, api_type=api_type)
    return override_model(agent, model, options, provider=provider, api_type=api_type)


def uses_model(agent: PromptAgent, project: Project) -> bool:
    """Return True if the agent needs the project's model. It cannot replace the file's provider or connection."""
    if not project.model or not needs_model(agent, agent.registry) or find_default_model(agent.registry):
        return False
    provider, _ = split_model(project.model, agent.registry)
    is_free = agent.model.connection is None and "provider" not in agent.model.model_fields_set
    return is_free or provider in (None, agent.model.provider)


@dataclass(frozen=True)
class _Table:
    """The data of a project file, its text, and the key that it is below."""

    data: Mapping[str, Any]
    text: str
    prefix: str = ""


def _read_table(file: Path) -> _Table | None:
    """Return the data of a file, or None if it is no project file."""
    try:
        status = file.lstat()
    except (OSError, ValueError):
        return None
    is_shared = file.name == "pyproject.toml"
    if stat.S_ISLNK(status.st_mode) and is_shared:
        return None  # whatever it says is about another folder
    if is_foreign(status):
        if not is_shared:
            warn_of_owner(file, stacklevel=3)
        return None
    if stat.S_ISLNK(status.st_mode):
        raise _refuse(file, "it is a link", "Write the file itself.")
    try:
        text, _ = read_file(file, file.name, {}, contained=True)
    except Unreadable as error:
        if is_shared:
            return None
        raise _refuse(file, error.message, error.fix) from None
    if is_shared and "prompty" not in text:
        return None
    import tomllib  # few folders have such a file

    try:
        data: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _refuse(file, f"it is not TOML: {error}", "Correct that line.") from None
    if not is_shared:
        return _Table(data, text)
    tool = data.get("tool")
    table = tool.get("prompty") if isinstance(tool, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise _refuse(file, "`tool.prompty` is not a table", "Write [tool.prompty], and keys below it.")
    return _Table(table, text, "tool.prompty.")


def _refuse(file: Path, message: str, fix: str, line: int = 1) -> LoadError:
    return LoadError([Problem(code="project-file", message=message, fix=fix, path=str(file), line=line)])


@dataclass
class _Reader:
    """Checks the values of a project file."""

    file: Path
    table: _Table
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.file.parent.resolve()

    def read(self) -> Project:
        data, test = self.table.data, self.table.data.get("test", {})
        self._check_keys(data, _KEYS, "")
        if not isinstance(test, dict):
            raise self._refuse("test", "`test` is not a table", f"Write [{self.table.prefix}test], and keys below it.")
        self._check_keys(test, _TEST_KEYS, "test.")
        return Project(
            path=self.file,
            roots=self._read_roots(data.get("roots", [])),
            model=self._read_model(data["model"]) if "model" in data else None,
            trace=self._read_folder("trace", data["trace"], must_exist=False) if "trace" in data else None,
            concurrency=self._read_concurrency(test),
            max_cost=self._read_cost(test),
        )

    def _check_keys(self, data: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
        for key in data:
            if key not in known:
                fix = f"{did_you_mean(nearest(key, known))}The keys are {', '.join(known)}."
                raise self._refuse(key, f"unknown key `{prefix}{key}`", fix)

    def _read_roots(self, value: object) -> tuple[Path, ...]:
        if not isinstance(value, list):
            raise self._refuse("roots", "`roots` is not a list", 'Write roots = ["shared"].')
        roots = tuple([self._read_folder("roots", entry, must_exist=True) for entry in value])
        for root, entry in zip(roots, value, strict=True):
            if is_hidden(root.relative_to(self.folder)):
                message = f"`roots` names '{entry}', a hidden folder"
                raise self._refuse("roots", message, "Name a folder that does not begin with a dot.")
        return roots

    def _read_folder(self, key: str, value: object, *, must_exist: bool) -> Path:
        """Return a folder inside that of the project file."""
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise self._refuse(key, f"`{key}` names no folder", f'Write the name of a folder: "{key}".')
        written = PureWindowsPath(value)  # which knows both kinds of slashes, drives and servers
        if written.drive or written.root or ".." in written.parts or value.startswith("~"):
            raise self._outside(key, value)
        try:
            folder = (self.folder / value).resolve()
        except (OSError, RuntimeError) as error:
            raise self._refuse(key, f"'{value}' cannot be opened: {error}", "Correct the path.") from None
        if not folder.is_relative_to(self.folder):
            raise self._outside(key, value)
        if must_exist and not folder.is_dir():
            raise self._refuse(key, f"there is no folder '{value}'", "Create it, or correct the path.")
        return folder

    def _outside(self, key: str, value: str) -> LoadError:
        message = f"`{key}` names '{value}', which is not inside the folder of {self.file.name}"
        return self._refuse(key, message, "Name a folder inside. For others, add --root to the command.")

    def _read_model(self, value: object) -> str:
        if isinstance(value, str) and value.strip() and value.isprintable() and len(value) <= _MAX_MODEL_LENGTH:
            return value
        raise self._refuse("model", "`model` is not the id of a model", 'Write model = "id", or "provider:id".')

    def _read_concurrency(self, test: Mapping[str, Any]) -> int | None:
        value = test.get("concurrency")
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        raise self._refuse(
            "concurrency", "`test.concurrency` is not a whole number of at least 1", "Write concurrency = 4."
        )

    def _read_cost(self, test: Mapping[str, Any]) -> float | None:
        value = test.get("max_cost")
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9):
            return value
        raise self._refuse("max_cost", "`test.max_cost` is not a number of dollars", "Write max_cost = 0.50.")

    def _refuse(self, key: str, message: str, fix: str) -> LoadError:
        found = re.search(rf"^[ \t]*(?:\[[\w. ]*)?[\"']?{re.escape(key)}\b", self.table.text, re.MULTILINE)
        line = 1 + self.table.text.count("\n", 0, found.start()) if found else 1
        return _refuse(self.file, message, fix, line)
