"""Files and messages as Microsoft's runtime and its documentation write them."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from prompty import PromptAgent, PromptyError, invoke, loads, prepare, turn
from prompty.analysis.check import check_text
from prompty.errors import InputError, InvalidMessage, LoadError, Problem, RequestError, ToolError
from prompty.model.content import AudioPart, FilePart, ImagePart, TextPart
from prompty.model.message import Message, parse_messages
from prompty.pipeline.request import list_declared_functions
from prompty.safety import redaction
from prompty.testing import Script, call
from prompty.tools.toolbox import fill_bindings


@pytest.fixture(autouse=True)
def nothing_is_secret_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget fixed texts of bindings in other tests: findings and errors would mask them."""
    monkeypatch.setattr(redaction, "_secrets", {})
    monkeypatch.setattr(redaction, "_longest_first", ())
    redaction._mask_cached.cache_clear()


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


def test_p7_the_model_cannot_replace_a_fixed_text_of_a_prompt_that_runs_as_a_tool(tmp_path: Any) -> None:
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


P13 = """
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
    [function] = list_declared_functions(loads(write(P13)))
    properties: Any = function.parameters["properties"]
    assert list(properties) == ["location", "unit"]
    assert function.parameters["required"] == ["location"]
    assert check(write(P13)) == []


def test_p13_findings_inside_have_their_lines() -> None:
    [wrong] = refuse(write(P13.replace("default: celsius", "default: [1]")))
    assert (wrong.code, wrong.line) == ("wrong-default", 13)
    [unknown] = check(write(P13.replace("required: true", "requird: true")))
    assert (unknown.code, unknown.line) == ("unknown-key", 10)
    [second] = refuse(write(P13.replace("name: unit", "name: location")))
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


def test_a9_a_wrong_name_in_a_file_is_an_error_of_invoke(tmp_path: Any) -> None:
    (tmp_path / "c.prompty").write_text(write("inputs: {q: {kind: string}}", "user:\n{{ q }}"))
    for tool in ("kind: function, name: a.b", "kind: prompty, name: a.b, path: c.prompty"):
        agent = loads(write(f"tools: [{{{tool}}}]"), base_dir=tmp_path)
        with Script("never") as script, pytest.raises(PromptyError, match=r"no provider takes the tool name 'a\.b'"):
            invoke(agent)
        assert script.requests == []
