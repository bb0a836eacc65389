"""Where OpenAPI tools must not go: where nobody sent them, and to addresses that are not public."""

import re
from ipaddress import ip_address
from pathlib import Path

import pytest

from prompty.errors import ToolError
from prompty.openapi import allow
from prompty.registry import Registry
from prompty.safety.origins import is_public
from prompty.tools.openapi.client import Permissions, parse_url
from tests.loopback import Server, json_reply, reply
from tests.tools.openapi_parts import (
    KEY,
    PLAIN,
    agent_of,
    called,
    one_operation,
    own_kind,
    refusal,
    resolve,
    result_of,
)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_and_carries_nothing(
    service: Server, elsewhere: Server, tmp_path: Path, status: int
) -> None:
    service.answer(reply(b"", status=status, headers={"location": f"{elsewhere.url}/?k={KEY}"}))
    agent = agent_of(tmp_path, PLAIN, connection={"endpoint": service.url, "apiKey": KEY})
    assert f"failed: {status} Scripted: the service sent a redirect" in result_of(called(agent, {}))
    assert elsewhere.accepted == 0


def test_a_document_that_is_fetched_is_not_fetched_from_elsewhere(
    service: Server, elsewhere: Server, tmp_path: Path
) -> None:
    service.answer(reply(b"", status=302, headers={"location": elsewhere.url}))
    assert "cannot fetch the OpenAPI document: 302" in refusal(agent_of(tmp_path, f"{service.url}/moved.json"))
    assert elsewhere.accepted == 0


@pytest.mark.spec("000 §7.1.3", "an openapi tool calls the servers of its document")
def test_a_file_alone_does_not_say_where_requests_go(service: Server, tmp_path: Path) -> None:
    agent = agent_of(tmp_path, one_operation({}, servers=[{"url": service.url}]))
    assert f"allow(servers=['{service.url}'])" in refusal(agent)
    with own_kind(f"127.0.0.1:{service.port}", servers=(service.url,)):
        assert result_of(called(agent, {})) == '{"ok": true}'


def test_places_are_allowed_in_one_registry_alone(service: Server, tmp_path: Path) -> None:
    registry = Registry()
    allow(hosts=[f"127.0.0.1:{service.port}"], servers=[service.url], registry=registry)
    agent = agent_of(tmp_path, one_operation({}, servers=[{"url": service.url}]))
    assert result_of(called(agent.model_copy(update={"registry": registry}), {})) == '{"ok": true}'
    assert f"allow(servers=['{service.url}'])" in refusal(agent)
    assert f"allow(servers=['{service.url}'])" in refusal(agent.model_copy(update={"registry": Registry()}))


def test_a_file_without_a_server_needs_an_endpoint(tmp_path: Path) -> None:
    assert "has no server URL" in refusal(agent_of(tmp_path, PLAIN))


def test_a_document_names_no_server_of_another_origin(service: Server, elsewhere: Server, tmp_path: Path) -> None:
    service.answer(json_reply(one_operation({}, servers=[{"url": elsewhere.url}])))
    agent = agent_of(tmp_path, f"{service.url}/foreign.json", connection={"apiKey": KEY})
    assert f"names the server {elsewhere.url}" in refusal(agent)
    assert elsewhere.accepted == 0


def test_an_operation_names_no_server_of_another_origin(service: Server, elsewhere: Server, tmp_path: Path) -> None:
    data = one_operation({"servers": [{"url": elsewhere.url}]})
    agent = agent_of(tmp_path, data, connection={"endpoint": service.url, "apiKey": KEY})
    assert f"its operation 'act' names the server {elsewhere.url}" in result_of(called(agent, {}))
    assert service.accepted == elsewhere.accepted == 0


def test_an_operation_may_have_a_path_of_its_own_below_the_endpoint(service: Server, tmp_path: Path) -> None:
    data = one_operation({"servers": [{"url": "/v1/other"}]})
    called(agent_of(tmp_path, data, connection={"endpoint": f"{service.url}/v1"}), {})
    assert service.requests[0].path == "/v1/other/thing"


@pytest.mark.parametrize("path", ["/other", "/v10", "/v1/../other", "/v1/%2e%2e/other", "/v1/..%2fother", "/"])
def test_an_operation_does_not_leave_the_path_of_the_endpoint(service: Server, tmp_path: Path, path: str) -> None:
    data = one_operation({"servers": [{"url": path}]})
    agent = agent_of(tmp_path, data, connection={"endpoint": f"{service.url}/v1", "apiKey": KEY})
    assert "is not below the endpoint" in result_of(called(agent, {}))
    assert service.requests == []
    with own_kind(f"127.0.0.1:{service.port}", servers=(service.url,)):
        assert result_of(called(agent, {})) == '{"ok": true}'


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "127.1", "[::1]", "[::ffff:127.0.0.1]"])
def test_addresses_that_are_not_public_need_the_word_of_the_host(elsewhere: Server, tmp_path: Path, host: str) -> None:
    agent = agent_of(tmp_path, PLAIN, connection={"endpoint": f"http://{host}:{elsewhere.port}"})
    with own_kind():
        told = result_of(called(agent, {}))
    assert "which is not public" in told
    assert "allow(hosts=[" in told
    assert elsewhere.accepted == 0


ADDRESSES = {
    "8.8.8.8": True,
    "2606:4700::1111": True,
    "fec0::1": False,
    "feff::1": False,
    "64:ff9b:1::808:808": False,
    "::127.0.0.1": False,
    "::8.8.8.8": False,
    "5f00::1": False,
    "3fff::1": False,
    "10.1.2.3": False,
    "172.16.0.1": False,
    "192.168.1.1": False,
    "169.254.169.254": False,
    "100.64.0.1": False,
    "224.0.0.1": False,
    "0.0.0.0": False,  # noqa: S104  nobody listens
    "::": False,
    "fe80::1": False,
    "fd00:ec2::254": False,
    "::ffff:169.254.169.254": False,
    "64:ff9b::7f00:1": False,
    "64:ff9b::808:808": True,
    "2002:7f00:1::": False,
}


@pytest.mark.parametrize(("address", "public"), ADDRESSES.items(), ids=str)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(ip_address(address)) is public


def test_what_is_public_needs_https() -> None:
    permissions = Permissions()
    permissions.check(parse_url("https://api.example"), ["8.8.8.8"])
    with pytest.raises(ToolError, match="is not https"):
        permissions.check(parse_url("http://api.example"), ["8.8.8.8"])
    permissions.allow(hosts=["8.8.8.0/24"])
    permissions.check(parse_url("http://api.example"), ["8.8.8.8"])


@pytest.mark.parametrize("url", ["http://LOCALHOST:81", "http://[::1]:81", "http://[::1]", "http://10.0.0.1:81"])
def test_what_an_error_proposes_to_allow_is_then_allowed(url: str) -> None:
    permissions, place = Permissions(), parse_url(url)
    with pytest.raises(ToolError) as caught:
        permissions.check(place, ["127.0.0.1"])
    permissions.allow(hosts=re.findall(r"hosts=\['(.*?)'\]", str(caught.value)))
    permissions.check(place, ["127.0.0.1"])


def test_every_address_of_a_name_must_be_public() -> None:
    with pytest.raises(ToolError, match=re.escape("10.0.0.1, which is not public")):
        Permissions().check(parse_url("https://api.example"), ["8.8.8.8", "10.0.0.1"])


@pytest.mark.parametrize(
    "url",
    ["https://user:pw@host/", "ftp://host/", "//host/", "https:///x", "https://ho st/", "https://a\\@b/", "https://é/"],
)
def test_urls_that_could_be_misread_are_refused(url: str) -> None:
    with pytest.raises(ToolError):
        parse_url(url)


def test_the_address_that_was_checked_is_the_one_that_is_used(
    service: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    agent = agent_of(tmp_path, PLAIN, connection={"endpoint": f"http://service.test:{service.port}"})
    with own_kind(f"service.test:{service.port}"):
        asked = resolve(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
        assert result_of(called(agent, {})) == '{"ok": true}'
    assert asked == ["service.test"]
    assert service.requests[0].headers["host"] == f"service.test:{service.port}"


def test_a_name_that_turns_private_is_refused(
    elsewhere: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(tmp_path, PLAIN, connection={"endpoint": f"https://api.example:{elsewhere.port}"})
    resolve(monkeypatch, ["127.0.0.1"])
    with own_kind():
        assert "127.0.0.1, which is not public" in result_of(called(agent, {}))
    assert elsewhere.accepted == 0


@pytest.mark.parametrize("place", ["../api.json", "/etc/hostname", "link.json"])
def test_a_document_lies_below_its_prompt(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "below"
    folder.mkdir()
    (tmp_path / "api.json").write_text("{}")
    (folder / "link.json").symlink_to(tmp_path / "api.json")
    agent = agent_of(folder, PLAIN, specification=place)
    assert "is not below the prompt's folder" in refusal(agent)


def test_a_document_that_is_not_there_or_no_file_is_an_error(tmp_path: Path) -> None:
    assert "cannot read the OpenAPI document" in refusal(agent_of(tmp_path, PLAIN, specification="none.json"))
    (tmp_path / "folder").mkdir()
    assert "not a regular file" in refusal(agent_of(tmp_path, PLAIN, specification="folder"))
