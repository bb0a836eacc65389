"""Requests to Bedrock are signed with the AWS credentials of the machine if there is no key."""

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.credentials import RefreshableCredentials  # type: ignore[import-untyped]  # it has no types

from prompty import PromptAgent, loads
from prompty.certificates import load_certificates
from prompty.clients import Clients
from prompty.errors import ModelError, RequestError
from prompty.pipeline import run
from prompty.providers.aws import find_signature
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat, Messages
from tests.internet import Arrival, Internet

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
TOKEN = "IQoJb3JpZ2luX2VjEXAMPLETOKEN0123456789"
SERVERS = {
    "openai": ("https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "bedrock", "eu-west-1"),
    "anthropic": ("https://bedrock-mantle.us-east-1.api.aws/anthropic", "bedrock-mantle", "us-east-1"),
}
ANSWERS = {"openai": Chat().whole("Hello"), "anthropic": Messages().whole("Hello")}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AWS credentials in the environment, and none elsewhere."""
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)


@pytest.fixture
def internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    names = [url.split("/")[2] for url, _, _ in SERVERS.values()]
    with Internet(tmp_path, names, ANSWERS["openai"]) as internet:
        internet.use(monkeypatch.setenv)
        load_certificates.cache_clear()
        yield internet
        close_clients()
    load_certificates.cache_clear()


def agent_at(url: str, provider: str = "openai") -> PromptAgent:
    connection = f"{{kind: key, endpoint: '{url}'}}"
    return loads(f"---\nmodel: {{id: m, provider: {provider}, connection: {connection}}}\n---\nuser:\nHi")


def sign_again(arrival: Arrival, service: str, region: str) -> str:
    """Return the signature of a request, computed as the documentation of AWS describes it."""
    date = arrival.headers["x-amz-date"]
    names = ("content-type", "host", "x-amz-date", "x-amz-security-token")
    signed = "".join(f"{name}:{arrival.headers[name]}\n" for name in names)
    request = "\n".join(["POST", arrival.path, "", signed, ";".join(names), hashlib.sha256(arrival.body).hexdigest()])
    scope = f"{date[:8]}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


@pytest.mark.parametrize("provider", SERVERS)
def test_a_request_without_a_key_is_signed(provider: str, internet: Internet) -> None:
    url, service, region = SERVERS[provider]
    internet.answer = json.dumps(ANSWERS[provider]).encode()
    assert run(agent_at(url, provider), [{"role": "user", "content": "Hi ünder"}], max_retries=0) == "Hello"
    (arrival,) = internet.arrivals
    scheme, _, fields = arrival.headers["authorization"].partition(" ")
    found = dict(field.strip().split("=", 1) for field in fields.split(","))
    assert scheme == "AWS4-HMAC-SHA256"
    assert re.fullmatch(rf"AKIAIOSFODNN7EXAMPLE/\d{{8}}/{region}/{service}/aws4_request", found["Credential"])
    assert found["Signature"] == sign_again(arrival, service, region)
    assert "x-api-key" not in arrival.headers


def test_a_key_takes_precedence_over_a_signature(internet: Internet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "the-key")
    run(agent_at(SERVERS["openai"][0]), [{"role": "user", "content": "Hi"}], max_retries=0)
    (arrival,) = internet.arrivals
    assert arrival.headers["authorization"] == "Bearer the-key"


@pytest.mark.parametrize(
    "url",
    [
        "https://bedrock-runtime.eu-west-1.amazonaws.com.evil.example/v1",
        "https://evil.example/bedrock-runtime.eu-west-1.amazonaws.com",
        "https://s3.eu-west-1.amazonaws.com/v1",
        "http://bedrock-runtime.eu-west-1.amazonaws.com/v1",
        "https://bedrock-runtime.eu-west-1.amazonaws.com:8443/v1",
    ],
)
def test_no_other_server_gets_a_signature(url: str, internet: Internet) -> None:
    with pytest.raises(RequestError, match=r"no `apiKey`|neither https"):
        run(agent_at(url), [{"role": "user", "content": "Hi"}], max_retries=0)
    assert internet.arrivals == []


def test_without_credentials_the_error_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(RequestError, match="no AWS credentials on this machine") as caught:
        run(agent_at(SERVERS["openai"][0]), [{"role": "user", "content": "Hi"}], max_retries=0)
    assert "AWS_BEARER_TOKEN_BEDROCK" in str(caught.value)


def test_a_server_that_repeats_what_it_got_reveals_no_secret(internet: Internet) -> None:
    run(agent_at(SERVERS["openai"][0]), [{"role": "user", "content": "Hi"}], max_retries=0)
    signature = internet.arrivals[0].headers["authorization"]
    internet.answer = json.dumps({"error": {"message": f"{signature} {SECRET} {TOKEN}"}}).encode()
    with pytest.raises(ModelError) as caught:
        run(agent_at(SERVERS["openai"][0]), [{"role": "user", "content": "Hi"}], max_retries=0)
    for secret in (signature.rpartition("=")[2], SECRET, TOKEN):
        assert secret not in str(caught.value)


def test_credentials_that_expire_are_renewed_in_a_thread_and_others_are_ready() -> None:
    signature = find_signature(SERVERS["openai"][0], Clients())
    assert signature
    assert not signature.is_ready()
    signature.headers("POST", SERVERS["openai"][0], {"content-type": "application/json"}, b"{}")
    assert signature.is_ready()
    signature._credentials = RefreshableCredentials.create_from_metadata(
        {"access_key": "a", "secret_key": "b", "token": "c", "expiry_time": "2020-01-01T00:00:00Z"},
        refresh_using=dict,
        method="test",
    )
    assert not signature.is_ready()
