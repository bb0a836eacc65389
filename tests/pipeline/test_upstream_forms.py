"""Files and messages as Microsoft's runtime and its documentation write them."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given, strategies as st

from prompty import Message, PromptAgent, PromptyError, invoke, load, loads, prepare, turn
from prompty.analysis.check import check_text
from prompty.errors import InputError, InvalidMessage, LoadError, Problem, RequestError, ToolError
from prompty.messages import TextPart
from prompty.model.connection import RemoteConnection
from prompty.model.content import AudioPart, FilePart, ImagePart
from prompty.model.message import parse_messages
from prompty.model.tool import CustomTool, FunctionTool, McpTool
from prompty.pipeline.request import list_declared_functions
from prompty.testing import Script, call
from prompty.tools.toolbox import fill_bindings
from prompty.wire.structured import build_schema
from scripts.write_schema import PATH as SCHEMA

ROOT = Path(__file__).parents[2]


def write(frontmatter: str, body: str = "user:\nHi") -> str:
    return f"---\nmodel: {{id: m, provider: scripted}}\n{frontmatter.strip()}\n---\n{body}"


def check(text: str, **options: Any) -> list[Problem]:
    return check_text(text, env={}, **options)


def find(text: str, code: str, **options: Any) -> list[Problem]:
    return [problem for problem in check(text, **options) if problem.code == code]


def fix(text: str, problem: Problem) -> str:
    """Apply the edits of a problem, which are all on one line."""
    lines = text.split("\n")
    for edit in problem.edits:
        line = lines[edit.line - 1]
        lines[edit.line - 1] = line[: edit.column - 1] + edit.text + line[edit.end_column - 1 :]
    return "\n".join(lines)


def refuse(text: str) -> list[Problem]:
    with pytest.raises(LoadError) as raised:
        loads(text, env={})
    return list(raised.value.problems)


BOUND = """
inputs:
  question: {kind: string, default: Hi}
  current_user: {kind: string}
tools:
  - name: get_orders
    kind: function
    parameters:
      user_id: {kind: string, required: true}
      status: {kind: string}
    bindings:
      user_id: BINDING
"""


def run_bound(binding: str, inputs: dict[str, object], frontmatter: str = BOUND) -> object:
    """Return the argument `user_id` of a call, or the text of the error that the model reads."""
    received: list[object] = []

    def get_orders(user_id: object = None, status: str = "") -> str:
        received.append(user_id)
        return "none"

    with Script(call("get_orders", status="open"), "Done."):
        turn(loads(write(frontmatter.replace("BINDING", binding))), inputs, tools=[get_orders])
    return received[0]


# binding in the file, inputs of the caller, argument of the tool
BINDINGS: dict[str, tuple[str, dict[str, object], object]] = {
    "the name of an input": ("current_user", {"current_user": "ada"}, "ada"),
    "an input": ("{input: current_user}", {"current_user": "ada"}, "ada"),
    "a fixed text": ("{value: current_user}", {"current_user": "ada"}, "current_user"),
    "another text": ("everybody", {"current_user": "ada"}, "everybody"),
    "an input that only the caller knows": ("tenant", {"tenant": "acme"}, "acme"),
    "a text that the caller does not pass": ("tenant", {}, "tenant"),
    "a fixed object": ("{value: {input: a}}", {}, {"input": "a"}),
    "an object of its own": ("{id: 3, more: 1}", {}, {"id": 3, "more": 1}),
    "a number": ("7", {}, 7),
    "a fixed number": ("{value: 7}", {}, 7),
    "a list": ("[a, b]", {}, ["a", "b"]),
    "nothing": ("{value: null}", {}, None),
}


@pytest.mark.parametrize(("binding", "inputs", "argument"), BINDINGS.values(), ids=BINDINGS)
def test_p7_a_plain_text_is_the_input_of_that_name_and_anything_else_is_a_value(
    binding: str, inputs: dict[str, object], argument: object
) -> None:
    assert run_bound(binding, inputs) == argument


def test_p7_a_declared_input_without_a_value_does_not_become_its_own_name() -> None:
    with Script(call("get_orders", status="open"), "Done.") as script:
        turn(loads(write(BOUND.replace("BINDING", "current_user"))), tools={"get_orders": lambda **given: str(given)})
    [result] = [message for message in script.requests[1]["messages"] if message["role"] == "tool"]
    assert "bound to the input 'current_user', which has no value" in result["content"]


@pytest.mark.parametrize("written", ["currentUser", "curent_user", "Current_User", "current_users"])
def test_p7_a_plain_text_that_is_nearly_the_name_of_an_input_does_not_load(written: str) -> None:
    text = write(BOUND.replace("BINDING", written))
    [problem] = refuse(text)
    assert (problem.code, problem.line, problem.key) == ("misspelt-input", 13, "tools.0.bindings.user_id")
    assert "`user_id: {input: current_user}`" in problem.fix
    assert find(text, "plain-binding") == []
    agent = loads(fix(text, problem))
    assert agent.tools[0].bindings["user_id"].input == "current_user"


@pytest.mark.parametrize("written", ["user", "a sentence about the current user", "{value: currentUser}", "open"])
def test_p7_a_text_that_is_not_nearly_an_input_loads(written: str) -> None:
    loads(write(BOUND.replace("BINDING", written)))


@pytest.mark.parametrize("written", ["'${env:WHO}'", "'${env:NO:current_user}'", "{value: '${env:WHO}'}"])
def test_p7_a_text_from_a_variable_is_a_value(written: str) -> None:
    for value in ("current_user", "currentUser"):
        agent = loads(write(BOUND.replace("BINDING", written)), env={"WHO": value})
        bound = agent.tools[0].bindings["user_id"]
        assert bound.value is not None
        assert (bound.input, bound.is_plain) == (None, False)


FORMS = {
    "current_user": "{input: current_user}",
    "everybody": '{value: "everybody"}',
    "'yes'": '{value: "yes"}',
    '"10"': '{value: "10"}',
}


@pytest.mark.parametrize(("written", "explicit"), FORMS.items(), ids=FORMS)
def test_p7_check_writes_the_explicit_form_which_means_the_same(written: str, explicit: str) -> None:
    text = write(BOUND.replace("BINDING", written))
    [problem] = find(text, "plain-binding")
    assert (problem.severity, problem.line) == ("warning", 13)
    fixed = fix(text, problem)
    assert fixed == write(BOUND.replace("BINDING", explicit))
    assert find(fixed, "plain-binding") == []
    inputs: dict[str, object] = {"current_user": "ada"}
    assert run_bound(explicit, inputs) == run_bound(written, inputs)


@pytest.mark.parametrize("written", ["{input: current_user}", "{value: x}", "5", "[a]", "'${env:X:y}'"])
def test_p7_check_has_nothing_to_say_about_other_forms(written: str) -> None:
    assert find(write(BOUND.replace("BINDING", written)), "plain-binding") == []


def test_p7_a_text_in_bindings_is_never_suggested_as_an_input() -> None:
    agent = loads(write(BOUND.replace("BINDING", "hunter2-of-ada")))
    with pytest.raises(InputError) as raised:
        prepare(agent, {"hunter2-of-add": 1})
    assert "hunter2-of-ada" not in str(raised.value)
    assert "hunter2-of-ada" not in repr(agent.tools)


def test_p7_the_model_cannot_replace_a_fixed_text_of_a_prompt_that_runs_as_a_tool(tmp_path: Path) -> None:
    child = "model: {id: c, provider: scripted}\ninputs: {q: {kind: string}}\ntools:\n  - {name: look, kind: function, "
    child += "parameters: {role: {kind: string}}, bindings: {role: guest}}"
    (tmp_path / "child.prompty").write_text(f"---\n{child}\n---\nuser:\n{{{{ q }}}}")
    tools = "tools: [{name: ask, kind: prompty, path: child.prompty, mode: agentic}]"
    agent = loads(write(tools), base_dir=tmp_path)
    roles: list[str] = []
    with Script(call("ask", q="x"), call("look"), "A", call("ask", q="x", guest="admin"), "Done.") as script:
        turn(agent, tools={"look": lambda role: roles.append(role)})
    assert "Unknown input 'guest'" in str(script.requests[-1])
    assert roles == ["guest"]


names = st.sampled_from(["user", "who", "tenant_id", "x"])
explicit = st.fixed_dictionaries({"input": names}) | st.fixed_dictionaries({"value": st.integers() | st.text() | names})
plain = names | st.integers() | st.booleans() | st.lists(st.integers()) | st.just({"a": 1, "b": 2})


@given(declared=st.sets(names), passed=st.sets(names), binding=explicit | plain)
def test_p7_every_binding_is_an_input_or_the_value_in_the_file(
    declared: set[str], passed: set[str], binding: Any
) -> None:
    properties = [{"name": name, "kind": "string"} for name in sorted(declared)]
    tool = {"name": "t", "kind": "function", "parameters": {"p": {"kind": "string"}}, "bindings": {"p": binding}}
    [read] = PromptAgent.model_validate({"inputs": properties, "tools": [tool]}).tools
    bound = read.bindings["p"]
    if isinstance(binding, dict) and "input" in binding:
        assert bound.input == binding["input"]
    elif isinstance(binding, str) and binding in declared:
        assert bound.input == binding
    else:
        static = binding["value"] if isinstance(binding, dict) and "value" in binding else binding
        assert bound.value is not None
        assert bound.value.get_secret_value() == static
        assert bound.is_plain == isinstance(binding, str)
    name = bound.input or (bound.plain_text if bound.plain_text in passed else None)
    inputs = {name: f"input {name}" for name in {*passed, *filter(None, [bound.input])}}
    filled = fill_bindings({}, read.bindings, inputs)
    assert filled["p"] == (f"input {name}" if name else bound.value and bound.value.get_secret_value())


WRAPPED = """
tools:
  - name: get_weather
    kind: function
    parameters:
      properties:
        - name: location
          kind: string
          required: true
        - name: unit
          kind: string
          default: celsius
"""


def test_p13_properties_with_a_list_are_the_parameters() -> None:
    [function] = list_declared_functions(loads(write(WRAPPED)))
    properties: Any = function.parameters["properties"]
    assert list(properties) == ["location", "unit"]
    assert function.parameters["required"] == ["location"]
    assert check(write(WRAPPED)) == []


def test_p13_findings_inside_have_their_lines() -> None:
    [wrong] = refuse(write(WRAPPED.replace("default: celsius", "default: [1]")))
    assert (wrong.code, wrong.line) == ("wrong-default", 13)
    [unknown] = check(write(WRAPPED.replace("required: true", "requird: true")))
    assert (unknown.code, unknown.line) == ("unknown-key", 10)
    [second] = refuse(write(WRAPPED.replace("name: unit", "name: location")))
    assert (second.code, second.line, second.column) == ("duplicate-name", 11, 17)


def test_p13_a_parameter_may_still_be_called_properties() -> None:
    parameters = "parameters: {properties: {kind: array, items: {kind: string}}}"
    [function] = list_declared_functions(loads(write(f"tools: [{{name: t, kind: function, {parameters}}}]")))
    assert "properties" in str(function.parameters["properties"])


SCHEMAS = {
    "a schema with a list": "inputs: {type: object, properties: [{name: a, kind: string}]}",
    "a list in inputs": "inputs: {properties: [{name: a, kind: string}]}",
    "a mapping in inputs": "inputs: {properties: {a: {kind: string}}}",
    "a mapping in parameters": "tools: [{name: t, kind: function, parameters: {properties: {a: {type: string}}}}]",
}


@pytest.mark.parametrize("frontmatter", SCHEMAS.values(), ids=SCHEMAS)
def test_p13_other_schemas_in_place_of_properties_do_not_load(frontmatter: str) -> None:
    assert [problem.code for problem in refuse(write(frontmatter))] == ["json-schema"]


THREAD = write("inputs: {history: {kind: thread}}", "{{history}}\n\nuser:\nGo on.")


def read_thread(*messages: object) -> list[Message]:
    return prepare(loads(THREAD), {"history": list(messages)})[:-1]


def test_p23_a_message_of_a_thread_may_have_parts() -> None:
    parts = [
        {"kind": "text", "value": "Look: "},
        {"kind": "image", "source": "https://e.example/a.png", "mediaType": "image/png"},
        {"kind": "audio", "source": "UklGRg==", "mediaType": "audio/wav"},
        {"kind": "file", "source": "https://e.example/a.pdf"},
    ]
    [message] = read_thread({"role": "user", "parts": parts})
    assert message.content == (
        TextPart("Look: "),
        ImagePart("https://e.example/a.png", "image/png"),
        AudioPart("UklGRg==", "audio/wav"),
        FilePart("https://e.example/a.pdf"),
    )


def test_p23_parts_and_source_mean_the_same_as_content_and_value() -> None:
    content = [{"kind": "image", "value": "https://e.example/a.png"}, {"kind": "text", "value": "?"}]
    parts = [{"kind": "image", "source": "https://e.example/a.png"}, {"kind": "text", "value": "?"}]
    assert read_thread({"role": "user", "parts": parts}) == read_thread({"role": "user", "content": content})
    picture = loads(write("inputs: {picture: {kind: image}}", "user:\n{{picture}}"))
    [message] = prepare(picture, {"picture": {"source": "https://e.example/a.png"}})
    assert message.content == (ImagePart("https://e.example/a.png"),)


NOT_UNDERSTOOD: dict[str, dict[str, object]] = {
    "neither content nor parts": {"role": "user", "text": "Hi"},
    "a role alone": {"role": "user"},
    "an empty content": {"role": "user", "content": None},
    "no calls": {"role": "assistant", "tool_calls": []},
    "both": {"role": "user", "content": "Hi", "parts": [{"kind": "text", "value": "Hi"}]},
    "parts of another runtime": {"role": "user", "parts": [{"text": "Hi"}]},
    "one part": {"role": "user", "parts": {"kind": "text", "value": "Hi"}},
    "text under another name": {"role": "user", "parts": [{"kind": "text", "source": "Hi"}]},
    "a source that is an object": {"role": "user", "parts": [{"kind": "image", "source": {"url": "x"}}]},
    "a kind that is unknown": {"role": "user", "parts": [{"kind": "video", "source": "https://e.example/a"}]},
}


@pytest.mark.parametrize("message", NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD)
def test_p23_a_message_that_is_not_understood_is_an_error_and_never_empty(message: dict[str, object]) -> None:
    with pytest.raises(InputError, match="Input 'history' is not a valid thread"):
        read_thread(message)
    with pytest.raises(RequestError), Script("never"):
        turn(loads(write("")), messages=[message])


WITHOUT_CONTENT: dict[str, dict[str, object]] = {
    "calls": {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
    "calls and null": {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
    "null in an answer": {"role": "assistant", "content": None},
    "null in a result": {"role": "tool", "content": None, "tool_call_id": "1"},
    "an empty text": {"role": "user", "content": ""},
    "reasoning": {"role": "assistant", "reasoning": "hm"},
}


@pytest.mark.parametrize("message", WITHOUT_CONTENT.values(), ids=WITHOUT_CONTENT)
def test_p23_messages_without_content_that_apis_send_are_read(message: dict[str, object]) -> None:
    assert Message.from_json(message).text == ""


parts = st.lists(
    st.builds(lambda text: {"kind": "text", "value": text}, st.text(max_size=5))
    | st.builds(
        lambda kind, name, text: {"kind": kind, name: f"https://e.example/{text}"},
        st.sampled_from(["image", "audio", "file"]),
        st.sampled_from(["source", "value"]),
        st.text("abc", max_size=3),
    ),
    max_size=4,
)


@given(role=st.sampled_from(["user", "assistant", "system"]), content=parts, name=st.sampled_from(["parts", "content"]))
def test_p23_every_part_of_a_message_is_read_and_written_again(role: str, content: Any, name: str) -> None:
    [message] = parse_messages([{"role": role, name: content}])
    written = [part.get("source", part.get("value")) for part in content]
    assert [part.value for part in message.content] == written
    assert Message.from_json(message.to_json()) == message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "type", "text", "value", "source", "url"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["content", "parts", "text", "message", "name"]), json_values, max_size=3),
    st.sampled_from(["user", "system", "developer"]),
)
def test_p23_a_message_is_never_empty_unless_its_json_says_so(rest: dict[str, Any], role: str) -> None:
    try:
        message = Message.from_json({"role": role, **rest})
    except InvalidMessage:
        return
    assert message.content or [] in (rest.get("content"), rest.get("parts"))


DUPLICATES = {
    "tools": ("tools:\n  - {name: a, kind: function}\n  - {name: b, kind: mcp}\n  - {name: a, kind: mcp}", 6),
    "inputs": ("inputs:\n  - {name: a, kind: string}\n  - name: a\n    kind: integer", 5),
    "outputs": ("outputs:\n  - {name: a, kind: string}\n  - {name: a, kind: string}", 5),
    "parameters": (
        "tools:\n  - name: t\n    kind: function\n    parameters:\n      - {name: a}\n      - {name: a}",
        8,
    ),
}


@pytest.mark.parametrize(("frontmatter", "line"), DUPLICATES.values(), ids=DUPLICATES)
def test_two_entries_of_one_name_do_not_load_and_the_second_is_named(frontmatter: str, line: int) -> None:
    [problem] = refuse(write(frontmatter))
    assert (problem.code, problem.line) == ("duplicate-name", line)
    assert [found.line for found in find(write(frontmatter), "duplicate-name")] == [line]


WRONG_NAMES = ["my.tool x", "größe", "a" * 65, "a/b", ""]


@pytest.mark.parametrize("name", WRONG_NAMES)
@pytest.mark.parametrize("kind", ["kind: function", "kind: prompty, path: a.prompty", "kind: own"])
def test_a9_check_finds_a_tool_name_that_no_provider_takes(name: str, kind: str) -> None:
    [problem] = find(write(f"tools:\n  - {{{kind}, name: '{name}'}}"), "wrong-tool-name")
    assert (problem.line, problem.severity) == (4, "warning" if "own" in kind else "error")


def test_a9_names_at_the_limit_are_fine() -> None:
    assert find(write(f"tools: [{{kind: function, name: a-B_9{'x' * 59}}}]"), "wrong-tool-name") == []


def look() -> str:
    return "seen"


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_a9_a_wrong_name_is_an_error_before_the_call(name: str) -> None:
    declared = loads(write(f"tools: [{{kind: function, name: '{name}'}}]"))
    added, custom = loads(write("")), loads(write(f"tools: [{{kind: own, name: '{name}'}}]"))
    for agent in (declared, added, custom):
        with Script("never") as script, pytest.raises(ToolError, match="no provider takes the tool name"):
            turn(agent, tools={name: look})
        assert script.requests == []


def test_a9_a_wrong_name_in_a_file_is_an_error_of_invoke(tmp_path: Path) -> None:
    (tmp_path / "c.prompty").write_text(write("inputs: {q: {kind: string}}", "user:\n{{ q }}"))
    for tool in ("kind: function, name: a.b", "kind: prompty, name: a.b, path: c.prompty"):
        agent = loads(write(f"tools: [{{{tool}}}]"), base_dir=tmp_path)
        with Script("never") as script, pytest.raises(PromptyError, match=r"no provider takes the tool name 'a\.b'"):
            invoke(agent)
        assert script.requests == []


TEMPLATES = {
    "texts": "template: {format: mustache, parser: prompty}",
    "a text and a mapping": "template: {format: mustache, parser: {kind: prompty}}",
    "a format alone": "template: {format: mustache}",
    "mappings": "template: {format: {kind: mustache}, parser: {kind: prompty}}",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_p1_format_and_parser_may_be_texts(template: str) -> None:
    text = write(f"inputs: {{name: {{kind: string}}}}\n{template}", "user:\n{{#name}}Hi {{name}}{{/name}}")
    agent = loads(text)
    assert (agent.template.format.kind, agent.template.parser.kind) == ("mustache", "prompty")
    assert prepare(agent, {"name": "Ada"})[0].text == "Hi Ada"
    assert check(text) == []


@pytest.mark.parametrize("key", ["format", "parser"])
def test_p1_an_unknown_engine_has_its_place_and_its_fix(key: str) -> None:
    known = {"format": "jinja2", "parser": "prompty"}
    text = write("template:\n  format: jinja2\n  parser: prompty")
    wrong = text.replace(f"{key}: {known[key]}", f"{key}: {known[key][:-1]}")
    [problem] = check(wrong)
    assert (problem.code, problem.key) == ("unknown-engine", f"template.{key}")
    assert fix(wrong, problem) == text


def test_p1_a_number_as_format_does_not_load() -> None:
    [problem] = refuse(write("template: {format: 5, parser: prompty}"))
    assert (problem.code, problem.line) == ("wrong-value", 3)


LISTED = """
inputs:
  userQuestion: {kind: string, default: Hi}
tools:
  - name: search
    kind: function
    parameters:
      - {name: query, kind: string}
      - {name: limit, kind: integer}
      - {name: term, kind: string}
    bindings:
      - name: query
        input: userQuestion
      - {name: limit, value: 3}
"""


def test_p8_bindings_may_be_a_list() -> None:
    text = write(LISTED, "user:\n{{ userQuestion }}")
    assert check(text) == []
    [tool] = loads(text).tools
    assert tool.bindings["query"].input == "userQuestion"
    received: list[object] = []
    with Script(call("search", term="x"), "Done."):
        turn(loads(text), {"userQuestion": "Why?"}, tools={"search": lambda **given: received.append(given)})
    assert received == [{"query": "Why?", "limit": 3, "term": "x"}]


WRONG_ENTRIES = {
    "no name": "{input: userQuestion}",
    "neither an input nor a value": "{name: limit}",
    "both": "{name: limit, input: userQuestion, value: 3}",
    "another key": "{name: limit, vaule: 3}",
    "a name twice": "{name: query, value: 3}",
    "a text": "limit",
    "an input that is no text": "{name: limit, input: [1]}",
}


@pytest.mark.parametrize("entry", WRONG_ENTRIES.values(), ids=WRONG_ENTRIES)
def test_p8_an_entry_that_is_wrong_does_not_load_and_has_its_line(entry: str) -> None:
    [problem] = refuse(write(LISTED.replace("{name: limit, value: 3}", entry)))
    assert (problem.code, problem.line) == ("wrong-value", 15)


def test_p8_a_binding_of_a_list_that_matches_no_parameter_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "child.prompty").write_text(write("inputs: {text: {kind: string}}", "user:\n{{ text }}"))
    bindings = "bindings:\n      - {name: text, value: a}\n      - {name: txt, value: b}"
    text = write(f"tools:\n  - name: t\n    kind: prompty\n    path: child.prompty\n    {bindings}")
    [problem] = find(text, "unknown-binding", base_dir=tmp_path)
    assert problem.line == 9


values = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
entries = st.fixed_dictionaries({"input": names}) | st.fixed_dictionaries({"value": values})


@given(st.dictionaries(st.text(min_size=1, max_size=5), entries, max_size=4))
def test_p8_a_list_of_bindings_means_the_same_as_a_mapping(bindings: dict[str, Any]) -> None:
    listed = [{"name": name, **entry} for name, entry in bindings.items()]
    [one, other] = [
        FunctionTool.model_validate({"name": "t", "kind": "function", "bindings": form}) for form in (bindings, listed)
    ]
    assert one == other
    assert list(one.bindings) == list(bindings)


MAPPED = """
tools:
  get_weather:
    kind: function
    description: Get the weather.
    parameters:
      city: {kind: string, required: true}
  docs:
    kind: mcp
    serverName: docs
    connection: {kind: anonymous, endpoint: https://docs.example/mcp}
"""


def test_p9_tools_may_be_a_mapping_by_name() -> None:
    agent = loads(write(MAPPED))
    assert [(tool.name, tool.kind) for tool in agent.tools] == [("get_weather", "function"), ("docs", "mcp")]
    assert check(write(MAPPED)) == []


# replacement in the file, code and line of the finding
IN_MAPPINGS = {
    "an unknown key": ("description:", "descripton:", "unknown-key", 6),
    "an unknown key of a parameter": ("required: true", "requird: true", "unknown-key", 8),
    "a wrong default": ("required: true", "default: [1]", "wrong-default", 8),
    "a wrong kind of a connection": ("kind: anonymous", "kind: anonymus", "wrong-value", 12),
    "a tool without a kind": ("    kind: mcp\n", "", "wrong-value", 10),
    "a name that no provider takes": ("get_weather:", "get weather:", "wrong-tool-name", 4),
    "a plain text": ("description: Get the weather.", "bindings: {city: Oslo}", "plain-binding", 6),
    "a condition": ("description: Get the weather.", "approvalMode: {when: {town: {}}}", "approval-parameter", 6),
    "a schema": ("      city:", "      type: object\n      properties: {}\n      city:", "json-schema", 9),
    "a kind of tool": ("kind: mcp\n", "kind: mpc\n", "unknown-tool-kind", 10),
}


@pytest.mark.parametrize(("old", "new", "code", "line"), IN_MAPPINGS.values(), ids=IN_MAPPINGS)
def test_p9_findings_in_a_mapping_of_tools_have_their_lines(old: str, new: str, code: str, line: int) -> None:
    found = find(write(MAPPED.replace(old, new, 1)), code)
    assert [problem.line for problem in found] == [line]


def test_p9_a_variant_changes_one_tool_of_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "ask.prompty").write_text(write(MAPPED))
    (tmp_path / "ask.short.prompty").write_text("---\ntools:\n  docs: null\n  get_weather: {strict: true}\n---\n")
    [tool] = load(tmp_path / "ask.prompty", variant="short").tools
    assert isinstance(tool, FunctionTool)
    assert (tool.strict, tool.parameters[0].name) == (True, "city")


tool_entries = st.fixed_dictionaries({"kind": st.sampled_from(["function", "mcp", "own"])}) | st.builds(
    lambda text, bound: {"kind": "function", "description": text, "bindings": bound},
    st.text(max_size=5),
    st.dictionaries(names, entries, max_size=2),
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), tool_entries, max_size=4))
def test_p9_a_mapping_of_tools_means_the_same_as_a_list(tools: dict[str, Any]) -> None:
    listed = [{"name": name, **tool} for name, tool in tools.items()]
    one, other = PromptAgent.model_validate({"tools": tools}), PromptAgent.model_validate({"tools": listed})
    assert one.tools == other.tools
    assert [tool.name for tool in one.tools] == list(tools)


@pytest.mark.parametrize("reference", ["${file:}", "${env:}"])
def test_p10_a_reference_without_a_name_inside_a_text_is_text(reference: str) -> None:
    text = write(f"name: a\ndescription: Tests {reference} references")
    assert loads(text).description == f"Tests {reference} references"
    [problem] = check(text)
    assert (problem.code, problem.severity, problem.line) == ("empty-reference", "warning", 4)
    both = write(f"description: '{reference} and ${{env:X:y}}'")
    assert loads(both).description == f"{reference} and y"
    nested = write(f"description: '${{env:X:see {reference}}}'")
    assert loads(nested).description == f"see {reference}"


@pytest.mark.parametrize("reference", ["${file:}", "${env:}"])
def test_p10_a_reference_without_a_name_as_a_whole_value_does_not_load(reference: str) -> None:
    assert len(refuse(write(f"description: {reference}"))) == 1


SYNONYMS = {"number": "float", "int": "integer", "bool": "boolean", "text": "string"}


@pytest.mark.parametrize(("written", "kind"), SYNONYMS.items(), ids=SYNONYMS)
def test_p11_other_names_of_kinds_are_read_with_a_warning(written: str, kind: str) -> None:
    text = write(f"inputs:\n  x: {{kind: {written}}}\noutputs:\n  - {{name: y, kind: {written}}}", "user:\n{{ x }}")
    agent = loads(text)
    assert (agent.inputs[0].kind, agent.outputs[0].kind) == (kind, kind)
    first, second = find(text, "kind-synonym")
    assert (first.line, second.line, first.severity) == (4, 6, "warning")
    assert fix(fix(text, first), second) == text.replace(f"kind: {written}", f"kind: {kind}")


@pytest.mark.parametrize(
    ("written", "advice"), [("date", None), ("colour", None), ("strng", "string"), ("str", "string")]
)
def test_p11_an_unknown_kind_does_not_load_and_the_advice_is_no_guess(written: str, advice: str | None) -> None:
    [problem] = refuse(write(f"inputs: {{x: {{kind: {written}}}}}"))
    assert (problem.code, problem.line) == ("wrong-value", 3)
    assert problem.fix.startswith(f"Write `{advice}`." if advice else "Write one of string, integer, ")
    assert [edit.text for edit in problem.edits] == ([advice] if advice else [])


CONNECTIONS = {
    "key": "{kind: key, apiKey: x, DESCRIPTIONS}",
    "reference": "{kind: reference, name: a, DESCRIPTIONS}",
    "remote": "{kind: remote, name: a, endpoint: https://e.example, DESCRIPTIONS}",
    "anonymous": "{kind: anonymous, endpoint: https://e.example, DESCRIPTIONS}",
    "foundry": "{kind: foundry, endpoint: https://e.services.ai.azure.com, DESCRIPTIONS}",
    "oauth": "{kind: oauth, endpoint: https://e.example, clientId: a, DESCRIPTIONS}",
}


@pytest.mark.parametrize("connection", CONNECTIONS.values(), ids=CONNECTIONS)
def test_p12_descriptions_of_connections_and_servers_are_known_keys(connection: str) -> None:
    connection = connection.replace("DESCRIPTIONS", "usageDescription: for search, authenticationMode: system")
    tool = f"{{name: a, kind: mcp, serverName: a, serverDescription: Finds pages., connection: {connection}}}"
    text = write(f"tools: [{tool}]")
    assert [problem.code for problem in check(text) if problem.code.startswith("unknown")] == []
    [loaded] = loads(text).tools
    assert isinstance(loaded, McpTool)
    assert loaded.connection is not None
    assert loaded.server_description == "Finds pages."
    assert (loaded.connection.usage_description, loaded.connection.authentication_mode) == ("for search", "system")


SCHEMA_CASES = [
    *(BOUND.replace("BINDING", binding) for binding, *_ in BINDINGS.values()),
    WRAPPED,
    LISTED,
    MAPPED,
    *TEMPLATES.values(),
    *(f"inputs: {{x: {{kind: {written}}}}}" for written in SYNONYMS),
]


@pytest.mark.parametrize("frontmatter", SCHEMA_CASES)
def test_editors_accept_these_forms(frontmatter: str) -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema_rs.Draft202012Validator(schema).validate(yaml.safe_load(frontmatter))


def test_editors_ask_for_the_name_of_a_tool_in_a_list() -> None:
    validator = jsonschema_rs.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))
    assert not validator.is_valid({"tools": [{"kind": "function"}]})
    assert validator.is_valid({"tools": [{"kind": "function", "name": "a"}]})


PORTABLE = """
inputs:
  question: {kind: string, default: Why?}
  options: {kind: object, properties: {a: {kind: string}}}
outputs:
  - {name: answer, kind: string}
  - {name: tags, kind: array, items: {kind: string}}
tools:
  - name: search
    kind: function
    parameters:
      - {name: q, kind: string}
      - {name: who, kind: string}
    bindings: {who: {input: question}}
  - {name: docs, kind: mcp, serverName: docs, connection: {kind: reference, name: docs}, approvalMode: {kind: never}}
  - {name: own, kind: mine, connection: {kind: reference, name: a}, options: {}}
template:
  format: {kind: jinja2}
  parser: {kind: prompty}
"""
PORTABLE_BODY = "user:\n{{ question }} {{ options }}"


def portable_problems(text: str) -> list[Problem]:
    return [found for found in check(text, portable=True) if found.code in ("not-portable", "extension")]


def test_a_file_in_the_forms_that_work_everywhere_has_no_findings() -> None:
    assert portable_problems(write(PORTABLE, PORTABLE_BODY)) == []


# replacement, line of the finding, words of the message, words of the fix
UNPORTABLE: dict[str, tuple[str, str, int, str, str]] = {
    "P16 a template as a text": (
        "template:\n  format: {kind: jinja2}\n  parser: {kind: prompty}",
        "template: jinja2",
        18,
        "refuses `template` as a text",
        "`template: {format: {kind: jinja2}, parser: {kind: prompty}}`",
    ),
    "P16 no parser": ("  parser: {kind: prompty}\n", "", 18, "without `parser`", "`parser: {kind: prompty}`"),
    "P16 no format": ("  format: {kind: jinja2}\n", "", 18, "without `format`", "`format: {kind: jinja2}`"),
    "P17 a prompt as a tool": (
        "{name: own, kind: mine, connection: {kind: reference, name: a}, options: {}}",
        "{name: own, kind: prompty, path: a.prompty}",
        17,
        "refuses files with a tool of `kind: prompty`",
        "`kind: function`",
    ),
    "P18 no connection": (
        "connection: {kind: reference, name: a}, options",
        "options",
        17,
        "without `connection`",
        "`connection: {kind: reference, name: …}`",
    ),
    "P18 no options": (", options: {}}", "}", 17, "without `options`", "`options: {}`"),
    "a plain value of an input": (
        "question: {kind: string, default: Why?}",
        "question: Why?",
        4,
        "a plain value in place of the property `question`",
        "`question: {kind: string, default: …}`",
    ),
    "a list of an input": (
        "{kind: string, default: Why?}",
        "[a, b]",
        4,
        "a plain value",
        "`question: {kind: array, default: …}`",
    ),
    "an input without a kind": (
        "{kind: string, default: Why?}",
        "{default: 3}",
        4,
        "without a `kind`",
        "`kind: integer`",
    ),
    "an inner property": ("{a: {kind: string}}", "{a: {description: b}}", 5, "property `a` without", "`kind: string`"),
    "a listed property": ("{name: answer, kind: string}", "{name: answer}", 7, "`answer` without", "`kind: string`"),
    "an item": ("items: {kind: string}", "items: {properties: {}}", 8, "without a `kind`", "`kind: object`"),
    "a parameter": ("{name: q, kind: string}", "{name: q}", 13, "`q` without a `kind`", "`kind: string`"),
    "a value of a binding": ("{who: {input: question}}", "{who: {value: 5}}", 15, "binds inputs", "`{input: …}`"),
    "P13 wrapped parameters": (
        "parameters:\n      - {name: q, kind: string}\n      - {name: who, kind: string}",
        "parameters: {properties: [{name: q, kind: string}, {name: who, kind: string}]}",
        12,
        "refuses `properties` here",
        "directly below `parameters:`",
    ),
    "P10 a reference in a longer text": ("default: Why?", "default: 'a ${env:X:b}'", 4, "whole value", "whole text"),
    "a connection without a kind": (
        "connection: {kind: reference, name: docs}",
        "connection: {name: docs}",
        16,
        "a connection without a `kind`",
        "`kind: reference`",
    ),
    "an extension": ("kind: mine,", "kind: mine, approvalMode: always,", 17, "only this runtime reads", "`approval=`"),
}


@pytest.mark.parametrize(("old", "new", "line", "said", "advice"), UNPORTABLE.values(), ids=UNPORTABLE)
def test_portable_finds_each_form_that_others_do_not_read(
    old: str, new: str, line: int, said: str, advice: str
) -> None:
    assert PORTABLE.count(old) == 1
    text = write(PORTABLE.replace(old, new), PORTABLE_BODY)
    loads(text)
    [problem] = portable_problems(text)
    assert (problem.line, problem.severity) == (line, "warning")
    assert said in problem.message
    assert advice in problem.fix
    assert find(text, problem.code) == []
    if problem.edits:
        fixed = fix(text, problem)
        assert portable_problems(fixed) == []
        assert loads(fixed) == loads(text)


@pytest.mark.parametrize("plain", ["Why?", "'10'", "10", "1.5", "true", '"a: b"', "a 'quoted' word"])
def test_portable_writes_an_input_in_its_long_form(plain: str) -> None:
    text = write(f"inputs:\n  question: {plain}", "user:\n{{ question }}")
    [problem] = portable_problems(text)
    fixed = fix(text, problem)
    assert "{kind: " in fixed
    assert (portable_problems(fixed), loads(fixed)) == ([], loads(text))


DIFFERENCES = (ROOT / "docs/explanation/differences.md").read_text("utf-8")


def assert_documented(sentence: str) -> None:
    """The page on differences has a row that begins like this."""
    rows = DIFFERENCES.partition("## Differences from Microsoft's runtime")[2].partition("\n## ")[0].splitlines()
    assert [row for row in rows if row.startswith(f"| {sentence}")], sentence


def test_p4_an_output_that_does_not_say_required_is_no_null_in_strict_mode() -> None:
    outputs = "outputs: [{name: a, kind: string}, {name: b, kind: string, required: false}]"
    schema: Any = build_schema(loads(write(outputs)).outputs, strict=True)
    assert [schema["properties"][name]["type"] for name in "ab"] == ["string", ["string", "null"]]
    assert schema["required"] == ["a", "b"]
    assert_documented(
        "in a strict schema, a property without `required: true` is nullable | only one with `required: false`"
    )


def test_a_plain_value_of_an_input_is_a_default_and_no_example() -> None:
    [name] = loads(write("inputs: {name: Jane}")).inputs
    assert (name.kind, name.default, name.example) == ("string", "Jane", None)
    assert_documented("a plain value under `inputs` does not load | a default")


def test_p14_schemas_of_an_early_version_are_kept_and_reported() -> None:
    text = write("inputSchema:\n  properties:\n    - {name: q, kind: string}\noutputSchema: {properties: []}")
    agent = loads(text)
    assert (agent.inputs, agent.outputs) == ((), ())
    assert agent.metadata == {
        "inputSchema": {"properties": [{"name": "q", "kind": "string"}]},
        "outputSchema": {"properties": []},
    }
    first, second = find(text, "unknown-key")
    assert (first.line, second.line) == (3, 6)
    assert ("`inputs`" in first.fix, "`outputs`" in second.fix) == (True, True)
    assert_documented(
        "`inputSchema` and `outputSchema`, forms of an early version, have no effect | they go to `metadata`"
    )


def test_p16_a_template_as_a_text_is_its_engine() -> None:
    assert loads(write("template: mustache")).template.format.kind == "mustache"
    assert check(write("template: mustache")) == []
    assert_documented("`template: jinja2` does not load | the engine")


def test_p17_a_prompt_may_be_a_tool(tmp_path: Path) -> None:
    (tmp_path / "short.prompty").write_text(write("inputs: {text: {kind: string}}", "user:\nShorten {{ text }}"))
    agent = loads(write("tools: [{name: shorten, kind: prompty, path: short.prompty}]"), base_dir=tmp_path)
    with Script(call("shorten", text="abc"), "ab", "Done: ab") as script:
        assert turn(agent) == "Done: ab"
    assert script.requests[1]["messages"] == [{"role": "user", "content": "Shorten abc"}]
    assert_documented("a tool of `kind: prompty` does not load | runs another prompt")


def test_p18_a_custom_tool_needs_neither_connection_nor_options() -> None:
    [tool] = loads(write("tools: [{name: look, kind: mine}]")).tools
    assert isinstance(tool, CustomTool)
    assert (tool.connection, tool.options) == (None, None)
    assert_documented("a tool of a custom kind needs `connection` and `options` | both are optional")


def test_p19_a_function_is_strict_only_if_the_file_says_so() -> None:
    tools = "tools: [{name: a, kind: function}, {name: b, kind: function, strict: true}]"
    assert [function.strict for function in list_declared_functions(loads(write(tools)))] == [False, True]
    assert_documented("the schema of a function says that `strict` is true by default | false")


def test_p20_an_input_that_nothing_uses_is_an_error() -> None:
    agent = loads(write("inputs: {question: {kind: string}}", "user:\n{{ question }} {{ more }}"))
    assert prepare(agent, {"question": "Why?", "more": "x"})[0].text == "Why? x"
    with pytest.raises(InputError, match="Unknown input 'questoin'"):
        prepare(agent, {"questoin": "Why?"})
    assert_documented("undeclared inputs pass | an error, unless the template or a binding uses the name")


def test_p21_values_print_as_in_jinja2() -> None:
    inputs = "inputs: {a: {kind: boolean}, b: {kind: float}, c: {kind: object}}"
    agent = loads(write(inputs, "user:\n{{ a }} {{ b }} {{ c.none }}"))
    assert prepare(agent, {"a": True, "b": 1.0, "c": {"none": None}})[0].text == "True 1.0 None"
    assert_documented("a second Jinja2 engine prints `true`, `1` and nothing for `True`, `1.0` and `None` | as Jinja2")


@pytest.mark.parametrize("fields", ["name: a, endpoint: https://e.example", "endpoint: https://e.example, target: b"])
def test_p22_a_remote_connection_has_a_name_or_a_target(fields: str) -> None:
    agent = loads(write(f"tools: [{{name: t, kind: mcp, connection: {{kind: remote, {fields}}}}}]"))
    assert isinstance(agent.tools[0], McpTool)
    assert isinstance(agent.tools[0].connection, RemoteConnection)
    assert_documented("a `remote` connection needs `name` and `endpoint` | any of `name`, `endpoint` and `target`")


def test_p23_the_names_of_upstream_are_documented() -> None:
    assert_documented("a message has `parts`, and media have `source` | the same, and `content` and `value`")
