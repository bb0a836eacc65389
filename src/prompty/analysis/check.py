"""List the problems of a file before it runs: errors, probable mistakes as warnings, and hints as infos.

The frontmatter and the body are analyzed separately and cached by their text, so that an editor that checks after every
keystroke repeats only half of the work, and a mistake in one half does not hide the warnings in the other.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from prompty.analysis.definition_keys import find_extensions, find_kind_synonyms, find_unknown_keys
from prompty.analysis.models import find_model_problems
from prompty.analysis.portability import find_unportable_forms
from prompty.analysis.provider_tools import find_provider_tools
from prompty.analysis.semantics import (
    check_bindings,
    check_kind_conditions,
    find_bound_variables,
    find_invalid_endpoints,
    find_invalid_skills,
    find_kinds_as_defaults,
    find_misplaced_required,
    find_missing_model,
    find_open_outputs,
    find_outside_files,
    find_plain_bindings,
    find_raw_tools,
    find_refused_unions,
    find_text_in_frontmatter,
    find_unknown_names,
    find_unread_script,
    find_untrusted_endpoints,
    find_wrong_tool_names,
)
from prompty.errors import LoadError, Problem, RenderError, Severity, UnknownName, check_path, did_you_mean, nearest
from prompty.model.agent import PromptAgent
from prompty.model.marker import ROLES, read_marker
from prompty.model.structure import COMPUTED_ROLE, Structure, read_structure
from prompty.model.synonyms import ROLE_SYNONYMS
from prompty.parsers import PARSERS
from prompty.pipeline.compose import BodyPlaces, CompositionProblem, compose
from prompty.pipeline.definitions import Built, build_agent, find_v1_key
from prompty.pipeline.frontmatter import BaseBody, Document, ParsedFrontmatter, Parts, open_document
from prompty.pipeline.load import StrPath, choose_file, read_document, read_outdated
from prompty.pipeline.packages import locate_prompt
from prompty.pipeline.references import References, VariableMissing, walk_texts
from prompty.pipeline.source_map import (
    Edit,
    Finding,
    Line,
    SourceMap,
    first_findings,
    first_problems,
    split_lines,
)
from prompty.pipeline.variants import variants
from prompty.registry import DEFAULT, Registry
from prompty.renderers import RENDERERS
from prompty.safety.redaction import find_secret, is_credential_name

_LONE_WORD = re.compile(r"[ \t]*(?:#{1,6}[ \t]*)?(\w+)[ \t]*(?:\[[^\]\n]*\][ \t]*)?(?::[ \t]*)?:[ \t]*\Z")
_ROLE_AND_TEXT = re.compile(rf"[ \t]*(?:#[ \t]*)?({'|'.join(ROLES)})[ \t]*:[ \t]*\S", re.IGNORECASE)
_HEADING = re.compile(r"[ \t]*(?:#{1,6}[ \t]*|<|\*\*)(\w+)[ \t]*:?(?:>|\*\*)?[ \t]*:?[ \t]*\Z")
_BLOCK_TAG = re.compile(r"\{%-?\s*(?:end)?block\b[^%\n]*%\}")
_FENCED_FILE = re.compile(r"\s*(`{3,}|~{3,})[^\n]*\n\s*(?:---|\+\+\+)[ \t]*\n")


def find_misspelt_roles(lines: Sequence[Line]) -> Iterator[Finding]:
    """Yield a warning for each line that looks like a role marker but is text of the previous message."""
    has_roles = any(read_marker(line.text) for line in lines)
    for line in lines:
        if "{" in line.text or read_marker(line.text):
            continue
        if not has_roles and (heading := _HEADING.match(line.text)) and (role := heading[1].lower()) in ROLES:
            message = (
                f"`{line.text.strip()}` is not a role marker, and the body has none: all of it is a system message"
            )
            problem = Problem(code="misspelt-role", message=message, fix=f"Write `{role}:`.", severity="warning")
            yield Finding(*line.content, problem, (Edit(*line.content, f"{role}:"),))
        elif (word := _LONE_WORD.match(line.text)) and (role := _meant_role(word[1])):
            message = f"`{word[1]}:` is not a role, so this line and those below it belong to the previous message"
            start, end = line.start + word.start(1), line.start + word.end(1)
            problem = Problem(code="misspelt-role", message=message, fix=f"Write `{role}:`.", severity="warning")
            yield Finding(start, end, problem, (Edit(start, end, role),))
        elif inline := _ROLE_AND_TEXT.match(line.text):
            role = inline[1].lower()
            message = f"`{inline[1]}:` followed by text is not a role marker, so the line is text"
            fix = f"Write `{role}:` on its own line, and the text below it."
            problem = Problem(code="text-after-role", message=message, fix=fix, severity="warning")
            yield Finding(*line.content, problem)


def _meant_role(word: str) -> str | None:
    word = word.lower()
    return ROLE_SYNONYMS.get(word) or next(iter(get_close_matches(word, ROLES, 1, cutoff=0.75)), None)


_EMPTY_REFERENCE = re.compile(r"\$\{(?:env|file):\}")
_ENV = re.compile(r"\$\{env:([^:}]*)")

FindVariables = Callable[[str], Mapping[str, int]]


def check(
    path: StrPath,
    *,
    variant: str | None = None,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    portable: bool = False,
    buffers: Mapping[StrPath, str] | None = None,
    registry: Registry = DEFAULT,
) -> list[Problem]:
    """Return the problems of a file in line order, then those of its variants, without running it.

    `variant` is the only variant to check, and "" the file without variants. `portable` adds warnings for anything that
    other runtimes cannot read. `buffers` are texts by path that replace files, such as an editor's unsaved buffers.
    """
    check_path(path, "check()", "the path of a .prompty file")
    unsaved = {Path(buffer).resolve(): text for buffer, text in (buffers or {}).items()}
    problems: list[Problem] = []
    try:
        path = locate_prompt(path)
        for name in ["", *variants(path)] if variant is None else [variant]:
            references = _create_references(None, allowed_roots, env, registry, unsaved)
            found = _check_file(path, name, references, registry, portable)
            found = [problem for problem in found if problem not in problems]  # a variant repeats its base's
            problems += [_name_variant(problem, name, path) for problem in found]
    except LoadError as error:
        return list(error.problems)
    return problems


def _create_references(
    base_dir: Path | None,
    allowed_roots: Sequence[StrPath],
    env: Mapping[str, str] | None,
    registry: Registry,
    buffers: Mapping[Path, str] | None = None,
) -> References:
    return References(base_dir, allowed_roots, env, buffers or {}, registry.dotenv, defer=True)


def _name_variant(problem: Problem, variant: str, path: StrPath) -> Problem:
    """Name the variant in a problem that its base alone does not have."""
    if not variant or Path(problem.path).name != Path(path).name:
        return problem
    return replace(problem, message=f"{problem.message} in the variant `{variant}`")


def _check_file(
    path: StrPath, variant: str, references: References, registry: Registry, portable: bool
) -> list[Problem]:
    file, name = Path(path).absolute(), os.fspath(path)
    references.base_dir = file.parent
    try:
        chosen = choose_file(file, name, variant, "", references)
        shown = name if chosen is file else str(Path(name).with_name(chosen.name))
        document = read_document(chosen, shown, references)
    except LoadError as error:
        return list(error.problems)
    return _check(document, references, registry, portable)


def check_text(
    text: str,
    name: str = "<text>",
    base_dir: Path | None = None,
    *,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    portable: bool = False,
    registry: Registry = DEFAULT,
) -> list[Problem]:
    """Like `check`, for the text of a file."""
    references = _create_references(base_dir, allowed_roots, env, registry)
    try:
        document = open_document(text, name)
    except LoadError as error:
        return list(error.problems)
    return _check(document, references, registry, portable)


def _check(document: Document, references: References, registry: Registry, portable: bool) -> list[Problem]:
    source, parts, frontmatter, base = document
    if parts.frontmatter is None and (fence := _FENCED_FILE.match(source.text)):
        fix = "Remove the fence: the first line and the last one."
        problem = Problem(code="fenced-file", message="the whole file is in a code fence", fix=fix)
        return source.problems([Finding(*fence.span(1), problem)], 0)
    warnings, extensions = _analyze(frontmatter)
    text = parts.body
    if outdated := read_outdated(frontmatter, text, references, source.path):
        frontmatter, text = outdated.frontmatter, outdated.body
        unknown, extensions = _analyze_keys(frontmatter)
        warnings = (*warnings, *outdated.notes, *unknown)
    built = build_agent(frontmatter, text, references, registry=registry)
    find_variables, unknown_engines = _find_engine(built.agent, frontmatter, registry)
    refused: list[Problem] = []
    try:
        built = built._replace(agent=compose(built.agent, base, references, registry))
    except CompositionProblem as problem:
        refused = [BodyPlaces(document, built.agent).place(problem)]
        find_variables = None  # the template is incomplete
    text = built.agent.instructions
    body = analyze_body(text, find_variables)
    unused, undeclared = _check_names(built, body, text, frontmatter)
    agent, source_map = built.agent.model_copy(update={"registry": registry}), frontmatter.source_map
    unmatched = [*check_bindings(agent, source_map), *check_kind_conditions(agent, source_map)]
    unmatched += find_bound_variables(agent, source_map)
    untrusted = [*find_invalid_endpoints(agent, source_map), *find_untrusted_endpoints(agent, source_map)]
    doubts = [*_find_doubts(built, frontmatter, registry), *_find_mixed_delimiters(source.text, parts)]
    if base is None:
        misplaced = list(find_text_in_frontmatter(frontmatter.data or {}, text, source_map))
        warnings = tuple(one for one in warnings if all(one.start != other.start for other in misplaced))
        doubts += misplaced
    unset = first_findings(_find_missing(references, source_map))
    above = [
        *(one for one in built.findings if one.problem.code != "env-missing"),
        *unset,
        *warnings,
        *unknown_engines,
        *unused,
        *unmatched,
        *untrusted,
        *doubts,
    ]
    below = [*body.findings, *undeclared]
    if outdated:
        below = [*outdated.body_notes, *map(outdated.locate_in_body, below)]
    if base is not None and find_variables is not None:
        refused += source.problems(_find_blocks(parts.body, base), parts.body_start)
    if portable:
        refused += source.problems(_find_variant(base, source.path), 0)
        refused += source.problems(_find_includes(built.agent, parts.body, source.path, registry), parts.body_start)
    problems = [
        *source.problems([*above, *extensions] if portable else above, parts.frontmatter_start),
        *BodyPlaces(document, built.agent).problems(below),
        *refused,
    ]
    if all(problem.code.startswith("version-1") for problem in problems):  # another mistake may hide the model
        missing = find_missing_model(built.agent, text, frontmatter.source_map)
        problems += source.problems(missing, parts.frontmatter_start)
    return first_problems(problems)


def _find_missing(references: References, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each variable that is not set: it may be set where the prompt runs."""
    for use in references.missing:
        missing = VariableMissing(use.variable)
        yield source_map.locate(use.keys, missing.code, missing.message, missing.fix, severity="warning")


def _find_doubts(built: Built, frontmatter: ParsedFrontmatter, registry: Registry) -> Iterator[Finding]:
    """Yield findings for valid parts that cannot run or would not work as intended."""
    if frontmatter.data is None or built.invalid & {"model", "tools", "outputs"}:
        return
    source_map = frontmatter.source_map
    yield from find_unknown_names(built.agent, source_map, registry)
    yield from find_wrong_tool_names(built.agent, source_map)
    yield from find_outside_files(built.agent, source_map)
    yield from find_invalid_skills(built.agent, source_map)
    known = {finding.start for finding in built.findings}
    plain = find_plain_bindings(built.agent, frontmatter.data, source_map)
    yield from first_findings(finding for finding in plain if finding.start not in known)
    yield from find_provider_tools(built.agent.model_copy(update={"registry": registry}), source_map)
    yield from find_open_outputs(built.agent, source_map)
    yield from find_refused_unions(built.agent, source_map, registry)
    yield from find_unread_script(built.agent, source_map)
    yield from find_raw_tools(built.agent, source_map)
    yield from find_model_problems(built.agent.model_copy(update={"registry": registry}), source_map)


def _find_blocks(body: str, base: BaseBody) -> Iterator[Finding]:
    """Yield a warning for a variant's body that has only blocks, as if they replaced those of its base."""
    first = _BLOCK_TAG.search(body)
    if first and not "".join(_BLOCK_TAG.split(body)[::2]).strip():
        message = f"a block replaces none of {base.path.name}: this body is used instead of the whole body there"
        fix = "Write the whole body. What both share can be a partial: {% include 'shared.prompty' %}."
        problem = Problem(code="variant-blocks", message=message, fix=fix, severity="warning")
        yield Finding(*first.span(), problem)


def _find_variant(base: BaseBody | None, name: str) -> Iterator[Finding]:
    """Yield a warning for a variant, which other runtimes treat as a separate prompt."""
    if base is not None:
        fix = f"Give it all the keys of the base, and the body of: prompty render --template {shlex.quote(name)}"
        message = f"other runtimes do not merge this variant with {base.path.name}"
        yield Finding(0, 0, Problem(code="variant-used", message=message, fix=fix, severity="warning"))


def _find_includes(agent: PromptAgent, body: str, name: str, registry: Registry) -> Iterator[Finding]:
    """Yield a warning for each include, which other runtimes do not support."""
    engine: Any = registry[RENDERERS].get(agent.template.format.kind) if agent.files else None
    for include in engine.includes(body) if engine else ():
        fix = f"Replace the body with that of: prompty render --template {shlex.quote(name)}"
        problem = Problem(code="partial-used", message="other runtimes have no partials", fix=fix, severity="warning")
        yield Finding(include.start, include.end, problem)


def _find_mixed_delimiters(text: str, parts: Parts) -> Iterator[Finding]:
    if parts.frontmatter is None:
        return
    at = len(parts.frontmatter)
    opening = text[: parts.frontmatter_start].strip()
    closing = text[parts.frontmatter_start + at :][:3]
    if opening != closing:
        message = f"the frontmatter starts with `{opening}` and ends with `{closing}`"
        problem = Problem(code="mixed-delimiters", message=message, fix=f"Write `{opening}`.", severity="warning")
        yield Finding(at, at + 3, problem, (Edit(at, at + 3, opening),))


class FrontmatterAnalysis(NamedTuple):
    """The findings in a frontmatter that depend only on its text."""

    warnings: tuple[Finding, ...]
    extensions: tuple[Finding, ...]


def _analyze(frontmatter: ParsedFrontmatter) -> FrontmatterAnalysis:
    data = frontmatter.data or {}
    is_v1 = find_v1_key(data) is not None  # its keys are checked after the translation to v2
    unknown, extensions = ((), ()) if is_v1 else _analyze_keys(frontmatter)
    credentials = first_findings(_find_credentials(data, frontmatter.source_map))
    empty = first_findings(_find_empty_references(data, frontmatter.source_map))
    return FrontmatterAnalysis((*unknown, *credentials, *empty), extensions)


def _analyze_keys(frontmatter: ParsedFrontmatter) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return findings for unknown keys and doubtful defaults, and for keys and forms that only this runtime reads."""
    data, source_map = frontmatter.data or {}, frontmatter.source_map
    doubtful = chain(
        find_unknown_keys(data, source_map),
        find_kinds_as_defaults(data, source_map),
        find_misplaced_required(data, source_map),
        find_kind_synonyms(data, source_map),
    )
    unportable = chain(find_extensions(data, source_map), find_unportable_forms(data, source_map))
    return tuple(first_findings(doubtful)), tuple(first_findings(unportable))


def _find_credentials(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    for keys, text in walk_texts(data):
        secret_place = "bindings" in keys or any(isinstance(key, str) and is_credential_name(key) for key in keys)
        for variable in _ENV.findall(text):
            if is_credential_name(variable) and not secret_place:
                message = f"`{variable}` looks like a credential, but its value is used as ordinary text"
                fix = "Use it in a connection or in a tool's bindings."
                yield source_map.locate(keys, "secret-exposed", message, fix, severity="warning")
        if find_secret(text):
            message = "this looks like a secret written into the file"
            fix = "Move it to the environment: ${env:NAME}. If it was ever committed, revoke it."
            yield source_map.locate(keys, "secret-in-file", message, fix, severity="warning")


def _find_empty_references(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each reference without a name inside a longer text, which stays text."""
    for keys, text in walk_texts(data):
        empty = _EMPTY_REFERENCE.search(text)
        if empty and empty[0] != text:
            message = f"`{empty[0]}` names nothing, so it is text"
            fix = "Write a name after the colon, or remove it."
            yield source_map.locate(keys, "empty-reference", message, fix, severity="warning")


class BodyAnalysis(NamedTuple):
    """Findings in a body, and the line of each variable's first use, or None if the template is invalid."""

    findings: tuple[Finding, ...]
    variables: Mapping[str, Line] | None


def analyze_body(body: str, find_variables: FindVariables | None) -> BodyAnalysis:
    """Analyze a body. `find_variables`, from its template engine, returns the line of each variable."""
    lines = split_lines(body)
    structure = read_structure(body)
    findings = [
        *first_findings(_find_secrets(lines)),
        *first_findings(_find_computed_markers(structure)),
        *first_findings(find_misspelt_roles(lines)),
    ]
    variables = None
    try:
        if find_variables is not None:
            used = find_variables(structure.marked)
            variables = {name: lines[min(line, len(lines)) - 1] for name, line in used.items()}
    except RenderError as error:
        problem = Problem(code="template-syntax", message=error.cause, fix=error.fix)
        findings.append(Finding(*lines[min(error.line or 1, len(lines)) - 1].content, problem))
    return BodyAnalysis(tuple(findings), variables)


def _find_secrets(lines: Sequence[Line]) -> Iterator[Finding]:
    for line in lines:
        if secret := find_secret(line.text):
            message = "this looks like a secret, and it would be sent to the model"
            fix = "Remove it. Put credentials in a connection or in a tool's bindings."
            problem = Problem(code="secret-in-prompt", message=message, fix=fix, severity="warning")
            yield Finding(line.start + secret.start(), line.start + secret.end(), problem)


def _find_computed_markers(structure: Structure) -> Iterator[Finding]:
    """Yield findings for computed role markers. `prepare` refuses one that would be an instruction."""
    message, fix = COMPUTED_ROLE
    for start, end, _, is_privileged in structure.computed:
        severity: Severity = "error" if is_privileged else "warning"
        yield Finding(start, end, Problem(code="role-from-variable", message=message, fix=fix, severity=severity))


def _find_use(name: str, line: Line) -> tuple[int, int]:
    use = _whole_word(name).search(line.text, max(line.text.find("{"), 0))
    return (line.start + use.start(), line.start + use.end()) if use else line.content


def _whole_word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")


def _find_engine(
    agent: PromptAgent, frontmatter: ParsedFrontmatter, registry: Registry
) -> tuple[FindVariables | None, list[Finding]]:
    """Return the function that finds the variables of a template, and a finding for each unknown engine."""
    if frontmatter.data is None and "template" in frontmatter.source_map.text:
        return None, []  # the invalid frontmatter names an engine
    engines, findings = dict[str, object](), []
    for key, known in (("format", registry[RENDERERS]), ("parser", registry[PARSERS])):
        try:
            engines[key] = known.get(getattr(agent.template, key).kind)
        except UnknownName as error:
            keys, source_map = ("template", key, "kind"), frontmatter.source_map
            findings.append(
                source_map.locate(keys, "unknown-engine", error.cause, error.fix, replacement=error.nearest)
            )
    return getattr(engines.get("format"), "variables", None), findings


def _check_names(
    built: Built, body: BodyAnalysis, text: str, frontmatter: ParsedFrontmatter
) -> tuple[list[Finding], list[Finding]]:
    """Return warnings for unused inputs (in the frontmatter), and for variables without an input (in the body), unless
    another mistake leaves them unknown."""
    if body.variables is None or frontmatter.data is None or "inputs" in built.invalid:
        return [], []
    declared = [entry.name for entry in built.agent.inputs]
    bound = {binding.input for tool in built.agent.tools for binding in tool.bindings.values()}
    unused = (
        frontmatter.source_map.locate(
            ("inputs", index, "name"),
            "unused-input",
            f"the input `{name}` is declared but never used",
            _find_use_fix(name, text),
            severity="warning",
        )
        for index, name in enumerate(declared)
        if name not in body.variables and name not in bound and "tools" not in built.invalid
    )
    known = set(declared)
    uses = ((name, line) for name, line in body.variables.items() if name not in known)
    undeclared = (_undeclared(name, *_find_use(name, line), declared, text) for name, line in uses)
    return first_findings(unused), first_findings(undeclared)


def _find_use_fix(name: str, body: str) -> str:
    single = re.search(rf"(?<!{{){{\s*{re.escape(name)}\s*}}(?!}})", body)
    if single:
        return f"`{single[0]}` is text. Write `{{{{ {name} }}}}`."
    return "Use it in the body or in a binding, or remove it."


def _undeclared(name: str, start: int, end: int, declared: Sequence[str], text: str) -> Finding:
    near = nearest(name, declared)
    message = f"the variable `{name}` is not declared under `inputs`"
    fix = f"{did_you_mean(near)}Declare it: `inputs: {{{name}: {{kind: string}}}}`."
    problem = Problem(code="undeclared-variable", message=message, fix=fix, severity="warning")
    only_use = text[start:end] == name and len(_whole_word(name).findall(text)) == 1
    return Finding(start, end, problem, (Edit(start, end, near),) if near and only_use else ())
