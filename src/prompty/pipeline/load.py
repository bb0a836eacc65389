"""Load a file as a `PromptAgent` (§2): read it, split it, read its YAML, resolve references, validate definitions.

Every stage collects its problems instead of stopping at the first, so that a file with five mistakes reports five.
"""

import os
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prompty.errors import FileMissing, LoadError, Problem, PromptyWarning, WrongArgument, check_path, nearest
from prompty.model.agent import PromptAgent, secrets_in
from prompty.model.trust import Use, read_trusted
from prompty.pipeline.compose import BodyPlaces, CompositionProblem, compose
from prompty.pipeline.definitions import build_agent, find_v1_key
from prompty.pipeline.files import Buffers, Identity, Unreadable, identify, read_file
from prompty.pipeline.frontmatter import Document, ParsedFrontmatter, open_document, read_frontmatter
from prompty.pipeline.places import keep_places
from prompty.pipeline.references import References, StrPath as StrPath
from prompty.pipeline.source_map import MAX_PROBLEMS, first_problems
from prompty.registry import DEFAULT, Registry
from prompty.safety.redaction import hide_secrets
from prompty.tracing.spans import begin

if TYPE_CHECKING:
    from prompty.pipeline.version_1 import Reading

MissingEnv = Literal["raise", "defer"]


def load(
    path: StrPath,
    *,
    variant: str | None = None,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    trusted_endpoints: Sequence[str] = (),
    env_allowed: Collection[str] = (),
    missing_env: MissingEnv | None = None,
    registry: Registry = DEFAULT,
    allowed_file_roots: Sequence[StrPath] = (),
) -> PromptAgent:
    """Load a .prompty file. The result is cached until the file or its references change.

    `pkg:package/answer.prompty` is a file in a Python package. `variant="claude"` merges `answer.claude.prompty` into
    it, and "" selects the file itself. If the prompt has variants, the default is the variable `PROMPTY_VARIANT`.
    `trusted_endpoints` may receive credentials and other values from the environment, even if only the file names them.
    `env_allowed` are the names of variables whose values any endpoint may receive, except as a credential. A variable
    that is not set is an error. With `missing_env="defer"`, its field is left out, and a call is an error; without this
    argument, the variable `PROMPTY_MISSING_ENV` decides.
    `allowed_file_roots` is another runtime's name for `allowed_roots`, and deprecated.
    """
    if allowed_file_roots != ():
        warnings.warn("load(allowed_file_roots=…) is allowed_roots here.", DeprecationWarning, stacklevel=2)
        allowed_roots = allowed_file_roots
    if variant is not None and not isinstance(variant, str):
        raise WrongArgument("load(variant=…)", variant, "the name of a variant", "Write 'name'.")
    _check_arguments("load", allowed_roots, env, trusted_endpoints, env_allowed, registry)
    with begin("load") as span:
        span.record("inputs", {"path": path} if span.live else None)
        defer = _read_missing_env(missing_env, "load")
        trusted, allowed = tuple(trusted_endpoints), frozenset(env_allowed)
        return _load(path, variant, allowed_roots, env, trusted, allowed, defer, registry)


def _read_missing_env(choice: MissingEnv | None, function: str) -> bool:
    """Return True if variables may be missing: the program or `PROMPTY_MISSING_ENV` says so."""
    name = "PROMPTY_MISSING_ENV" if choice is None else f"{function}(missing_env=…)"
    found: object = os.environ.get(name, "raise") if choice is None else choice
    if found not in ("raise", "defer"):
        raise WrongArgument(name, found, "'raise' or 'defer'", "Write 'defer' to leave out what is missing.")
    return found == "defer"


def open_agent(agent_or_path: PromptAgent | StrPath, function: str) -> PromptAgent:
    """Return an agent unchanged, or load it from its file."""
    if isinstance(agent_or_path, PromptAgent):
        return agent_or_path
    check_path(agent_or_path, function, "a PromptAgent or the path of a .prompty file")
    return load(agent_or_path)


def _check_arguments(
    function: str, roots: object, env: object, trusted: object, names: object, registry: object
) -> None:
    if roots != ():
        if not isinstance(roots, Sequence) or isinstance(roots, str | bytes):
            raise WrongArgument(f"{function}(allowed_roots=…)", roots, "a list of folders", "Write ['folder'].")
        for root in roots:
            check_path(root, f"{function}(allowed_roots=…)", "paths of folders")
    if env is not None and not isinstance(env, Mapping):
        raise WrongArgument(f"{function}(env=…)", env, "a mapping of variables", "Write {'NAME': 'value'}.")
    if trusted != () and not _is_list_of_text(trusted):
        raise WrongArgument(f"{function}(trusted_endpoints=…)", trusted, "a list of URLs", "Write ['https://host'].")
    if names != () and not _is_list_of_text(names):
        raise WrongArgument(f"{function}(env_allowed=…)", names, "a list of names", "Write ['NAME'].")
    if not isinstance(registry, Registry):
        raise WrongArgument(f"{function}(registry=…)", registry, "a Registry", "Pass prompty.Registry().")


def _is_list_of_text(value: object) -> bool:
    return (
        isinstance(value, Sequence | Set) and not isinstance(value, str) and all(isinstance(one, str) for one in value)
    )


def _load(
    path: StrPath,
    variant: str | None,
    allowed_roots: Sequence[StrPath],
    env: Mapping[str, str] | None,
    trusted_endpoints: tuple[str, ...],
    env_allowed: frozenset[str],
    defer: bool,
    registry: Registry,
) -> PromptAgent:
    if not isinstance(path, str):
        check_path(path, "load()", "the path of a .prompty file")
    if isinstance(path, str) and path.startswith("pkg:"):
        from prompty.pipeline.packages import locate_prompt  # few programs need it

        path = locate_prompt(path)
    name = os.fspath(path)
    default = read_default_variant(env, registry) if variant is None else ""
    key = (
        name,
        variant or default,
        default,
        tuple([os.fspath(root) for root in allowed_roots]),
        trusted_endpoints,
        env_allowed,
        defer,
    )
    if env is None and (cached := _get_cached(key, registry)):
        return cached
    if isinstance(path, str) and "\n" in path:
        fix = "To load text, call loads()."
        raise FileMissing([Problem(code="file-missing", message="the path is a prompt's text", fix=fix)])
    file = Path(path).absolute()
    trusted = read_trusted(trusted_endpoints)
    references = References(
        file.parent,
        allowed_roots,
        env,
        dotenv=registry.dotenv,
        trusted=trusted,
        env_allowed=env_allowed,
        defer=defer,
    )
    chosen = choose_file(file, name, variant, default, references)
    document = read_document(chosen, name if chosen is file else str(Path(name).with_name(chosen.name)), references)
    agent = _build(document, references, registry, chosen)
    if env is None:
        _cache_agent(key, agent, references.files.pop(file), references)
    return agent


def read_default_variant(env: Mapping[str, str] | None = None, registry: Registry = DEFAULT) -> str:
    """Return the value of `PROMPTY_VARIANT`."""
    name = "PROMPTY_VARIANT"
    return (os.environ if env is None else env).get(name) or registry.dotenv.get(name) or ""


def choose_file(file: Path, name: str, variant: str | None, default: str, references: References) -> Path:
    """Return the file of a prompt, or of the variant that the caller or the environment names. Raise LoadError."""
    if not variant and not default:
        return file
    from prompty.pipeline import variants  # most prompts do not need it

    return variants.choose_variant_file(file, name, variant or default, references, is_default=not variant)


def read_document(
    file: Path, name: str, references: References, read: Callable[[str], ParsedFrontmatter] = read_frontmatter
) -> Document:
    """Read a file, named `name` in errors, and merge it with its base if it is a variant. `references` records both."""
    text, references.files[file] = read_prompt(file, name, references.buffers)
    document = open_document(text, name, read)
    if file.name.count(".") < 2:
        return document
    from prompty.pipeline import variants  # most prompts do not need it

    if (base := variants.find_base(file)) is None:
        if (absent := variants.get_base(file)) is not None:
            references.absent.add(absent)
        return document
    if variants.find_base(base) is not None:
        fix = "Rename it: a variant changes a prompt, not another variant."
        problem = Problem(code="variant-of-variant", message=f"{base.name} is itself a variant", fix=fix, path=name)
        raise LoadError([problem])
    base_name = str(Path(name).with_name(base.name))
    text, references.files[base] = read_prompt(base, base_name, references.buffers)
    return variants.merge_with_base(document, open_document(text, base_name, read), base)


def loads(
    text: str,
    *,
    base_dir: StrPath | None = None,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    trusted_endpoints: Sequence[str] = (),
    env_allowed: Collection[str] = (),
    missing_env: MissingEnv | None = None,
    registry: Registry = DEFAULT,
) -> PromptAgent:
    """Load the text of a .prompty file. `${file:}` is relative to `base_dir`."""
    source: object = text
    if not isinstance(source, str):
        is_bytes = isinstance(source, bytes | bytearray)
        fix = "Decode it: loads(data.decode())." if is_bytes else "To load a file, use `load`."
        raise WrongArgument("loads()", source, "the text of a .prompty file", fix)
    if text.endswith(".prompty") and "\n" not in text:
        raise LoadError(
            [Problem(code="file-missing", message="the text is a path", fix="To load a file, call load().")]
        )
    if base_dir is not None:
        check_path(base_dir, "loads(base_dir=…)", "the path of a folder")
    _check_arguments("loads", allowed_roots, env, trusted_endpoints, env_allowed, registry)
    with begin("load"):
        base = Path(base_dir).absolute() if base_dir is not None else None
        trusted = read_trusted(tuple(trusted_endpoints))
        references = References(
            base,
            allowed_roots,
            env,
            dotenv=registry.dotenv,
            trusted=trusted,
            env_allowed=frozenset(env_allowed),
            defer=_read_missing_env(missing_env, "loads"),
        )
        return _load_text(text, references, registry)


def _load_text(text: str, references: References, registry: Registry) -> PromptAgent:
    return _build(open_document(text, "<text>"), references, registry)


def _build(document: Document, references: References, registry: Registry, path: Path | None = None) -> PromptAgent:
    source, parts, frontmatter, _ = document
    body = parts.body
    if outdated := read_outdated(frontmatter, body, references, source.path):
        frontmatter, body = outdated.frontmatter, outdated.body
    built = build_agent(frontmatter, body, references, path, registry)
    if built.findings:
        findings = sorted(built.findings, key=lambda finding: finding.start)
        missing = any(finding.problem.code == "file-missing" for finding in findings)
        problems = first_problems(source.problems(findings, parts.frontmatter_start))
        raise (FileMissing if missing else LoadError)(problems)
    if outdated:
        notes = source.problems(outdated.notes, parts.frontmatter_start)
        notes += first_problems(source.problems(outdated.body_notes, parts.body_start))
        warnings.warn("\n".join(map(str, notes)), PromptyWarning, stacklevel=4)  # of `load` and `loads`
    agent = keep_places(built.agent, document, frontmatter.source_map)
    if agent.trust.uses or agent.trust.missing:
        agent = _place_variables(agent, references, frontmatter, document)
    hide_secrets(secrets_in(agent))
    agent = _compose(agent, document, references, registry)
    return agent if registry is DEFAULT else agent.model_copy(update={"registry": registry})


def _place_variables(
    agent: PromptAgent, references: References, frontmatter: ParsedFrontmatter, document: Document
) -> PromptAgent:
    """Add the positions of variables for the error of a call."""
    uses = _place(agent.trust.uses, references.uses, frontmatter, document)
    missing = _place(agent.trust.missing, references.missing, frontmatter, document)
    return agent.model_copy(update={"trust": replace(agent.trust, uses=uses, missing=missing)})


def _place(
    uses: Sequence[Use], written: Sequence[Use], frontmatter: ParsedFrontmatter, document: Document
) -> tuple[Use, ...]:
    """Return uses with the positions of their keys in the file."""
    found = [_find_written(use, frontmatter, document) for use in written[:MAX_PROBLEMS]]
    source, start = document.source, document.parts.frontmatter_start
    placed = [
        use._replace(place=source.describe(start + at), key=key) for use, (at, key) in zip(uses, found, strict=False)
    ]
    return (*placed, *uses[MAX_PROBLEMS:])


def _find_written(use: Use, frontmatter: ParsedFrontmatter, document: Document) -> tuple[int, str]:
    """Return the position of a variable's field in the frontmatter, and its key. A value that the file has once is
    searched for: composing the nodes of the YAML would take a third of the time of a load."""
    source_map = frontmatter.source_map
    start = source_map.text.find(use.text)
    is_once = start >= 0 and source_map.text.find(use.text, start + 1) < 0
    if not is_once or frontmatter is not document.frontmatter or not _has_value(frontmatter.data, use):
        found = source_map.locate(use.keys, "", "", "")
        return found.start, found.problem.key
    return start - (source_map.text[max(start - 1, 0)] in ("'", '"')), ".".join(map(str, use.keys))


def _has_value(data: Any, use: Use) -> bool:
    """Return False for a value of another file."""
    for key in use.keys:
        is_entry = key in data if isinstance(data, dict) else isinstance(data, list) and isinstance(key, int)
        if not is_entry:
            return False
        data = data[key]
    return bool(data == use.text)


def _compose(agent: PromptAgent, document: Document, references: References, registry: Registry) -> PromptAgent:
    try:
        return compose(agent, document.base, references, registry)
    except CompositionProblem as problem:
        located = BodyPlaces(document, agent).place(problem)
        raise (FileMissing if problem.code == "file-missing" else LoadError)([located]) from None


def load_unsaved(file: Path, references: References, registry: Registry = DEFAULT) -> PromptAgent:
    """Load a file whose text, or the texts of others that it uses, may be buffers of `references`. Raise LoadError."""
    return _build(read_document(file, str(file), references), references, registry, file)


def read_agent(file: Path, allowed_roots: Sequence[StrPath], registry: Registry) -> PromptAgent:
    """Return the valid parts of a file's agent, without warnings: other stages report its problems."""
    references = References(file.parent, allowed_roots, dotenv=registry.dotenv, defer=True)
    _, parts, frontmatter, base = read_document(file, str(file), references)
    body = parts.body
    if outdated := read_outdated(frontmatter, body, references, file.name):
        frontmatter, body = outdated.frontmatter, outdated.body
    agent = build_agent(frontmatter, body, references, file, registry).agent
    with suppress(CompositionProblem):
        agent = compose(agent, base, references, registry)
    return agent.model_copy(update={"registry": registry})


def read_outdated(frontmatter: ParsedFrontmatter, body: str, references: References, name: str) -> "Reading | None":
    """Return a v1 file, named `name` in errors, as the equivalent v2 file, or None for a v2 file."""
    first_key = find_v1_key(frontmatter.data or {})
    if first_key is None:
        return None
    from prompty.pipeline.version_1 import read_version_1  # no other file needs it

    return read_version_1(frontmatter, body, references, name, first_key)


def read_prompt(file: Path, name: str, buffers: Buffers | None = None) -> tuple[str, Identity]:
    """Return the text and the identity of a prompt file."""
    try:
        return read_file(file, "the file", buffers or {})
    except Unreadable as error:
        if error.code != "file-missing":
            problem = Problem(code="unreadable-file", message=error.message, fix=error.fix, path=name, line=0)
            raise LoadError([problem]) from None
        problem = Problem(code=error.code, message=error.message, fix=_find_file_fix(file, name), path=name, line=0)
        raise FileMissing([problem]) from None


def _find_file_fix(file: Path, name: str) -> str:
    """Return the fix for a prompt that does not exist: a similar name in its folder, or where it was searched."""
    if "\\" in name and os.sep == "/":
        return f"Write the path with slashes: {name.replace(chr(92), '/')}"
    with suppress(OSError):
        near = nearest(file.name, (entry.name for entry in file.parent.glob("*.prompty")))
        if near:
            return f"Did you mean {Path(name).with_name(near)}?"
    if Path(name).is_absolute():
        return "Correct the path or create the file."
    return f"Correct the path or create the file. The working directory is {Path.cwd()}."


# An entry of the registry's cache is valid while the file, the files it refers to and the variables it read are
# unchanged. A second change within the clock's granularity would go unnoticed, so a younger file is not cached.
_YOUNG_NANOSECONDS = 50_000_000
AGENT_BYTES = 4_000  # that an agent takes beside its text: without them, small prompts would have no bound

_Key = tuple[str, str, str, tuple[str, ...], tuple[str, ...], frozenset[str], bool]


@dataclass(frozen=True, slots=True)
class _Cached:
    agent: PromptAgent
    identity: Identity
    variables: tuple[tuple[str, str | None], ...]
    files: tuple[tuple[str, Identity], ...]
    absent: tuple[str, ...]
    dotenv: Mapping[str, str]


def _get_cached(key: _Key, registry: Registry) -> PromptAgent | None:
    entry: _Cached | None = registry.prompts.get(key)
    if entry is None:
        return None
    try:
        fresh = (
            identify(os.stat(key[0])) == entry.identity
            and registry.dotenv is entry.dotenv
            and all(os.environ.get(name) == value for name, value in entry.variables)
            and all(identify(os.stat(file)) == known for file, known in entry.files)
            and not any(map(os.path.lexists, entry.absent))
        )
    except OSError:
        fresh = False
    return entry.agent if fresh else None


def _cache_agent(key: _Key, agent: PromptAgent, file: Identity, references: References) -> None:
    identities = [file, *references.files.values()]
    if time.time_ns() - max(0, *(changed for *_, changed in identities)) < _YOUNG_NANOSECONDS:
        return
    variables, absent = tuple(references.variables.items()), tuple(map(str, references.absent))
    files = tuple([(str(path), known) for path, known in references.files.items()])
    entry = _Cached(agent, file, variables, files, absent, references.dotenv)
    agent.registry.prompts.add(key, entry, AGENT_BYTES + sum(size for _, _, size, _ in identities))
