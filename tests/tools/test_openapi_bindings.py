"""Bound parameters and credentials of OpenAPI tools: the model adds no second value under their names."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given, settings, strategies as st

from prompty.errors import ArgumentsError
from prompty.tools.openapi.request import HttpRequest, build_call, is_same_parameter
from tests.loopback import Server
from tests.tools.openapi_parts import KEY, agent_of, called, document, one_operation, operation_of, refusal, result_of

TEXT = {"type": "string"}
FREE = {"type": "object"}
CLOSED = {"type": "object", "properties": {"tenant": TEXT}, "additionalProperties": False}
FORM = "application/x-www-form-urlencoded"


def parameter(name: str, place: str, schema: Any = TEXT, **parts: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, **parts}


def form_body(**properties: Any) -> dict[str, Any]:
    encoding = {"filter": {"style": "form", "explode": True}}
    media = {"schema": {"type": "object", "properties": properties}, "encoding": encoding}
    return {"requestBody": {"required": True, "content": {FORM: media}}}


QUERY = {"parameters": [parameter("tenant", "query"), parameter("filter", "query", FREE)]}
PLACES: dict[str, tuple[dict[str, Any], str, Any]] = {
    "a query": (QUERY, "/o", {"tenant": "evil"}),
    "a query with a closed schema": (
        {"parameters": [parameter("tenant", "query"), parameter("filter", "query", CLOSED)]},
        "/o",
        {"tenant": "evil"},
    ),
    "a query in another case": (QUERY, "/o", {"Tenant": "evil"}),
    "a query as a list": (QUERY, "/o", {"tenant[]": "evil"}),
    "a query as an object": (QUERY, "/o", {"tenant.id": "evil"}),
    "a query with a space before": (QUERY, "/o", {" tenant": "evil"}),
    "reserved characters in a name": (
        {"parameters": [parameter("tenant", "query"), parameter("filter", "query", FREE, allowReserved=True)]},
        "/o",
        {"Tenant": "evil"},
    ),
    "brackets that the document declares": (
        {
            "parameters": [
                parameter("tenant", "query"),
                parameter("tenant[id]", "query", TEXT),
            ]
        },
        "/o",
        "evil",
    ),
    "cookies": (
        {"parameters": [parameter("tenant", "cookie"), parameter("filter", "cookie", FREE)]},
        "/o",
        {"tenant": "evil"},
    ),
    "a form": (form_body(tenant=TEXT, filter=FREE), "/o", {"tenant": "evil"}),
}


@pytest.mark.parametrize(("operation", "path", "value"), PLACES.values(), ids=PLACES)
def test_the_model_cannot_add_a_second_value_of_a_bound_parameter(
    service: Server, tmp_path: Path, operation: dict[str, Any], path: str, value: Any
) -> None:
    data = one_operation(operation, path, "post")
    agent = agent_of(tmp_path, data, connection={"endpoint": service.url}, bindings={"tenant": "acme"})
    name = "tenant_id" if isinstance(value, str) else "filter"
    assert "would be read as the parameter 'tenant'" in result_of(called(agent, {name: value}))
    assert service.requests == []


def test_the_names_of_a_bound_object_are_bound_too(service: Server, tmp_path: Path) -> None:
    data = one_operation({"parameters": [parameter("scope", "query", FREE), parameter("tenant", "query")]})
    bindings = {"scope": {"tenant": "acme"}}
    agent = agent_of(tmp_path, data, connection={"endpoint": service.url}, bindings=bindings)
    assert "would be read as the parameter 'tenant'" in result_of(called(agent, {"tenant": "evil"}))
    assert result_of(called(agent, {})) == '{"ok": true}'
    assert [request.path for request in service.requests] == ["/thing?tenant=acme"]


def test_a_bound_parameter_without_a_value_is_not_for_the_model_either(service: Server, tmp_path: Path) -> None:
    agent = agent_of(tmp_path, one_operation(QUERY), connection={"endpoint": service.url}, bindings={"tenant": None})
    assert "would be read as" in result_of(called(agent, {"filter": {"tenant": "evil"}}))
    assert service.requests == []


def test_an_exploded_object_cannot_stand_in_for_a_parameter_that_an_approval_condition_reads() -> None:
    operation = operation_of(one_operation({"parameters": [parameter("amount", "query"), QUERY["parameters"][1]]}))
    with pytest.raises(ArgumentsError, match="would be read as the parameter 'amount'"):
        build_call(operation, {"filter": {"amount": 5000}})


def test_objects_that_keep_their_names_apart_are_sent(service: Server, tmp_path: Path) -> None:
    parameters = [
        parameter("tenant", "query"),
        parameter("deep", "query", FREE, style="deepObject"),
        parameter("listed", "query", FREE, explode=False),
        parameter("filter", "query", FREE),
    ]
    agent = agent_of(
        tmp_path,
        one_operation({"parameters": parameters}),
        connection={"endpoint": service.url},
        bindings={"tenant": "acme"},
    )
    called(agent, {"deep": {"tenant": "a"}, "listed": {"tenant": "b"}, "filter": {"tenants": "c"}})
    assert service.requests[0].path == "/thing?tenant=acme&deep%5Btenant%5D=a&listed=tenant,b&tenants=c"


@pytest.mark.parametrize("place", ["query", "cookie", "header"])
def test_a_credential_has_its_name_alone(service: Server, tmp_path: Path, place: str) -> None:
    scheme = {"securitySchemes": {"k": {"type": "apiKey", "in": place, "name": "api-auth"}}}
    parameters = [parameter(name, place) for name in ("Api-Auth", "api_auth")]
    data = one_operation({"parameters": parameters}, components=scheme, security=[{"k": []}])
    agent = agent_of(tmp_path, data, connection={"endpoint": service.url, "apiKey": KEY})
    properties = operation_of(data).function.parameters["properties"]
    assert isinstance(properties, dict)
    called(agent, dict.fromkeys(properties, "evil"))
    sent = service.requests[0]
    assert "evil" not in f"{sent.path} {sent.headers}"
    assert KEY in f"{sent.path} {sent.headers}"


BODY = {"oneOf": [{"type": "object", "properties": {"tenant": TEXT}}, {"$ref": "#/components/schemas/Other"}]}
OTHER = {"schemas": {"Other": {"allOf": [{"type": "object", "properties": {"owner": TEXT}}]}}}


def whole_body(schema: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@pytest.mark.parametrize("name", ["tenant", "owner"])
def test_a_binding_for_a_property_inside_a_body_is_an_error(service: Server, tmp_path: Path, name: str) -> None:
    paths = {
        "/a": {"get": {"operationId": "read", "parameters": [parameter(name, "query")]}},
        "/b": {"post": {"operationId": "write", **whole_body(BODY)}},
    }
    data = document(paths, components=OTHER)
    agent = agent_of(tmp_path, data, connection={"endpoint": service.url}, bindings={name: "acme"})
    refused = refusal(agent)
    assert f"the binding '{name}' of the tool 'api'" in refused
    assert "'write'" in refused


def test_a_binding_that_matches_no_parameter_is_an_error(service: Server, tmp_path: Path) -> None:
    agent = agent_of(tmp_path, one_operation(QUERY), connection={"endpoint": service.url}, bindings={"tenent": "acme"})
    refused = refusal(agent)
    assert "the binding 'tenent' of the tool 'api' matches no parameter" in refused
    assert "Did you mean `tenant`?" in refused


NAMES = st.sampled_from(
    ["tenant", "Tenant", "tenant[]", "tenant.x", " tenant", "other", "tenants", "ten.ant", "x;tenant"]
)
KEYS = st.one_of(NAMES, st.text(max_size=6))
STYLES = st.sampled_from(["form", "spaceDelimited", "pipeDelimited", "deepObject"])


@settings(deadline=None, max_examples=200)
@example({"x;tenant": ""}, "spaceDelimited", False, True)
@given(st.dictionaries(KEYS, st.text(max_size=4), max_size=4), STYLES, st.booleans(), st.booleans())
def test_a_request_that_is_built_has_a_bound_name_once(
    entries: dict[str, str], style: str, explode: bool, reserved: bool
) -> None:
    parameters = [
        parameter("tenant", "query"),
        parameter("filter", "query", FREE, style=style, explode=explode, allowReserved=reserved),
    ]
    operation = operation_of(one_operation({"parameters": parameters}))
    try:
        request: HttpRequest = build_call(operation, {"tenant": "acme", "filter": entries}, ["tenant"])
    except ArgumentsError:
        return
    pairs = "&".join(request.query).replace(";", "&").split("&")  # some servers separate parameters by semicolons
    names = [unquote(pair.partition("=")[0]) for pair in pairs]
    assert [name for name in names if is_same_parameter(name, "tenant")] == ["tenant"]
