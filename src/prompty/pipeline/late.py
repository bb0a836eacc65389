"""Resolve the variables of a model or a tool that have been set since its file was loaded (F15).

A call resolves them from the same variables as `load`, with their sources, so that the rules of credentials hold (F14).
It changes a copy of the agent: the agent that `load` keeps is the same for every caller.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from prompty.errors import RequestError
from prompty.model.agent import Model, PromptAgent, secrets_in
from prompty.model.definition import UnsetReference
from prompty.model.unset import FALLBACK, MODEL, TOOL, Unset, explain_unset, list_unset, replace_text
from prompty.pipeline.references import References
from prompty.safety.redaction import remember_secrets

_CHOICES = (("provider",), ("apiType",), ("api_type",))  # without them no request can even be shown


def resolve_late(agent: PromptAgent) -> PromptAgent:
    """Return the agent with the variables of its model and its tools that are set now."""
    if not agent.provenance.unset:
        return agent
    agent = _resolve_model(agent)
    for index, tool in enumerate(agent.tools):
        if unset := list_unset(agent.provenance.unset, TOOL, tool, index):
            agent = _resolve_tool(agent, index, unset)
    return agent


def _resolve_model(agent: PromptAgent) -> PromptAgent:
    unset = list_unset(agent.provenance.unset, MODEL, agent.model)
    data = agent.model.model_dump(by_alias=True, exclude_unset=True)
    filled, agent = _fill(data, unset, agent)
    if missing := [entry for entry in unset if entry not in filled and entry.path in _CHOICES]:
        raise RequestError(*explain_unset(missing))
    return _remember(agent.model_copy(update={"model": _read_model(data, filled)})) if filled else agent


def _resolve_tool(agent: PromptAgent, index: int, unset: Sequence[Unset]) -> PromptAgent:
    tool: Any = agent.tools[index]
    data = {"connection": tool.connection.model_dump(by_alias=True, exclude_unset=True)}
    filled, agent = _fill(data, unset, agent)
    if not filled:
        return agent
    connection = _read_model(data, filled, tool.name).connection
    tools = list(agent.tools)
    tools[index] = tool.model_copy(update={"connection": connection})
    return _remember(agent.model_copy(update={"tools": tuple(tools)}))


def open_fallback(agent: PromptAgent, entry: object, index: int) -> tuple[PromptAgent, object]:
    """Return an entry of the file's `fallbacks`, and the agent for it: the entry's references are those of its model.

    The text of an entry is resolved here if its variable is set now, because it may name a provider.
    """
    unset = list_unset(agent.provenance.unset, FALLBACK, entry, index)
    if isinstance(entry, str):
        data: dict[str, Any] = {"id": entry}
        unset = [one._replace(path=("id",)) for one in unset]
        filled, agent = _fill(data, unset, agent)
        entry, unset = data["id"], [one for one in unset if one not in filled]
        others = agent.provenance.unset
    else:
        others = tuple(one for one in agent.provenance.unset if one.part != MODEL)
    own = tuple(one._replace(part=MODEL, position=0) for one in unset)
    return agent.model_copy(update={"provenance": replace(agent.provenance, unset=(*own, *others))}), entry


def _fill(data: Any, unset: Sequence[Unset], agent: PromptAgent) -> tuple[list[Unset], PromptAgent]:
    """Put the variables that are set now into data. Return their references, and the agent with their sources."""
    own = agent.provenance
    references = References(
        agent.base_dir,
        agent.allowed_roots,
        own.env,
        dotenv=agent.registry.dotenv,
        trusted=own.trusted,
        env_allowed=own.env_allowed,
    )
    filled = []
    for entry in unset:
        value = references.resolve_again(entry)
        for _, failure in references.failures:
            raise RequestError(f"{entry.place}: {failure.message}", failure.fix)
        if not isinstance(value, UnsetReference):
            replace_text(data, entry.path, value)
            filled.append(entry)
    if not filled:
        return [], agent
    remember_secrets(references.secrets)
    known = {entry.keys for entry in filled}
    remaining = tuple(entry for entry in own.unset if entry.keys not in known)
    return filled, agent.model_copy(update={"provenance": own.add(references.provenance, remaining)})


def _read_model(data: Any, filled: Sequence[Unset], name: str = "") -> Model:
    try:
        return Model.model_validate(data)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        entry = next((one for one in filled if one.path[-1] == detail["loc"][-1]), filled[0])
        cause = (
            f"{entry.place}: the value of {entry.variable} cannot be used as {entry.describe(name)}: {detail['msg']}"
        )
        raise RequestError(cause, f"Set {entry.variable} to another value.") from None


def _remember(agent: PromptAgent) -> PromptAgent:
    remember_secrets(secrets_in(agent))
    return agent
