"""Put an error of a run at its place in the file, in the words of `check`."""

from dataclasses import replace

from prompty.analysis.check import check
from prompty.errors import PromptyError, RenderError, RequestError, ToolError, UnknownName
from prompty.model.agent import PromptAgent
from prompty.pipeline.request import NO_MODEL

_WITHOUT_MODEL = ("empty-file", "missing-model")


def place_error(error: PromptyError, agent: PromptAgent) -> None:
    """Add the problem that `check` reports for the agent's file to an error that has this cause.

    The file is read again, which takes a few milliseconds, and only if an error has a place in it.
    """
    if (
        agent.path is None
        or error.problem
        or not isinstance(error, UnknownName | RequestError | ToolError | RenderError)
    ):
        return
    for problem in check(agent.path, allowed_roots=agent.allowed_roots, registry=agent.registry):
        if problem.message == error.cause or (error.cause == NO_MODEL and problem.code in _WITHOUT_MODEL):
            error.problem = replace(problem, fix=error.fix) if problem.code == "missing-model" else problem
            error.args = (str(error.problem),)
            return
