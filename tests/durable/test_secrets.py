"""A run keeps where its secrets are, and never what they are: every file of the database is searched as bytes."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from prompty import PromptAgent, load, tool
from prompty.durable import DurableRuntime
from prompty.durable.record import new_record, record_from, stored_agent
from prompty.errors import RequestError, RunRefused
from prompty.providers.credentials import check_endpoint
from tests.durable.databases import Databases
from tests.durable.runs import working
from tests.durable.suite import wait_until

KEY, BOUND, TENANT, INPUT = "sk-key-4f1c9e", "bound-8a20c7", "tenant-51bd02", "input-93ea6f"
FILE = """\
---
model:
  id: m
  provider: scripted
  connection:
    kind: key
    endpoint: https://models.invalid
    apiKey: ${env:DURABLE_TEST_KEY}
  options:
    additionalProperties:
      script:
        - [{call: look, arguments: {at: here}}]
        - [{call: look, arguments: {at: there}}]
        - Done.
inputs:
  password:
    kind: string
    sensitive: true
tools:
  - name: look
    kind: function
    parameters:
      at: string
      token: string
      tenant: string
      password: string
    bindings:
      token: ${env:DURABLE_TEST_TOKEN}
      tenant: tenant-51bd02
      password: {input: password}
---
user:
Look.
"""


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PromptAgent:
    monkeypatch.setenv("DURABLE_TEST_KEY", KEY)
    monkeypatch.setenv("DURABLE_TEST_TOKEN", BOUND)
    (tmp_path / "look.prompty").write_text(FILE)
    return load(tmp_path / "look.prompty")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_secret_is_in_any_table(kind: str, databases: Databases, agent: PromptAgent) -> None:
    url = databases.new(kind)
    seen: list[tuple[str, str, str]] = []
    going_on: list[bool] = []

    @tool(idempotent=True)
    async def look(at: str, token: str, tenant: str, password: str) -> str:
        seen.append((token, tenant, password))
        while not going_on:
            await asyncio.sleep(0.02)
        return f"seen {at}"

    secrets = {"the password": INPUT}
    with working(url, look, secrets=secrets) as runtime:
        run = runtime.start(
            agent, {"password": INPUT}, run_id="mine", approval={"look": {"when": {"at": {"const": "there"}}}}
        )
        wait_until(lambda: bool(seen))
    going_on.append(True)
    with working(url, look, secrets=secrets) as runtime:
        paused = runtime.result("mine", timeout=30)
        runtime.answer(paused, [True])
        assert runtime.result("mine", timeout=30) == "Done."
        list(runtime.events(run.id))
    assert set(seen) == {(BOUND, TENANT, INPUT)}
    assert len(seen) == 3
    stored = databases.stored(url)
    assert b"DURABLE_TEST_KEY" in stored
    for secret in (KEY, BOUND, TENANT, INPUT):
        assert secret.encode() not in stored


def test_a_secret_that_no_other_process_could_find_is_refused_at_the_start(tmp_path: Path) -> None:
    connection = {"kind": "key", "apiKey": KEY}
    agent = PromptAgent.model_validate({"model": {"id": "m", "provider": "scripted", "connection": connection}})
    client = DurableRuntime(f"sqlite:///{tmp_path}/runs.db")
    with pytest.raises(
        RequestError, match=r"`model\.connection\.apiKey` could not be found by another process"
    ) as raised:
        client.start(agent)
    assert KEY not in str(raised.value)
    named = DurableRuntime(f"sqlite:///{tmp_path}/runs.db", secrets={"key": KEY})
    named.start(agent, run_id="named")
    assert KEY.encode() not in (tmp_path / "runs.db").read_bytes()
    named.close()
    client.close()


def test_a_worker_that_lacks_a_secret_says_which(
    agent: PromptAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    client = DurableRuntime(url, secrets={"the password": INPUT})
    run = client.start(agent, {"password": INPUT})
    monkeypatch.delenv("DURABLE_TEST_KEY")

    @tool
    def look(at: str, token: str, tenant: str, password: str) -> str:
        return at

    with working(url, look), pytest.raises(RequestError, match="DURABLE_TEST_KEY"):
        run.result(timeout=30)
    client.close()


def test_what_looks_like_a_reference_in_an_input_stays_what_it_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    trick = {"$secret": {"name": "key"}, "keys": ["model"], "name": "key"}
    agent = PromptAgent.model_validate(
        {
            "model": {"id": "m", "provider": "scripted", "options": {"additionalProperties": {"script": ["Done."]}}},
            "instructions": "user:\n{{ trick }}",
        }
    )
    with working(url, secrets={"key": KEY}) as runtime:
        run = runtime.start(agent, {"trick": trick})
        assert run.result(timeout=30) == "Done."
        *_, last = run.events()
        assert KEY not in str(last)


def test_a_stored_run_sends_its_key_only_where_the_file_may(agent: PromptAgent) -> None:
    stored = stored_agent(record_from(new_record("run", agent, None, {}, {}).to_json(), "run"), {})
    assert stored.model.connection == agent.model.connection
    with pytest.raises(RequestError, match="named only by the file"):
        check_endpoint(stored, ())
    trusting = load(agent.path or "", trusted_endpoints=["https://models.invalid"])
    check_endpoint(stored_agent(new_record("run", trusting, None, {}, {}), {}), ())


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
