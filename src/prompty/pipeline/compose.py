"""Compose the body of a prompt: merge a variant with its base, and insert partials."""

import re
from collections.abc import Collection
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, cast

from pydantic import ValidationError

from prompty.errors import RenderError
from prompty.model.agent import PromptAgent
from prompty.pipeline.files import Unreadable
from prompty.pipeline.frontmatter import BaseBody, Unclosed, normalize, read_frontmatter, split
from prompty.pipeline.partials import CompositionProblem, Partial, insert_partials
from prompty.pipeline.references import References
from prompty.registry import Registry
from prompty.renderers import RENDERERS

# A cheap test, so that most prompts load without importing their template engine.
_MAY_INCLUDE = re.compile(r"%[-+]?\s*include\b|\{\{\s*>")
_EXTENSION = ".md"


def compose(agent: PromptAgent, base: BaseBody | None, references: References, registry: Registry) -> PromptAgent:
    """Return an agent with its whole body: merged with `base` if it is a variant, and with partials.

    Inputs of partials that the file does not declare, and that no tag around the include sets, become inputs of the
    agent. Raise CompositionProblem if a file is invalid.
    """
    kind = agent.template.format.kind
    if not registry[RENDERERS].has(kind):
        return agent
    engine: Any = registry[RENDERERS].get(kind) if base or _MAY_INCLUDE.search(agent.instructions) else None
    if base is not None:
        agent = _merge_body(agent, base, engine)
    return agent if engine is None else _insert_partials(agent, references, engine)


def _merge_body(agent: PromptAgent, base: BaseBody, engine: Any) -> PromptAgent:
    from prompty.pipeline.blocks import merge_bodies  # only variants need it

    text, lines = merge_bodies(agent.instructions, base, engine)
    files = {base.path.name: base.hash}
    return agent.model_copy(update={"instructions": text, "files": files, "body_lines": lines})


def _insert_partials(agent: PromptAgent, references: References, engine: Any) -> PromptAgent:
    merged = agent.body_lines
    try:
        composition = insert_partials(agent.instructions, engine, partial(_read_partial, references))
    except CompositionProblem as problem:
        if merged and problem.place.path is None:
            problem.place = merged.locate(problem.place.line)
        raise
    if composition is None:
        return agent
    lines = composition.lines
    if merged:
        from prompty.pipeline.blocks import trace_lines  # only variants need it

        lines = trace_lines(lines, merged)
    files = {**agent.files, **composition.hashes}
    changes = {"instructions": composition.text, "files": files, "body_lines": lines}
    if composition.inputs:
        declared, free = {entry.name for entry in agent.inputs}, _find_variables(engine, composition.text)
        more = {entry.name: entry for entry in composition.inputs if entry.name in free and entry.name not in declared}
        changes["inputs"] = (*agent.inputs, *more.values())
    return agent.model_copy(update=changes)


def _find_variables(engine: Any, text: str) -> Collection[str]:
    try:
        return cast(Collection[str], engine.variables(text))
    except RenderError:  # reported when it is rendered
        return ()


def _read_partial(references: References, name: str) -> Partial:
    """Return the partial that an include names. Its file must be readable by `${file:}`, with a name like `_…`."""
    if not PurePosixPath(name).name.startswith("_"):
        message = f"{name} is not a partial: its name does not start with an underscore"
        raise Unreadable("include-name", message, "Rename the file and the include to _….")
    path, text = _read_text(references, name)
    if not path.name.startswith("_"):
        raise Unreadable("include-name", f"{name} is a link to a file that is not a partial", "Include a partial.")
    text = normalize(text)
    try:
        parts = split(text)
    except Unclosed as error:
        raise Unreadable("file-content", f"{name} cannot be read: {error}", "Correct that file.") from None
    if parts.frontmatter is None:
        return Partial(path, text.removesuffix("\n"))
    frontmatter = read_frontmatter(parts.frontmatter)
    others = ", ".join(map(str, (frontmatter.data or {}).keys() - {"inputs"}))
    if frontmatter.findings or others:
        cause = frontmatter.findings[0].problem.message if frontmatter.findings else f"it declares {others}"
        raise Unreadable("file-content", f"{name} cannot be read: {cause}", "A partial can only declare `inputs:`.")
    try:
        inputs = PromptAgent.model_validate({"inputs": (frontmatter.data or {}).get("inputs") or []}).inputs
    except ValidationError as error:
        cause = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise Unreadable("file-content", f"the inputs of {name} are not valid: {cause}", "Correct that file.") from None
    return Partial(path, parts.body, 1 + text.count("\n", 0, parts.body_start), inputs)


def _read_text(references: References, name: str) -> tuple[Path, str]:
    """Return the file with this name. A name without an extension may also mean a Markdown file."""
    try:
        return references.read_text(name)
    except Unreadable as error:
        if error.code != "file-missing" or PurePosixPath(name).suffix:
            raise
        try:
            return references.read_text(name + _EXTENSION)
        except Unreadable:
            raise error from None
