"""The static prefix of templates whose answer is known. `test_prefix_soundness` compares it with renders."""

import pytest

import prompty
from prompty import PromptAgent
from prompty.pipeline.static_prefix import StaticPrefix, prove_static_prefix
from prompty.providers import PROVIDERS, Api

INPUTS = "inputs: {x: {kind: string}, l: {kind: array}, thread: {kind: thread}, picture: {kind: image}}"
FORMATS = {"chat": ("openai", "chat"), "responses": ("openai", "responses"), "messages": ("anthropic", "chat")}


def load(body: str, engine: str = "jinja2", more: str = "") -> PromptAgent:
    return prompty.loads(f"---\nmodel: m\n{INPUTS}\ntemplate: {engine}\n{more}---\n{body}")


def get_api(agent: PromptAgent, name: str) -> Api:
    provider, api_type = FORMATS[name]
    return agent.registry[PROVIDERS].get(provider).api(api_type)


def prove(body: str, name: str = "chat", engine: str = "jinja2") -> StaticPrefix:
    agent = load(body, engine)
    return prove_static_prefix(agent, get_api(agent, name))


# template → the texts of the proved blocks for chat
PROVED = {
    "a value ends the prefix": ("system:\nA B\nuser:\nC {{ x }} D", ["A B", "C"]),
    "a condition ends it": ("system:\nA{% if x %}B{% endif %}\nuser:\nC", ["A"]),
    "a static condition does not": ("system:\nA{% if 1 < 2 %}B{% endif %}\nuser:\nC {{ x }}", ["AB", "C"]),
    "a static loop does not": ("system:\n{% for i in range(3) %}{{ i }},{% endfor %} B {{ x }}", ["0,1,2, B"]),
    "set carries a constant": ("system:\n{% set y = 'k' %}A {{ y }} {{ x }}", ["A k"]),
    "set carries an input": ("system:\n{% set y = x %}A {{ y }} B", ["A"]),
    "a name is static only if all its values are": ("system:\n{% set y = 1 %}A {{ y }}{% set y = x %}{{ y }}", ["A"]),
    "a macro without inputs": ("system:\n{% macro m(a) %}[{{ a }}]{% endmacro %}A {{ m(1) }} {{ x }}", ["A [1]"]),
    "a macro with an input": ("system:\n{% macro m() %}[{{ x }}]{% endmacro %}A {{ m() }} B", ["A"]),
    "random ends it": ("system:\nA {{ [1, 2]|random }} B", ["A"]),
    "blanks before a value may be stripped": ("system:\nA\n\n{{ x }}", ["A"]),
    "a name that varies precedes its message": ('system:\nA\nuser[name="{{ x }}"]:\nC', ["A"]),
    "an image splits its message": ("user:\nA {{ picture }} B", ["A"]),
    "nothing varies": ("system:\nA\nuser:\nB", ["A", "B"]),
    "everything varies": ("{{ x }}", []),
    "a block is read like the text around it": ("system:\nA{% block b %}B {{ x }}{% endblock %}", ["AB"]),
}


@pytest.mark.parametrize(("body", "texts"), PROVED.values(), ids=PROVED)
def test_the_prefix_of_a_jinja_template(body: str, texts: list[str]) -> None:
    assert [block.text for block in prove(body).blocks] == texts


MUSTACHE = {
    "a value": ("system:\nA\nuser:\nC {{x}} D", ["A", "C"]),
    "a section": ("system:\nA {{#x}}B{{/x}} C", ["A"]),
    "a comment": ("system:\nA {{! c }}B {{x}}", ["A B"]),
    "another delimiter": ("system:\nA {{=<% %>=}}B <% x %>", ["A B"]),
}


@pytest.mark.parametrize(("body", "texts"), MUSTACHE.values(), ids=MUSTACHE)
def test_the_prefix_of_a_mustache_template(body: str, texts: list[str]) -> None:
    assert [block.text for block in prove(body, engine="mustache").blocks] == texts


def test_instructions_that_follow_precede_the_messages_of_some_apis() -> None:
    body = "user:\nA {{ x }}\nsystem:\nB"
    assert prove(body, "chat").text == "A"
    assert prove(body, "responses").text == prove(body, "messages").text == "B\nA"


def test_instructions_that_may_follow_end_the_prefix_of_some_apis() -> None:
    body = "system:\nA\nuser:\nB\n{% if x %}\nsystem:\nC\n{% endif %}"
    assert prove(body, "chat").text == "A\nB"
    assert prove(body, "responses").text == prove(body, "messages").text == "A"


def test_a_thread_may_contain_instructions() -> None:
    assert prove("system:\nA\nuser:\nB\n{{ thread }}", "messages").text == "A"


def test_instructions_alone_are_sent_in_another_place() -> None:
    prefix = prove("system:\nA\n{{ thread }}", "messages")
    assert prefix.text == "A"
    assert prefix.if_spoken


def test_the_end_of_the_prefix_in_a_body() -> None:
    agent = load("system:\nA\nuser:\nB {{ x }}")
    api = get_api(agent, "chat")
    prefix = prove_static_prefix(agent, api)
    end = prefix.find_end(api.request(agent, prompty.prepare(agent, {"x": "value"}), []))
    assert end == (("messages", 1, "content"), 1, False)
    assert prefix.find_end({"messages": [{"role": "system", "content": "other"}]}) is None


def test_tools_precede_the_messages() -> None:
    agent = load("system:\nA {{ x }}", more="tools: [{name: look, kind: function, parameters: []}]\n")
    first, second = prove_static_prefix(agent, get_api(agent, "messages")).blocks
    assert (first.path, second.text) == (("tools", 0), "A")


def test_nothing_is_proved_for_tools_that_a_server_describes() -> None:
    agent = load(
        "system:\nA",
        more="tools: [{name: m, kind: mcp, serverName: s, connection: {kind: key, endpoint: 'https://x.invalid'}}]\n",
    )
    assert not prove_static_prefix(agent, get_api(agent, "chat")).blocks


def test_equal_beginnings_have_one_digest() -> None:
    assert prove("system:\nA {{ x }}").digest == prove("system:\nA {{ l }} B").digest != prove("system:\nB").digest
