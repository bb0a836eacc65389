"""Runs below runs: what a provider has billed is what the run at the top reports, and its budget holds for all."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from prompty import Budget, PromptyError, turn, turn_async
from prompty.errors import ModelError
from prompty.model.message import Reply, Usage
from prompty.model.request import WireRequest
from prompty.providers import TransportSubstitute
from prompty.testing import Fault, answer, call
from prompty.testing.script import LocalTransport, respond
from tests.soak import SOAK
from tests.ways import WAYS, Way

TREES = 2_000 if SOAK else 40
DEPTH = 3
KINDS = ("plain", "typed")
HEAD = """---
model: {{id: gpt-5, provider: scripted}}
inputs: {{q: string}}
{}
---
user:
{{{{q}}}}
"""


def write_prompts(folder: Path) -> Path:
    """Write prompts of each level, which run those of the next one as tools. A typed one promises a number."""
    for level in range(DEPTH + 1):
        for kind in KINDS:
            tools = [
                f"{{name: {one}, kind: prompty, mode: agentic, path: {one}{level + 1}.prompty}}"
                for one in KINDS
                if level < DEPTH
            ]
            outputs = "outputs: {n: {kind: integer}}\n" if kind == "typed" else ""
            (folder / f"{kind}{level}.prompty").write_text(HEAD.format(f"{outputs}tools: [{', '.join(tools)}]"))
    return folder


@dataclass
class Node:
    """What the model of one run answers: calls of other runs in rounds, then a result, or something that fails."""

    rounds: list[list[tuple[str, str]]]
    ending: str
    faults: int
    size: int


@dataclass
class Provider(TransportSubstitute):
    """Answers the runs of a tree, and bills them. `late` are the requests that came when the budget was spent."""

    nodes: dict[str, Node]
    budget: int | None
    billed: Usage = field(default_factory=Usage)
    late: int = 0
    largest: int = 0
    _lock: Any = field(default_factory=Lock)

    def transport(self) -> LocalTransport:
        return LocalTransport(lambda request: respond(self.reply, request))

    def transport_async(self) -> Any:
        return SlowTransport(self)

    def reply(self, request: WireRequest) -> Reply | Fault:
        with self._lock:
            return self._reply(request)

    def _reply(self, request: WireRequest) -> Reply | Fault:
        if self.budget is not None and (self.billed.input_tokens or 0) >= self.budget:
            self.late += 1
        node = self.nodes[request.messages[0].text]
        if node.faults:
            node.faults -= 1
            return Fault(ModelError("busy", status=503, retryable=True, retry_after=0))
        said = sum(message.role == "assistant" for message in request.messages)
        size = node.size + 10 * len(request.messages)
        usage = Usage(input_tokens=size, output_tokens=0)
        self.billed, self.largest = self.billed + usage, max(self.largest, size)
        if said < len(node.rounds):
            return answer("", *(call(kind, q=name) for kind, name in node.rounds[said]), usage=usage)
        if node.ending == "refusal":
            return Reply(refusal="no", usage=usage, finish_reason="stop")
        return answer('{"n": 1}' if node.ending == "number" else "no number", usage=usage)


class SlowTransport:
    """Lets other tasks go on before it answers."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    async def send(self, request: WireRequest, /) -> bytes:
        await asyncio.sleep(0)
        return b"".join(respond(self.provider.reply, request))

    async def stream(self, request: WireRequest, /) -> Any:
        await asyncio.sleep(0)
        return self._iterate(request)

    async def _iterate(self, request: WireRequest) -> AsyncIterator[bytes]:
        for chunk in respond(self.provider.reply, request):
            await asyncio.sleep(0)
            yield chunk


def make_tree(seed: int) -> tuple[dict[str, Node], int | None]:
    """Return the nodes of a tree by the text of their prompts, and a budget. Calls of one kind have one size."""
    rng = random.Random(seed)  # noqa: S311  not for secrets
    sizes = {(kind, level): rng.choice([50, 500, 3_000]) for kind in KINDS for level in range(DEPTH + 1)}
    nodes: dict[str, Node] = {}

    def grow(kind: str, name: str, level: int) -> None:
        rounds: list[list[tuple[str, str]]] = []
        for number in range(rng.choice([0, 1, 1, 2]) if level < DEPTH else 0):
            children = [(rng.choice(KINDS), f"{name}.{number}{at}") for at in range(rng.randint(1, 3))]
            rounds.append(children)
            for child, child_name in children:
                grow(child, child_name, level + 1)
        ending = rng.choice(["number", "number", "text", "refusal"])
        nodes[name] = Node(rounds, ending, rng.choice([0, 0, 0, 1]), sizes[kind, level])

    grow("plain", "0", 0)
    whole = sum((len(node.rounds) + 1) * node.size for node in nodes.values())
    return nodes, rng.choice([None, rng.randint(1, 2 * whole)])


def run(way: Way, top: Path, **options: Any) -> Any:
    """Take a turn, and return what it has used, whatever its end."""
    try:
        if way.asynchronous:
            return asyncio.run(_run_async(way, top, **options))
        if not way.streamed:
            return turn(top, {"q": "0"}, details=True, **options).usage
        with turn(top, {"q": "0"}, stream=True, **options) as stream:
            list(stream.events())
            return stream.usage
    except PromptyError as error:
        return error.usage


async def _run_async(way: Way, top: Path, **options: Any) -> Any:
    if not way.streamed:
        return (await turn_async(top, {"q": "0"}, details=True, **options)).usage
    async with await turn_async(top, {"q": "0"}, stream=True, **options) as stream:
        async for _ in stream.events():
            pass
        return stream.usage


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_is_billed_is_what_is_reported(way: Way, tmp_path: Path) -> None:
    top = write_prompts(tmp_path) / "plain0.prompty"
    for seed in range(TREES // len(WAYS)):
        nodes, budget = make_tree(seed)
        with Provider(nodes, budget) as provider:
            limit: dict[str, Any] = {} if budget is None else {"budget": Budget(tokens=budget)}
            used = run(way, top, **limit)
        assert used == provider.billed, seed
        assert provider.late == 0, seed
        if budget is not None:
            assert (provider.billed.input_tokens or 0) < budget + provider.largest, seed
