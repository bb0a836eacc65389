"""What OpenAPI tools do with credentials: send them where the document says, and show them to nobody."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from prompty import loads
from tests.loopback import Server, json_reply, reply
from tests.tools.openapi_parts import (
    KEY,
    PLAIN,
    agent_of,
    called,
    one_operation,
    refusal,
    result_of,
)


def secured(**scheme: Any) -> dict[str, Any]:
    """A document with one scheme."""
    return one_operation({}, security=[{"s": []}], components={"securitySchemes": {"s": scheme}})


SCHEMES: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing said": (PLAIN, "authorization", f"Bearer {KEY}"),
    "bearer": (secured(type="http", scheme="Bearer"), "authorization", f"Bearer {KEY}"),
    "header": (secured(type="apiKey", name="X-Key", **{"in": "header"}), "x-key", KEY),
    "cookie": (secured(type="apiKey", name="sid", **{"in": "cookie"}), "cookie", f"sid={KEY}"),
    "oauth2": (secured(type="oauth2", flows={}), "authorization", f"Bearer {KEY}"),
    "not asked for in words": (
        one_operation({}, components={"securitySchemes": {"s": {"type": "apiKey", "name": "K", "in": "header"}}}),
        "k",
        KEY,
    ),
}


@pytest.mark.parametrize(("data", "header", "value"), SCHEMES.values(), ids=SCHEMES)
def test_a_key_goes_where_the_document_says(
    service: Server, tmp_path: Path, data: dict[str, Any], header: str, value: str
) -> None:
    called(agent_of(tmp_path, data, connection={"endpoint": service.url, "apiKey": KEY}), {})
    assert service.requests[0].headers[header] == value
    assert sum(KEY in text for text in service.requests[0].headers.values()) == 1


def test_a_key_of_the_query(service: Server, tmp_path: Path) -> None:
    data = secured(type="apiKey", name="key", **{"in": "query"})
    data["paths"]["/thing"]["get"]["parameters"] = [{"name": "key", "in": "query", "schema": {}}]
    called(agent_of(tmp_path, data, connection={"endpoint": service.url, "apiKey": "a b&c"}), {"key": "model's"})
    assert service.requests[0].path == "/thing?key=a%20b%26c"


def test_a_name_and_a_password(service: Server, tmp_path: Path) -> None:
    data = secured(type="http", scheme="basic")
    called(agent_of(tmp_path, data, connection={"endpoint": service.url, "apiKey": "ada:pass"}), {})
    assert service.requests[0].headers["authorization"] == f"Basic {base64.b64encode(b'ada:pass').decode()}"


def test_an_operation_that_takes_no_credential_gets_none(service: Server, tmp_path: Path) -> None:
    data = secured(type="http", scheme="bearer")
    data["paths"]["/thing"]["get"]["security"] = []
    called(agent_of(tmp_path, data, connection={"endpoint": service.url, "apiKey": KEY}), {})
    assert KEY not in str(service.requests)


def test_the_document_is_fetched_without_the_credential(service: Server, tmp_path: Path) -> None:
    service.answer(json_reply(PLAIN), json_reply("ok"))
    called(agent_of(tmp_path, f"{service.url}/own.json", connection={"apiKey": KEY}), {})
    assert KEY not in str(service.requests[0])
    assert KEY in str(service.requests[1])


ECHOES: dict[str, dict[str, Any]] = {
    "bearer": PLAIN,
    "basic": secured(type="http", scheme="basic"),
    "query": secured(type="apiKey", name="key", **{"in": "query"}),
}


@pytest.mark.parametrize("status", [200, 403, 500])
@pytest.mark.parametrize("data", ECHOES.values(), ids=ECHOES)
def test_a_service_that_repeats_the_credential_shows_it_to_nobody(
    service: Server, tmp_path: Path, data: dict[str, Any], status: int
) -> None:
    secret = f"ada:{KEY}/+&"
    pair = base64.b64encode(secret.encode()).decode()
    echo = f"{secret} Bearer {secret} {pair} ada%3A{KEY}%2F%2B%26 the end"
    service.answer(reply(echo.encode(), status=status, headers={"content-type": "text/plain"}))
    agent = agent_of(tmp_path, data, connection={"endpoint": service.url, "apiKey": secret})
    seen = called(agent, {})
    told = result_of(seen)
    assert KEY not in str(seen.events)
    assert told.endswith("the end")
    if "basic" in str(data):
        assert pair not in told


@pytest.mark.parametrize("key", ["", "a\nb", "é"])
def test_a_key_that_cannot_be_sent_is_an_error(service: Server, tmp_path: Path, key: str) -> None:
    agent = agent_of(tmp_path, PLAIN, connection={"kind": "key", "endpoint": service.url, "apiKey": key})
    assert "cannot be sent" in result_of(called(agent, {}))
    assert service.requests == []


def test_other_kinds_of_connections_are_refused(tmp_path: Path) -> None:
    agent = agent_of(tmp_path, PLAIN, connection={"kind": "reference", "name": "x"})
    assert "cannot use a connection of kind 'reference'" in refusal(agent)


def oauth(service: Server, **parts: Any) -> dict[str, Any]:
    return {
        "kind": "oauth",
        "endpoint": service.url,
        "tokenUrl": f"{service.url}/token",
        "clientId": "me",
        "clientSecret": KEY,
        "scopes": ["read", "write"],
        **parts,
    }


def test_a_token_is_fetched_once(service: Server, tmp_path: Path) -> None:
    service.answer(json_reply({"access_token": "token-of-today", "expires_in": 3600}), json_reply("ok"))
    agent = agent_of(tmp_path, PLAIN, connection=oauth(service))
    called(agent, {})
    called(agent, {})
    token, first, second = service.requests
    assert token.path == "/token"
    assert token.content == b"grant_type=client_credentials&scope=read+write"
    assert token.headers["authorization"] == f"Basic {base64.b64encode(f'me:{KEY}'.encode()).decode()}"
    assert first.headers["authorization"] == second.headers["authorization"] == "Bearer token-of-today"


def test_a_token_that_ends_or_is_refused_is_fetched_again(service: Server, tmp_path: Path) -> None:
    short = json_reply({"access_token": "token-a", "expires_in": 1})
    long = json_reply({"access_token": "token-b", "expires_in": 3600})
    service.answer(short, json_reply("ok"), long, reply(b"", status=401), long, json_reply("ok"))
    agent = agent_of(tmp_path, PLAIN, connection=oauth(service))
    for _ in range(3):
        called(agent, {})
    assert [request.path for request in service.requests] == ["/token", "/thing"] * 3


@pytest.mark.parametrize("answer", [reply(KEY.encode(), status=400), json_reply([]), reply(b"no"), json_reply({})])
def test_a_token_that_does_not_come_is_an_error(service: Server, tmp_path: Path, answer: Any) -> None:
    service.answer(answer)
    told = result_of(called(agent_of(tmp_path, PLAIN, connection=oauth(service)), {}))
    assert "no access token" in told
    assert KEY not in told


def test_the_secret_goes_to_the_token_url_of_the_connection_only(
    service: Server, elsewhere: Server, tmp_path: Path
) -> None:
    flows = {"clientCredentials": {"tokenUrl": f"{elsewhere.url}/token", "scopes": {}}}
    agent = agent_of(tmp_path, secured(type="oauth2", flows=flows), connection=oauth(service, tokenUrl=None))
    assert "lacks `tokenUrl`" in result_of(called(agent, {}))
    agent = agent_of(tmp_path, PLAIN, connection=oauth(service, tokenUrl=f"{elsewhere.url}/token"))
    assert "which is not public" in result_of(called(agent, {}))
    assert elsewhere.accepted == 0


# Where a credential of the environment may go.

OUTSIDE = "{name: api, kind: openapi, specification: api.json, %s}"
PLACES = {
    "connection: {endpoint: 'https://literal.example', apiKey: '${env:API_KEY}'}": True,
    "connection: {endpoint: '${env:NOT_SET:https://literal.example}', apiKey: '${env:API_KEY}'}": True,
    "connection: {endpoint: 'https://literal.example/${env:API_KEY}'}": True,
    "connection: {endpoint: 'https://literal.example'}, bindings: {q: '${env:API_KEY}'}": True,
    "connection: {kind: oauth, endpoint: '{service}', tokenUrl: 'https://literal.example', clientId: c, "
    "clientSecret: '${env:API_KEY}'}": True,
    "connection: {endpoint: '${env:API_URL}', apiKey: '${env:API_KEY}'}": False,
    "connection: {endpoint: '{service}', apiKey: '${env:API_KEY}'}": False,
    "connection: {endpoint: '{service}', apiKey: literal}, bindings: {q: '${env:API_KEY}'}": True,
}


@pytest.mark.parametrize(("place", "refused"), PLACES.items())
def test_a_credential_of_the_environment_goes_where_the_environment_says(
    service: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, refused: bool
) -> None:
    parameter = {"name": "q", "in": "query", "schema": {"type": "string"}}
    (tmp_path / "api.json").write_text(json.dumps(one_operation({"parameters": [parameter]})))
    monkeypatch.setenv("API_KEY", KEY)
    monkeypatch.setenv("API_URL", service.url)
    tool = OUTSIDE % place.replace("{service}", service.url)
    agent = loads(f"---\nmodel: {{id: m, provider: scripted}}\ntools: [{tool}]\n---\nuser:\nHi", base_dir=tmp_path)
    seen = called(agent, {})
    if refused:
        assert "the value of API_KEY would" in str(seen.error)
        assert "PROMPTY_" in str(seen.error)
        assert not service.requests
    else:
        assert KEY in f"{service.requests[-1].path} {service.requests[-1].headers}"


def test_a_document_that_the_file_names_gets_no_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", KEY)
    tool = "{name: api, kind: openapi, specification: 'https://literal.example/${env:API_KEY}.json'}"
    agent = loads(f"---\nmodel: {{id: m, provider: scripted}}\ntools: [{tool}]\n---\nuser:\nHi", base_dir=tmp_path)
    assert "the value of API_KEY would be sent" in str(called(agent, {}).error)
