"""What the rows of a batch cost with and without marks for the provider's cache, over HTTPS under its own name.

`python -m benchmarks.cache_costs [ROWS]` sends so many rows of two public judge prompts through `prompty.batch`, 16 at
once. Each row has 500 tokens of its own and an answer of 200 tokens. The server is the rules server of the tests with a
cache that works as documented. The prices are those of genai-prices. "Before" are the same requests without marks.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import prompty
from prompty import PromptAgent, Usage
from prompty.pipeline.model_override import override_model
from prompty.testing import answer
from tests.internet import Internet
from tests.prompt_cache import CachingServer
from tests.servers.rules_over_http import HOSTS, KEYS, answer as answer_arrival
from tests.v1.corpus import ROOT, load_quietly

ROWS = 10_000
AT_ONCE = 16
CHUNK = 500
ANSWER_SECONDS = 0.02
CHARACTERS = 4  # of a token of the server
FRESH_TOKENS = 500
ANSWER = answer("good" * 200)
JUDGES = ROOT / "azure-ai-evaluation" / "azure" / "ai" / "evaluation" / "_evaluators"
PROMPTS = {name: JUDGES / f"_{name}" / f"{name}.prompty" for name in ("task_completion", "tool_call_accuracy")}
MODELS = {"gpt-5.6": "openai:gpt-5.6", "claude-sonnet-5": "anthropic:claude-sonnet-5"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """What the rows of one prompt cost."""

    cost: Decimal
    usage: Usage
    seconds: float

    @property
    def share(self) -> float:
        """The share of the input that came from the cache."""
        return (self.usage.cache_read_tokens or 0) / (self.usage.input_tokens or 1)


def load_judge(file: Path, *, marked: bool) -> PromptAgent:
    """Load a prompt, with the options that every model takes."""
    agent = load_quietly(file)
    model = agent.model.model_copy(update={"options": type(agent.model.options)(), "connection": None})
    return agent.model_copy(update={"model": model, "metadata": {} if marked else {"cache": False}})


def write_row(agent: PromptAgent, number: int) -> dict[str, Any]:
    """Return inputs of which the first has all the text."""
    text = f"{number:08} " + "text " * (FRESH_TOKENS * CHARACTERS // 5 - 2)
    values = {"string": text, "array": [text], "object": {"text": text}}
    empty: dict[str, Any] = {"string": "-", "array": [], "object": {}}
    return {one.name: (values if at == 0 else empty)[one.kind] for at, one in enumerate(agent.inputs)}


@contextmanager
def serve(rows: int, environment: Callable[[str, str], None]) -> Iterator[tuple[CachingServer, Internet]]:
    """Let a server with a cache answer for the hosts of the providers."""
    server = CachingServer(*[ANSWER] * rows, seconds=ANSWER_SECONDS)
    with (
        TemporaryDirectory() as folder,
        Internet(Path(folder), HOSTS, lambda arrival: answer_arrival(server, arrival)) as internet,
    ):
        internet.use(environment)
        environment("NO_PROXY", "")
        for name in KEYS:
            environment(f"{name}_API_KEY", "sk-of-a-benchmark")
        yield server, internet


def measure(
    prompt: str, model: str, *, rows: int, marked: bool, environment: Callable[[str, str], None], at_once: int = AT_ONCE
) -> Bill:
    """Run the rows, and add up what they cost."""
    with serve(rows, environment) as (server, internet):
        start = time.perf_counter()
        cost, usage = asyncio.run(_run(prompt, model, rows, at_once, marked=marked, server=server, internet=internet))
        return Bill(cost=cost, usage=usage, seconds=time.perf_counter() - start)


async def _run(
    prompt: str, model: str, rows: int, at_once: int, *, marked: bool, server: CachingServer, internet: Internet
) -> tuple[Decimal, Usage]:
    agent = override_model(load_judge(PROMPTS[prompt], marked=marked), MODELS[model], None)
    cost, usage = Decimal(), Usage()
    for first in range(0, rows, CHUNK):
        chunk = [write_row(agent, number) for number in range(first, min(first + CHUNK, rows))]
        for row in await prompty.batch_async(agent, chunk, concurrency=at_once):
            if row.result is None or row.result.cost is None:
                raise row.error or RuntimeError("the price of a row is unknown")
            cost, usage = cost + row.result.cost, usage + row.result.usage
        server.requests.clear()  # which are large
        server.usages.clear()
        internet.arrivals.clear()
    return cost, usage


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    print("| prompt | model | before | now | less | input from the cache | seconds |\n|---|---|---|---|---|---|---|")
    for model, prompt in product(MODELS, PROMPTS):
        before, now = [
            measure(prompt, model, rows=rows, marked=marked, environment=os.environ.__setitem__)
            for marked in (False, True)
        ]
        seconds = f"{before.seconds:.0f} + {now.seconds:.0f}"
        figures = (
            f"${before.cost:.2f} | ${now.cost:.2f} | {1 - now.cost / before.cost:.1%} | {now.share:.1%} | {seconds}"
        )
        print(f"| `{prompt}` | `{model}` | {figures} |", flush=True)


if __name__ == "__main__":
    main()
