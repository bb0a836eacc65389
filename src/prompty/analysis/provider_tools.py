"""Find what a prompt's API cannot apply of tools that the provider runs, and what such tools cost."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from prompty.analysis.semantics import find_fallbacks
from prompty.errors import PromptyError
from prompty.model.agent import PromptAgent
from prompty.model.connection import ApiKeyConnection
from prompty.model.tool import FunctionTool, McpTool, runs_at_provider
from prompty.pipeline.source_map import Finding, KeyPath, SourceMap
from prompty.providers import EXECUTORS, PROVIDERS, Api
from prompty.providers.provider_tools import ToolProblem, find_tool_problems

_EXTRA = ("model", "options", "additionalProperties")
# Options that keep the state of a conversation at the server.
_STATE = {
    "background": "each round of tools waits for a job at the server",
    "conversation": "the server adds every request to the conversation, and prompty sends its history again",
    "previous_response_id": "prompty sends the whole history, so a fixed id repeats or contradicts it",
}


def find_provider_tools(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield findings for tools that the provider runs, and for options that don't go with them."""
    hosted = [(index, tool) for index, tool in enumerate(agent.tools) if runs_at_provider(tool)]
    if hosted:
        yield from _check_model(agent, source_map)
        for keys, fallback in find_fallbacks(agent):
            for problem in _find_problems(fallback):
                cause = f"{problem.cause} (fallback '{fallback.model.id}')"
                yield source_map.locate(keys, "provider-tool", cause, problem.fix)
    for index, tool in hosted:
        message = f"the tool '{tool.name}' runs at the provider, and costs per call"
        fix = "To refuse such tools, pass provider_tools=False or --no-provider-tools."
        yield source_map.locate(("tools", index), "runs-at-provider", message, fix, severity="info")
        yield from _check_token(agent, tool, index, source_map)
    yield from _check_options(agent, source_map)


def _find_api(agent: PromptAgent) -> Api | None:
    """Return the API of an agent, or None if a host's executor decides, or another finding reports it."""
    providers, key = agent.registry[PROVIDERS], agent.model.provider
    if agent.registry[EXECUTORS].has(key) or not providers.has(key):
        return None
    with suppress(PromptyError):
        return providers.get(key).api_for(agent)
    return None


def _find_problems(agent: PromptAgent) -> list[ToolProblem]:
    api = _find_api(agent)
    return [*find_tool_problems(agent, api)] if api else []


def _check_model(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    problems, api = _find_problems(agent), _find_api(agent)
    for problem in problems:
        keys: KeyPath = ("tools", problem.at, problem.key)
        yield source_map.locate(keys, "provider-tool", problem.cause, problem.fix, on_key=True)
    if problems or api is None or api.provider_tool is None:
        return
    functions = {tool.name for tool in agent.tools if isinstance(tool, FunctionTool)}
    for index, tool in enumerate(agent.tools):
        written = api.provider_tool(tool) if runs_at_provider(tool) else None
        name = written.entry.get("name") if written else None
        if name in functions:
            message = f"two tools are named '{name}': the API gives the tool '{tool.name}' that name"
            yield source_map.locate(("tools", index, "kind"), "provider-tool", message, "Rename the function.")


def _check_token(agent: PromptAgent, tool: object, index: int, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for a key in the file of a server that the provider calls."""
    connection = tool.connection if isinstance(tool, McpTool) else None
    key = connection.api_key if isinstance(connection, ApiKeyConnection) else None
    if key and not agent.trust.find("tools", getattr(tool, "name", ""), "connection", "api_key"):
        message = "the key of the MCP server is written in the file, and the provider gets it"
        keys: KeyPath = ("tools", index, "connection", "apiKey")
        yield source_map.locate(keys, "secret-in-file", message, "Write ${env:NAME}.", severity="warning")


def _check_options(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    extra: Mapping[str, Any] = agent.model.options.additional_properties or {}
    if agent.tools:
        for name, reason in _STATE.items():
            if extra.get(name):
                message, fix = f"`{name}` with tools: {reason}", "Remove it, or remove the tools."
                yield source_map.locate((*_EXTRA, name), "server-state", message, fix, severity="warning", on_key=True)
    if "betas" in extra:
        message, fix = "`betas` is sent in the body, where no API reads it", "Send the header `anthropic-beta`."
        yield source_map.locate((*_EXTRA, "betas"), "misplaced-key", message, fix, severity="warning", on_key=True)
    raw = extra.get("tools")
    entries = [*(raw if isinstance(raw, list) else ()), *(getattr(tool, "options", None) for tool in agent.tools)]
    deferred = [isinstance(entry, Mapping) and entry.get("defer_loading") is True for entry in entries]
    if deferred and all(deferred):
        message = "every tool has `defer_loading`, so the model has none to begin with"
        yield source_map.locate(("tools",), "provider-tool", message, "Remove it from one tool.")
