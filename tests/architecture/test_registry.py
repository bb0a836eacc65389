"""Names to implementations, in two configurations of one process: registered, built in, or of an installed package."""

import asyncio
import copy
import os
import pickle
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import openai
import pytest

from prompty import (
    Context,
    PromptAgent,
    ToolContext,
    assistant,
    check,
    invoke,
    invoke_async,
    load,
    loads,
    prepare,
    turn,
    user,
)
from prompty.errors import MissingExtra, RequestError, ToolError, UnknownName
from prompty.extras import require
from prompty.model.message import Json
from prompty.model.tool import ToolDefinition
from prompty.parsers import register_parser
from prompty.providers import PROVIDERS, AsyncTransport, Provider, Transport, register_connection, register_provider
from prompty.registry import BUILT_IN, DEFAULT, ExtensionPoint, Implementations, Registry
from prompty.renderers import RENDERERS, Renderer, register_renderer
from prompty.testing import Script, call, register_script
from prompty.tools import Function, KindTool, register_tool, register_tool_kind


def test_built_ins_are_found_by_name_and_only_those() -> None:
    things: Implementations[object] = Implementations("thing", {"join": "os.path:join"})
    assert things.get("join") is os.path.join
    with pytest.raises(UnknownName, match="no thing is called 'os'"):
        things.get("os")


def test_what_is_registered_wins_and_can_be_taken_back() -> None:
    things: Implementations[object] = Implementations("thing", {"join": "os.path:join"})
    things.register("join", "mine")
    assert things.get("join") == "mine"
    things.unregister("join")
    assert things.get("join") is os.path.join


@pytest.mark.parametrize("kind", BUILT_IN)
def test_every_built_in_exists(kind: str) -> None:
    implementations: Implementations[object] = Registry()[ExtensionPoint(kind)]
    assert all(implementations.get(name) for name in BUILT_IN[kind])


def test_only_three_built_ins_lie_above_the_layers_that_look_them_up() -> None:
    targets = [target for built_in in BUILT_IN.values() for target in built_in.values()]
    below = ("prompty.providers.", "prompty.renderers.", "prompty.parsers:", "prompty.tools.")
    assert {one.partition(":")[0] for one in targets if not one.startswith(below)} == {
        "prompty.drivers.children",
        "prompty.pipeline.skills",
        "prompty.testing.provider",
    }


def test_an_installed_package_offers_a_renderer_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[prompty.renderers]\nshout = prompty_test_shouting:render\n")
    (tmp_path / "prompty_test_shouting.py").write_text(
        "def render(template, inputs, /, *, nonce='', strict=False):\n    return template.upper()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    renderers = Registry()[RENDERERS]
    shout: Renderer = renderers.get("shout")
    assert shout("hello", {}) == "HELLO"
    assert "shout" in renderers.names()
    sys.modules.pop("prompty_test_shouting")


# Two configurations in one process.

OTHER = "---\nmodel: {id: m, provider: other}\n---\nHi"


def scripted_as(key: str) -> Provider:
    return replace(DEFAULT[PROVIDERS].get("scripted"), key=key)


def test_a_provider_of_one_registry_is_unknown_to_the_others() -> None:
    first, second = Registry(), Registry()
    register_provider("other", scripted_as("other"), registry=first)
    with Script("Hello"):
        assert invoke(loads(OTHER, registry=first)) == "Hello"
        for agent in (loads(OTHER, registry=second), loads(OTHER)):
            with pytest.raises(UnknownName, match="no provider is called 'other'"):
                invoke(agent)


@dataclass
class Noting:
    """A provider that notes its key whenever it is used."""

    key: str
    used: list[str]

    def provider(self) -> Provider:
        return replace(scripted_as(self.key), transport=self.transport, transport_async=self.transport_async)

    def transport(self, agent: PromptAgent) -> Transport:
        self.used.append(self.key)
        return DEFAULT[PROVIDERS].get("scripted").transport(agent)

    def transport_async(self, agent: PromptAgent) -> AsyncTransport:
        self.used.append(self.key)
        return DEFAULT[PROVIDERS].get("scripted").transport_async(agent)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_same_name_means_another_provider_in_another_registry(asynchronous: bool) -> None:
    first, second = Registry(), Registry()
    used: list[str] = []
    for registry, key in ((first, "first"), (second, "second")):
        register_script("m", Script("a", "b"), registry=registry)
        register_provider("other", Noting(key, used).provider(), registry=registry)
    for registry in (second, first, second):
        agent = loads(OTHER, registry=registry)
        asyncio.run(invoke_async(agent)) if asynchronous else invoke(agent)
    assert used == ["second", "first", "second"]


def test_renderers_and_parsers_belong_to_a_registry() -> None:
    registry = Registry()
    register_renderer("shout", lambda template, inputs, /, *, nonce="", strict=False: "HI", registry=registry)
    register_parser("whole", lambda text, /, *, nonce=None: [user(text)], registry=registry)
    text = "---\ntemplate: {format: {kind: shout}, parser: {kind: whole}}\n---\nhi"
    assert prepare(loads(text, registry=registry)) == [user("HI")]
    with pytest.raises(UnknownName, match="no renderer is called 'shout'"):
        prepare(loads(text))


def tool_results(script: Script) -> list[object]:
    messages: Any = script.requests[-1]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_a_tool_runs_in_the_turns_of_its_registry_alone() -> None:
    first, second = Registry(), Registry()
    register_tool("look", lambda: "first", registry=first)
    register_tool("look", lambda: "second", registry=second)
    text = "---\nmodel: {id: m, provider: scripted}\ntools:\n- {name: look, kind: function}\n---\nHi"
    for registry, expected in ((first, "first"), (second, "second")):
        with Script(call("look"), "Done.") as script:
            turn(loads(text, registry=registry))
        assert tool_results(script) == [expected]
    with Script("Done."), pytest.raises(ToolError, match="the tool 'look' is declared"):
        turn(loads(text))


class Echo:
    """A kind of tool."""

    async def describe(self, tool: ToolDefinition, _agent: PromptAgent, /) -> list[KindTool]:
        async def run(_arguments: Json, _context: ToolContext) -> str:
            return "echo"

        return [KindTool(function=Function(name=tool.name, description=None, parameters={}), call=run)]


def test_a_kind_of_tool_belongs_to_a_registry_and_reaches_child_prompts(tmp_path: Path) -> None:
    (tmp_path / "child.prompty").write_text(
        "---\nmodel: {id: m, provider: scripted}\ntools:\n- {name: look, kind: echo}\n---\nHi"
    )
    path = tmp_path / "parent.prompty"
    path.write_text(
        "---\nmodel: {id: m, provider: scripted}\n"
        "tools:\n- {name: ask, kind: prompty, path: child.prompty, mode: agentic}\n---\nHi"
    )
    registry = Registry()
    register_tool_kind("echo", Echo(), registry=registry)
    with Script(call("ask"), call("look"), "of the child", "Done.") as script:
        assert turn(load(path, registry=registry)) == "Done."
    assert tool_results(script) == ["of the child"]
    with Script("Done."), pytest.raises(ToolError, match="no handler is registered for tool kind 'echo'"):
        turn(load(tmp_path / "child.prompty"))


def test_a_summary_is_written_by_a_provider_of_the_registry(tmp_path: Path) -> None:
    summary, registry = tmp_path / "summary.prompty", Registry()
    register_script("m", Script("They talked.", "Done."), registry=registry)
    summary.write_text(OTHER)
    used: list[str] = []
    register_provider("other", Noting("other", used).provider(), registry=registry)
    history = [user("first " * 20), assistant("yes " * 50), user("and now?")]
    agent = loads("---\nmodel: {id: m, provider: scripted}\n---\nHi", registry=registry)
    turn(agent, messages=history, context_budget=Context(limit=200, summary=summary))
    assert used == ["other"]


def test_check_knows_the_renderers_of_a_registry(tmp_path: Path) -> None:
    path, registry = tmp_path / "one.prompty", Registry()
    path.write_text("---\nmodel: m\ntemplate: {format: {kind: shout}}\n---\nhi")
    register_renderer("shout", lambda template, inputs, /, *, nonce="", strict=False: "HI", registry=registry)
    assert [problem.code for problem in check(path)] == ["unknown-engine"]
    assert check(path, registry=registry) == []


def test_a_connection_belongs_to_a_registry() -> None:
    registry = Registry()
    client = openai.OpenAI(api_key="k")
    register_connection("mine", client, registry=registry)
    text = "---\nmodel: {id: m, provider: openai, connection: {kind: reference, name: mine}}\n---\nHi"
    openai_provider: Any = DEFAULT[PROVIDERS].get("openai")
    assert openai_provider.transport(loads(text, registry=registry)).client is client
    with pytest.raises(RequestError, match="no connection is registered as 'mine'"):
        openai_provider.transport(loads(text))


def test_a_loaded_file_is_cached_for_each_registry(tmp_path: Path) -> None:
    path, registry = tmp_path / "one.prompty", Registry()
    path.write_text("Hi")
    os.utime(path, (1, 1))
    own, shared = load(path, registry=registry), load(path)
    assert (own.registry, shared.registry) == (registry, DEFAULT)
    assert load(path, registry=registry) is own
    assert load(path) is shared


def test_an_agent_keeps_its_registry_when_it_is_copied_and_does_not_write_it() -> None:
    agent = loads("Hi", registry=(registry := Registry()))
    for copied in (agent.model_copy(update={"name": "other"}), copy.copy(agent), copy.deepcopy(agent)):
        assert copied.registry is registry
    assert "registry" not in agent.model_dump()
    assert "registry" not in repr(agent)
    assert "registry" not in PromptAgent.model_json_schema()["properties"]


def test_agents_of_the_default_registry_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(loads("Hi"))).registry is DEFAULT  # noqa: S301  our own bytes
    with pytest.raises(TypeError, match="Load it in the other process"):
        pickle.dumps(loads("Hi", registry=Registry()))


def test_a_file_cannot_choose_its_registry() -> None:
    agent = loads("---\nregistry: mine\n---\nHi")
    assert agent.registry is DEFAULT
    assert agent.metadata == {"registry": "mine"}


# Optional packages.


def test_a_missing_extra_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'path/to/prompty-python\[mcp\]'"):
        require("prompty_no_such_package.inner", extra="mcp")


def test_a_package_that_breaks_while_importing_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompty_test_broken.py").write_text("import prompty_no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="prompty_no_such_package") as caught:
        require("prompty_test_broken", extra="x")
    assert not isinstance(caught.value, MissingExtra)


def test_only_the_default_registry_is_the_same_in_another_process() -> None:
    assert pickle.loads(pickle.dumps(DEFAULT)) is DEFAULT  # noqa: S301  our own bytes
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(Registry())
    assert copy.deepcopy(registry := Registry()) is registry
