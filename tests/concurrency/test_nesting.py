"""Every way to call prompty from inside prompty, to a depth of three, ends in an answer or in an error: none hangs.

The gate runs a share that has every layer in every place. All of them run in the tier `nightly`.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

import prompty
from prompty.concurrency import LoopFuture
from prompty.mcp import register_mcp_server
from tests.concurrency.nesting import CHAT, LAYERS, LEAVES, Combination, Layer, Nest, ToolCaller, list_combinations
from tests.watchdog import within

IN_GATE = 60
GROUPS = 60
ALL = [combination for depth in (1, 2, 3) for combination in list_combinations(depth)]


def choose_for_gate() -> list[Combination]:
    """Return combinations of three layers in which each layer is the outermost and the middle one at least once."""
    shuffled = [combination for combination in ALL if len(combination.layers) == 3]
    Random(31).shuffle(shuffled)  # noqa: S311  not for secrets
    chosen: dict[Combination, None] = {}
    seen: Counter[tuple[int, Layer]] = Counter()
    for limit in (1, 2):
        for combination in shuffled:
            places = [*enumerate(combination.layers[:2])]
            if len(chosen) < IN_GATE and combination not in chosen and all(seen[place] < limit for place in places):
                chosen[combination] = None
                seen.update(places)
    return list(chosen)


GATE = choose_for_gate()


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notice a blocked loop soon: a thread of the host's own does not tell who waits for it."""
    monkeypatch.setattr(LoopFuture, "START_SECONDS", 0.2)


def assert_answers(nest: Nest, combination: Combination) -> None:
    answer = within(partial(nest.run, combination))
    assert nest.sentences == [], str(combination)
    assert len(nest.answers) == len(combination.layers), str(combination)
    assert answer in ("looked", "looked peeked")


def test_the_share_of_the_gate_has_every_layer_outside_and_in_the_middle() -> None:
    assert len(set(GATE)) == IN_GATE
    for place, layers in enumerate((LAYERS, LAYERS, LEAVES)):
        assert {combination.layers[place] for combination in GATE} == set(layers)
    assert {combination.in_notebook for combination in GATE} == {False, True}


@pytest.mark.parametrize("combination", GATE, ids=str)
def test_calls_inside_calls_inside_calls_answer(combination: Combination, server: ToolCaller) -> None:
    assert_answers(Nest(server), combination)


@pytest.mark.nightly
@pytest.mark.parametrize("group", range(GROUPS))
def test_every_combination_answers(group: int, server: ToolCaller) -> None:
    for combination in ALL[group::GROUPS]:
        assert_answers(Nest(server), combination)


def mcp_leaf(server: ToolCaller) -> Nest:
    tool = {"name": "own", "kind": "mcp", "serverName": "own", "allowedTools": ["fine"]}
    return Nest(server, CHAT.agent(server, tools=[tool]))


@pytest.fixture
def mcp_server(clean_registry: None) -> Iterator[None]:
    program = Path(__file__).parents[1] / "tools/raw_mcp_server.py"
    register_mcp_server("own", command=[sys.executable, str(program), "noisy"])
    yield
    prompty.close()


@pytest.mark.process
def test_tools_of_an_mcp_server_can_be_used_at_any_depth(mcp_server: None, server: ToolCaller) -> None:
    """The session of a server belongs to one event loop, which no tool blocks."""
    for combination in GATE[::4]:
        nest = mcp_leaf(server)
        within(partial(nest.run, combination))
        assert nest.sentences == [], str(combination)
        assert any("fine" in answer for answer in nest.answers), str(combination)
