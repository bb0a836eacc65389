"""An agent as a run stores it: without its secrets, with references by which another process finds them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prompty import PromptAgent, load
from prompty.durable.record import new_record, record_from, stored_agent
from prompty.errors import RequestError, RunRefused
from prompty.providers.credentials import check_trust
from tests.durable.secret_agent import BOUND, KEY, TENANT


def test_a_secret_that_no_other_process_could_find_is_refused_at_the_start() -> None:
    connection = {"kind": "key", "apiKey": KEY}
    agent = PromptAgent.model_validate({"model": {"id": "m", "provider": "scripted", "connection": connection}})
    with pytest.raises(
        RequestError, match=r"`model\.connection\.apiKey` could not be found by another process"
    ) as raised:
        new_record("run", agent, None, {}, {})
    assert KEY not in str(raised.value)
    assert KEY not in json.dumps(new_record("run", agent, None, {}, {"key": KEY}).to_json())


def test_a_stored_run_sends_its_key_only_where_the_file_may(agent: PromptAgent) -> None:
    stored = stored_agent(record_from(new_record("run", agent, None, {}, {}).to_json(), "run"), {})
    assert stored.model.connection == agent.model.connection
    with pytest.raises(RequestError, match="the value of DURABLE_TEST_USER would be sent"):
        check_trust(stored, ())
    allowed = {"env_allowed": ["DURABLE_TEST_KEY", "DURABLE_TEST_USER"]}
    stored = stored_agent(new_record("run", load(agent.path or "", **allowed), None, {}, {}), {})  # type: ignore[arg-type]  # by name
    with pytest.raises(RequestError, match=r"models\.invalid, which only the file names"):
        check_trust(stored, ())
    trusting = load(agent.path or "", trusted_endpoints=["https://models.invalid"], **allowed)  # type: ignore[arg-type]  # options by name
    check_trust(stored_agent(new_record("run", trusting, None, {}, {}), {}), ())


def test_an_agent_whose_endpoints_have_no_origin_is_refused(agent: PromptAgent) -> None:
    record = replace(new_record("run", agent, None, {}, {}), origins={})
    with pytest.raises(RunRefused, match="the agent of the run 'run' is refused"):
        stored_agent(record, {})


def test_the_keys_of_fallbacks_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_TEST_KEY", KEY)
    path = tmp_path / "look.prompty"
    path.write_text(
        "---\nmodel: m\nmetadata:\n  fallbacks:\n"
        '    - {id: other, connection: {kind: key, apiKey: "${env:DURABLE_TEST_KEY}"}}\n'
        f"    - {{id: third, connection: {{kind: key, apiKey: {BOUND}}}}}\n---\nuser:\nHi\n"
    )
    agent = load(path)
    record = new_record("run", agent, None, {}, {}).to_json()
    assert KEY not in json.dumps(record)
    assert BOUND not in json.dumps(record)
    assert stored_agent(record_from(record, "run"), {}).metadata == agent.metadata


PLACES = {
    "an option": "model: {id: m, options: {additionalProperties: {user: '@'}}}",
    "inside an option": "model: {id: m, options: {additionalProperties: {user: 'a @ b'}}}",
    "a deep option": "model: {id: m, options: {additionalProperties: {a: [{b: '@'}]}}}",
    "an option of a file": "model: {id: m, options: '${file:options.yaml}'}",
    "an option of a fallback": "model: m\nmetadata: {fallbacks: [{id: f, options: {additionalProperties: {u: '@'}}}]}",
    "an option of a tool": "model: m\ntools: [{name: t, kind: mine, options: {user: '@'}}]",
    "a default": "model: m\ninputs: {q: {kind: string, default: '@'}}",
    "a plain default": "model: m\ninputs: {q: '@'}",
    "a list of texts": "model: {id: m, options: {stopSequences: ['@']}}",
    "a list of choices": "model: m\noutputs: {a: {kind: string, enumValues: ['@', b]}}",
    "a description": "model: m\ndescription: 'about @'",
    "an endpoint": "model: {id: m, connection: {kind: anonymous, endpoint: 'https://models.invalid/@/v1'}}",
    "a whole endpoint": "model: {id: m, connection: {kind: anonymous, endpoint: '${env:DURABLE_TEST_KEY_URL}'}}",
}


@pytest.mark.parametrize("frontmatter", PLACES.values(), ids=PLACES)
def test_a_credential_of_a_variable_is_stored_at_no_place_and_found_again(
    frontmatter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_TEST_KEY", KEY)
    monkeypatch.setenv("DURABLE_TEST_KEY_URL", f"https://models.invalid/{KEY}")
    (tmp_path / "options.yaml").write_text("additionalProperties: {user: '${env:DURABLE_TEST_KEY}'}")
    (tmp_path / "a.prompty").write_text(f"---\n{frontmatter.replace('@', '${env:DURABLE_TEST_KEY}')}\n---\nuser:\nHi\n")
    agent = load(tmp_path / "a.prompty")
    assert KEY in json.dumps(agent.model_dump(mode="json", by_alias=True)) or "tools" in frontmatter
    record = new_record("run", agent, None, {}, {}).to_json()
    assert KEY not in json.dumps(record)
    stored = stored_agent(record_from(record, "run"), {})
    assert stored.model_dump() == agent.model_dump()
    assert stored.trust.uses == agent.trust.uses


@pytest.mark.parametrize(
    "address", ["https://ada:@models.invalid/v1", "https://models.invalid/v1?api_key=", "https://m.invalid?sig="]
)
def test_an_address_that_contains_a_credential_is_not_stored(address: str, tmp_path: Path) -> None:
    address = address.replace(":@", f":{KEY}@") if "@" in address else address + KEY
    connection = f"{{kind: key, apiKey: k, endpoint: '{address}'}}"
    (tmp_path / "a.prompty").write_text(f"---\nmodel: {{id: m, connection: {connection}}}\n---\nuser:\nHi\n")
    agent = load(tmp_path / "a.prompty")
    record = new_record("run", agent, None, {}, {}).to_json()
    assert KEY not in json.dumps(record)
    assert stored_agent(record_from(record, "run"), {}).model_dump() == agent.model_dump()


def test_a_key_in_the_options_of_an_agent_of_code_needs_a_name(tmp_path: Path) -> None:
    options = {"additionalProperties": {"client_secret": KEY, "prompt_cache_key": "no-secret", "user": "ada"}}
    agent = PromptAgent.model_validate({"model": {"id": "m", "options": options}})
    with pytest.raises(RequestError, match="client_secret` could not be found by another process"):
        new_record("run", agent, None, {}, {})
    record = json.dumps(new_record("run", agent, None, {}, {"the key": KEY}).to_json())
    assert KEY not in record
    assert "no-secret" in record


def test_an_ordinary_variable_is_stored_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_TEST_MODEL", "a-model-of-today")
    (tmp_path / "a.prompty").write_text("---\nmodel: '${env:DURABLE_TEST_MODEL}'\n---\nuser:\nHi\n")
    record = new_record("run", load(tmp_path / "a.prompty"), None, {}, {}).to_json()
    monkeypatch.setenv("DURABLE_TEST_MODEL", "another-one")
    assert stored_agent(record_from(record, "run"), {}).model.id == "a-model-of-today"


BINDINGS = {
    "a plain text": "{a: tenant-51bd02}",
    "an input": "{a: who}",
    "a value": "{a: {value: tenant-51bd02}}",
    "a variable": "{a: '${env:DURABLE_TEST_TOKEN}'}",
    "a variable as a value": "{a: {value: '${env:DURABLE_TEST_TOKEN}'}}",
    "a list": "[{name: a, value: tenant-51bd02}, {name: b, input: who}]",
    "a list with a variable": "[{name: b, input: who}, {name: a, value: '${env:DURABLE_TEST_TOKEN}'}]",
    "structured data": "{a: {id: [tenant-51bd02, 3]}}",
}


@pytest.mark.parametrize("tools", ["- name: t\n    kind: function", "t:\n    kind: function"], ids=["list", "mapping"])
@pytest.mark.parametrize("bindings", BINDINGS.values(), ids=BINDINGS)
def test_bindings_of_every_form_are_found_again_and_not_stored(
    bindings: str, tools: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_TEST_TOKEN", BOUND)
    head = f"model: m\ninputs: {{who: {{kind: string}}}}\ntools:\n  {tools}\n    bindings: {bindings}"
    (tmp_path / "look.prompty").write_text(f"---\n{head}\n---\nuser:\n{{{{ who }}}}\n")
    agent = load(tmp_path / "look.prompty")
    record = new_record("run", agent, None, {}, {}).to_json()
    assert TENANT not in json.dumps(record)
    assert BOUND not in json.dumps(record)
    [stored] = stored_agent(record_from(record, "run"), {}).tools
    assert stored == agent.tools[0]
    assert [one.is_plain for one in stored.bindings.values()] == [
        one.is_plain for one in agent.tools[0].bindings.values()
    ]
