"""A call copies its agent at most once, where it begins, and only if the caller overrides something."""

from collections.abc import Mapping
from typing import Any, TypedDict

import pytest

from prompty import PromptAgent, Registry
from tests.drivers.wires import WIRES, Wire
from tests.loopback import Server, json_reply
from tests.ways import Way, sync_and_async

SEARCH = {"name": "web", "kind": "web_search"}


class City(TypedDict):
    name: str


OVERRIDES: dict[str, Mapping[str, Any]] = {
    "nothing": {},
    "options": {"options": {"maxOutputTokens": 7}},
    "the model": {"model": "another"},
    "the type of the answer": {"output_type": City},
    "the registry": {"registry": Registry()},
    "the policy": {"approval": "never"},
    "no fallbacks": {"fallbacks": []},
}
OVERRIDES["all"] = {name: value for options in OVERRIDES.values() for name, value in options.items()}
COPIED = {name: 0 if name in ("nothing", "the policy") else 1 for name in OVERRIDES}


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[PromptAgent]:
    made: list[PromptAgent] = []
    copy = PromptAgent.model_copy

    def count(agent: PromptAgent, **options: Any) -> PromptAgent:
        made.append(agent)
        return copy(agent, **options)

    monkeypatch.setattr(PromptAgent, "model_copy", count)
    return made


@sync_and_async
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("verb", ["invoke", "turn"])
@pytest.mark.parametrize("name", OVERRIDES)
def test_a_call_copies_its_agent_only_for_overrides(
    way: Way, wire: Wire, verb: str, name: str, copies: list[PromptAgent]
) -> None:
    options = {name: value for name, value in OVERRIDES[name].items() if verb == "turn" or name != "approval"}
    tools = [SEARCH] if wire.name != "chat" else []
    with Server() as server:
        agent = wire.agent(server, tools=tools)
        server.answer(json_reply(wire.whole('{"name": "Paris"}')))
        copies.clear()
        seen = getattr(way, verb)(agent, **options)
    assert seen.error is None
    assert len(copies) == COPIED[name]
