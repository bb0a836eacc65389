"""`prompty tools`: list the functions that a model can call, as it sees them."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rich.text import Text

from prompty.cli.console import out, print_json
from prompty.cli.inputs import load_prompt_file
from prompty.cli.options import AllowEnv, ApiType, AsJson, PromptFile, ProviderKey, Roots, Variant
from prompty.model.agent import PromptAgent
from prompty.model.conditions import describe_policy
from prompty.model.message import user
from prompty.model.request import Function
from prompty.model.tool import FunctionTool
from prompty.pipeline.request import build_request, list_declared_functions
from prompty.providers import PROVIDERS
from prompty.safety.visible import visible
from prompty.tools.kinds import project_tools
from prompty.tools.toolbox import describe_custom_tools


class OfferedFunction(NamedTuple):
    """A function, its tool in the file, its approval policy, and the parameters that the host fills in."""

    function: Function
    source: str
    approval: str
    bound: tuple[str, ...]


def tools(
    file: PromptFile,
    variant: Variant = None,
    provider: ProviderKey = None,
    api: ApiType = None,
    roots: Roots = None,
    allow_env: AllowEnv = None,
    as_json: AsJson = False,
) -> None:
    """List the functions that the model in FILE can call.

    --json prints their definitions exactly as the provider receives them.
    """
    agent = load_prompt_file(file, variant, provider=provider, api=api, roots=roots)
    offered = asyncio.run(_list_functions(agent))
    api_module = agent.registry[PROVIDERS].get(agent.model.provider).api_for(agent)
    request = build_request(agent, [user("…")], api_module, functions=[entry.function for entry in offered])
    if as_json:
        print_json(request.body.get("tools", []))
        return
    for entry in offered:
        _print_function(entry)
    count = "1 function" if len(offered) == 1 else f"{len(offered)} functions"
    out.print(f"{count} for {agent.model.provider} ({agent.model.api_type})")


async def _list_functions(agent: PromptAgent) -> list[OfferedFunction]:
    functions = [*list_declared_functions(agent), *describe_custom_tools(agent)]
    declared = {tool.name: tool for tool in agent.tools}
    offered = []
    for function in functions:
        tool = declared[function.name]
        source = "function" if isinstance(tool, FunctionTool) else f"{tool.kind} {tool.name}"
        offered.append(OfferedFunction(function, source, describe_policy(tool.approval_mode), tuple(tool.bindings)))
    for projected in await project_tools(agent, [function.name for function in functions]):
        source = f"{projected.tool.kind} {projected.tool.name}"
        words = {describe_policy(policy) for policy in (projected.tool.approval_mode, projected.kind_tool.approval)}
        approval = " and ".join(sorted(words))
        offered.append(OfferedFunction(projected.function, source, approval, tuple(projected.bindings)))
    return offered


def _print_function(offered: OfferedFunction) -> None:
    function, source, approval, bound = offered
    out.print(Text.assemble((visible(function.name), "bold"), f"  ({visible(source)}; {approval})"))
    if function.description:
        out.print(Text(f"    {visible(function.description)}", "dim"))
    for line in _describe_parameters(function.parameters):
        out.print(f"    {visible(line)}")
    for name in bound:
        out.print(Text(f"    {visible(name)}: filled in by the host, not seen by the model", "yellow"))


def _describe_parameters(schema: Mapping[str, object]) -> Iterator[str]:
    properties, required = schema.get("properties"), schema.get("required")
    for name, declared in (properties if isinstance(properties, dict) else {}).items():
        parameter = declared if isinstance(declared, dict) else {}
        optional = "" if isinstance(required, list) and name in required else ", optional"
        description = f": {parameter['description']}" if parameter.get("description") else ""
        yield f"{name} ({parameter.get('type', 'any')}{optional}){description}"
