"""Prompts as tools of other prompts, and kinds of one's own."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prompty import (
    Budget,
    CancelToken,
    Paused,
    PromptAgent,
    ToolContext,
    bind_tools,
    check,
    invoke,
    invoke_async,
    load,
    loads,
    tool,
    turn,
    user,
)
from prompty.analysis.check import check_text
from prompty.analysis.explain import explain
from prompty.drivers.target import get_executor
from prompty.errors import ToolError
from prompty.events import Done, Nested, ToolFinished, ToolStarted
from prompty.model.message import Json
from prompty.model.tool import CustomTool, ToolDefinition
from prompty.providers import register_processor
from prompty.testing import Script, call
from prompty.tools import Function, KindTool, register_tool, register_tool_kind
from tests.loopback import Server, json_reply
from tests.ways import Seen, Way, sync_and_async

CHILD = """---
name: shorten
description: Shortens a text
model: {id: child, provider: scripted}
inputs:
  text: {kind: string, required: true, description: What to shorten}
  words: {kind: integer, default: 5}
tools:
  - {name: count, kind: function, parameters: [{name: text, kind: string, required: true}]}
---
user:
Shorten to {{words}} words: {{text}}
"""
PARENT = """---
name: editor
model: {id: parent, provider: scripted}
tools:
  - {name: shorten, kind: prompty, path: ./parts/shorten.prompty, mode: MODE, bindings: {words: 3}}
---
user:
Edit this.
"""


@tool
def count(text: str) -> int:
    return len(text.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "shorten.prompty").write_text(CHILD)
    return tmp_path


def parent(folder: Path, mode: str) -> PromptAgent:
    (folder / "editor.prompty").write_text(PARENT.replace("MODE", mode))
    return load(folder / "editor.prompty")


@pytest.mark.spec("003 §2.9.1", "bound parameters are injected")
@pytest.mark.spec("003 §2.9.1", "bound parameters are stripped")
@pytest.mark.spec("000 §7.1.3", "a prompty tool without a description has that of its child")
@pytest.mark.spec("003 §2.9.2", "the path is relative to the file of the parent")
@pytest.mark.spec("003 §2.9.2", "the result of the child is the result of the tool")
@sync_and_async
@pytest.mark.spec("003 §2.9.2", "a child of the mode single is one call")
@pytest.mark.spec("000 §7.1.3", "a prompty tool has the inputs of its child as parameters")
def test_a_child_runs_once(way: Way, folder: Path) -> None:
    with Script(call("shorten", text="a long text"), "Short.", "Done.") as script:
        seen = way.turn(parent(folder, "single"))
    assert seen.result == "Done."
    [offered] = script.requests[0]["tools"]
    assert offered["function"]["description"] == "Shortens a text"
    assert list(offered["function"]["parameters"]["properties"]) == ["text"]
    assert script.requests[1]["messages"] == [{"role": "user", "content": "Shorten to 3 words: a long text"}]
    assert [one["function"]["name"] for one in script.requests[1]["tools"]] == ["count"]
    assert seen.texts[-2:] == ["Short.", "Done."]


@sync_and_async
@pytest.mark.spec("003 §2.9.2", "a child of the mode single is one call")
def test_the_calls_of_a_child_in_a_single_pass_are_its_result(way: Way, folder: Path) -> None:
    def never(text: str) -> int:
        raise AssertionError(text)

    answers: list[Any] = [call("shorten", text="a b"), call("count", text="a b"), "Done."]
    with Script(*answers) as script:
        seen = way.turn(parent(folder, "single"), tools={"count": never})
    assert seen.result == "Done."
    assert len(script.requests) == 3
    [told] = json.loads(script.requests[2]["messages"][-1]["content"])
    assert (told["name"], json.loads(told["arguments"])) == ("count", {"text": "a b"})


@pytest.mark.spec("003 §2.9.2", "the result of the child is the result of the tool")
@sync_and_async
@pytest.mark.spec("003 §2.9.2", "a child of the mode agentic has its own loop and tools")
def test_a_child_has_a_loop_of_its_own(way: Way, folder: Path) -> None:
    answers: list[Any] = [call("shorten", text="a b c"), call("count", text="a b c"), "Three words.", "Done."]
    with Script(*answers) as script:
        seen = way.turn(parent(folder, "agentic"), tools={"count": count})
    assert seen.texts[-2:] == ["Three words.", "Done."]
    assert script.requests[2]["messages"][-1]["content"] == "3"
    nested = [event.event for event in seen.of(Nested)]
    assert [type(event) for event in nested if isinstance(event, ToolStarted | ToolFinished | Done)] == [
        ToolStarted,
        ToolFinished,
        Done,
    ]
    assert {(event.tool, event.call_id) for event in seen.of(Nested)} == {("shorten", "call_1")}


@sync_and_async
def test_what_a_child_takes_counts_for_its_parent(way: Way, folder: Path) -> None:
    answers: list[Any] = [call("shorten", text="a"), "Short.", call("shorten", text="b"), "never"]
    with Script(*answers):
        seen = way.turn(parent(folder, "single"), budget=Budget(tokens=45))
    assert "its budget is 45" in str(seen.error)
    with Script(call("shorten", text="a"), "Short.", "Done."):
        seen = way.turn(parent(folder, "single"))
    assert seen.of(Done)[0].usage.output_tokens == 15


@sync_and_async
def test_the_gate_of_the_parent_is_asked_inside_too(way: Way, folder: Path) -> None:
    asked: list[str] = []

    def gate(calls: Sequence[Any]) -> list[bool]:
        asked.extend(one.name for one in calls)
        return [one.name != "count" for one in calls]

    with Script(call("shorten", text="a"), call("count", text="a"), "Unknown.", "Done."):
        way.turn(parent(folder, "agentic"), tools={"count": count}, gate=gate)
    assert asked == ["shorten", "count"]


@sync_and_async
def test_a_child_that_needs_approval_cannot_wait(way: Way, folder: Path) -> None:
    child = CHILD.replace("kind: function,", "kind: function, approvalMode: always,")
    (folder / "parts" / "shorten.prompty").write_text(child)
    with Script(call("shorten", text="a"), call("count", text="a"), "Done."):
        seen = way.turn(parent(folder, "agentic"), tools={"count": count})
    assert "needs approval" in seen.texts[-2]


@sync_and_async
def test_cancelling_the_parent_cancels_the_child(way: Way, folder: Path) -> None:
    token = CancelToken()

    @tool
    def count(text: str) -> str:
        token.cancel("enough")
        return "1"

    with Script(call("shorten", text="a"), call("count", text="a"), "never", "never") as script:
        seen = way.turn(parent(folder, "agentic"), tools={"count": count}, cancel=token)
    assert str(seen.error) == "enough"
    assert len(script.requests) == 2


def file(folder: Path, name: str, child: str) -> PromptAgent:
    tools = f"tools: [{{name: call_{name}, kind: prompty, path: {child}, mode: agentic}}]"
    (folder / f"{name}.prompty").write_text(
        f"---\nname: {name}\nmodel: {{id: m, provider: scripted}}\n{tools}\n---\nuser:\nHi\n"
    )
    return load(folder / f"{name}.prompty")


@sync_and_async
def test_prompts_that_call_themselves_are_stopped(way: Way, tmp_path: Path) -> None:
    file(tmp_path, "b", "./a.prompty")
    first = file(tmp_path, "a", "./b.prompty")
    with Script(call("call_a"), call("call_b"), "b is done", "a is done") as script:
        assert way.turn(first).result == "a is done"
    assert "would call itself" in script.requests[2]["messages"][-1]["content"]


@sync_and_async
def test_prompts_that_call_too_many_others_are_stopped(way: Way, tmp_path: Path) -> None:
    for number in range(8, 0, -1):
        (tmp_path / "p9.prompty").write_text("---\nname: p9\nmodel: {id: m, provider: scripted}\n---\nuser:\nHi\n")
        first = file(tmp_path, f"p{number}", f"./p{number + 1}.prompty")
    calls = [call(f"call_p{number}") for number in range(1, 7)]
    with Script(*calls, *["done"] * 6) as script:
        assert way.turn(first).result == "done"
    told = [body["messages"][-1]["content"] for body in script.requests]
    assert any("levels deep" in str(text) for text in told)


OUTSIDE = {
    "above": "../secret.prompty",
    "absolute": "/etc/passwd",
    "not there": "./nothing.prompty",
}


@sync_and_async
@pytest.mark.parametrize("path", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.spec("003 §2.9.2", "a path may lead out of the folder of the parent")
def test_a_child_lies_below_its_parent(way: Way, path: str, tmp_path: Path) -> None:
    (tmp_path / "secret.prompty").write_text(CHILD)
    (tmp_path / "inner").mkdir()
    agent = file(tmp_path / "inner", "a", path)
    with Script("never") as script:
        assert way.turn(agent).error is not None
    assert script.requests == []


class Echo:
    """A kind that offers two functions and repeats what they are given."""

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        assert isinstance(tool, CustomTool)
        schema: Json = {"type": "object", "properties": {"text": {"type": "string"}, "key": {"type": "string"}}}
        names = ("say", "shout")
        return [
            KindTool(function=Function(name=name, description=name, parameters=schema), call=self.said(name))
            for name in names
        ]

    def said(self, name: str) -> Any:
        async def said(arguments: Json, context: ToolContext) -> object:
            await asyncio.sleep(0)
            return {"name": name, **arguments, "call": context.call_id}

        return said


@pytest.fixture
def echo(clean_registry: None) -> None:
    register_tool_kind("echo", Echo())


ECHOING = {"name": "echo", "kind": "echo", "bindings": {"key": "secret"}, "options": {"loud": True}}


def custom(**parts: Any) -> PromptAgent:
    model = {"id": "m", "provider": "scripted"}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", "tools": [ECHOING], **parts})


@sync_and_async
@pytest.mark.usefixtures("echo")
@pytest.mark.spec("000 §7.1.3", "a custom tool is what its registered handler describes")
def test_a_kind_of_ones_own_describes_functions_and_runs_their_calls(way: Way) -> None:
    with Script([call("say", text="a"), call("shout", text="b")], "Done.") as script:
        seen = way.turn(custom())
    assert [list(one["function"]["parameters"]["properties"]) for one in script.requests[0]["tools"]] == [["text"]] * 2
    assert seen.texts[2:4] == [
        '{"name":"say","text":"a","key":"secret","call":"call_1"}',
        '{"name":"shout","text":"b","key":"secret","call":"call_2"}',
    ]


@sync_and_async
@pytest.mark.usefixtures("echo")
def test_a_name_that_is_taken_is_put_behind_the_name_of_its_tool(way: Way) -> None:
    @tool
    def say(text: str) -> str:
        return f"the host says {text}"

    with Script([call("say", text="a"), call("echo_say", text="b")], "Done."):
        seen: Seen = way.turn(custom(), tools=[say])
    assert seen.texts[2] == "the host says a"
    assert '"name":"say","text":"b"' in seen.texts[3]


@pytest.mark.usefixtures("echo")
def test_a_single_call_offers_them_too() -> None:
    with Script(call("say", text="a"), call("say", text="a")) as script:
        [first] = invoke(custom())
        run_async = asyncio.run(invoke_later())
    assert first.name == run_async.name == "say"
    assert [len(body["tools"]) for body in script.requests] == [2, 2]


async def invoke_later() -> Any:
    return (await invoke_async(custom()))[0]


@sync_and_async
def test_a_kind_that_nobody_handles_is_an_error_before_the_first_call(way: Way) -> None:
    with Script("never") as script:
        seen = way.turn(custom())
    assert isinstance(seen.error, ToolError)
    assert "`register_tool_kind`" in str(seen.error)
    assert script.requests == []


def with_bindings(folder: Path, bindings: str, body: str, **template: str) -> PromptAgent:
    head = f"model: {{id: child, provider: scripted}}\n{template.get('head', '')}"
    (folder / "child.prompty").write_text(f"---\n{head}\ninputs: {{text: {{kind: string}}}}\n---\nuser:\n{body}")
    tools = f"tools:\n  - {{name: t, kind: prompty, path: child.prompty, bindings: {bindings}}}"
    (folder / "p.prompty").write_text(f"---\nmodel: {{id: p, provider: scripted}}\n{tools}\n---\nuser:\nHi")
    return load(folder / "p.prompty")


TEMPLATES = {"jinja2": "", "mustache": "template: mustache"}


@pytest.mark.spec("003 §2.9.1", "bound parameters are injected")
@sync_and_async
@pytest.mark.parametrize("head", TEMPLATES.values(), ids=TEMPLATES)
def test_a_binding_reaches_a_variable_that_the_child_uses_and_does_not_declare(
    way: Way, tmp_path: Path, head: str
) -> None:
    agent = with_bindings(tmp_path, "{who: ME}", "{{text}} {{who}}", head=head)
    with Script(call("t", text="abc", who="model"), "Short.", "Done.") as script:
        assert way.turn(agent).result == "Done."
    assert script.requests[1]["messages"] == [{"role": "user", "content": "abc ME"}]


@sync_and_async
def test_a_binding_that_a_child_does_not_use_is_an_error(way: Way, tmp_path: Path) -> None:
    with Script("never") as script:
        seen = way.turn(with_bindings(tmp_path, "{txet: ME}", "{{text}}"))
    assert isinstance(seen.error, ToolError)
    assert "the binding 'txet' of the tool 't' matches no parameter" in str(seen.error)
    assert "Did you mean `text`?" in str(seen.error)
    assert script.requests == []


@pytest.mark.usefixtures("echo")
def test_a_binding_that_a_kind_of_ones_own_does_not_take_is_an_error() -> None:
    with Script("never"), pytest.raises(ToolError, match="the binding 'kye' of the tool 'echo' matches no parameter"):
        turn(custom(tools=[{**ECHOING, "bindings": {"kye": 1}}]))


def test_check_finds_a_binding_that_a_child_does_not_use(tmp_path: Path) -> None:
    with_bindings(tmp_path, "{txet: {value: ME}}", "{{text}}", head="description: ${env:NOT_SET_HERE}")
    [problem] = check(tmp_path / "p.prompty")
    assert (problem.code, problem.line, problem.severity) == ("unknown-binding", 4, "error")
    assert [edit.text for edit in problem.edits] == ["text"]
    with_bindings(tmp_path, "{who: {value: ME}}", "{{text}} {{who}}")
    assert check(tmp_path / "p.prompty") == []


def test_check_finds_a_binding_that_no_operation_takes(tmp_path: Path) -> None:
    document = {"openapi": "3.1.0", "paths": {"/a": {"get": {"parameters": [{"name": "tenant", "in": "query"}]}}}}
    (tmp_path / "api.json").write_text(json.dumps(document))
    tool_line = "- {name: t, kind: openapi, specification: api.json, bindings: {NAME: {value: acme}}}"
    for name, found in (("tenant", []), ("tenent", ["unknown-binding"])):
        text = f"---\nmodel: m\ntools:\n  {tool_line.replace('NAME', name)}\n---\nhi"
        assert [problem.code for problem in check_text(text, base_dir=tmp_path)] == found


def test_check_finds_a_condition_that_no_operation_takes(tmp_path: Path) -> None:
    document = {"openapi": "3.1.0", "paths": {"/a": {"get": {"parameters": [{"name": "tenant", "in": "query"}]}}}}
    (tmp_path / "api.json").write_text(json.dumps(document))
    for name, found in (("tenant", []), ("tenent", ["approval-parameter"])):
        line = f"- {{name: t, kind: openapi, specification: api.json, approvalMode: {{when: {{{name}: {{}}}}}}}}"
        text = f"---\nmodel: m\ntools:\n  {line}\n---\nhi"
        assert [problem.code for problem in check_text(text, base_dir=tmp_path)] == found


APPROVING = """---
model: {id: p, provider: scripted}
tools:
  - {name: t, kind: prompty, path: child.prompty, approvalMode: {when: {NAME: {minimum: 100}}}}
---
user:
Hi
"""


@sync_and_async
def test_a_condition_on_the_input_of_a_child_sees_its_default(way: Way, tmp_path: Path) -> None:
    (tmp_path / "child.prompty").write_text(
        "---\nmodel: {id: c, provider: scripted}\n"
        "inputs: {amount: 500, key: {kind: string, default: k, sensitive: true}}\n---\nuser:\n{{amount}} {{key}}"
    )
    (tmp_path / "p.prompty").write_text(APPROVING.replace("NAME", "amount"))
    with Script(call("t"), "Child.", "Done.") as script:
        paused = way.turn(tmp_path / "p.prompty").result
        assert [one.arguments for one in paused.pending] == [{"amount": 500}]
        assert way.resume(tmp_path / "p.prompty", paused, [True]).result == "Done."
    body: Any = script.requests[1]
    assert body["messages"][0]["content"] == "500 k"
    (tmp_path / "p.prompty").write_text(APPROVING.replace("NAME", "amout"))
    assert [problem.code for problem in check(tmp_path / "p.prompty")] == ["approval-parameter"]
    with Script() as script:
        assert isinstance(way.turn(tmp_path / "p.prompty").error, ToolError)
    assert script.requests == []


@sync_and_async
def test_a_child_may_lie_below_a_root_that_the_host_allows(way: Way, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "own").mkdir()
    child = tmp_path / "shared" / "child.prompty"
    child.write_text("---\nmodel: {id: c, provider: scripted}\ndescription: ${file:../other/d.txt}\n---\nuser:\nHi")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "d.txt").write_text("Described elsewhere")
    tools = "tools:\n  - {name: t, kind: prompty, path: ../shared/child.prompty}"
    parent_file = tmp_path / "own" / "p.prompty"
    parent_file.write_text(f"---\nmodel: {{id: p, provider: scripted}}\n{tools}\n---\nuser:\nHi")
    with Script("never"):
        refused = way.turn(load(parent_file, allowed_roots=[tmp_path / "elsewhere"]))
    assert "not below the prompt's folder" in str(refused.error)
    assert "allowed_roots=" in str(refused.error)
    with Script(call("t"), "Child.", "Done.") as script:
        assert way.turn(load(parent_file, allowed_roots=[tmp_path])).result == "Done."
    assert script.requests[0]["tools"][0]["function"]["description"] == "Described elsewhere"


@sync_and_async
def test_the_text_of_a_prompt_has_children_below_its_base_folder(way: Way, folder: Path) -> None:
    text = PARENT.replace("MODE", "single")
    with Script(call("shorten", text="a"), "Short.", "Done."):
        assert way.turn(loads(text, base_dir=folder)).result == "Done."
    with Script("never"):
        assert "pass base_dir= to loads()" in str(way.turn(loads(text)).error)


LOOK = {"name": "look", "kind": "my_kind", "description": "Look there.", "bindings": {"who": "ada"}}


def look(at: str, who: str) -> str:
    """Look somewhere."""
    return f"{who} saw {at}"


@pytest.mark.spec("000 §7.1.3", "a custom tool is looked up by its name")
@sync_and_async
@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("registered", [False, True])
def test_a_tool_of_a_custom_kind_is_run_by_a_function_of_its_name(way: Way, registered: bool) -> None:
    agent = custom(tools=[LOOK])
    if registered:
        register_tool("look", look)
    options: dict[str, Any] = {} if registered else {"tools": bind_tools(agent, {"look": look})}
    with Script(call("look", at="it", who="eve"), "Done.") as script:
        assert "ada saw it" in way.turn(agent, **options).texts
    [offered] = [one["function"] for one in script.requests[0]["tools"]]
    assert (offered["name"], offered["description"]) == ("look", "Look there.")
    assert list(offered["parameters"]["properties"]) == ["at"]


@pytest.mark.usefixtures("echo")
def test_a_function_of_the_run_goes_before_a_registered_one_and_both_before_the_kind() -> None:
    with Script(call("echo"), "Done.") as script:
        turn(custom(tools=[{"name": "echo", "kind": "echo"}]), tools={"echo": lambda: "of the run"})
        register_tool("echo", lambda: "registered")
    assert script.requests[1]["messages"][-1]["content"] == "of the run"
    with Script(call("echo"), "Done.") as script:
        turn(custom(tools=[{"name": "echo", "kind": "echo"}]))
    assert script.requests[1]["messages"][-1]["content"] == "registered"
    with Script("Done.") as script:
        invoke(custom(tools=[{"name": "echo", "kind": "echo"}]))
    assert [one["function"]["name"] for one in script.requests[0]["tools"]] == ["echo"]


@pytest.mark.usefixtures("clean_registry")
def test_a_binding_that_the_function_of_a_custom_tool_does_not_take_is_an_error() -> None:
    with Script("never"), pytest.raises(ToolError, match="the binding 'whom' of the tool 'look' matches no parameter"):
        turn(custom(tools=[{**LOOK, "bindings": {"whom": "ada"}}]), tools={"look": look})


def names_in(body: Json) -> list[str]:
    tools: Any = body["tools"]
    return [one["function"]["name"] for one in tools]


@pytest.fixture
def openai_parent(folder: Path, service: Server) -> PromptAgent:
    """A prompt of a provider on loopback, with a function and another prompt as its tools."""
    agent = parent(folder, "single")
    connection = {"kind": "key", "endpoint": service.url, "apiKey": "k"}
    model = {"id": "m", "provider": "openai", "connection": connection}
    count = {"name": "count", "kind": "function"}
    data = {"model": model, "tools": [*agent.tools, count], "instructions": "user:\nHi", "path": agent.path}
    return PromptAgent.model_validate(data)


@pytest.mark.spec("000 §7.1.3", "tools of every kind are sent as functions")
def test_an_executor_offers_tools_of_every_kind(openai_parent: PromptAgent, service: Server) -> None:
    service.answer(json_reply({"choices": [{"message": {"content": "a"}}]}))
    executor = get_executor(openai_parent)
    executor.execute(openai_parent, [user("x")])
    asyncio.run(executor.execute_async(openai_parent, [user("x")]))
    assert [names_in(request.body) for request in service.requests] == [["count", "shorten"]] * 2


@pytest.mark.spec("000 §7.1.3", "tools of every kind are sent as functions")
def test_an_explanation_shows_tools_of_every_kind(openai_parent: PromptAgent) -> None:
    assert names_in(explain(openai_parent).body) == ["count", "shorten"]


@sync_and_async
@pytest.mark.usefixtures("clean_registry")
def test_a_processor_of_the_host_does_not_change_what_is_offered(
    way: Way, openai_parent: PromptAgent, service: Server
) -> None:
    class Text:
        def process(self, agent: PromptAgent, response: Any, /) -> object:
            return response["choices"][0]["message"]["content"]

        async def process_async(self, agent: PromptAgent, response: Any, /) -> object:
            return self.process(agent, response)

    register_processor("openai", Text())
    service.answer(json_reply({"choices": [{"message": {"content": "a"}}]}))
    assert way.turn(openai_parent, tools={"count": lambda: 1, "extra": lambda: 2}).result == "a"
    assert names_in(service.requests[0].body) == ["count", "extra", "shorten"]


@sync_and_async
def test_an_approval_condition_counts_for_the_function_of_a_custom_tool(way: Way) -> None:
    def pay(amount: int = 1000) -> str:
        return "paid"

    agent = custom(tools=[{"name": "pay", "kind": "bank", "approvalMode": {"when": {"amount": {"minimum": 100}}}}])
    with Script(call("pay"), "Done."):
        assert isinstance(way.turn(agent, tools={"pay": pay}).result, Paused)
