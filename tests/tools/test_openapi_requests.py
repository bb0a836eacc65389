"""Calls of OpenAPI tools against a service on loopback: every place, style and body arrives as the model meant it."""

import json
from collections.abc import Iterator
from email.parser import BytesParser
from email.policy import HTTP
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given, settings, strategies as st

from prompty.tools.openapi.request import build_call
from tests.loopback import Request, Server, json_reply, reply
from tests.tools.openapi_parts import agent_of, called, document, one_operation, operation_of, own_kind, result_of
from tests.ways import Way, sync_and_async


@pytest.fixture
def service() -> Iterator[Server]:
    """A service that answers everything, and that the host allows."""
    with Server() as server, own_kind(f"127.0.0.1:{server.port}"):
        server.answer(json_reply({"ok": True}))
        yield server


def sent(service: Server, folder: Path, data: dict[str, Any], arguments: dict[str, Any]) -> Request:
    """The request that a call makes."""
    agent = agent_of(folder, data, connection={"endpoint": f"{service.url}/v1/"})
    assert result_of(called(agent, arguments)) == '{"ok": true}'
    return service.requests[-1]


SCALAR, LIST, OBJECT = "blue", ["blue", "black"], {"R": 100, "G": 200}
PATHS = {
    "simple": (False, SCALAR, "blue"),
    "simple list": (False, LIST, "blue,black"),
    "simple object": (False, OBJECT, "R,100,G,200"),
    "simple object exploded": (True, OBJECT, "R=100,G=200"),
    "a slash": (False, "a/b?c#d %", "a%2Fb%3Fc%23d%20%25"),
    "braces": (False, "{color}", "%7Bcolor%7D"),
    "a letter with an accent": (False, "é", "%C3%A9"),
    "a number": (False, 1.5, "1.5"),
    "a truth": (False, True, "true"),
}


@pytest.mark.parametrize(("explode", "value", "expected"), PATHS.values(), ids=PATHS)
def test_path_parameters(service: Server, tmp_path: Path, explode: bool, value: Any, expected: str) -> None:
    parameter = {"name": "color", "in": "path", "explode": explode, "schema": {}}
    data = one_operation({"parameters": [parameter]}, "/a/{color}/b")
    assert sent(service, tmp_path, data, {"color": value}).path == f"/v1/a/{expected}/b"


QUERIES = {
    "form": ("form", None, SCALAR, "color=blue"),
    "form list": ("form", None, LIST, "color=blue&color=black"),
    "form list in one": ("form", False, LIST, "color=blue,black"),
    "form object": ("form", None, OBJECT, "R=100&G=200"),
    "form object in one": ("form", False, OBJECT, "color=R,100,G,200"),
    "form of nothing": ("form", False, [], ""),
    "space": ("spaceDelimited", False, LIST, "color=blue%20black"),
    "space object": ("spaceDelimited", False, OBJECT, "color=R%20100%20G%20200"),
    "space exploded": ("spaceDelimited", True, LIST, "color=blue&color=black"),
    "pipe": ("pipeDelimited", False, LIST, "color=blue%7Cblack"),
    "pipe object": ("pipeDelimited", False, OBJECT, "color=R%7C100%7CG%7C200"),
    "deep": ("deepObject", True, OBJECT, "color%5BR%5D=100&color%5BG%5D=200"),
    "deeper": ("deepObject", True, {"a": {"b": [1, 2]}}, "color%5Ba%5D%5Bb%5D=1&color%5Ba%5D%5Bb%5D=2"),
    "another parameter inside": ("form", None, "a&admin=1#x", "color=a%26admin%3D1%23x"),
    "an object inside a list": ("form", None, [{"a": 1}], "color=%7B%22a%22%3A1%7D"),
}


@pytest.mark.parametrize(("style", "explode", "value", "expected"), QUERIES.values(), ids=QUERIES)
def test_query_parameters(
    service: Server, tmp_path: Path, style: str, explode: bool | None, value: Any, expected: str
) -> None:
    parameter: dict[str, Any] = {"name": "color", "in": "query", "style": style, "schema": {}}
    if explode is not None:
        parameter["explode"] = explode
    path = sent(service, tmp_path, one_operation({"parameters": [parameter]}), {"color": value}).path
    assert path == ("/v1/thing?" + expected if expected else "/v1/thing")


def test_reserved_characters_stay_where_the_document_says_so(service: Server, tmp_path: Path) -> None:
    parameter = {"name": "url", "in": "query", "allowReserved": True, "schema": {}}
    path = sent(service, tmp_path, one_operation({"parameters": [parameter]}), {"url": "http://a/b?c&d=e#f"}).path
    assert path == "/v1/thing?url=http://a/b?c%26d%3De%23f"


def test_a_parameter_with_content_is_json(service: Server, tmp_path: Path) -> None:
    content = {"application/json": {"schema": {"type": "object"}}}
    data = one_operation({"parameters": [{"name": "filter", "in": "query", "content": content}]})
    path = sent(service, tmp_path, data, {"filter": {"a": [1, "é"]}}).path
    assert json.loads(parse_qs(urlsplit(path).query)["filter"][0]) == {"a": [1, "é"]}


def test_headers_and_cookies(service: Server, tmp_path: Path) -> None:
    parameters: list[dict[str, Any]] = [
        {"name": "X-Colors", "in": "header", "schema": {}},
        {"name": "X-Parts", "in": "header", "explode": True, "schema": {}},
        {"name": "theme", "in": "cookie", "schema": {}},
        {"name": "ids", "in": "cookie", "explode": False, "schema": {}},
    ]
    arguments = {"X-Colors": ["a b", "c"], "X-Parts": OBJECT, "theme": "dark; admin=1", "ids": [1, 2]}
    headers = sent(service, tmp_path, one_operation({"parameters": parameters}), arguments).headers
    assert headers["x-colors"] == "a b,c"
    assert headers["x-parts"] == "R=100,G=200"
    cookies = {name: unquote(one.value) for name, one in SimpleCookie(headers["cookie"]).items()}
    assert cookies == {"theme": "dark; admin=1", "ids": "1,2"}


def test_a_parameter_of_two_places_goes_to_both(service: Server, tmp_path: Path) -> None:
    parameters = [{"name": "id", "in": place, "schema": dict[str, Any]()} for place in ("path", "query")]
    data = one_operation({"parameters": parameters}, "/a/{id}")
    assert sent(service, tmp_path, data, {"path_id": "p", "query_id": "q"}).path == "/v1/a/p?id=q"


def with_body(schema: dict[str, Any], media_type: str, **media: Any) -> dict[str, Any]:
    content = {media_type: {"schema": schema, **media}}
    return one_operation({"requestBody": {"required": True, "content": content}}, method="post")


FIELDS = {"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array"}, "at[x]": {}}}
GIVEN = {"name": "a&b=c é", "tags": ["x", "y"], "at_x": {"k": 1}}


def test_a_body_of_json(service: Server, tmp_path: Path) -> None:
    request = sent(service, tmp_path, with_body(FIELDS, "application/json"), GIVEN)
    assert request.headers["content-type"] == "application/json"
    assert request.body == {"name": "a&b=c é", "tags": ["x", "y"], "at[x]": {"k": 1}}


def test_a_whole_body_of_json(service: Server, tmp_path: Path) -> None:
    data = with_body({"type": "array"}, "application/merge-patch+json")
    request = sent(service, tmp_path, data, {"body": [1, None]})
    assert request.headers["content-type"] == "application/merge-patch+json"
    assert json.loads(request.content) == [1, None]


def test_a_body_of_a_form(service: Server, tmp_path: Path) -> None:
    request = sent(service, tmp_path, with_body(FIELDS, "application/x-www-form-urlencoded"), GIVEN)
    pairs = parse_qsl(request.content.decode(), strict_parsing=True)
    assert pairs == [("name", "a&b=c é"), ("tags", "x"), ("tags", "y"), ("at[x]", '{"k":1}')]


def test_a_form_with_an_encoding(service: Server, tmp_path: Path) -> None:
    encoding = {"tags": {"style": "spaceDelimited", "explode": False}, "at[x]": {"style": "deepObject"}}
    data = with_body(FIELDS, "application/x-www-form-urlencoded", encoding=encoding)
    request = sent(service, tmp_path, data, GIVEN)
    assert request.content.endswith(b"&tags=x%20y&at%5Bx%5D%5Bk%5D=1")


def test_a_body_of_several_parts(service: Server, tmp_path: Path) -> None:
    request = sent(service, tmp_path, with_body(FIELDS, "multipart/form-data"), GIVEN)
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    message = BytesParser(policy=HTTP).parsebytes(head + request.content)
    parts: list[Any] = list(message.iter_parts())
    found = [(part.get_param("name", header="content-disposition"), part.get_payload(decode=True)) for part in parts]
    assert found == [("name", "a&b=c é".encode()), ("tags", b"x"), ("tags", b"y"), ("at[x]", b'{"k":1}')]


def test_a_body_of_text(service: Server, tmp_path: Path) -> None:
    request = sent(service, tmp_path, with_body({"type": "string"}, "text/x-markdown"), {"body": "# é"})
    assert (request.headers["content-type"], request.content) == ("text/x-markdown", "# é".encode())


def test_a_call_without_its_optional_body_has_none(service: Server, tmp_path: Path) -> None:
    content = {"application/json": {"schema": {"type": "object", "properties": {"a": {}}}}}
    data = one_operation({"requestBody": {"content": content}}, method="post")
    request = sent(service, tmp_path, data, {})
    assert request.content == b""
    assert "content-type" not in request.headers


@pytest.mark.spec("003 §2.9", "the document of an openapi tool is a path or a URL")
@pytest.mark.spec("000 §7.1.3", "an openapi tool is one function for each operation")
@sync_and_async
def test_a_turn_calls_the_service(service: Server, tmp_path: Path, way: Way) -> None:
    service.answer(json_reply({"name": "Rex"}))
    parameter = {"name": "id", "in": "path", "schema": {"type": "integer"}}
    agent = agent_of(
        tmp_path, one_operation({"parameters": [parameter]}, "/p/{id}"), connection={"endpoint": service.url}
    )
    seen = called(agent, {"id": 7}, way=way)
    assert result_of(seen) == '{"name": "Rex"}'
    assert seen.result == "Done."
    assert service.requests[0].path == "/p/7"
    assert service.requests[0].headers["user-agent"].startswith("prompty/")


WRONG: list[dict[str, Any]] = [{"id": "seven"}, {}, {"id": 1, "evil": True}, {"id": None}]


@sync_and_async
@pytest.mark.parametrize("arguments", WRONG, ids=str)
def test_wrong_arguments_never_leave_the_process(
    service: Server, tmp_path: Path, way: Way, arguments: dict[str, Any]
) -> None:
    parameter = {"name": "id", "in": "path", "schema": {"type": "integer"}}
    agent = agent_of(
        tmp_path, one_operation({"parameters": [parameter]}, "/p/{id}"), connection={"endpoint": service.url}
    )
    assert result_of(called(agent, arguments, way=way)).startswith("Error: ")
    assert service.requests == []


@pytest.mark.parametrize("value", ["..", ".", "../admin", "..\\admin", "", "a/../../b", "a/.."])
def test_no_path_parameter_leads_to_another_path(service: Server, tmp_path: Path, value: str) -> None:
    data = one_operation({"parameters": [{"name": "id", "in": "path", "schema": {"type": "string"}}]}, "/p/{id}")
    agent = agent_of(tmp_path, data, connection={"endpoint": service.url})
    assert "was not run" in result_of(called(agent, {"id": value}))
    assert service.requests == []


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\x00", "é"])
def test_no_header_parameter_adds_a_header(service: Server, tmp_path: Path, value: str) -> None:
    data = one_operation({"parameters": [{"name": "X-A", "in": "header", "schema": {"type": "string"}}]})
    agent = agent_of(tmp_path, data, connection={"endpoint": service.url})
    assert "printable ASCII" in result_of(called(agent, {"X-A": value}))
    assert service.requests == []


@pytest.mark.spec("003 §2.9.1", "a binding wins over the model")
@pytest.mark.spec("003 §2.9.1", "bound parameters are injected")
def test_what_the_host_binds_is_sent_and_not_shown(service: Server, tmp_path: Path) -> None:
    parameters = [{"name": name, "in": "query", "required": True, "schema": {"type": "string"}} for name in ("a", "b")]
    data = one_operation({"parameters": parameters})
    agent = agent_of(tmp_path, data, connection={"endpoint": service.url}, bindings={"b": "mine"})
    called(agent, {"a": "x", "b": "model"})
    assert service.requests[0].path == "/thing?a=x&b=mine"


ANSWERS: dict[str, tuple[Any, str]] = {
    "text": (reply(b"hello", headers={"content-type": "text/plain"}), "hello"),
    "text of another charset": (reply(b"\xe9", headers={"content-type": "text/plain; charset=latin-1"}), "é"),
    "a charset nobody knows": (reply(b"a", headers={"content-type": "text/plain; charset=nope"}), "a"),
    "nothing": (reply(b"", status=204), "204 Scripted"),
    "bytes": (reply(b"\x89PNG", headers={"content-type": "image/png"}), "[4 bytes of image/png, not shown]"),
}


@pytest.mark.parametrize(("answer", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_answers_become_text(service: Server, tmp_path: Path, answer: Any, expected: str) -> None:
    service.answer(answer)
    agent = agent_of(tmp_path, one_operation({}), connection={"endpoint": service.url})
    assert result_of(called(agent, {})) == expected


@pytest.mark.spec("003 §2.9", "the document of an openapi tool is a path or a URL")
def test_the_document_can_be_a_url_and_is_fetched_once(service: Server, tmp_path: Path) -> None:
    data = one_operation({}, servers=[{"url": "/api/{v}", "variables": {"v": {"default": "v2"}}}])
    service.answer(json_reply(data), json_reply("ok"))
    agent = agent_of(tmp_path, f"{service.url}/once/openapi.json")
    assert result_of(called(agent, {})) == '"ok"'
    assert result_of(called(agent, {})) == '"ok"'
    assert [request.path for request in service.requests] == ["/once/openapi.json", "/api/v2/thing", "/api/v2/thing"]


def test_a_file_that_changes_is_read_again(service: Server, tmp_path: Path) -> None:
    connection = {"endpoint": service.url}
    called(agent_of(tmp_path, one_operation({}, "/before"), connection=connection), {})
    called(agent_of(tmp_path, one_operation({}, "/afterwards"), connection=connection), {})
    assert [request.path for request in service.requests] == ["/before", "/afterwards"]


def test_the_file_chooses_operations(service: Server, tmp_path: Path) -> None:
    paths = {"/a": {"get": {"operationId": "act"}, "delete": {"operationId": "destroy"}}}
    agent = agent_of(tmp_path, document(paths), connection={"endpoint": service.url}, methods=["GET"])
    assert "destroy" in result_of(called(agent, {}, name="destroy"))
    assert service.requests == []


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@settings(deadline=None)
@given(TEXT, st.dictionaries(TEXT, TEXT), st.lists(TEXT))
def test_any_text_comes_back_from_a_query(text: str, entries: dict[str, str], several: list[str]) -> None:
    parameters: list[dict[str, Any]] = [
        {"name": "text", "in": "query", "schema": {}},
        {"name": "deep", "in": "query", "style": "deepObject", "schema": {}},
        {"name": "list", "in": "query", "explode": False, "schema": {}},
    ]
    operation = operation_of(one_operation({"parameters": parameters}))
    query = build_call(operation, {"text": text, "deep": entries, "list": several}).query
    pairs = [pair.split("=") for pair in query]
    assert ["text", text] in [[unquote(name), unquote(value)] for name, value in pairs]
    deep = {unquote(name): unquote(value) for name, value in pairs if unquote(name).startswith("deep[")}
    assert deep == {f"deep[{key}]": value for key, value in entries.items()}
    lists = [value.split(",") for name, value in pairs if name == "list"]
    assert [[unquote(one) for one in found] for found in lists] == ([several] if several else [])
