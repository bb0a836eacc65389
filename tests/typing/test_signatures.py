"""What a type checker says of the public functions: mypy reads this file, and the assertions hold at run time too."""

import asyncio
from typing import assert_type

from prompty import (
    Message,
    Problem,
    PromptAgent,
    loads,
    parse,
    prepare,
    prepare_async,
    render,
    user,
    validate_inputs,
)
from prompty.pipeline.check import check_text


def test_the_types_of_results_are_known() -> None:
    agent = loads("user:\nhi")
    assert_type(agent, PromptAgent)
    assert_type(render(agent), str)
    assert_type(parse(agent, "hi"), list[Message])
    assert_type(prepare(agent, {"x": 1}), list[Message])
    assert_type(validate_inputs(agent, {}), dict[str, object])
    assert_type(asyncio.run(prepare_async(agent)), list[Message])
    assert_type(check_text("x"), list[Problem])
    assert_type(user("hi").text, str)
