"""Tools that the model's provider runs: what an API cannot apply is an error before the call.

The entries of a request come from each API's `provider_tool`. They follow the file's raw entries and
precede functions.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from prompty.errors import RequestError
from prompty.model.agent import ModelOptions, PromptAgent
from prompty.model.request import WrittenTool
from prompty.model.tool import ProviderTool, ToolDefinition, WebFetchTool, WebSearchTool, runs_at_provider
from prompty.providers import Api, RequestBase

# Tools that only one of the two APIs has, and what to use on the other.
_INSTEAD = {
    "web_fetch": "Use `kind: web_search`, which also opens pages there.",
    "file_search": "Use a function that searches, or a model of OpenAI.",
}
_ELSEWHERE = "Use `apiType: responses` with a model of OpenAI, or `provider: anthropic`."


class ToolProblem(NamedTuple):
    """What an API cannot apply: the tool's place in the file, and the key."""

    at: int
    key: str
    cause: str
    fix: str


def find_tool_problems(agent: PromptAgent, api: Api) -> Iterator[ToolProblem]:
    """Yield what an API cannot apply of the tools that the provider runs."""
    for index, tool in enumerate(agent.tools):
        if runs_at_provider(tool):
            for key, (cause, fix) in _find_problems(tool, api).items():
                yield ToolProblem(index, key, f"the tool '{tool.name}': {cause}", fix)


def _find_problems(tool: ToolDefinition, api: Api) -> Mapping[str, tuple[str, str]]:
    if api.provider_tool is None:
        return {"kind": (f"the API `{api.name or 'unknown'}` runs no tools at the provider", _ELSEWHERE)}
    written = api.provider_tool(tool)
    if written is None:
        fix = _INSTEAD.get(tool.kind, "Use another tool.")
        return {"kind": (f"the API `{api.name}` has no tool of kind `{tool.kind}`", fix)}
    return {**_find_wrong_keys(tool), **written.refused}


def _find_wrong_keys(tool: ToolDefinition) -> dict[str, tuple[str, str]]:
    problems: dict[str, tuple[str, str]] = {}
    if tool.bindings:
        problems["bindings"] = ("the provider fills in its parameters", "Remove `bindings`.")
    if isinstance(tool, ProviderTool) and tool.approval_mode not in (None, "never", {"kind": "never"}):
        fix = "Remove the tool, or use a function, which can ask."
        problems["approvalMode"] = ("the provider runs it without asking", fix)
    if isinstance(tool, WebSearchTool | WebFetchTool) and tool.allowed_domains and tool.blocked_domains:
        problems["blockedDomains"] = ("it has allowed and blocked domains", "Write one of the two.")
    return problems


def add_provider_tools(agent: PromptAgent, api: Api, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return `additionalProperties` with the tools that the provider runs. Raise RequestError for what the API cannot
    apply."""
    for problem in find_tool_problems(agent, api):
        raise RequestError(problem.cause, problem.fix, keys=("tools", problem.at, problem.key))
    written = [_write(tool, api) for tool in agent.tools if runs_at_provider(tool)]
    added = {**extra, "tools": [*_get_list(extra, "tools"), *(tool.entry for tool in written)]}
    if servers := [tool.server for tool in written if tool.server]:
        added["mcp_servers"] = [*_get_list(extra, "mcp_servers"), *servers]
    return added


def _write(tool: ToolDefinition, api: Api) -> WrittenTool:
    written = api.provider_tool(tool) if api.provider_tool else None
    assert written is not None  # noqa: S101  `find_tool_problems` has looked
    return written


def _get_list(extra: Mapping[str, Any], name: str) -> list[Any]:
    found = extra.get(name)
    if found is not None and not isinstance(found, list):
        raise RequestError(f"`additionalProperties.{name}` is not a list", "Write each as an entry: - {…}.")
    return found or []


# Keys of a request with which other tools of a provider are written.
_OTHER_KEYS = ("mcp_servers", "web_search_options", "plugins")


def list_provider_tools(agent: PromptAgent) -> list[str]:
    """Return the names of the tools that the provider runs, also of those under `additionalProperties`."""
    return _list_names(filter(runs_at_provider, agent.tools), agent.model.options)


def _list_names(hosted: Iterable[ToolDefinition], options: ModelOptions) -> list[str]:
    extra = options.additional_properties or {}
    raw = extra.get("tools") if isinstance(extra.get("tools"), list) else []
    return [
        *(tool.name for tool in hosted),
        *(str(entry.get("type")) for entry in raw or () if isinstance(entry, dict) and not _is_function(entry)),
        *(name for name in _OTHER_KEYS if extra.get(name) is not None),
    ]


def _is_function(entry: Mapping[str, Any]) -> bool:
    return entry.get("type") in ("function", "custom") or ("type" not in entry and "input_schema" in entry)


def refuse_provider_tools(bases: Iterable[RequestBase]) -> None:
    """Raise RequestError for a tool that the provider runs, in what the requests to a model or to one of its fallbacks
    have in common."""
    for base in bases:
        for name in _list_names(base.hosted, base.options):
            raise RequestError(
                f"the tool '{name}' runs at the provider, which this call does not allow",
                "Remove `provider_tools=False`, or the tool.",
                "Add --provider-tools if you trust the prompt, or remove the tool.",
            )


def merge_options(
    tool: ProviderTool, entry: Mapping[str, Any], fields: Mapping[str, Any], versions: str
) -> WrittenTool:
    """Return an entry with the fields of the file, and with the tool's `options` over it. `type` may be another one
    that starts with `versions`. An option for what a field of the file says is refused."""
    given = {name: value for name, value in fields.items() if value is not None}
    options, refused = tool.options or {}, dict[str, tuple[str, str]]()
    for name, value in options.items():
        if name == "type":
            if not isinstance(value, str) or not value.startswith(versions):
                fix = "Remove it, or use `kind: provider` for another tool."
                refused["options"] = (f"`type: {value}` is not a version of this tool", fix)
        elif name in given or name == "name":
            refused["options"] = (f"`options.{name}` is set by the tool itself", f"Remove `{name}` there.")
    return WrittenTool({**entry, **given, **options}, refused=refused)


def write_raw(tool: ProviderTool) -> WrittenTool:
    """Return an entry that the file writes itself."""
    entry = tool.options or {}
    if isinstance(entry.get("type"), str):
        return WrittenTool(dict(entry))
    return WrittenTool({}, refused={"options": ("its entry has no `type`", "Write `options: {type: …}`.")})
