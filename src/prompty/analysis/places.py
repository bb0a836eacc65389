"""The place of a run's error in its file, in the words of `check`."""

from dataclasses import replace
from pathlib import Path

from prompty.analysis.check import check
from prompty.errors import InputError, PromptyError, RenderError, RequestError, ToolError, UnknownName
from prompty.model.agent import PromptAgent
from prompty.pipeline.load import read_document
from prompty.pipeline.references import References
from prompty.pipeline.request import NO_MODEL
from prompty.pipeline.source_map import KeyPath

_WITHOUT_MODEL = ("empty-file", "missing-model")


def _find_inputs(agent: PromptAgent, path: str) -> tuple[dict[str, str], str]:
    """Return the location of each declared input, and a default for others."""
    source, parts, frontmatter, _ = read_document(Path(path), path, References(None))
    source_map = frontmatter.source_map
    keys: list[KeyPath] = [("inputs",), *(("inputs", index) for index in range(len(agent.inputs)))]
    findings = [source_map.locate(key, "", "", "", on_key=True) for key in keys]
    shown = _shorten_path(path)
    lines = [f"{shown}:{problem.line}" for problem in source.problems(findings, parts.frontmatter_start)]
    return dict(zip([entry.name for entry in agent.inputs], lines[1:], strict=True)), lines[0]


def _shorten_path(path: str) -> str:
    """Return a path relative to the current folder, if it is inside."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def place_error(error: PromptyError, agent: PromptAgent) -> None:
    """Add the problem that `check` reports for the agent's file to an error with the same cause.

    The file is read again, which takes a few milliseconds.
    """
    if isinstance(error, InputError) and agent.path is not None:
        places, elsewhere = _find_inputs(agent, str(agent.path))
        error.problems = tuple(one._replace(place=places.get(one.name, elsewhere)) for one in error.problems)
        error.args = ("\n".join(map(str, error.problems)),)
    if (
        agent.path is None
        or error.problem
        or not isinstance(error, UnknownName | RequestError | ToolError | RenderError)
    ):
        return
    for problem in check(agent.path, variant="", allowed_roots=agent.allowed_roots, registry=agent.registry):
        if problem.message == error.cause or (error.cause == NO_MODEL and problem.code in _WITHOUT_MODEL):
            error.problem = replace(problem, fix=error.fix) if problem.code == "missing-model" else problem
            error.args = (str(error.problem),)
            return
