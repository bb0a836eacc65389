"""Variables that are not set fail the load, unless the program defers them. A pickle has references, not values."""

import asyncio
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prompty import PromptAgent, Registry, invoke, load, loads, prepare, render, turn
from prompty.errors import LoadError, PromptyError, RequestError, WrongArgument
from prompty.openapi import allow
from prompty.pipeline import load_async, validate_inputs
from prompty.testing import Script, call
from tests.loopback import Server, json_reply

KEY = "missing-key-7d20f1"
ANSWER = {"model": "m", "choices": [{"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}
FULL = """---
model:
  id: ${env:MISSING_MODEL}
  connection: {kind: key, endpoint: "${env:MISSING_URL}", apiKey: "${env:MISSING_KEY}"}
  options: {temperature: "${env:MISSING_NUMBER}", stopSequences: [a, "${env:MISSING_STOP}"]}
inputs: {q: {kind: string, default: "${env:MISSING_DEFAULT} and ${env:MISSING_OTHER}"}}
---
user:
Hi {{q}}"""
NAMES = ("MODEL", "URL", "KEY", "NUMBER", "STOP", "DEFAULT", "OTHER")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "p.prompty"
    file.write_text(FULL)
    return file


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        started.answer(*[json_reply(ANSWER)] * 4)
        yield started


def set_variables(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    values = {"MODEL": "gpt-x", "URL": url, "KEY": KEY, "NUMBER": "0.5", "STOP": "b", "DEFAULT": "you", "OTHER": "me"}
    for name, value in values.items():
        monkeypatch.setenv(f"MISSING_{name}", value)


def test_one_error_names_all_variables_with_line_key_and_both_ways_on(file: Path) -> None:
    with pytest.raises(LoadError) as caught:
        load(file)
    found = [(one.line, one.key, one.message) for one in caught.value.problems]
    assert [message for _, _, message in found] == [f"Environment variable 'MISSING_{name}' not set" for name in NAMES]
    assert (found[2][0], found[2][1]) == (4, "model.connection.apiKey")
    assert "Set MISSING_KEY, or add a default: ${env:MISSING_KEY:default}." in caught.value.problems[2].fix
    assert "missing_env='defer'" in caught.value.problems[2].fix


def test_a_deferred_field_is_absent_and_a_call_names_them_all(file: Path) -> None:
    agent = load(file, missing_env="defer")
    assert (agent.model.id, agent.model.options.temperature, agent.model.options.stop_sequences) == ("", None, None)
    assert getattr(agent.model.connection, "endpoint", "") is None
    assert "${" not in agent.model_dump_json()
    assert [use.variable for use in agent.trust.missing] == [f"MISSING_{name}" for name in NAMES]
    with pytest.raises(RequestError) as caught:
        invoke(agent, {"q": "a"})
    for name in NAMES:
        assert f"Environment variable 'MISSING_{name}' not set" in str(caught.value)
    assert f"{file}:4:" in str(caught.value)


@pytest.mark.parametrize("verb", [render, prepare, validate_inputs], ids=lambda verb: str(verb.__name__))
def test_what_needs_the_whole_file_raises_as_load_does(verb: object, file: Path) -> None:
    with pytest.raises(LoadError, match="MISSING_KEY"):
        verb(file)  # type: ignore[operator]  # one of three functions


def test_a_call_with_a_path_resolves_on_use(file: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match="MISSING_KEY"):
        turn(file)
    with Script("Hello"):
        assert turn(file, {"q": "a"}) == "Hello"
    set_variables(monkeypatch, f"{server.url}/v1")
    monkeypatch.setenv("PROMPTY_ENV_ALLOWED", "MISSING_DEFAULT MISSING_OTHER MISSING_STOP")
    assert invoke(file) == "Hello"
    [request] = server.requests
    assert (request.body["model"], request.body["stop"]) == ("gpt-x", ["a", "b"])
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_another_model_needs_no_variable_of_the_file(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "p.prompty"
    file.write_text("---\nmodel: {id: m, connection: {apiKey: '${env:MISSING_KEY}'}}\n---\nuser:\nHi")
    with pytest.raises(RequestError, match="MISSING_KEY"):
        invoke(file, model="other")  # at the same provider
    mine = {"id": "m", "connection": {"endpoint": f"{server.url}/v1"}}
    with pytest.raises(RequestError, match="MISSING_KEY"):
        invoke(file, fallbacks=[mine])
    with pytest.raises(PromptyError) as caught:
        turn(file, model="groq:m")
    assert "GROQ_API_KEY" in str(caught.value)
    assert "MISSING_KEY" not in str(caught.value)


def test_the_environment_chooses_for_every_load(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTY_MISSING_ENV", "defer")
    assert load(file).trust.missing
    assert loads(FULL).trust.missing
    with pytest.raises(LoadError):
        load(file, missing_env="raise")
    monkeypatch.setenv("PROMPTY_MISSING_ENV", "ignore")
    with pytest.raises(WrongArgument, match="PROMPTY_MISSING_ENV takes 'raise' or 'defer'"):
        load(file)
    with pytest.raises(WrongArgument, match=r"loads\(missing_env=…\) takes 'raise' or 'defer'"):
        loads(FULL, missing_env="later")  # type: ignore[arg-type]  # on purpose


def test_async_code_chooses_as_well(file: Path) -> None:
    assert asyncio.run(load_async(file, missing_env="defer")).trust.missing


NEEDED = {
    "a tool's name": "tools: [{name: '${env:MISSING}', kind: function}]",
    "a document": "tools: [{name: t, kind: openapi, specification: '${env:MISSING}'}]",
    "a path": "tools: [{name: t, kind: prompty, path: '${env:MISSING}'}]",
    "a kind": "model: {id: m, connection: {kind: '${env:MISSING}', apiKey: k}}",
}


@pytest.mark.parametrize("frontmatter", NEEDED.values(), ids=NEEDED)
def test_a_field_without_which_a_definition_cannot_be_read_is_needed_in_any_case(frontmatter: str) -> None:
    with pytest.raises(LoadError, match="Environment variable 'MISSING' not set") as caught:
        loads(f"---\n{frontmatter}\n---\nHi", missing_env="defer")
    assert len(caught.value.problems) == 1


def test_the_cache_forgets_a_file_whose_variable_is_set(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(file, missing_env="defer").model.id == ""
    set_variables(monkeypatch, "http://127.0.0.1:9")
    assert load(file).model.id == "gpt-x"


def test_nothing_connects_while_a_variable_is_missing_also_under_a_script(tmp_path: Path) -> None:
    registry = Registry()
    allow(hosts=["127.0.0.1"], registry=registry)
    now = {"get": {"operationId": "now", "responses": {"200": {"description": "Now."}}}}
    api = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {"/now": now}}
    (tmp_path / "api.json").write_text(json.dumps(api))
    with Server() as service:
        tool = f"{{name: t, kind: openapi, specification: api.json, connection: {{endpoint: '{service.url}'}}}}"
        text = f"---\nmodel: {{id: m, connection: {{apiKey: '${{env:MISSING_KEY}}'}}}}\ntools: [{tool}]\n---\nuser:\nHi"
        agent = loads(text, base_dir=tmp_path, registry=registry, missing_env="defer")
        with Script(call("now"), "No."):
            messages = turn(agent, details=True).messages
        assert "Environment variable 'MISSING_KEY' not set" in str(messages[-2])
        assert not service.requests


def test_a_function_does_not_run_without_its_bound_variable() -> None:
    ran = list[str]()

    def look(at: str, token: str) -> str:
        ran.append(token)
        return at

    tool = "{name: look, kind: function, parameters: {at: string, token: string}, bindings: {token: '${env:MISSING}'}}"
    agent = loads(f"---\nmodel: m\ntools: [{tool}]\n---\nuser:\nHi", missing_env="defer")
    with Script(call("look", at="here"), "Done.") as script:
        turn(agent, tools=[look])
    assert not ran
    assert "'MISSING' not set" in str(script.requests[1]["messages"][-1])
    assert "token" not in str(script.requests[0]["tools"])


# Programs that import a prompt.

MODULE = "import prompty\nAGENT = prompty.load('p.prompty')\n"
TEST = "from mine import AGENT\nfrom prompty.testing import Script\nimport prompty\n"
PYTEST = (
    f"{TEST}def test_it():\n    with Script('Hello'):\n        assert prompty.invoke(AGENT, {{'q': 'a'}}) == 'Hello'\n"
)
UNITTEST = f"""import unittest
{TEST}
class It(unittest.TestCase):
    def test_it(self):
        with Script('Hello'):
            self.assertEqual(prompty.invoke(AGENT, {{'q': 'a'}}), 'Hello')
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "variables", "works"),
    [
        (["-m", "pytest", "-q", "test_mine.py"], {}, True),
        (["-m", "pytest", "-q", "test_mine.py"], {"PROMPTY_MISSING_ENV": "raise"}, False),
        (["-m", "unittest", "test_unit.py"], {"PROMPTY_MISSING_ENV": "defer"}, True),
        (["-m", "unittest", "test_unit.py"], {}, False),
        (["-c", "import mine"], {}, False),
        (["-m", "IPython", "-c", "import mine"], {}, False),
        (["-m", "IPython", "-c", "import mine"], {"PROMPTY_MISSING_ENV": "defer"}, True),
    ],
)
def test_a_module_that_loads_a_prompt_is_imported(
    command: list[str], variables: dict[str, str], works: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMPTY_MISSING_ENV")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name, text in (("mine", MODULE), ("test_mine", PYTEST), ("test_unit", UNITTEST)):
        (file.parent / f"{name}.py").write_text(text)
    done = subprocess.run([sys.executable, *command], cwd=file.parent, capture_output=True, text=True, check=False)  # noqa: S603  our own code
    assert (done.returncode == 0) is works, done.stdout + done.stderr
    assert works or "missing_env='defer'" in done.stdout + done.stderr


# Pickles.

PICKLED = """---
model:
  id: ${env:MISSING_MODEL}
  connection:
    {kind: key, endpoint: "${env:MISSING_URL}", apiKey: "x-${env:MISSING_KEY}", headers: {X-Key: "${env:MISSING_KEY}"}}
  options: {temperature: "${env:MISSING_NUMBER}", additionalProperties: {token: "${env:MISSING_KEY}"}}
inputs: {q: {kind: string, default: "${env:MISSING_KEY}"}, r: "${env:MISSING_DEFAULT}"}
tools:
  look: {kind: function, parameters: {token: string}, bindings: {token: "${env:MISSING_KEY}"}}
fallbacks: [{id: f, connection: {apiKey: "${env:MISSING_KEY}"}}]
---
user:
Hi {{q}}"""


def test_a_pickle_has_no_value_of_a_variable_and_takes_those_of_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, "https://models.example")
    agent = loads(PICKLED, env_allowed=["MISSING_NUMBER"], trusted_endpoints=["https://trusted.example"])
    stored = pickle.dumps(agent)
    assert KEY.encode() not in stored
    assert b"gpt-x" not in stored
    assert b"models.example" not in stored
    read = pickle.loads(stored)  # noqa: S301  our own bytes
    assert read.model_dump() == agent.model_dump()
    assert read.trust.env_allowed == agent.trust.env_allowed
    assert read.trust.trusted == agent.trust.trusted
    assert {(use.variable, use.kind) for use in read.trust.uses} == {
        (one.variable, one.kind) for one in agent.trust.uses
    }
    again = pickle.dumps(read)
    monkeypatch.setenv("MISSING_KEY", "of-the-reader")
    other = pickle.loads(stored)  # noqa: S301  our own bytes
    assert other.model.connection.api_key.get_secret_value() == "x-of-the-reader"
    assert pickle.loads(again).model_dump() == other.model_dump()  # noqa: S301  our own bytes
    monkeypatch.delenv("MISSING_KEY")
    with pytest.raises(RequestError, match="Environment variable 'MISSING_KEY' not set, which `model"):
        pickle.loads(stored)  # noqa: S301  our own bytes


LITERAL = {
    "a key": "model: {id: m, connection: {kind: key, apiKey: literal-key}}",
    "a key of a tool": "tools: [{name: t, kind: mcp, connection: {endpoint: 'https://a.test', apiKey: literal-key}}]",
    "a key of a fallback": "fallbacks: [{id: f, connection: {apiKey: literal-key}}]",
    "a password in an address": "model: {id: m, connection: {endpoint: 'https://me:literal-key@a.test'}}",
    "a header": "model: {id: m, connection: {endpoint: 'https://a.test', headers: {X-Api-Key-Own: literal-key}}}",
    "an option": "model: {id: m, options: {additionalProperties: {api_key: literal-key}}}",
    "a binding": "tools: [{name: t, kind: function, bindings: {api_key: {value: literal-key}}}]",
}


@pytest.mark.parametrize("frontmatter", LITERAL.values(), ids=LITERAL)
def test_an_agent_with_a_key_in_its_file_is_not_pickled(frontmatter: str) -> None:
    with pytest.raises(RequestError, match="cannot be pickled: `") as caught:
        pickle.dumps(loads(f"---\n{frontmatter}\n---\nHi"))
    assert "Write ${env:NAME} in the file" in caught.value.fix
    assert "literal-key" not in str(caught.value)


def test_an_agent_of_code_and_one_without_keys_are_pickled(file: Path) -> None:
    built = PromptAgent.model_validate({"model": {"id": "m"}, "instructions": "user:\nHi"})
    assert pickle.loads(pickle.dumps(built)) == built  # noqa: S301  our own bytes
    assert not pickle.loads(pickle.dumps(built)).trust.from_file  # noqa: S301  our own bytes
    plain = loads("---\nmodel: m\ndescription: 'a value ${not:env}'\n---\nuser:\nHi", base_dir=file.parent)
    assert pickle.loads(pickle.dumps(plain)) == plain  # noqa: S301  our own bytes


def test_a_value_that_looks_like_a_reference_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISSING_DEFAULT", "${env:MISSING_KEY}")
    monkeypatch.setenv("MISSING_KEY", KEY)
    agent = loads("---\nmodel: m\ninputs: {q: '${env:MISSING_DEFAULT}'}\n---\nuser:\n{{q}}")
    assert pickle.loads(pickle.dumps(agent)).inputs[0].default == "${env:MISSING_KEY}"  # noqa: S301  our own bytes


def test_a_value_that_the_program_replaced_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, "https://models.example")
    agent = loads("---\nmodel: '${env:MISSING_MODEL}'\n---\nuser:\nHi")
    other = agent.model_copy(update={"model": agent.model.model_copy(update={"id": "mine"})})
    assert pickle.loads(pickle.dumps(other)).model.id == "mine"  # noqa: S301  our own bytes
