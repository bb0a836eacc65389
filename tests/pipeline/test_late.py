"""A variable that is set after the load is used by the next call, with the rules for where it may go (F15)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from prompty import PromptAgent, Registry, check, invoke, load, loads, turn
from prompty.analysis.explain import explain
from prompty.durable.record import new_record, record_from, stored_agent
from prompty.errors import LoadError, RequestError, ToolError
from prompty.openapi import allow
from prompty.pipeline.late import resolve_late
from prompty.pipeline.model_override import override_model
from prompty.safety.origins import TextOrigin
from prompty.safety.redaction import mask_secrets
from prompty.testing import Script, call
from tests.loopback import Server, json_reply, refusing_port

KEY = "late-key-7d20f1"
ANSWER = {"model": "m", "choices": [{"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        started.answer(*[json_reply(ANSWER)] * 4)
        yield started


def read(frontmatter: str, **options: object) -> PromptAgent:
    return loads(f"---\n{frontmatter}\n---\nuser:\nHi", **options)  # type: ignore[arg-type]  # those of `loads`


FULL = """model:
  id: ${env:LATE_MODEL}
  connection: {kind: key, endpoint: "${env:LATE_URL}", apiKey: "${env:LATE_KEY}"}
  options: {temperature: "${env:LATE_NUMBER}", additionalProperties: {user: "u-${env:LATE_USER}"}}"""


@pytest.mark.parametrize("way", ["environment", "env="])
def test_a_call_uses_what_has_been_set_since_the_load(
    way: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "LATE_MODEL": "gpt-x",
        "LATE_URL": f"{server.url}/v1",
        "LATE_KEY": KEY,
        "LATE_NUMBER": "0.5",
        "LATE_USER": "ada",
    }
    env: dict[str, str] = {}
    agent = read(FULL, env=env if way == "env=" else None)
    before = agent.model
    if way == "env=":
        env.update(variables)
    else:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
    assert invoke(agent) == "Hello"
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert {**request.body, "messages": None} == {
        "model": "gpt-x",
        "temperature": 0.5,
        "user": "u-ada",
        "messages": None,
    }
    assert agent.model is before, "the agent of other callers is as it was"
    assert explain(agent).body["temperature"] == 0.5
    assert mask_secrets(f"it is {KEY}") == "it is ••••"


def test_the_values_of_one_caller_are_not_those_of_another(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = read(f"model: {{id: m, connection: {{endpoint: '{server.url}', apiKey: '${{env:LATE_KEY}}'}}}}")
    for key in ("first-caller", "second-caller"):
        monkeypatch.setenv("LATE_KEY", key)
        invoke(agent)
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer first-caller",
        "Bearer second-caller",
    ]
    monkeypatch.delenv("LATE_KEY")
    with pytest.raises(RequestError, match="'LATE_KEY' not set"):
        invoke(agent)


def test_an_agent_without_such_references_is_not_copied() -> None:
    agent = read("model: {id: m, connection: {apiKey: '${env:SET}'}}", env={"SET": KEY})
    assert resolve_late(agent) is agent


def test_the_cache_forgets_a_file_whose_variable_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "p.prompty"
    file.write_text("---\nmodel: {id: '${env:LATE_MODEL}'}\n---\nuser:\nHi")
    assert load(file).model.id == "${env:LATE_MODEL}"
    monkeypatch.setenv("LATE_MODEL", "m")
    assert load(file).model.id == "m"


def test_a_value_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = read("model: {id: m, options: {maxOutputTokens: '${env:LATE_NUMBER}'}}")
    monkeypatch.setenv("LATE_NUMBER", "many")
    with pytest.raises(RequestError, match=r"<text>:2:\d+: the value of LATE_NUMBER cannot be used") as caught:
        invoke(agent)
    assert "many" not in str(caught.value)


def test_a_value_is_not_searched_for_references(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = read(f"model: {{id: '${{env:LATE_MODEL}}', connection: {{kind: anonymous, endpoint: '{server.url}'}}}}")
    monkeypatch.setenv("LATE_MODEL", "${env:LATE_KEY}")
    monkeypatch.setenv("LATE_KEY", KEY)
    invoke(agent)
    invoke(resolve_late(agent))
    assert [request.body["model"] for request in server.requests] == ["${env:LATE_KEY}"] * 2


def test_a_caller_who_replaces_a_field_needs_no_variable_for_it() -> None:
    agent = read(FULL, env={})
    replaced = override_model(agent, "ollama:tiny", {"temperature": 0.1, "additionalProperties": {"user": "me"}})
    assert explain(replaced).body["temperature"] == 0.1
    assert resolve_late(replaced).model == replaced.model
    without = override_model(agent, "m", {"temperature": None})
    with pytest.raises(RequestError) as caught:
        invoke(without)
    assert "LATE_NUMBER" not in str(caught.value)
    assert "LATE_KEY" in str(caught.value)


def test_a_reference_elsewhere_stops_the_load() -> None:
    for text in (
        "description: ${env:LATE}",
        "inputs: {q: {kind: string, default: '${env:LATE}'}}",
        "model: {id: m, connection: {kind: '${env:LATE}', apiKey: k}}",
        "tools: [{name: t, kind: function, bindings: {a: '${env:LATE}'}}]",
        "tools: [{name: t, kind: openapi, specification: '${env:LATE}'}]",
    ):
        with pytest.raises(LoadError, match="Environment variable 'LATE' not set"):
            read(text, env={})


def test_a_file_is_read_at_the_load(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="nowhere"):
        read("model: {id: m, connection: {apiKey: '${env:LATE}${file:nowhere.txt}'}}", base_dir=tmp_path, env={})


def test_check_warns_of_a_variable_that_a_call_needs(tmp_path: Path) -> None:
    (tmp_path / "p.prompty").write_text(f"---\n{FULL}\n---\nuser:\nHi")
    problems = check(tmp_path / "p.prompty", env={})
    assert [(one.severity, one.line) for one in problems if one.code == "env-missing"] == [
        ("warning", 3),
        ("warning", 4),
        ("warning", 4),
        ("warning", 5),
        ("warning", 5),
    ]


# Fallbacks.

FALLBACK = """model: {{id: m, connection: {{kind: anonymous, endpoint: "{url}/v1"}}}}
fallbacks:
  - {{id: n, connection: {{endpoint: "${{env:LATE_URL}}", apiKey: "${{env:LATE_KEY}}"}}}}"""


def test_a_fallback_that_is_not_asked_needs_no_variable(server: Server) -> None:
    assert invoke(read(FALLBACK.format(url=server.url), env={})) == "Hello"


def test_a_fallback_uses_what_has_been_set(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing_port() as port:
        agent = read(FALLBACK.format(url=f"http://127.0.0.1:{port}"))
        with pytest.raises(RequestError, match=r"`connection\.endpoint` of fallback 1"):
            invoke(agent, max_retries=0)
        monkeypatch.setenv("LATE_URL", f"{server.url}/v1")
        monkeypatch.setenv("LATE_KEY", KEY)
        assert invoke(agent, max_retries=0) == "Hello"
    assert server.requests[0].body["model"] == "n"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_secret_in_the_options_of_a_fallback_does_not_go_where_only_the_file_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LATE_KEY", KEY)
    with refusing_port() as port:
        first = f"{{id: m, connection: {{kind: anonymous, endpoint: 'http://127.0.0.1:{port}/v1'}}}}"
        options = "{additionalProperties: {note: '${env:LATE_KEY}'}}"
        away = f"{{id: n, connection: {{kind: anonymous, endpoint: 'https://away.test'}}, options: {options}}}"
        for place in (f"fallbacks: [{away}]", f"metadata: {{fallbacks: [{away}]}}"):
            with pytest.raises(RequestError, match="named only by the file"):
                invoke(read(f"model: {first}\n{place}"), max_retries=0)


# Tools.

API = {
    "openapi": "3.1.0",
    "info": {"title": "Weather", "version": "1"},
    "paths": {"/now": {"get": {"operationId": "now", "responses": {"200": {"description": "The weather."}}}}},
}
WEATHER = """model: {id: m, connection: {kind: key, apiKey: k}}
tools:
  - name: weather
    kind: openapi
    specification: api.json
    connection: {endpoint: "%s", apiKey: "${env:LATE_KEY}"}"""


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    allow(hosts=["127.0.0.1"], registry=registry)
    return registry


def read_weather(folder: Path, endpoint: str, registry: Registry) -> PromptAgent:
    (folder / "api.json").write_text(json.dumps(API))
    return read(WEATHER % endpoint, base_dir=folder, registry=registry)


def test_a_tool_uses_what_has_been_set(
    server: Server, tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = read_weather(tmp_path, server.url, registry)
    monkeypatch.setenv("LATE_KEY", KEY)
    with Script(call("now"), "Hello"):
        assert turn(agent) == "Hello"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_key_of_a_tool_does_not_go_where_only_the_file_says(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = read_weather(tmp_path, "https://away.test", registry)
    monkeypatch.setenv("LATE_KEY", KEY)
    with Script("Hello"), pytest.raises(ToolError, match="named only by the file"):
        turn(agent)


def test_a_scripted_turn_that_calls_no_tool_needs_no_key_of_it(tmp_path: Path, registry: Registry) -> None:
    agent = read_weather(tmp_path, "https://away.test", registry)
    with Script("Hello"):
        assert turn(agent) == "Hello"
    with Script(call("now"), "No."):
        messages = turn(agent, details=True).messages
    assert "Environment variable 'LATE_KEY' not set" in messages[-2].text  # type: ignore[union-attr]  # a message


# Durable runs.


def test_a_worker_looks_up_what_was_not_set_at_the_submission(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.prompty"
    file.write_text(
        f"---\n{FULL}\nfallbacks: [{{id: n, connection: {{apiKey: '${{env:LATE_OTHER}}'}}}}]\n---\nuser:\nHi"
    )
    record = record_from(new_record("run", load(file), None, {}, {}).to_json(), "run")
    stored = stored_agent(record, {})
    with pytest.raises(RequestError, match=r"p\.prompty:4:\d+: Environment variable 'LATE_URL' not set"):
        invoke(stored)
    values = {"MODEL": "gpt-x", "URL": f"{server.url}/v1", "KEY": KEY, "NUMBER": "0.5", "USER": "ada"}
    for name, value in values.items():
        monkeypatch.setenv(f"LATE_{name}", value)
    assert invoke(stored) == "Hello"
    assert server.requests[0].body["temperature"] == 0.5
    resolved = resolve_late(stored)
    assert resolved.provenance.texts[KEY] is TextOrigin.ENVIRONMENT
    assert KEY not in json.dumps(record.to_json())


def test_a_variable_in_a_list_of_options_is_filled_in_later(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = loads("---\nmodel: {id: m, options: {stopSequences: ['${env:LATE_STOP}', end]}}\n---\nuser:\nHi")
    monkeypatch.setenv("LATE_STOP", "stop")
    assert resolve_late(agent).model.options.stop_sequences == ("stop", "end")
