"""What an agent's turns cost, measured in the same loop written by hand on the OpenAI SDK.

`python -m benchmarks.turns SIDE PROVIDER TURNS` runs so many turns at once in one process.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from openai import AsyncOpenAI

from benchmarks.callers import KEY, OPTIONS, agent_at
from benchmarks.calls import ratio, seconds_of
from benchmarks.cost import Cost, best_of
from benchmarks.crowd import peak_memory
from benchmarks.prompts import CHAT
from benchmarks.provider import allow_many_connections, city, fake_provider, last_words
from prompty import turn_async

CALLS, ROUNDS = 8, 3
REPEATS = 10
FULL = 1000
MEMORY_LIMIT = 180
PROMPT = CHAT.with_name("turn.prompty")
CUSTOMER = "Ada Lovelace"
SYSTEM = """\
You are an assistant who helps people find out about the weather.
Answer briefly, and use their name.

# Customer
You are helping {customer}."""
QUESTION = "How is the weather in the cities of my list {ticket}?"
TOOL = {
    "name": "get_weather",
    "description": "Get the current weather for a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "City name"}},
        "required": ["city"],
    },
}


class Desk:
    """One turn: its ticket, and the tool, which knows for which turn it works."""

    def __init__(self, number: int) -> None:
        self.ticket = f"turn-{number:05}"
        self.asked: list[str] = []

    async def get_weather(self, city: str) -> str:
        """The tool."""
        self.asked.append(city)
        return f"21 degrees and sunny in {city}"

    def check(self, answer: object, rounds: int) -> None:
        """All calls and the answer are those of this turn; that the results are, the provider has seen."""
        assert self.asked == [city(self.ticket, number) for number in range(CALLS * rounds)]
        assert answer == last_words(self.ticket)


Turn = Callable[[Desk], Awaitable[object]]


def prompty_turn(url: str) -> Turn:
    """A prompt that is loaded; preparing it is part of the turn."""
    agent = agent_at(url, PROMPT)
    return lambda desk: turn_async(agent, {"customer": CUSTOMER, "ticket": desk.ticket}, tools=[desk.get_weather])


def openai_turn(url: str) -> Turn:
    """The loop that people write, without what can go wrong in it."""
    chat: Any = AsyncOpenAI(base_url=url, api_key=KEY, timeout=120).chat.completions
    tools = [{"type": "function", "function": TOOL}]

    async def turn(desk: Desk) -> object:
        system, question = SYSTEM.format(customer=CUSTOMER), QUESTION.format(ticket=desk.ticket)
        messages: list[Any] = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        while True:
            message = (await chat.create(messages=messages, tools=tools, **OPTIONS)).choices[0].message
            if not (calls := message.tool_calls):
                return message.content
            messages.append({"role": "assistant", "content": message.content, "tool_calls": list(map(entry, calls))})
            results = await asyncio.gather(*(desk.get_weather(**json.loads(call.function.arguments)) for call in calls))
            for call, result in zip(calls, results, strict=True):
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    return turn


def entry(call: Any) -> dict[str, object]:
    """A call as it goes back."""
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}


SIDES: dict[str, Callable[[str], Turn]] = {"prompty": prompty_turn, "openai": openai_turn}


def turn_costs(rounds: int) -> list[Cost]:
    """One turn after the other, and many at once."""
    return [turn_cost(10 * rounds), *crowd_costs(rounds)]


def turn_cost(rounds: int) -> Cost:
    """The processor time of turns that follow each other."""

    async def run(turn: Turn) -> None:
        for number in range(REPEATS):
            desk = Desk(number)
            desk.check(await turn(desk), ROUNDS)

    with fake_provider() as provider, asyncio.Runner() as runner:
        turns = {name: side(f"{provider}/0/0/1/{CALLS}/{ROUNDS}") for name, side in SIDES.items()}
        works = {name: partial(lambda turn: runner.run(run(turn)), turn) for name, turn in turns.items()}
        seconds = best_of(rounds, {name: partial(seconds_of, work, time.process_time) for name, work in works.items()})
    return ratio(f"turn, {ROUNDS} × {CALLS} tools", 0.35, seconds)


class Crowd(NamedTuple):
    """What turns at once have taken: seconds of the processor, and MB."""

    seconds: float
    memory: float


def crowd_costs(rounds: int) -> list[Cost]:
    """A thousand turns at once, in fresh processes. The provider answers when it has a request of each of them. On a
    busy machine a run takes up to 1.7 times as long as another, so that one of each side says little."""
    with fake_provider() as provider:
        runs = [{side: crowd(side, provider, FULL) for side in SIDES} for _ in range(2 * rounds)]
    best = {side: Crowd(*map(min, zip(*(run[side] for run in runs), strict=True))) for side in SIDES}
    seconds = {side: found.seconds for side, found in best.items()}
    used = best["prompty"].memory
    memory = Cost(name=f"{FULL:,} turns at once, memory", figure=used, unit="MB", limit=MEMORY_LIMIT, seconds=seconds)
    return [ratio(f"{FULL:,} turns at once", 0.35, seconds), memory]


def crowd(side: str, provider: str, turns: int) -> Crowd:
    command = [sys.executable, "-m", __name__, side, provider, str(turns)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=280)
    return Crowd(*map(float, done.stdout.split()))


async def turns_at_once(side: str, provider: str, turns: int) -> None:
    turn = SIDES[side](f"{provider}/0/0/{turns}/{CALLS}/1")

    async def one(number: int) -> None:
        desk = Desk(number)
        desk.check(await turn(desk), 1)

    await asyncio.gather(*(one(number) for number in range(turns)))


def main(side: str, provider: str, turns: int) -> None:
    """Print the processor time of turns at once, and the memory of the process at its peak. A turn before them has
    imported what they need."""
    allow_many_connections()
    asyncio.run(turns_at_once(side, provider, 1))
    seconds = seconds_of(lambda: asyncio.run(turns_at_once(side, provider, turns)), time.process_time)
    print(seconds, peak_memory())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
