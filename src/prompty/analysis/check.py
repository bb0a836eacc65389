"""Everything worth saying about a file before it runs: mistakes, and what is probably not meant.

The command line, and later an editor, show these same problems.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prompty.analysis.extensions import extensions
from prompty.analysis.unknown_keys import nearest, unknown_keys
from prompty.errors import LoadError, Problem, RenderError, UnknownName
from prompty.model.agent import PromptAgent
from prompty.model.marker import mark, read_marker
from prompty.pipeline.definitions import version1_signs
from prompty.pipeline.load import Outcome, StrPath, examine, read_file, references_for
from prompty.pipeline.source_map import KeyPath, Source
from prompty.redaction import find_secret, names_a_credential

_EXPRESSION = re.compile(r"\{\{[^{}]*\}\}")
_TAG = re.compile(r"\{%[^{}]*%\}")
_ENV = re.compile(r"\$\{env:([^:}]*)")


def check(
    path: StrPath,
    *,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    portable: bool = False,
) -> list[Problem]:
    """Every problem of a file, in the order of its lines. Nothing in it is run. One that is to be `portable` is also
    warned about what other runtimes do not read."""
    file = Path(path).absolute()
    try:
        text, _ = read_file(file, os.fspath(path))
    except LoadError as error:
        return list(error.problems)
    return check_text(text, os.fspath(path), file.parent, allowed_roots=allowed_roots, env=env, portable=portable)


def check_text(
    text: str,
    name: str = "<text>",
    base_dir: Path | None = None,
    *,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    portable: bool = False,
) -> list[Problem]:
    """Like `check`, for text that need not be saved yet."""
    outcome = examine(text, name, references_for(base_dir, allowed_roots, env))
    found = [*map(_for_a_check, outcome.problems), *_warnings(outcome)]
    if portable:
        found += extensions(outcome.data, outcome.source)
    return sorted(found, key=lambda problem: (problem.line, problem.column))


def _for_a_check(problem: Problem) -> Problem:
    """A variable that is not set here may well be set where the prompt runs."""
    return replace(problem, severity="warning") if problem.code == "env-missing" else problem


def _warnings(outcome: Outcome) -> Iterator[Problem]:
    source, data = outcome.source, outcome.data
    old = version1_signs(data, source)
    yield from old
    places = {(problem.line, problem.column) for problem in old}
    yield from (found for found in unknown_keys(data, source) if (found.line, found.column) not in places)
    yield from _credentials(data, source)
    yield from _lines(source)
    if outcome.agent is not None:
        yield from _template(outcome.agent, source)


def _credentials(data: Mapping[str, Any], source: Source) -> Iterator[Problem]:
    for keys, text in _texts(data, ()):
        secret_place = "bindings" in keys or any(isinstance(key, str) and names_a_credential(key) for key in keys)
        for variable in _ENV.findall(text):
            if names_a_credential(variable) and not secret_place:
                yield source.at_key(
                    keys,
                    "secret-exposed",
                    f"`{variable}` looks like a credential and feeds something that is not one",
                    "Use it in a connection or in the bindings of a tool.",
                    severity="warning",
                )
        if find_secret(text):
            yield source.at_key(
                keys,
                "secret-in-file",
                "this looks like a secret written into the file",
                "Keep it in the environment: ${env:NAME}. If it was ever committed, replace it at its source.",
                severity="warning",
            )


def _texts(value: Any, keys: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _texts(entry, (*keys, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _texts(entry, (*keys, index))


def _lines(source: Source) -> Iterator[Problem]:
    for number, line in enumerate(source.parts.body.split("\n"), 1):
        if find_secret(line):
            yield source.body_problem(
                number,
                "secret-in-prompt",
                "this looks like a secret in the text of the prompt; the model would be sent it",
                "Remove it. A credential belongs into a connection or the bindings of a tool.",
                "warning",
            )
        if "{" in line and read_marker(_TAG.sub("", _EXPRESSION.sub("user", line)).strip()):
            yield source.body_problem(
                number,
                "role-from-variable",
                "this is text, not a role marker: a marker is a line of the template with nothing computed on it",
                "Write the role out on a line of its own, or take the conversation as an input of kind `thread`.",
                "warning",
            )


def _template(agent: PromptAgent, source: Source) -> Iterator[Problem]:
    try:
        agent.registry.parsers.get(agent.template.parser.kind)
        renderer = agent.registry.renderers.get(agent.template.format.kind)
        variables = getattr(renderer, "variables", None)
        used: Mapping[str, int] | None = variables(mark(source.parts.body)) if variables else None
    except UnknownName as error:
        message, _, fix = str(error).partition("\n")
        yield source.at_key(("template", "format"), "unknown-engine", message, fix.strip())
    except RenderError as error:
        yield source.body_problem(error.line or 1, "template-syntax", error.cause, error.fix)
    else:
        if used is not None:
            yield from _names(agent, used, source)


def _names(agent: PromptAgent, used: Mapping[str, int], source: Source) -> Iterator[Problem]:
    declared = [entry.name for entry in agent.inputs]
    bound = {binding.input for tool in agent.tools for binding in tool.bindings.values()}
    for index, name in enumerate(declared):
        if name not in used and name not in bound:
            yield source.at_key(
                ("inputs", index, "name"),
                "unused-input",
                f"the input `{name}` is declared but never used",
                "Use it in the body or in a binding, or remove it.",
                severity="warning",
            )
    for name, line in used.items():
        if name not in declared:
            near = nearest(name, declared)
            hint = f"Did you mean `{near}`? " if near else ""
            yield source.body_problem(
                line,
                "undeclared-variable",
                f"the variable `{name}` is not declared under `inputs`",
                f"{hint}Declare it: `inputs: {{{name}: {{kind: string}}}}`.",
                "warning",
            )
