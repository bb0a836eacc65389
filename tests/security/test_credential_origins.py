"""Where credentials may go: observed at every host that a request could reach."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import azure.identity
import keyring
import openai
import pytest
from azure.core.credentials import AccessToken

from prompty import PromptAgent, Registry, check, invoke, invoke_async, load, load_env, loads
from prompty.analysis.explain import explain
from prompty.certificates import load_certificates
from prompty.errors import RequestError, ToolError
from prompty.providers import register_connection
from prompty.providers.keys import find_key_file
from prompty.registry import DEFAULT
from prompty.safety.origins import parse_origin
from prompty.tools.openapi.client import parse_url
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.internet import Internet
from tests.keyrings import MemoryKeyring

SECRET = "a-credential-nobody-should-see"
HOSTS = (
    "api.openai.com",
    "*.api.openai.com",
    "*.openai.azure.com",
    "*.services.ai.azure.com",
    "api.anthropic.com",
    "api.openai.com.models.example",
    *(f"{name}.example" for name in ("literal", "variable", "default", "around", "dotenv", "trusted")),
)

# Who names the credential, and where it would go. Each cell is what has to be observed:
# y: the request arrives, with the credential.  a: it arrives without it.  n: refused, and nothing arrives.
# k: likewise, because that server would get a key of its own, and there is none.
COLUMNS = (
    ("built in", "https://api.openai.com/v1"),
    ("regional", "https://eu.api.openai.com/v1"),
    ("other provider", "https://api.anthropic.com/v1"),
    ("literal", "https://literal.example/v1"),
    ("variable", "${env:THE_URL}"),
    ("other variable", "${env:BASE_URL}"),
    ("default", "${env:NOT_SET:https://default.example/v1}"),
    ("text around", "https://${env:HOST_NAME}/v1"),
    (".env", "${env:DOTENV_URL}"),
    ("loopback", "{internet}/v1"),
    ("trusted", "https://trusted.example/v1"),
    ("plain http", "http://plain.example/v1"),
    ("listed http", "http://listed.example:8000/v1"),
)
TABLE = """
             built  regional  other  literal  variable  bare  default  around  .env  loopback  trusted  plain  listed
literal      y      y         y      y        y         y     y        y       y     y         y        n      y
variable     y      n         n      n        y         n     n        n       n     y         y        n      y
default      y      y         y      y        y         y     y        y       y     y         y        n      y
text-around  y      n         n      n        y         n     n        n       n     y         y        n      y
dotenv       y      n         n      n        n         n     n        n       y     y         y        n      y
load-env     y      n         n      n        y         n     n        n       n     y         y        n      y
text-file    y      y         y      y        y         y     y        y       y     y         y        n      y
data-file    y      n         n      n        y         n     n        n       n     y         y        n      y
in-options   n      n         n      n        n         n     n        n       n     n         n        n      n
anonymous    a      a         a      a        a         a     a        a       a     a         a        n      a
entra        y      y         n      n        n         n     n        n       n     n         y        n      n
sdk-headers  y      y         a      a        a         a     a        a       a     a         y        n      y
implicit     y      y         k      n        n         n     n        n       n     n         y        n      y
keyring      y      y         k      n        n         n     n        n       n     n         y        n      n
keys-file    y      y         k      n        n         n     n        n       n     n         y        n      n
"""
CREDENTIALS = {
    "literal": f"{{kind: key, apiKey: {SECRET}, endpoint: '%s'}}",
    "variable": "{kind: key, apiKey: '${env:THE_KEY}', endpoint: '%s'}",
    "default": f"{{kind: key, apiKey: '${{env:NOT_SET:{SECRET}}}', endpoint: '%s'}}",
    "text-around": "{kind: key, apiKey: 'x-${env:THE_KEY}', endpoint: '%s'}",
    "dotenv": "{kind: key, apiKey: '${env:DOTENV_KEY}', endpoint: '%s'}",
    "load-env": "{kind: key, apiKey: '${env:THE_KEY}', endpoint: '%s'}",
    "text-file": "{kind: key, apiKey: '${file:key.txt}', endpoint: '%s'}",
    "data-file": "${file:connection.yaml}",
    "in-options": "{kind: anonymous, endpoint: '%s'}",
    "anonymous": "{kind: anonymous, endpoint: '%s'}",
    "entra": "{kind: foundry, endpoint: '%s'}",
    "implicit": "{kind: key, endpoint: '%s'}",
    "keyring": "{kind: key, endpoint: '%s'}",
    "keys-file": "{kind: key, endpoint: '%s'}",
    "sdk-headers": "{kind: key, apiKey: another-key-of-the-file, endpoint: '%s'}",
}
VARIABLES = {
    "THE_KEY": SECRET,
    "THE_URL": "https://variable.example/v1",
    "BASE_URL": "https://variable.example/v1",
    "HOST_NAME": "around.example",
    "HTTP_URL": "http://variable.example/v1",
}


class Cell(NamedTuple):
    """One credential, one destination, and what has to be observed."""

    credential: str
    destination: str
    url: str
    expected: str


def read_table() -> list[Cell]:
    rows = [line.split() for line in TABLE.strip().splitlines()[1:]]
    return [
        Cell(name, destination, url, mark)
        for name, *marks in rows
        for (destination, url), mark in zip(COLUMNS, marks, strict=True)
    ]


@pytest.fixture
def internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    """Every host of the internet, and the environment of a machine with credentials of all kinds."""
    with Internet(tmp_path, HOSTS, Chat().whole("Hello")) as internet:
        internet.use(monkeypatch.setenv)
        for name, value in VARIABLES.items():
            monkeypatch.setenv(name, value)
        for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "PROMPTY_TRUSTED_ENDPOINTS"):
            monkeypatch.delenv(name, raising=False)
        load_certificates.cache_clear()
        yield internet
        close_clients()
    load_certificates.cache_clear()


class Entra:
    """A machine with an identity."""

    def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        return AccessToken(SECRET, 2**40)

    def close(self) -> None: ...


def load_prompt(
    connection: str, folder: Path, *, provider: str = "openai", options: str = "{}", **host: Any
) -> PromptAgent:
    registry = Registry()
    registry.dotenv = {"DOTENV_KEY": SECRET, "DOTENV_URL": "https://dotenv.example/v1"}
    trusted = ["https://trusted.example", "http://listed.example:8000"]
    model = f"  id: m\n  provider: {provider}\n  connection: {connection}\n  options: {options}\n"
    return loads(
        f"---\nmodel:\n{model}---\nuser:\nHi",
        base_dir=folder,
        registry=registry,
        **{"trusted_endpoints": trusted, **host},
    )


def observe(internet: Internet, agent: PromptAgent, asynchronous: bool = False) -> str:
    """Call the model, and return the mark of the table for what arrived."""
    try:
        assert (
            asyncio.run(invoke_async(agent, max_retries=0)) if asynchronous else invoke(agent, max_retries=0)
        ) == "Hello"
    except RequestError as error:
        lacks_key = "run `prompty keys set" in error.fix
        assert lacks_key or "PROMPTY_TRUSTED_ENDPOINTS=" in error.fix or "https" in error.fix or "by name" in error.fix
        assert SECRET not in str(error)
        assert not internet.arrivals
        return "k" if lacks_key else "n"
    (arrival,) = internet.arrivals
    assert arrival.origin == str(parse_origin(getattr(agent.model.connection, "endpoint", "")))
    return "y" if SECRET in arrival.text else "a"


@pytest.mark.spec("003 §2.5", "a credential goes to whatever endpoint the file names")
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("cell", read_table(), ids=lambda cell: f"{cell.credential} to {cell.destination}")
def test_a_credential_goes_only_where_it_may(
    cell: Cell, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    url = cell.url.replace("{internet}", internet.url)
    (tmp_path / "key.txt").write_text(SECRET)
    (tmp_path / "connection.yaml").write_text(CREDENTIALS["variable"] % url)
    details: dict[str, Any] = {}
    if cell.credential == "load-env":
        monkeypatch.delenv("THE_KEY")
        details = {"env": VARIABLES}
    elif cell.credential == "in-options":
        details = {"options": "{additionalProperties: {note: '${env:THE_KEY}'}}"}
    elif cell.credential == "entra":
        monkeypatch.setattr(azure.identity, "DefaultAzureCredential", Entra)
        details = {"provider": "foundry"}
        url = url.replace("eu.api.openai.com/v1", "r.services.ai.azure.com").replace(
            "api.openai.com", "r.openai.azure.com"
        )
    elif cell.credential in ("sdk-headers", "anonymous"):
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Gateway-Key: {SECRET}\nAuthorization: Bearer {SECRET}")
        monkeypatch.setenv("OPENAI_ORG_ID", SECRET)
        monkeypatch.setenv("OPENAI_PROJECT_ID", SECRET)
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    elif cell.credential == "implicit":
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    elif cell.credential == "keyring":
        keyring.set_keyring(MemoryKeyring({"openai": SECRET}))
    elif cell.credential == "keys-file":
        find_key_file().write("openai", SECRET)
    connection = CREDENTIALS[cell.credential]
    agent = load_prompt(connection % url if "%s" in connection else connection, tmp_path, **details)
    assert observe(internet, agent, asynchronous) == cell.expected


VARIABLE_KEY = CREDENTIALS["variable"]
ENDPOINTS = {
    "https://api.openai.com.models.example/v1": "n",
    "https://api.openai.com:8443/v1": "n",
    "http://api.openai.com/v1": "n",
    "https://api.openai.com@literal.example/v1": "n",
    "https://api.openai.com\\@literal.example/v1": "n",
    "${env:THE_URL}/models": "y",
    "${env:THE_URL}.literal.example/v1": "y",  # the path is the file's, the origin is not
    "${env:BASE_URL}/models": "n",
    "${env:ORIGIN}.literal.example/v1": "n",
    "${env:ORIGIN}@literal.example/v1": "n",
    "${env:NOT_SET:${env:THE_URL}}": "y",
    "${env:NOT_SET:${env:BASE_URL}}": "n",
    "${env:HTTP_URL}": "n",
}


@pytest.mark.parametrize(("endpoint", "expected"), ENDPOINTS.items())
def test_an_endpoint_is_judged_by_its_origin(
    endpoint: str, expected: str, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORIGIN", "https://variable.example")
    assert observe(internet, load_prompt(VARIABLE_KEY % endpoint, tmp_path)) == expected


def test_the_error_shows_the_lines_that_allow_the_endpoint(internet: Internet, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        invoke(load_prompt(VARIABLE_KEY % "https://literal.example/v1", tmp_path))
    assert str(caught.value).splitlines() == [
        "<text>:5:35: `model.connection.apiKey`: the value of THE_KEY would go to https://literal.example, "
        "which only the file names",
        "    If you trust it, set PROMPTY_TRUSTED_ENDPOINTS=https://literal.example in the environment. "
        "In Python you can also list it in `trusted_endpoints`.",
    ]
    assert not internet.arrivals


@pytest.mark.parametrize("way", ["load", "registry", "environment"])
def test_the_host_can_trust_an_endpoint_in_three_places(
    way: str, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "https://literal.example/v1"
    agent = load_prompt(VARIABLE_KEY % url, tmp_path, trusted_endpoints=[url] if way == "load" else [])
    if way == "registry":
        agent = agent.model_copy(update={"registry": Registry(trusted_endpoints=["https://literal.example"])})
    if way == "environment":
        monkeypatch.setenv("PROMPTY_TRUSTED_ENDPOINTS", "https://other.example, literal.example")
    assert observe(internet, agent) == "y"


@pytest.mark.parametrize("way", ["load", "registry", "environment", "nobody"])
def test_a_token_of_the_machine_goes_to_this_machine_only_if_the_host_lists_it(
    way: str, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", Entra)
    connection = CREDENTIALS["entra"] % internet.url
    listed = [internet.url] if way == "load" else ["http://127.0.0.1:9"]
    agent = load_prompt(connection, tmp_path, provider="foundry", trusted_endpoints=listed)
    if way == "registry":
        agent = agent.model_copy(update={"registry": Registry(trusted_endpoints=[internet.url])})
    if way == "environment":
        monkeypatch.setenv("PROMPTY_TRUSTED_ENDPOINTS", internet.url)
    assert observe(internet, agent) == ("n" if way == "nobody" else "y")


@pytest.mark.parametrize("endpoint", ["https://127.0.0.1:8443", "https://[::1]/v1", "${env:LOCAL_URL}"])
def test_no_way_of_naming_this_machine_gets_its_token(
    endpoint: str, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_URL", internet.url)
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", Entra)
    agent = load_prompt(CREDENTIALS["entra"] % endpoint, tmp_path, provider="foundry")
    assert observe(internet, agent) == "n"


@pytest.mark.parametrize("provider", ["openai", "anthropic", "foundry"])
@pytest.mark.parametrize("key", ["' '", '"\\t"', "'${env:BLANK}'"])
def test_a_blank_key_is_an_error_that_says_so(
    key: str, provider: str, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLANK", "  ")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    connection = f"{{kind: key, apiKey: {key}, endpoint: '{internet.url}/v1'}}"
    with pytest.raises(RequestError, match="the `apiKey` of the connection is blank"):
        invoke(load_prompt(connection, tmp_path, provider=provider), max_retries=0)
    assert not internet.arrivals


def test_a_key_with_spaces_around_it_is_an_error_that_says_so(internet: Internet, tmp_path: Path) -> None:
    connection = f"{{kind: key, apiKey: 'a-key ', endpoint: '{internet.url}/v1'}}"
    with pytest.raises(RequestError, match="the spaces around it"):
        invoke(load_prompt(connection, tmp_path), max_retries=0)


def test_trust_in_the_environment_ends_with_its_variable(
    internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = load_prompt(VARIABLE_KEY % "https://literal.example/v1", tmp_path)
    monkeypatch.setenv("PROMPTY_TRUSTED_ENDPOINTS", "literal.example")
    assert observe(internet, agent) == "y"
    internet.arrivals.clear()
    monkeypatch.delenv("PROMPTY_TRUSTED_ENDPOINTS")
    assert observe(internet, agent) == "n"


def test_a_decision_counts_for_its_connection_and_its_registry_alone(internet: Internet, tmp_path: Path) -> None:
    agent = load_prompt(VARIABLE_KEY % "https://literal.example/v1", tmp_path)
    trusting = agent.model_copy(update={"registry": Registry(trusted_endpoints=["literal.example"])})
    for _ in range(2):
        internet.arrivals.clear()
        assert observe(internet, trusting) == "y"
        internet.arrivals.clear()
        assert observe(internet, agent) == "n"
    elsewhere = agent.model.connection.model_copy(update={"endpoint": "https://default.example/v1"})  # type: ignore[union-attr]  # it has one
    model = agent.model.model_copy(update={"connection": elsewhere})
    assert observe(internet, trusting.model_copy(update={"model": model})) == "n"


def test_a_trusted_endpoint_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="'ftp://x' is not an endpoint"):
        load_prompt(VARIABLE_KEY % "https://literal.example", tmp_path, trusted_endpoints=["ftp://x"])


def test_values_of_load_name_an_endpoint(internet: Internet, tmp_path: Path) -> None:
    agent = load_prompt(
        VARIABLE_KEY % "${env:THE_URL}", tmp_path, env={"THE_KEY": SECRET, "THE_URL": "https://literal.example"}
    )
    assert observe(internet, agent) == "y"


def test_a_client_that_the_host_registers_goes_where_it_says(internet: Internet, tmp_path: Path) -> None:
    agent = load_prompt("{kind: reference, name: mine}", tmp_path)
    with openai.OpenAI(base_url="https://literal.example/v1", api_key=SECRET) as client:
        register_connection("mine", client, registry=agent.registry)
        assert invoke(agent) == "Hello"
    assert SECRET in internet.arrivals[0].text


def test_an_agent_that_the_host_builds_goes_where_it_says(internet: Internet) -> None:
    connection = {"kind": "key", "apiKey": SECRET, "endpoint": "https://literal.example/v1"}
    assert observe(internet, PromptAgent.model_validate({"model": {"id": "m", "connection": connection}})) == "y"


def test_a_fallback_in_the_file_follows_the_rule(internet: Internet, tmp_path: Path) -> None:
    connection = VARIABLE_KEY % "https://literal.example/v1"
    first = "{kind: key, apiKey: none, endpoint: 'http://127.0.0.1:9/v1'}"
    text = (
        f"---\nmodel: {{id: m, connection: {first}}}\nfallbacks: [{{id: m, connection: {connection}}}]\n---\nuser:\nHi"
    )
    with pytest.raises(RequestError, match="which only the file names"):
        invoke(loads(text, base_dir=tmp_path))
    assert not internet.arrivals


def test_a_fallback_of_the_caller_is_the_hosts_word(internet: Internet, tmp_path: Path) -> None:
    agent = load_prompt(VARIABLE_KEY % "http://127.0.0.1:9/v1", tmp_path)
    fallback = {"id": "m", "connection": {"apiKey": SECRET, "endpoint": "https://literal.example/v1"}}
    assert invoke(agent, fallbacks=[fallback], max_retries=0) == "Hello"
    assert SECRET in internet.arrivals[0].text


def test_a_credential_inside_an_endpoint_is_one(internet: Internet, tmp_path: Path) -> None:
    connection = "{kind: anonymous, endpoint: 'https://literal.example/${env:THE_KEY}'}"
    assert observe(internet, load_prompt(connection, tmp_path)) == "n"


@pytest.mark.parametrize("connection", ["null", "{kind: key, apiKey: '${env:OPENAI_API_KEY}'}"])
@pytest.mark.parametrize(("listed", "expected"), [("", "n"), ("http://variable.example", "y")])
def test_the_environment_names_plain_http_only_if_it_is_listed(
    connection: str, listed: str, expected: str, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", VARIABLES["HTTP_URL"])
    monkeypatch.setenv("PROMPTY_TRUSTED_ENDPOINTS", listed)
    agent = load_prompt(connection, tmp_path)
    if expected == "y":
        assert invoke(agent) == "Hello"
        assert SECRET in internet.arrivals[0].text
    else:
        with pytest.raises(RequestError, match="neither https nor on this machine"):
            invoke(agent)
        assert not internet.arrivals


# `.env` files.

DOTENV = """\
OPENAI_API_KEY=the-key-of-the-dotenv
OPENAI_BASE_URL=https://dotenv.example/v1
OPENAI_CUSTOM_HEADERS=X-Note: hidden
HTTPS_PROXY=http://127.0.0.1:9
SSL_CERT_FILE=/nowhere
PROMPTY_TRUSTED_ENDPOINTS=https://literal.example
"""


def load_beside_dotenv(folder: Path, connection: str) -> PromptAgent:
    (folder / ".env").write_text(DOTENV)
    (folder / "below").mkdir()
    file = folder / "below" / "p.prompty"
    file.write_text(f"---\nmodel: {{id: m, connection: {connection}}}\n---\nuser:\nHi")
    load_env(prompt=file)
    return load(file)


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("in_shell", [True, False])
def test_a_dotenv_sets_the_key_and_nothing_else_of_a_transport(
    in_shell: bool, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_shell:
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert invoke(load_beside_dotenv(tmp_path, "null")) == "Hello"
    (arrival,) = internet.arrivals
    assert arrival.origin == "https://api.openai.com"
    assert arrival.headers["authorization"] == f"Bearer {SECRET if in_shell else 'the-key-of-the-dotenv'}"
    assert "x-note" not in arrival.headers


@pytest.mark.usefixtures("clean_registry")
def test_a_dotenv_cannot_pass_a_key_of_the_environment_off_as_its_own(internet: Internet, tmp_path: Path) -> None:
    lines = ("OWN_URL=https://dotenv.example/v1", "OWN_KEY=${THE_KEY}", 'OWN_QUOTED="${THE_KEY}"')
    (tmp_path / ".env").write_text("\n".join(lines))
    for name in ("OWN_KEY", "OWN_QUOTED"):
        file = tmp_path / "p.prompty"
        connection = f"{{endpoint: '${{env:OWN_URL}}', apiKey: '${{env:{name}}}'}}"
        file.write_text(f"---\nmodel: {{id: m, connection: {connection}}}\n---\nuser:\nHi")
        load_env(prompt=file)
        assert invoke(load(file)) == "Hello"
        assert internet.arrivals[-1].headers["authorization"] == "Bearer ${THE_KEY}"


DOTENV_CONNECTIONS = {
    "{endpoint: '${env:OPENAI_BASE_URL}', apiKey: '${env:THE_KEY}'}": "n",
    "{endpoint: '${env:OPENAI_BASE_URL}', apiKey: '${env:OPENAI_API_KEY}'}": "y",
    "{endpoint: 'https://literal.example/v1', apiKey: '${env:OPENAI_API_KEY}'}": "n",
    "{endpoint: 'https://literal.example/v1', apiKey: '${env:THE_KEY}'}": "n",
}


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(("connection", "expected"), DOTENV_CONNECTIONS.items())
def test_an_origin_of_a_dotenv_gets_the_credentials_of_that_dotenv(
    connection: str, expected: str, internet: Internet, tmp_path: Path
) -> None:
    agent = load_beside_dotenv(tmp_path, connection)
    if expected == "n":
        assert observe(internet, agent) == "n"
    else:
        assert invoke(agent) == "Hello"
        assert internet.arrivals[0].headers["authorization"] == "Bearer the-key-of-the-dotenv"


@pytest.mark.usefixtures("clean_registry")
def test_a_dotenv_is_found_again_for_each_file(tmp_path: Path) -> None:
    load_beside_dotenv(tmp_path, "null")
    assert DEFAULT.dotenv["OPENAI_API_KEY"] == "the-key-of-the-dotenv"
    (tmp_path / ".env").unlink()
    load_env(prompt=tmp_path / "below" / "p.prompty")
    assert not DEFAULT.dotenv


# Before anything runs.


def test_check_reports_an_untrusted_endpoint_with_its_place_and_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", SECRET)
    monkeypatch.setenv("HOST_NAME", "around.example")
    monkeypatch.setenv("THE_URL", "https://variable.example")
    key = "apiKey: '${env:THE_KEY}'"
    tool = "- {name: %s, kind: %s, specification: a.json, connection: {endpoint: '%s', apiKey: '${env:THE_KEY}'}}"
    lines = [
        "model:",
        f"  connection: {{endpoint: 'https://literal.example', {key}}}",
        "tools:",
        tool % ("a", "openapi", "https://${env:HOST_NAME}/v1"),
        tool % ("b", "mcp", "https://literal.example"),
        tool % ("c", "mcp", "${env:THE_URL}"),
    ]
    (tmp_path / "p.prompty").write_text("\n".join(["---", *lines, "---", "user:", "Hi"]))
    problems = [one for one in check(tmp_path / "p.prompty") if one.code == "untrusted-variable"]
    assert [(one.line, one.key, one.severity) for one in problems] == [
        (3, "model.connection.apiKey", "warning"),
        (5, "tools.0.connection.apiKey", "warning"),
        (6, "tools.1.connection.apiKey", "warning"),
    ]
    assert "PROMPTY_TRUSTED_ENDPOINTS=https://literal.example" in problems[0].fix
    assert SECRET not in str(problems)


@pytest.mark.parametrize(
    ("endpoint", "reported"),
    [
        ("https://literal.example/v1", True),
        ("http://127.0.0.1:9/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://api.groq.com/openai/v1", False),
        ("${env:OPENAI_URL}", False),
    ],
)
def test_check_reports_a_connection_without_a_key_whose_call_is_refused(
    endpoint: str, reported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"OPENAI_URL": "https://variable.example", "OPENAI_API_KEY": SECRET, "GROQ_API_KEY": "g"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    text = f"---\nmodel: {{id: m, connection: {CREDENTIALS['implicit'] % endpoint}}}\n---\nuser:\nHi"
    (tmp_path / "p.prompty").write_text(text)
    problems = [one for one in check(tmp_path / "p.prompty") if one.code == "untrusted-endpoint"]
    assert [(one.key, "the connection has no `apiKey`" in one.message) for one in problems] == (
        [("model.connection.endpoint", True)] if reported else []
    )
    if reported:
        with pytest.raises(RequestError, match="the connection has no `apiKey`"):
            invoke(load(tmp_path / "p.prompty"), max_retries=0)


def test_check_knows_what_the_environment_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTY_TRUSTED_ENDPOINTS", "https://literal.example")
    text = f"---\nmodel: {{connection: {VARIABLE_KEY % 'https://literal.example/v1'}}}\n---\nuser:\nHi"
    (tmp_path / "p.prompty").write_text(text)
    assert "untrusted-endpoint" not in {one.code for one in check(tmp_path / "p.prompty")}


def test_explain_shows_that_a_call_would_be_refused(tmp_path: Path) -> None:
    agent = load_prompt(VARIABLE_KEY % "https://literal.example/v1", tmp_path, env={"THE_KEY": SECRET})
    assert "PROMPTY_TRUSTED_ENDPOINTS=https://literal.example" in str(explain(agent).refused)
    assert (
        explain(load_prompt(VARIABLE_KEY % "https://api.openai.com/v1", tmp_path, env={"THE_KEY": SECRET})).refused
        is None
    )


@pytest.mark.parametrize("url", ["https://[::1].evil.example/a", "https://[2001:db8::1]evil.example/a"])
def test_a_service_has_no_such_url_either(url: str) -> None:
    with pytest.raises(ToolError, match="is not an absolute http"):
        parse_url(url)


LOOPBACK = [
    "http://user@[::1]:8000/v1",
    "http://localhost:8000",
    "http://127.0.0.1",
    "http://127.8.9.10:1/v1",
    "http://[::1]:80/",
    "http://[::ffff:127.0.0.1]",
]
ELSEWHERE = [
    "http://localhost.example",
    "http://127.0.0.1.example",
    "http://0.0.0.0",
    "http://128.0.0.1",
    "http://[::2]",
]


@pytest.mark.parametrize("url", LOOPBACK)
def test_loopback_is_this_machine(url: str) -> None:
    origin = parse_origin(url)
    assert origin is not None
    assert origin.is_loopback


@pytest.mark.parametrize("url", ELSEWHERE)
def test_other_hosts_are_not(url: str) -> None:
    origin = parse_origin(url)
    assert origin is not None
    assert not origin.is_loopback


AMBIGUOUS = [
    "https://a\\@b",
    "https://a b",
    "https://a@b@c",
    "https://ü.example",
    "https://a\tb",
    "ftp://a",
    "//a",
    "a",
    "https://a%2eb",
    "https://",
    "http://[::1].evil.example/",
    "http://[::1]evil.example/",
    "http://[::1].evil.example:80/",
    "http://a[::1]/",
    "https://u@[::1].evil.example/",
]


@pytest.mark.parametrize("url", AMBIGUOUS)
def test_a_url_that_two_parsers_may_read_differently_has_no_origin(url: str) -> None:
    assert parse_origin(url) is None


def test_check_warns_of_the_endpoint_of_a_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTY_TEST_KEY", "of-the-environment")
    path = tmp_path / "a.prompty"
    path.write_text(
        "---\nmodel: {id: m, provider: scripted, script: [Hi]}\n"
        "metadata:\n  fallbacks:\n    - id: f\n      provider: openai\n"
        "      connection: {kind: key, endpoint: 'https://elsewhere.invalid/v1', apiKey: '${env:PROMPTY_TEST_KEY}'}\n"
        "---\nuser:\nHi\n"
    )
    [problem] = [one for one in check(path) if one.code == "untrusted-variable"]
    assert (problem.line, problem.severity) == (7, "warning")
    with pytest.raises(RequestError, match=r"a\.prompty:7:\d+: `metadata\.fallbacks\.0\.connection\.apiKey`"):
        invoke(path)
