"""Models that stand in for the one of a file: a host's option, or `metadata: {fallbacks: […]}`."""

from collections.abc import Sequence

from pydantic import ValidationError

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent


def agents_of(agent: PromptAgent, given: Sequence[object] | None) -> list[PromptAgent]:
    """The agent with each model that stands in: an id of the same provider, what `model:` takes in a file, or an
    agent whose model it is."""
    told = agent.metadata.get("fallbacks") if given is None else given
    if not isinstance(told, Sequence) or isinstance(told, str):
        return []
    return [_with_model(agent, entry) for entry in told]


def _with_model(agent: PromptAgent, entry: object) -> PromptAgent:
    if isinstance(entry, PromptAgent):
        return agent.model_copy(update={"model": entry.model})
    if isinstance(entry, str):
        return agent.model_copy(update={"model": agent.model.model_copy(update={"id": entry})})
    try:
        model = PromptAgent.model_validate({"model": entry}).model
    except ValidationError as error:
        raise RequestError(
            f"a model that stands in cannot be read: {error.errors()[0]['msg']}",
            "Write an id, or a mapping as under `model:`.",
        ) from None
    return agent.model_copy(update={"model": model})
