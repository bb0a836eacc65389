"""Functions for the tools that a file declares: bound, registered, missing, or not fitting."""

from pathlib import Path
from typing import Any

import pytest

from prompty import bind_tools, tool, turn
from prompty.errors import PromptyWarning, ToolError
from prompty.testing import Script, call
from prompty.tools import register_tool
from tests.ways import Way, agent_of, one_way

LOOK = {"name": "look", "kind": "function", "parameters": [{"name": "at", "kind": "string"}]}
LISTEN = {"name": "listen", "kind": "function"}
AGENT = agent_of(tools=[LOOK])
TWO = agent_of(tools=[LOOK, LISTEN])


def look(at: str) -> str:
    return f"saw {at}"


def listen() -> str:
    return "heard"


@one_way
def test_a_declared_tool_without_a_function_is_an_error_before_the_model_is_asked(way: Way) -> None:
    with Script("Done.") as script:
        seen = way.turn(TWO, tools=[look])
    assert isinstance(seen.error, ToolError)
    assert "the tool 'listen' is declared, but has no function" in str(seen.error)
    assert (script.requests, seen.events) == ([], [])


@one_way
def test_what_the_file_declares_is_what_the_model_sees(way: Way) -> None:
    described = {**LOOK, "description": "Look somewhere."}
    with Script(call("look", at="it"), "Done.") as script:
        seen = way.turn(agent_of(tools=[described]), tools=[look, listen])
    body: dict[str, Any] = script.requests[0]
    assert [one["function"]["name"] for one in body["tools"]] == ["look", "listen"]
    assert body["tools"][0]["function"]["description"] == "Look somewhere."
    assert seen.told == ["saw it"]


@one_way
@pytest.mark.usefixtures("clean_registry")
def test_a_registered_function_runs_a_tool_unless_the_turn_is_given_one(way: Way) -> None:
    register_tool("look", lambda at: f"registered {at}")
    with Script(call("look", at="it"), "Done."):
        assert way.turn(AGENT).told == ["registered it"]
    with Script(call("look", at="it"), "Done."):
        assert way.turn(AGENT, tools=[look]).told == ["saw it"]


@one_way
def test_bound_functions_go_into_a_turn(way: Way) -> None:
    bound = bind_tools(TWO, [look, listen])
    with Script([call("look", at="it"), call("listen")], "Done."):
        assert way.turn(TWO, tools=bound).told == ["saw it", "heard"]


def test_binding_warns_about_a_tool_that_has_no_function_yet() -> None:
    with pytest.warns(PromptyWarning, match="'listen' is declared, but no function is bound to it") as warned:
        bind_tools(TWO, [look])
    assert Path(warned[0].filename) == Path(__file__)


def needs_more(at: str, loudly: bool) -> str:
    return f"{at} {loudly}"


def takes_less() -> str:
    return ""


MISFITS: dict[str, tuple[Any, str]] = {
    "no declaration": ({"look": look, "smell": listen}, "'smell' is not declared in the file, which declares: look"),
    "a parameter too much": ({"look": needs_more}, "requires 'loudly', which the file does not declare"),
    "a parameter too few": ({"look": takes_less}, "declares 'at' for 'look', which its function does not take"),
    "two of one name": ([look, tool(name="look")(lambda at: at)], "two functions are named 'look'"),
    "no function": ([5], "a tool must be a function, not int"),
}


@pytest.mark.parametrize(("functions", "message"), MISFITS.values(), ids=MISFITS)
def test_binding_refuses_what_does_not_fit(functions: Any, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        bind_tools(AGENT, functions)


@pytest.mark.parametrize("name", [name for name in MISFITS if name != "no declaration"])
def test_a_turn_refuses_what_does_not_fit_before_the_model_is_asked(name: str) -> None:
    with Script("Done.") as script, pytest.raises(ToolError, match=MISFITS[name][1]):
        turn(AGENT, tools=MISFITS[name][0])
    assert script.requests == []


@pytest.mark.spec("003 §2.9", "two tools of one name are an error")
def test_two_tools_of_one_name_are_refused() -> None:
    with Script("Done."), pytest.raises(ToolError, match="two tools are named 'look'"):
        turn(agent_of(tools=[LOOK, LOOK]), tools=[look])


PAY = {
    "name": "pay",
    "kind": "function",
    "parameters": [{"name": "amount", "kind": "integer"}, {"name": "account", "kind": "string"}],
}


def pay(amount: int, account: str) -> str:
    return f"{amount} from {account}"


BINDINGS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an input": ({"account": {"input": "who"}}, {"who": "Ada"}, "5 from Ada"),
    "the default of an input": ({"account": {"input": "who"}}, {}, "5 from nobody"),
}


@one_way
@pytest.mark.parametrize(("bindings", "inputs", "expected"), BINDINGS.values(), ids=BINDINGS)
@pytest.mark.parametrize("tried", [{}, {"account": "of the thief"}], ids=["left out", "given by the model"])
@pytest.mark.spec("003 §2.9.1", "bound parameters are injected")
def test_what_is_bound_reaches_the_function(
    way: Way, bindings: dict[str, Any], inputs: dict[str, Any], expected: str, tried: dict[str, Any]
) -> None:
    who = {"name": "who", "kind": "string", "default": "nobody"}
    agent = agent_of(tools=[{**PAY, "bindings": bindings}], inputs=[who])
    with Script(call("pay", amount=5, **tried), "Done.") as script:
        seen = way.turn(agent, inputs, tools=[pay])
    assert seen.told == [expected]
    assert "account" not in str(script.requests[0])


@one_way
def test_a_bound_input_that_has_no_value_is_an_error_result_and_not_a_crash(way: Way) -> None:
    agent = agent_of(tools=[{**PAY, "bindings": {"account": {"input": "who"}}}])
    with Script(call("pay", amount=5), "Done."):
        seen = way.turn(agent, tools=[pay])
    assert seen.told[0].startswith("Error: Tool 'pay' was not run: the parameter 'account' is bound to the input 'who'")


@one_way
def test_a_tool_that_changes_a_bound_value_changes_it_for_no_later_turn(way: Way) -> None:
    parameters = {"tags": {"kind": "array"}, "fixed": {"kind": "object"}, "given": {"kind": "array"}}
    bindings = {"tags": {"input": "tags"}, "fixed": {"value": {"seen": []}}, "given": {"input": "given"}}
    declared = {"name": "note", "kind": "function", "parameters": parameters, "bindings": bindings}
    inputs = {"tags": {"kind": "array", "default": ["a"]}, "given": {"kind": "array"}}
    agent = agent_of(tools=[declared], inputs=inputs)
    given = ["b"]

    def note(tags: Any, fixed: Any, given: Any) -> str:  # values of declared types would be copies
        for found in (tags, fixed["seen"], given):
            found.append("x")
        return f"{tags} {fixed} {given}"

    for _ in range(3):
        with Script(call("note"), call("note"), "Done."):
            seen = way.turn(agent, {"given": given}, tools=[note])
        assert seen.told == ["['a', 'x'] {'seen': ['x']} ['b', 'x']"] * 2
    assert given == ["b"]
