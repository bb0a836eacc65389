"""Secrets in places that do not look like one: URLs, options, lists below a key."""

import logging
from pathlib import Path

import httpx2
import pytest

from prompty import PromptAgent, invoke, loads, trace_to, turn
from prompty.analysis.check import check_text
from prompty.analysis.explain import explain
from prompty.errors import LoadError
from prompty.model.agent import create_redactor, secrets_in
from prompty.safety.redaction import Redactor, mask_line, mask_url
from prompty.testing import Player, Recorder, Script, call
from prompty.tracing import Tracer
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.loopback import Server, json_reply

PASSWORD, ACCESS = "hunter2-hunter2", "query-value-4711"
URLS = {
    f"https://ada:{PASSWORD}@host.example/v1?access={ACCESS}&b=2#x": "https://••••@host.example/v1?access=••••&b=••••#x",
    "https://host.example/v1?api-version=2024-10-21": "https://host.example/v1?api-version=2024-10-21",
    "https://host.example/v1": "https://host.example/v1",
    "https://host.example/a@b": "https://host.example/a@b",
}


@pytest.mark.parametrize(("url", "shown"), URLS.items())
def test_a_url_is_shown_without_its_user_and_the_values_of_its_query(url: str, shown: str) -> None:
    assert mask_url(url) == shown


LINES = {
    f"  endpoint: https://host.example/v1?access={ACCESS}&b=1": "  endpoint: https://host.example/v1?access=••••&b=••••",
    f"  - {{endpoint: 'https://host.example/?access={ACCESS}', kind: key}}": (
        "  - {endpoint: 'https://host.example/?access=••••', kind: key}"
    ),
    f"endpoint: host.example/v1?access={ACCESS}": "endpoint: host.example/v1?access=••••",
    "endpoint: https://h.example/?api-version=2024-10-21&a=${env:A}": (
        "endpoint: https://h.example/?api-version=2024-10-21&a=${env:A}"
    ),
    "Is it so? a=b, or c=d? Yes": "Is it so? a=b, or c=d? Yes",
}


@pytest.mark.parametrize(("line", "shown"), LINES.items())
def test_a_line_is_quoted_without_the_values_of_a_query(line: str, shown: str) -> None:
    assert mask_line(line) == shown


@pytest.mark.parametrize("scheme", ["https://", "http://", ""])
def test_check_quotes_no_value_of_a_query(scheme: str) -> None:
    text = (
        f"---\nmodel: {{id: m, connection: {{endpoint: '{scheme}h.example/v1?access={ACCESS}', apiKey: '${{env:A}}'}}}}"
    )
    problems = check_text(f"{text}\n---\nuser:\nHi", env={"A": "of-the-environment"})
    assert [one.code for one in problems if "endpoint" in one.code or one.code == "untrusted-variable"]
    assert ACCESS not in "".join(map(str, problems))


def prompt(endpoint: str) -> str:
    options = "{additionalProperties: {clientSecret: a-client-secret, plain: '${env:SOME_NAME}'}}"
    connection = f"{{kind: key, apiKey: k, endpoint: '{endpoint}'}}"
    return f"---\nmodel: {{id: m, connection: {connection}, options: {options}}}\n---\nuser:\nHi"


def test_explain_and_repr_show_neither_password_nor_query_nor_options_that_are_secret() -> None:
    agent = loads(
        prompt(f"https://ada:{PASSWORD}@host.example/v1?access={ACCESS}"), env={"SOME_NAME": "value-of-a-name"}
    )
    shown = explain(agent)
    for part in (shown.url, shown.curl, repr(agent), str(agent)):
        assert PASSWORD not in part
        assert ACCESS not in part
    assert "a-client-secret" not in repr(agent)
    assert shown.url == "https://••••@host.example/v1/chat/completions?access=••••"
    assert create_redactor(agent).mask("value-of-a-name") == "••••"


def test_the_log_of_the_http_library_has_no_credentials(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Server() as server:
        server.answer(json_reply(Chat().whole("Hello")))
        host = server.url.removeprefix("http://")
        connection = {"kind": "anonymous", "endpoint": f"http://ada:{PASSWORD}@{host}/v1?access={ACCESS}"}
        agent = PromptAgent.model_validate(
            {"model": {"id": "m", "connection": connection}, "instructions": "user:\nHi"}
        )
        assert invoke(agent) == "Hello"
        close_clients()
        assert server.requests[0].path == f"/v1/chat/completions?access={ACCESS}"
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("httpcore2")]
    assert logged
    assert PASSWORD not in str(logged)
    assert ACCESS not in str(logged)
    assert "authorization" not in str(logged).lower()


def test_the_log_of_the_http_library_is_the_programs_for_its_requests(caplog: pytest.LogCaptureFixture) -> None:
    """A program that uses the same library reads its records as they were written, also within a function tool."""
    caplog.set_level(logging.DEBUG)
    with Server() as server:
        server.answer(json_reply({}, headers={"x-echo": ACCESS}))

        def fetch() -> str:
            with httpx2.Client(trust_env=False) as client:
                return client.get(server.url).headers["x-echo"]

        agent = loads("---\nmodel: m\ntools: [{name: fetch, kind: function}]\n---\nuser:\nHi")
        with Redactor([ACCESS]).inside(), Script(call("fetch"), "Done."):
            assert turn(agent, tools=[fetch]) == "Done."
    shown = [record for record in caplog.records if record.name.startswith("httpcore2") and ACCESS in str(record.msg)]
    assert shown


@pytest.mark.parametrize("value", ["- below-its-key", "[below-its-key]", "below-its-key: 1"])
def test_an_error_does_not_quote_a_credential_that_begins_below_its_key(value: str) -> None:
    with pytest.raises(LoadError) as caught:
        loads(f"---\nmodel:\n  connection:\n    kind: key\n    apiKey:\n      {value}\n---\nuser:\nHi")
    assert "below-its-key" not in str(caught.value)


def test_the_key_of_a_fallback_is_a_secret_wherever_it_is_repeated() -> None:
    agent = loads(
        "---\nmodel: m\nmetadata: {fallbacks: [{id: f, connection: {kind: key, apiKey: plain-key-of-a-fallback}}]}\n"
        "---\nuser:\nHi\n"
    )
    assert "plain-key-of-a-fallback" in list(secrets_in(agent))
    assert create_redactor(agent).mask("the server said plain-key-of-a-fallback") == "the server said ••••"


BOUND = """---
model: {id: m, provider: scripted}
inputs: {account: {kind: string, sensitive: true}}
tools:
  - name: look
    kind: function
    parameters: {at: string, account: string}
    bindings: {account: {input: account}}
---
user:
Look.
"""


@pytest.mark.parametrize(
    ("text", "account", "is_masked"),
    [
        (BOUND, "account-0815", True),
        (BOUND.replace(", sensitive: true", ""), "account-0815", False),
        (BOUND, "1", False),  # every "1" of the trace would be masked
    ],
)
def test_a_bound_input_is_in_no_trace_or_recording_if_it_is_sensitive(
    text: str, account: str, is_masked: bool, tmp_path: Path
) -> None:
    def look(at: str, account: str) -> str:
        return f"{account} has been {at}"

    trace_to(f"file:{tmp_path / 'traces'}", capture="wire")
    try:
        with Script(call("look", at="here"), "Done."), Recorder(tmp_path / "one.jsonl"):
            assert turn(loads(text), {"account": account}, tools=[look]) == "Done."
    finally:
        Tracer.clear()
    written = "".join(path.read_text() for path in tmp_path.rglob("*.jsonl"))
    assert "has been here" in written
    assert (account in written) is not is_masked
    assert is_masked or written.count(f"{account} has been here") > 1


RATE = """---
model: m
tools:
  - {name: rate, kind: function, parameters: {country: string}, bindings: {country: Switzerland}}
---
user:
Which rate?
"""


def test_a_bound_value_is_no_secret_of_other_prompts(tmp_path: Path) -> None:
    loads(RATE)
    agent = loads("---\nmodel: m\n---\nuser:\nWhere is Bern?\n")
    path = tmp_path / "one.jsonl"
    with Script("In Switzerland."), Recorder(path):
        assert invoke(agent) == "In Switzerland."
    with Player(path):
        assert invoke(agent) == "In Switzerland."


def test_a_bound_value_is_masked_in_the_runs_of_its_prompt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def rate(country: str) -> str:
        raise ValueError(f"there is no rate for {country}")

    trace_to(f"file:{tmp_path / 'traces'}")
    try:
        with Recorder(tmp_path / "one.jsonl"), Script(call("rate"), "Done.") as script:
            assert turn(loads(RATE), tools=[rate]) == "Done."
    finally:
        Tracer.clear()
    texts = [caplog.text, *(path.read_text() for path in tmp_path.rglob("*.jsonl"))]
    assert sum("there is no rate for" in text for text in texts) == 3  # the log, the trace and the recording
    assert [text for text in texts if "Switzerland" in text] == []
    assert "Switzerland" not in str(script.requests[-1])
