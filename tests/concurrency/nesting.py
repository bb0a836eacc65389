"""Calls inside calls: each layer calls the API in one way, and the next layer from inside one of its functions.

The model is a server on loopback. Every innermost call runs an async tool and a sync one in parallel, so it needs an
event loop, whatever the layers around it block.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from threading import Lock
from typing import Any

import prompty
from prompty import Guardrails, PromptAgent, tool
from prompty.batches import RowResult
from prompty.memory import InProcessMemory
from prompty.model.message import Json
from tests.drivers.wires import Chat
from tests.loopback import Reply, Request, Server, json_reply

CHAT = Chat()


class ToolCaller(Server):
    """Calls each tool that it is offered once, and then answers with their results."""

    def next_reply(self, request: Request) -> Reply:
        messages = request.body["messages"]
        results = [message["content"] for message in messages if message["role"] == "tool"]
        tools = request.body.get("tools")
        if results or not tools:
            return json_reply(CHAT.whole(" ".join(results) or "answer"))
        names = [entry["function"]["name"] for entry in tools]
        calls = [CHAT.call(id=f"c{at}", function={"name": name, "arguments": "{}"}) for at, name in enumerate(names)]
        return json_reply(CHAT.whole("", "tool_calls", tool_calls=calls))


@tool
async def look() -> str:
    await asyncio.sleep(0)
    return "looked"


@tool
def peek() -> str:
    return "peeked"


@dataclass(frozen=True)
class Layer:
    """How a layer calls the API, and the function of the host from which it calls the next one."""

    api: str
    hook: str = "none"
    is_async: bool = False

    def __str__(self) -> str:
        return self.api if self.hook == "none" else f"{self.api}+{'async ' if self.is_async else ''}{self.hook}"


CALLS = ("turn", "turn_async", "batch", "batch_async")
LEAVES = [Layer(api) for api in CALLS]
LAYERS = [
    Layer(api, hook, is_async)
    for api in CALLS
    for hook in ("tool", "gate", "guardrail", "listener", "memory", "rows")
    for is_async in (False, True)
    if not (hook == "memory" and api.startswith("batch"))  # a store belongs to one conversation
    if not (hook == "rows" and (is_async or not api.startswith("batch")))
    if not (hook == "listener" and is_async)
]


@dataclass(frozen=True)
class Combination:
    """Layers from the outermost to the innermost, called from a plain thread or from a cell of a notebook."""

    layers: tuple[Layer, ...]
    in_notebook: bool

    def __str__(self) -> str:
        return " > ".join((["notebook"] if self.in_notebook else []) + [str(layer) for layer in self.layers])


def list_combinations(depth: int) -> Iterator[Combination]:
    """Yield every combination of this depth."""
    for layers in product(*[LAYERS] * (depth - 1), LEAVES):
        yield Combination(layers, in_notebook=False)
        yield Combination(layers, in_notebook=True)


@dataclass
class Nest:
    """Runs combinations, and keeps how each of their calls ended."""

    server: Server
    leaf: PromptAgent | None = None
    sentences: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def run(self, combination: Combination) -> str:
        """Run all layers, and return the answer of the outermost."""
        layers = combination.layers
        return asyncio.run(self._run_cell(layers)) if combination.in_notebook else self._run(layers)

    async def _run_cell(self, layers: Sequence[Layer]) -> str:
        return await self._run_async(layers)

    def _run(self, layers: Sequence[Layer]) -> str:
        """Run from sync code. An async call gets an event loop, on another thread if this one has a loop already."""
        if not layers[0].api.endswith("_async"):
            return self._record(lambda: self._call(layers))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._run_async(layers))
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(asyncio.run, self._run_async(layers)).result()

    async def _run_async(self, layers: Sequence[Layer]) -> str:
        if not layers[0].api.endswith("_async"):
            return self._record(lambda: self._call(layers))
        try:
            answer = _text_of(await self._call(layers))
        except Exception as error:
            self.sentences.append(f"{type(error).__name__}: {error}")
            raise
        self.answers.append(answer)
        return answer

    def _record(self, call: Callable[[], Any]) -> str:
        try:
            answer = _text_of(call())
        except Exception as error:
            self.sentences.append(f"{type(error).__name__}: {error}")
            raise
        self.answers.append(answer)
        return answer

    def _call(self, layers: Sequence[Layer]) -> Any:
        """Call the API. The result of an async function is a coroutine."""
        layer, rest = layers[0], layers[1:]
        function: Any = getattr(prompty, layer.api)
        agent = CHAT.agent(self.server) if rest or self.leaf is None else self.leaf
        options = self._options(layer, rest)
        rows: Any = options.pop("rows", [{}])
        return function(agent, rows if layer.api.startswith("batch") else {}, **options)

    def _options(self, layer: Layer, rest: Sequence[Layer]) -> dict[str, Any]:
        match layer.hook:
            case "tool":
                return {"tools": [tool(self._hook(layer, rest, name="nested"))]}
            case "gate":
                return {"tools": [look], "gate": self._hook(layer, rest, [True])}
            case "guardrail":
                return {"tools": [look], "guardrails": Guardrails(input=self._once(layer, rest))}
            case "listener":
                return {"tools": [look], "on_event": self._once(layer, rest)}
            case "memory":
                return {"tools": [look], "memory": Store(self._hook(layer, rest)), "session_id": "s"}
            case "rows":
                return {"tools": [look], "rows": self._rows(rest)}
        return {"tools": [look, peek]}

    def _rows(self, rest: Sequence[Layer]) -> Iterator[Json]:
        self._run(rest)
        yield {}

    def _hook(self, layer: Layer, rest: Sequence[Layer], result: Any = None, name: str = "hook") -> Callable[..., Any]:
        """Return a function of the host that runs the other layers, and returns this or their answer."""

        async def hook_async(*_: object) -> Any:
            answer = await self._run_async(rest)
            return answer if result is None else result

        def hook(*_: object) -> Any:
            answer = self._run(rest)
            return answer if result is None else result

        chosen: Callable[..., Any] = hook_async if layer.is_async else hook
        if name == "hook":
            return chosen

        async def nested_async() -> str:
            return str(await hook_async())

        def nested() -> str:
            return str(hook())

        return nested_async if layer.is_async else nested

    def _once(self, layer: Layer, rest: Sequence[Layer]) -> Callable[..., Any]:
        """Return a hook that runs the other layers when it is first called, and allows everything."""
        inner, called = self._hook(layer, rest, True), False

        def is_first() -> bool:
            nonlocal called
            with self._lock:
                was, called = called, True
            return not was

        async def hook_async(*arguments: object) -> Any:
            return not is_first() or await inner(*arguments)

        def hook(*arguments: object) -> Any:
            return not is_first() or inner(*arguments)

        return hook_async if layer.is_async else hook


class Store(InProcessMemory):
    """A store whose `load` calls the host. With an async function, all of its methods are async."""

    never_blocks = False

    def __new__(cls, load: Callable[[], Any]) -> Any:
        return super().__new__(AsyncStore if inspect.iscoroutinefunction(load) else cls)

    def __init__(self, load: Callable[[], Any]) -> None:
        super().__init__()
        self._host_load = load

    def load(self, session_id: str, /) -> list[Json]:
        self._host_load()
        return super().load(session_id)


class AsyncStore(Store):
    async def load(self, session_id: str, /) -> list[Json]:  # type: ignore[override]  # an async store
        await self._host_load()
        return InProcessMemory.load(self, session_id)

    async def append(self, session_id: str, messages: tuple[Json, ...], /) -> None:  # type: ignore[override]  # as above
        await asyncio.sleep(0)
        InProcessMemory.append(self, session_id, messages)

    async def acquire(self, session_id: str, /) -> Any:  # type: ignore[override]  # as above
        await asyncio.sleep(0)
        return InProcessMemory.acquire(self, session_id)


def _text_of(result: Any) -> str:
    if isinstance(result, list):
        [row] = result
        assert isinstance(row, RowResult)
        result = row.value
    assert isinstance(result, str), result
    return result
