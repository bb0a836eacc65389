"""From a file to a `PromptAgent` (§2): split, YAML, references, definitions.

Every stage collects its problems instead of stopping at the first, so that a file with five mistakes reports five.
"""

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from prompty.errors import FileMissing, LoadError, Problem, PromptyWarning
from prompty.model.agent import PromptAgent
from prompty.pipeline.definitions import agent_from, problems_of, version1_signs
from prompty.pipeline.frontmatter import Parts, Unclosed, normalised, split
from prompty.pipeline.references import Identity, References, identity
from prompty.pipeline.secrets import secrets_in
from prompty.pipeline.source_map import Source
from prompty.pipeline.yaml_data import YamlError, YamlProblem, read_yaml
from prompty.redaction import remember_secrets
from prompty.registry import DEFAULT, Registry
from prompty.tracing.spans import begin

MAX_FILE_BYTES = 4_000_000

StrPath = str | os.PathLike[str]


@dataclass(slots=True)
class Outcome:
    """What became of a text: an agent, or the problems that kept it from being one."""

    source: Source
    references: References
    data: Mapping[str, Any] = field(default_factory=dict)
    agent: PromptAgent | None = None
    problems: list[Problem] = field(default_factory=list)


def load(
    path: StrPath,
    *,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    registry: Registry = DEFAULT,
) -> PromptAgent:
    """Load a .prompty file. An unchanged file with unchanged references is not read again."""
    with begin("load") as span:
        span("inputs", {"path": path} if span.live else None)
        return _loaded(path, allowed_roots, env, registry)


def _loaded(
    path: StrPath, allowed_roots: Sequence[StrPath], env: Mapping[str, str] | None, registry: Registry
) -> PromptAgent:
    key = (registry, os.fspath(path), tuple([os.fspath(root) for root in allowed_roots]))
    if env is None and (cached := _cached(key)):
        return cached
    file = Path(path).absolute()
    text, status = read_file(file, os.fspath(path))
    references = references_for(file.parent, allowed_roots, env)
    agent = _with_registry(_agreed(examine(text, os.fspath(path), references, file)), registry)
    if env is None:
        _remember(key, agent, identity(status), references)
    return agent


def loads(
    text: str,
    *,
    base_dir: StrPath | None = None,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    registry: Registry = DEFAULT,
) -> PromptAgent:
    """Load the text of a .prompty file; `${file:}` is relative to `base_dir`."""
    with begin("load"):
        base = Path(base_dir).absolute() if base_dir is not None else None
        return _with_registry(_read(text, references_for(base, allowed_roots, env)), registry)


def _read(text: str, references: References) -> PromptAgent:
    return _agreed(examine(text, "<text>", references))


def _with_registry(agent: PromptAgent, registry: Registry) -> PromptAgent:
    return agent if registry is DEFAULT else agent.model_copy(update={"registry": registry})


def examine(text: str, name: str, references: References, path: Path | None = None) -> Outcome:
    """Read a text as far as it goes."""
    text = normalised(text)
    try:
        parts = split(text)
    except Unclosed as error:
        source = Source(name, text, Parts(None, "", 1, 1))
        return Outcome(source, references, problems=[_unclosed(source, error.line)])
    outcome = Outcome(Source(name, text, parts), references)
    data = _frontmatter_data(outcome)
    if data is not None:
        outcome.data = data
        _define(outcome, data, path)
    return outcome


def _frontmatter_data(outcome: Outcome) -> Mapping[str, Any] | None:
    source = outcome.source
    try:
        data, twice = read_yaml(source.parts.frontmatter or "")
    except YamlError as error:
        outcome.problems.append(_yaml_problem(source, "invalid-yaml", error.problem))
        return None
    outcome.problems += [_yaml_problem(source, "duplicate-key", problem) for problem in twice]
    if data is None:
        return {}
    if not isinstance(data, dict):
        outcome.problems.append(_not_a_mapping(source))
        return None
    return cast(Mapping[str, Any], data)


def _define(outcome: Outcome, data: Mapping[str, Any], path: Path | None) -> None:
    source, references = outcome.source, outcome.references
    resolved = cast(dict[str, Any], references.resolve(data))
    outcome.problems += [source.at_key(*failure) for failure in references.failures]
    try:
        agent = agent_from(resolved, source.parts.body, path)
    except ValidationError as error:
        # A value that could not be resolved is not also of the wrong type.
        known = {(problem.line, problem.column) for problem in outcome.problems}
        found = problems_of(error, source)
        outcome.problems += [problem for problem in found if (problem.line, problem.column) not in known]
    else:
        outcome.agent = agent


def _agreed(outcome: Outcome) -> PromptAgent:
    if outcome.problems or outcome.agent is None:
        problems = sorted(outcome.problems, key=lambda problem: (problem.line, problem.column))
        missing = any(problem.code == "file-missing" for problem in problems)
        raise FileMissing(problems) if missing else LoadError(problems)
    if signs := version1_signs(outcome.data, outcome.source):
        warnings.warn("\n".join(map(str, signs)), PromptyWarning, stacklevel=5)
    remember_secrets(secrets_in(outcome.agent))
    return outcome.agent


def _unclosed(source: Source, line: int) -> Problem:
    return source.at(
        line,
        1,
        "unclosed-frontmatter",
        "malformed frontmatter: no closing delimiter",
        "Add a line `---` below the last key; the body follows it.",
    )


def _not_a_mapping(source: Source) -> Problem:
    return source.at(
        source.parts.frontmatter_line,
        1,
        "invalid-yaml",
        "invalid frontmatter: not a mapping",
        "Write `key: value` lines between the delimiters.",
    )


def _yaml_problem(source: Source, code: str, problem: YamlProblem) -> Problem:
    line, column = source.parts.frontmatter_line + problem.line, problem.column + 1
    return source.at(line, column, code, f"invalid frontmatter: {problem.message}", problem.fix)


def references_for(
    base_dir: Path | None, allowed_roots: Sequence[StrPath], env: Mapping[str, str] | None
) -> References:
    """What resolves the references of one file."""
    return References(base_dir, [Path(root) for root in allowed_roots], os.environ if env is None else env)


def read_file(file: Path, name: str) -> tuple[str, os.stat_result]:
    """The text of a prompt file and its state, taken together."""
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(name, error) from None
    if len(content) > MAX_FILE_BYTES:
        raise LoadError([_whole_file(name, f"more than {MAX_FILE_BYTES:,} bytes", "Move data out of the file.")])
    try:
        return content.decode("utf-8"), status
    except UnicodeDecodeError as error:
        cause = f"not UTF-8 text (byte {error.start})"
        raise LoadError([_whole_file(name, cause, "Save the file as UTF-8.")]) from None


def _unreadable(name: str, error: OSError) -> LoadError:
    if isinstance(error, FileNotFoundError):
        return FileMissing([_whole_file(name, "the file does not exist", "Correct the path.", "file-missing")])
    return LoadError([_whole_file(name, f"the file cannot be read: {error.strerror}", "Correct the path.")])


def _whole_file(name: str, message: str, fix: str, code: str = "unreadable-file") -> Problem:
    return Problem(code=code, message=message, fix=fix, path=name)


# The cache. An agent is handed out again while its file, the files it refers to and the variables it read are what
# they were. A file changed within the clock's own granularity looks unchanged, so one that is very young is not kept.
_YOUNG_NANOSECONDS = 50_000_000
_MOST_CACHED = 1024

_Key = tuple[Registry, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Cached:
    agent: PromptAgent
    identity: Identity
    variables: tuple[tuple[str, str | None], ...]
    files: tuple[tuple[Path, Identity], ...]


_cache: dict[_Key, _Cached] = {}


def _cached(key: _Key) -> PromptAgent | None:
    entry = _cache.get(key)
    if entry is None:
        return None
    try:
        fresh = (
            identity(os.stat(key[1])) == entry.identity
            and all(os.environ.get(name) == value for name, value in entry.variables)
            and all(identity(os.stat(file)) == known for file, known in entry.files)
        )
    except OSError:
        fresh = False
    return entry.agent if fresh else None


def _remember(key: _Key, agent: PromptAgent, file: Identity, references: References) -> None:
    newest = max(file[3], *(known[3] for known in references.files.values()), 0)
    if time.time_ns() - newest < _YOUNG_NANOSECONDS:
        return
    if len(_cache) >= _MOST_CACHED:
        _cache.pop(next(iter(_cache)), None)
    _cache[key] = _Cached(agent, file, tuple(references.variables.items()), tuple(references.files.items()))
