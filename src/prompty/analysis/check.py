"""List the problems of a file before it runs: mistakes, and what is probably not meant.

The frontmatter and the body are analyzed apart, each result cached by its text, so that an editor that checks after
every keystroke repeats only half of the work, and a mistake in one half does not hide the warnings of the other.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from prompty.analysis.body import BodyAnalysis, FindVariables, analyze_body, name_pattern
from prompty.analysis.definition_keys import find_extensions, find_unknown_keys, nearest
from prompty.errors import LoadError, Problem, UnknownName
from prompty.model.agent import PromptAgent
from prompty.pipeline.definitions import Built, build_agent, find_v1_keys
from prompty.pipeline.frontmatter import Frontmatter, read_frontmatter
from prompty.pipeline.load import StrPath, open_source, read_prompt
from prompty.pipeline.references import References
from prompty.pipeline.source_map import Edit, Finding, KeyPath, SourceMap
from prompty.redaction import find_secret, names_a_credential

_ENV = re.compile(r"\$\{env:([^:}]*)")


def check(
    path: StrPath,
    *,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    portable: bool = False,
    buffers: Mapping[StrPath, str] | None = None,
) -> list[Problem]:
    """Return the problems of a file in the order of its lines, without running it.

    `portable` adds a warning for what other runtimes do not read. `buffers` are texts, by path, that replace the
    contents of files: those that an editor has not saved yet.
    """
    file = Path(path).absolute()
    unsaved = {Path(name).resolve(): text for name, text in (buffers or {}).items()}
    try:
        text, _ = read_prompt(file, os.fspath(path), unsaved)
    except LoadError as error:
        return list(error.problems)
    references = References(file.parent, allowed_roots, env, unsaved)
    return _check(text, os.fspath(path), references, portable=portable)


def check_text(
    text: str,
    name: str = "<text>",
    base_dir: Path | None = None,
    *,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    portable: bool = False,
) -> list[Problem]:
    """Like `check`, for the text of a file."""
    return _check(text, name, References(base_dir, allowed_roots, env), portable=portable)


def _check(text: str, name: str, references: References, *, portable: bool) -> list[Problem]:
    try:
        source, parts = open_source(text, name)
    except LoadError as error:
        return list(error.problems)
    analysis = analyze_frontmatter(parts.frontmatter or "")
    frontmatter = analysis.frontmatter
    built = build_agent(frontmatter, parts.body, references)
    above = [*map(_allow_unset, built.findings), *analysis.warnings, *(analysis.extensions if portable else ())]
    find_variables, unknown_engines = _find_engine(built.agent, frontmatter)
    body = analyze_body(parts.body, find_variables)
    unused, undeclared = _check_names(built, body, parts.body, frontmatter)
    problems = source.problems([*above, *unknown_engines, *unused], parts.frontmatter_start)
    problems += source.problems([*body.findings, *undeclared], parts.body_start)
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def _allow_unset(finding: Finding) -> Finding:
    """A variable that is not set here may be set where the prompt runs."""
    return replace(finding, severity="warning") if finding.code == "env-missing" else finding


class FrontmatterAnalysis(NamedTuple):
    """The data of a frontmatter with what can be said about it without files, variables and the body."""

    frontmatter: Frontmatter
    warnings: tuple[Finding, ...]
    extensions: tuple[Finding, ...]


@lru_cache(maxsize=16)
def analyze_frontmatter(text: str) -> FrontmatterAnalysis:
    """Read and analyze the text of a frontmatter."""
    frontmatter = read_frontmatter(text)
    data, source_map = frontmatter.data or {}, frontmatter.source_map
    outdated = find_v1_keys(data, source_map)
    located = {finding.start for finding in outdated}
    unknown = [finding for finding in find_unknown_keys(data, source_map) if finding.start not in located]
    return FrontmatterAnalysis(
        frontmatter,
        (*outdated, *unknown, *_find_credentials(data, source_map)),
        tuple(find_extensions(data, source_map)),
    )


def _find_credentials(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    for keys, text in _walk_texts(data, ()):
        secret_place = "bindings" in keys or any(isinstance(key, str) and names_a_credential(key) for key in keys)
        for variable in _ENV.findall(text):
            if names_a_credential(variable) and not secret_place:
                yield source_map.locate(
                    keys,
                    "secret-exposed",
                    f"`{variable}` looks like a credential, but its value is used as ordinary text",
                    "Use it in a connection or in the bindings of a tool.",
                    severity="warning",
                )
        if find_secret(text):
            yield source_map.locate(
                keys,
                "secret-in-file",
                "this looks like a secret written into the file",
                "Keep it in the environment: ${env:NAME}. If it was ever committed, revoke it.",
                severity="warning",
            )


def _walk_texts(value: Any, keys: tuple[str | int, ...]) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _walk_texts(entry, (*keys, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _walk_texts(entry, (*keys, index))


def _find_engine(agent: PromptAgent, frontmatter: Frontmatter) -> tuple[FindVariables | None, list[Finding]]:
    """Return the function that finds the variables of a template, and a finding for each engine that is not known."""
    if frontmatter.data is None and "template" in frontmatter.source_map.text:
        return None, []  # a frontmatter that cannot be read names an engine
    findings = []
    find_variables = None
    try:
        find_variables = getattr(agent.registry.renderers.get(agent.template.format.kind), "variables", None)
    except UnknownName as error:
        findings.append(_unknown_engine("format", error, frontmatter.source_map))
    try:
        agent.registry.parsers.get(agent.template.parser.kind)
    except UnknownName as error:
        findings.append(_unknown_engine("parser", error, frontmatter.source_map))
    return find_variables, findings


def _unknown_engine(key: str, error: UnknownName, source_map: SourceMap) -> Finding:
    message, _, fix = str(error).partition("\n")
    near = nearest(error.name, error.known)
    return source_map.locate(("template", key, "kind"), "unknown-engine", message, fix.strip(), replacement=near)


def _check_names(
    built: Built, body: BodyAnalysis, text: str, frontmatter: Frontmatter
) -> tuple[list[Finding], list[Finding]]:
    """Return warnings for inputs that are not used (in the frontmatter), and for variables without an input (in the
    body). There are none for what a mistake elsewhere leaves unknown."""
    if body.variables is None or frontmatter.data is None or "inputs" in built.invalid:
        return [], []
    declared = [entry.name for entry in built.agent.inputs]
    bound = {binding.input for tool in built.agent.tools for binding in tool.bindings.values()}
    unused = [
        frontmatter.source_map.locate(
            ("inputs", index, "name"),
            "unused-input",
            f"the input `{name}` is declared but never used",
            "Use it in the body or in a binding, or remove it.",
            severity="warning",
        )
        for index, name in enumerate(declared)
        if name not in body.variables and name not in bound and "tools" not in built.invalid
    ]
    undeclared = [
        _undeclared(name, start, end, declared, text)
        for name, (start, end) in body.variables.items()
        if name not in declared
    ]
    return unused, undeclared


def _undeclared(name: str, start: int, end: int, declared: Sequence[str], text: str) -> Finding:
    near = nearest(name, declared)
    hint = f"Did you mean `{near}`? " if near else ""
    only_use = len(name_pattern(name).findall(text)) == 1 and text[start:end] == name
    return Finding(
        start=start,
        end=end,
        code="undeclared-variable",
        message=f"the variable `{name}` is not declared under `inputs`",
        fix=f"{hint}Declare it: `inputs: {{{name}: {{kind: string}}}}`.",
        severity="warning",
        edits=(Edit(start, end, near),) if near and only_use else (),
    )
