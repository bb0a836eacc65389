"""What a type checker says of the public functions: mypy reads this file, and the assertions hold at run time too."""

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, assert_type

from prompty import (
    AsyncPromptyStream,
    Message,
    Paused,
    PromptAgent,
    PromptyStream,
    Result,
    invoke,
    invoke_async,
    loads,
    prepare,
    render,
    resume,
    resume_async,
    tool,
    turn,
    turn_async,
    user,
)
from prompty.analysis.check import check_text
from prompty.errors import Problem
from prompty.pipeline import cast, parse, prepare_async, run, run_async, validate_inputs


def test_the_types_of_results_are_known() -> None:
    agent = loads("user:\n{{ x }}")
    assert_type(agent, PromptAgent)
    assert_type(render(agent), str)
    assert_type(parse(agent, "hi", trusted=True), list[Message])
    assert_type(prepare(agent, {"x": 1}), list[Message])
    assert_type(validate_inputs(agent, {}), dict[str, object])
    assert_type(asyncio.run(prepare_async(agent)), list[Message])
    assert_type(check_text("x"), list[Problem])
    assert_type(user("hi").text, str)


@dataclass
class Weather:
    city: str


async def calls_to_a_model(agent: PromptAgent) -> None:
    """Never run: what is asserted here is what a checker says."""
    assert_type(invoke(agent), Any)
    assert_type(invoke("x.prompty", {"a": 1}, output_type=Weather, timeout=3), Weather)
    assert_type(invoke(agent, stream=True, max_retries=0), PromptyStream[Any])
    assert_type(invoke(agent, output_type=Weather, stream=True), PromptyStream[Weather])
    assert_type(invoke(agent, output_type=Weather, stream=True).result, Weather)
    assert_type(run(agent, [user("hi")], output_type=Weather), Weather)
    assert_type(await invoke_async(agent, output_type=Weather), Weather)
    assert_type(await run_async(agent, [], output_type=Weather, stream=True), AsyncPromptyStream[Weather])
    assert_type(await (await invoke_async(agent, output_type=Weather, stream=True)).result(), Weather)
    assert_type(cast({"city": "Oslo"}, Weather), Weather)
    assert_type(invoke(agent, details=True), Result[Any])
    assert_type(invoke(agent, output_type=Weather, details=True), Result[Weather])
    assert_type(invoke(agent, output_type=Weather, details=True, model="m", options={"seed": 1}).value, Weather)
    assert_type(invoke(agent, output_type=Weather, details=False), Weather)
    assert_type(run("x.prompty", [user("hi")], output_type=Weather, details=True), Result[Weather])
    assert_type(await invoke_async(agent, output_type=Weather, details=True), Result[Weather])
    assert_type(await run_async(agent, [], details=True), Result[Any])
    assert_type(invoke(agent, details=True).cost, Decimal | None)


async def turns(agent: PromptAgent, paused: Paused) -> None:
    """Never run, too. A turn may pause."""
    assert_type(turn(agent, max_iterations=3), Any)
    assert_type(turn("x.prompty", {"a": 1}, output_type=Weather, tools=[len]), Weather | Paused)
    assert_type(turn(agent, stream=True), PromptyStream[Any])
    assert_type(turn(agent, output_type=Weather, stream=True).result, Weather | Paused)
    assert_type(await turn_async(agent, output_type=Weather), Weather | Paused)
    assert_type(await turn_async(agent, output_type=Weather, stream=True), AsyncPromptyStream[Weather | Paused])
    assert_type(turn(agent, details=True), Result[Any] | Paused)
    assert_type(turn(agent, output_type=Weather, details=True), Result[Weather] | Paused)
    assert_type(await turn_async(agent, output_type=Weather, details=True), Result[Weather] | Paused)
    assert_type(resume(agent, paused, [True], output_type=Weather, details=True), Result[Weather] | Paused)
    assert_type(await resume_async(agent, paused, [True], details=True), Result[Any] | Paused)
    assert_type(resume(agent, paused, [True]), Any)
    assert_type(resume(agent, paused, [True], output_type=Weather), Weather | Paused)
    assert_type(resume(agent, paused, [True], stream=True), PromptyStream[Any])
    assert_type(resume(agent, paused, [True], output_type=Weather, stream=True), PromptyStream[Weather | Paused])
    assert_type(await resume_async(agent, paused, [True], output_type=Weather), Weather | Paused)
    assert_type(await resume_async(agent, paused, [True], stream=True), AsyncPromptyStream[Any])


def test_a_tool_stays_the_function_it_was() -> None:
    @tool
    def first(city: str) -> int:
        return len(city)

    @tool(sequential=True)
    def second(city: str) -> int:
        return len(city)

    assert_type(first("x"), int)
    assert_type(second("x"), int)
