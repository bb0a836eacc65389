"""Add the place in the prompt's file to a run's error, from the positions that the load has kept. No file is read."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from prompty.errors import InputError, Problem, PromptyError, RenderError, RequestError, ToolError, UnknownName
from prompty.model.agent import Places, PromptAgent
from prompty.model.trust import FieldPath
from prompty.pipeline.frontmatter import Document
from prompty.pipeline.source_map import Finding, SourceMap, split_lines

BODY = "<body>"
"""The first key of a line in the body. The second is its number."""
_KEYS_OF_NAMES: dict[str, FieldPath] = {
    "provider": ("model", "provider"),
    "renderer": ("template", "format", "kind"),
    "parser": ("template", "parser", "kind"),
}


def keep_places(agent: PromptAgent, document: Document, source_map: SourceMap) -> PromptAgent:
    """Return the agent with the places in its file. They are computed on first use, because few runs fail."""
    places = Places(partial(_locate, document, source_map), agent.model, document.parts.body)
    return agent.model_copy(update={"places": places})


def _locate(document: Document, source_map: SourceMap, keys: FieldPath) -> Problem:
    """Return the place of a key, or of its nearest parent, where it has to be written. An input or a tool that the file
    does not declare has the line 0."""
    source, parts, *_ = document
    if keys[0] == BODY:
        line = split_lines(parts.body)[int(keys[1]) - 1]
        finding, start = Finding(*line.content, Problem(code="", message="", fix="")), parts.body_start
    else:
        finding = source_map.locate(keys, "", "", "", on_key=keys[0] == "inputs")
        start = parts.frontmatter_start
    [problem] = source.problems([finding], start)
    path = Path(problem.path).absolute()
    shown = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    is_known = keys[0] not in ("inputs", "tools") or len(source_map.find(keys)[2]) >= min(2, len(keys))
    return replace(problem, path=shown) if is_known else Problem(code="", message="", fix="", path=shown, line=0)


def place_error(error: PromptyError, agent: PromptAgent) -> None:
    """Add the place of the input, the tool, the model's key or the line of the body that an error is about.

    What the program has replaced has no place in the file.
    """
    locate = agent.places.locate
    if agent.path is None or locate is None or error.problem:
        return
    if isinstance(error, InputError):
        indices = {entry.name: index for index, entry in enumerate(agent.inputs)}
        keys: list[FieldPath] = [
            ("inputs", indices[one.name]) if one.name in indices else ("inputs",) for one in error.problems
        ]
        places = [f"{one.path}:{one.line}" if one.line else one.path for one in map(locate, keys)]
        error.problems = tuple(one._replace(place=place) for one, place in zip(error.problems, places, strict=True))
        error.args = ("\n".join(map(str, error.problems)),)
    elif isinstance(error, UnknownName | RequestError | ToolError | RenderError):
        name = error.name if isinstance(error, UnknownName) else ""
        path = _KEYS_OF_NAMES.get(error.kind, ()) if isinstance(error, UnknownName) else error.keys
        if path and not _is_replaced(agent, path) and name in (found := locate(path)).text:
            error.problem = replace(found, message=error.cause, fix=error.fix)
            error.args = (str(error.problem),)


def _is_replaced(agent: PromptAgent, keys: FieldPath) -> bool:
    """Return True if the program has replaced the model or the body of the file."""
    kept = agent.places.model
    if keys[0] == BODY:
        return agent.body_lines is None and agent.instructions != agent.places.body
    if keys[0] != "model" or kept is None:
        return False
    options = agent.model.options if "options" in keys else kept.options
    return agent.model.model_copy(update={"options": options}) != kept
