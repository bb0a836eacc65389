"""`prompty tools`: what a model can call, as it will see it."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rich.text import Text

from prompty.api import load
from prompty.cli.console import fail, out, show_json
from prompty.cli.inputs import load_dotenv
from prompty.cli.options import ApiType, AsJson, File, ProviderKey, with_model
from prompty.errors import PromptyError
from prompty.loop.approval import policy_in_words
from prompty.model.agent import PromptAgent
from prompty.model.message import user
from prompty.model.request import Function
from prompty.model.tool import FunctionTool
from prompty.pipeline.request import functions_of, request_for
from prompty.safety.visible import visible
from prompty.tools.kinds import projected_tools


class Shown(NamedTuple):
    """A function, the tool of the file that it comes from, when a person is asked, and what the host fills in."""

    function: Function
    source: str
    approval: str
    bound: tuple[str, ...]


def tools(file: File, provider: ProviderKey = None, api: ApiType = None, as_json: AsJson = False) -> None:
    """List what the model of FILE can call; --json prints the definitions exactly as its provider gets them."""
    load_dotenv(file)
    try:
        agent = with_model(load(file), None, provider, api)
        found = asyncio.run(_found(agent))
        definitions = _definitions(agent, [one.function for one in found])
    except PromptyError as error:
        fail(error)
    if as_json:
        show_json(definitions)
        return
    for one in found:
        _show(one)
    out.print(f"{len(found)} functions for {agent.model.provider} ({agent.model.api_type})")


async def _found(agent: PromptAgent) -> list[Shown]:
    declared = {tool.name: tool for tool in agent.tools if isinstance(tool, FunctionTool)}
    functions = functions_of(agent)
    shown = [
        Shown(one, "function", policy_in_words(declared[one.name].approval_mode), tuple(declared[one.name].bindings))
        for one in functions
    ]
    for projected in await projected_tools(agent, [one.name for one in functions]):
        source = f"{projected.tool.kind} {projected.tool.name}"
        words = {policy_in_words(policy) for policy in (projected.tool.approval_mode, projected.found.approval)}
        shown.append(Shown(projected.function, source, " and ".join(sorted(words)), tuple(projected.bindings)))
    return shown


def _definitions(agent: PromptAgent, functions: list[Function]) -> object:
    """The definitions in the body of a request."""
    api = agent.registry.providers.get(agent.model.provider).api(agent.model.api_type)
    return request_for(agent, [user("…")], api, functions=functions).body.get("tools", [])


def _show(one: Shown) -> None:
    out.print(Text.assemble((visible(one.function.name), "bold"), f"  ({visible(one.source)}; {one.approval})"))
    if one.function.description:
        out.print(Text(f"    {visible(one.function.description)}", "dim"))
    for line in _parameters(one.function.parameters):
        out.print(f"    {visible(line)}")
    for name in one.bound:
        out.print(Text(f"    {visible(name)}: filled in by the host, not seen by the model", "yellow"))


def _parameters(schema: Mapping[str, object]) -> Iterator[str]:
    properties, required = schema.get("properties"), schema.get("required")
    for name, one in (properties if isinstance(properties, dict) else {}).items():
        optional = "" if isinstance(required, list) and name in required else ", optional"
        kind = one.get("type", "any") if isinstance(one, dict) else "any"
        told = f": {one['description']}" if isinstance(one, dict) and one.get("description") else ""
        yield f"{name} ({kind}{optional}){told}"
