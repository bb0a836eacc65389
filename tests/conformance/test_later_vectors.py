"""The public vectors that came after the first 150, read from where they are kept (V1).

A vector is waived by name or by stage, with the reason, and what happens instead is checked. `jinja_ast_golden` holds
the parse trees of another parser for the templates of `jinja_corpus`; what these render to is checked here.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import azure.identity
import openai
import pytest
from azure.core.credentials import AccessToken

from prompty import (
    CancelToken,
    Guardrails,
    PromptAgent,
    Registry,
    deny,
    invoke,
    loads,
    prepare,
    render,
    turn,
)
from prompty.certificates import load_certificates
from prompty.errors import Cancelled, InputError, IterationsExceeded, ModelError, RequestError
from prompty.events import Event, GatedCall, ToolFinished
from prompty.providers import register_connection
from prompty.providers.models import ListedModel, list_models
from prompty.safety.origins import parse_origin
from tests.conformance.test_vectors import VECTORS, Vector
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.internet import Internet
from tests.loopback import Server, json_reply

LATER = VECTORS / "later"
Record = Callable[[str, object], None]
ENGINE = "events, snapshots and portable state are of upstream's engine; values, calls and results are compared"
JINJA = "P21: the renderer is Jinja2, which prints True, 1.0 and None; upstream's own subset is provisional"
WAIVED = {
    "b2_bool_true_lowercase": JINJA,
    "b2_bool_false_lowercase": JINJA,
    "b2_float_integral_minimal": JINJA,
    "b2_null_renders_empty": JINJA,
    "foundry_deployment_flat_v1": "prompty lists models, not deployments: without an `id` there is none",
    "foundry_deployment_nested_arm": "prompty lists models, not deployments: without an `id` there is none",
    "trusted_endpoint_default_port_allowed": "F14: a Foundry token is not for OpenAI's host",
    "trusted_endpoint_userinfo_allowed": "F14: a Foundry token is not for OpenAI's host",
    "trusted_endpoint_env_endpoint_allowed": "F14: it loads, but a machine's token needs a variable of a known name",
}
STAGES = {"turn": 5, "render_segments": 5, "replay": 5, "discovery": 7, "enrichment": 9, "endpoint_trust": 31}


def read(name: str) -> Any:
    return json.loads((LATER / f"{name}.json").read_text(encoding="utf-8"))


def later(stage: str) -> list[Any]:
    if not LATER.is_dir():
        return [pytest.param({}, id="no vectors", marks=pytest.mark.skip(reason="the later vectors are not there"))]
    found = [entry.get("vector", entry) for entry in read(stage)["vectors"]]
    return [pytest.param(vector, id=vector["name"]) for vector in found]


def jinja_cases() -> list[Any]:
    """Return the cases of the corpus with what they render to."""
    if not LATER.is_dir():
        return later("jinja")
    golden = {entry["name"]: entry for entry in read("jinja_render_golden")}
    return [pytest.param({**case, **golden[case["name"]]}, id=case["name"]) for case in read("jinja_corpus")["cases"]]


def test_all_later_vectors_are_there() -> None:
    if not LATER.is_dir():
        pytest.skip("no vectors")
    assert {stage: len(later(stage)) for stage in STAGES} == STAGES
    assert len(jinja_cases()) == len(read("jinja_ast_golden")) == 47
    known = {str(case.id) for case in (*jinja_cases(), *(case for stage in STAGES for case in later(stage)))}
    assert known >= WAIVED.keys()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        close_clients()


# Templates.


def template_agent(vector: Vector) -> PromptAgent:
    """Return a prompt whose template is strict if the vector has strict properties."""
    form = {"kind": vector.get("engine", "jinja2"), "strict": bool(vector.get("strict_props"))}
    return PromptAgent.model_validate({"instructions": vector["template"], "template": {"format": form}})


@pytest.mark.parametrize("vector", jinja_cases())
def test_jinja(vector: Vector, record_property: Record) -> None:
    agent = template_agent(vector)
    if vector.get("expect_throw"):
        with pytest.raises(InputError, match="Input 'q'"):
            render(agent, vector["inputs"])
    elif vector["name"] in WAIVED:
        record_property("waived", f"{vector['name']} ({WAIVED[vector['name']]})")
        [value] = vector["inputs"].values()
        assert render(agent, vector["inputs"]) == ("[None]" if value is None else str(value))
        assert render(agent, vector["inputs"]) != vector["rendered"]
    else:
        assert render(agent, vector["inputs"]) == vector["rendered"]


@pytest.mark.parametrize("vector", later("render_segments"))
def test_render_segments(vector: Vector, record_property: Record) -> None:
    """Only literal text starts a message; a value stays in its own, whatever it says."""
    given, expected = vector["input"], vector["expected"]
    agent = template_agent(given)
    if "error" in expected:
        for function in (render, prepare):
            with pytest.raises(InputError, match="Input 'q' has a line that looks like the role marker"):
                function(agent, given["inputs"])
        return
    record_property("waived", f"{vector['name']} in part (segments are not public; text and messages are compared)")
    segments = expected["segments"]
    assert render(agent, given["inputs"]) == "".join(segment["text"] for segment in segments)
    literal = "".join(segment["text"] for segment in segments if segment["kind"] == "literal")
    messages = prepare(agent, given["inputs"])
    assert [message.role for message in messages] == [
        line.removesuffix(":") for line in literal.splitlines() if line.endswith(":")
    ]
    assert messages[-1].text == segments[-1]["text"]


# Turns.


def chat_reply(reply: dict[str, Any]) -> Any:
    """Return an answer of the model as the chat API writes it."""
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for call in reply.get("tools", [])
    ]
    text = reply.get("output") or reply.get("assistant") or ""
    more = {"tool_calls": calls} if calls else {}
    return json_reply(Chat().whole(text, "tool_calls" if calls else "stop", **more))


def echo(value: str = "") -> str:
    return value


@pytest.mark.parametrize("vector", later("turn"))
def test_turn(vector: Vector, server: Server, record_property: Record) -> None:
    given, expected = vector["input"], vector["expected"]
    record_property("waived", f"{vector['name']} in part ({ENGINE})")
    server.answer(*map(chat_reply, given["model"]))
    names = {call["name"] for reply in given["model"] for call in reply.get("tools", [])}
    cancel = CancelToken()
    if given.get("cancelBeforeRun"):
        cancel.cancel()

    def gate(call: GatedCall) -> object:
        return deny("not allowed") if call.name in given.get("denyTools", []) else True

    def run() -> object:
        tools = dict.fromkeys(names, echo)
        return turn(
            Chat().agent(server),
            messages=given["messages"],
            tools=tools,
            cancel=cancel,
            guardrails=Guardrails(tool=gate),
        )

    if expected["status"] == "cancelled":
        with pytest.raises(Cancelled):
            run()
    else:
        assert run() == expected["output"]
    assert len(server.requests) == expected["iterations"]
    results = (
        [message for message in server.requests[-1].body["messages"] if message["role"] == "tool"] if names else []
    )
    assert [result["tool_call_id"] for result in results] == expected.get("toolResultOrder", [])
    assert len(results) == expected["toolResults"]
    for result in results:
        wanted = given.get("toolOutputs", {}).get(result["tool_call_id"])
        assert result["content"] == wanted if wanted else "not allowed" in result["content"]


JOURNAL = "upstream's journal names its records; prompty's events and results say the same"


# The end of a record of a result → what the model reads.
OUTCOMES = {("true",): "3", ("false", "exception"): "it failed", ("false", "permission_denied"): "not now"}


@pytest.mark.parametrize("vector", later("replay"))
def test_replay(vector: Vector, server: Server, record_property: Record) -> None:
    record_property("waived", f"{vector['name']} ({JOURNAL})")
    records: list[str] = vector["expected"]
    results = [record.split(":")[3:] for record in records if record.startswith("turn:tool_result:")]
    name = results[0][0] if results else ""
    reply: dict[str, Any] = {"tools": [{"id": "call-1", "name": name, "arguments": {}}]}
    server.answer(*map(chat_reply, [*([reply] if results else []), {"output": "Done."}]))
    allowed = not any(record.startswith("turn:permission_completed:0:false") for record in records)
    events: list[Event] = []

    def tool() -> str:
        if name == "fail":
            raise RuntimeError("it failed")
        return "3"

    def run() -> object:
        limits = {"max_iterations": vector["input"]["maxIterations"]} if "maxIterations" in vector["input"] else {}
        return turn(
            Chat().agent(server),
            messages=[{"role": "user", "content": "Add."}],
            tools={name: tool} if name else None,
            guardrails=Guardrails(tool=lambda _: allowed or deny("not now")),
            on_event=events.append,
            **limits,
        )

    if "turn:error:1:max_iterations" in records:
        server.answer(*[chat_reply(reply)] * 3)
        with pytest.raises(IterationsExceeded):
            run()
        assert [(event.call.name, event.result.text) for event in events if isinstance(event, ToolFinished)] == [
            ("add", "3")
        ]
        return
    assert run() == "Done."
    assert len(server.requests) == sum(record.startswith("turn:llm_start:") for record in records)
    told = [message["content"] for message in server.requests[-1].body["messages"] if message["role"] == "tool"]
    assert len(told) == len(results)
    for text, (_, *outcome) in zip(told, results, strict=True):
        assert OUTCOMES[tuple(outcome)] in text


# Models of a server.


def listed(server: Server, provider: str, entry: dict[str, Any]) -> list[ListedModel]:
    server.answer(json_reply({"data": [entry]}))
    connection = {"kind": "key", "endpoint": f"{server.url}/v1", "apiKey": "k"}
    model = {"id": "m", "provider": provider, "connection": connection}
    return list_models(PromptAgent.model_validate({"model": model}))


@pytest.mark.parametrize("vector", later("discovery"))
def test_discovery(vector: Vector, server: Server, record_property: Record) -> None:
    found = [model.id for model in listed(server, vector["provider"], vector["input"])]
    if vector["name"] in WAIVED:
        record_property("waived", f"{vector['name']} ({WAIVED[vector['name']]})")
        assert found == []
        return
    record_property(
        "waived", f"{vector['name']} in part (§15 is optional: prompty reads the id, the end and the limits)"
    )
    assert found == [vector["expected"]["id"]]


@pytest.mark.parametrize("vector", later("enrichment"))
def test_enrichment(vector: Vector, server: Server, record_property: Record) -> None:
    """A list of models has nothing that the server did not say: what prompty knows is in its facts about models."""
    record_property("waived", f"{vector['name']} (§15 is optional: no table of modalities and context windows)")
    assert listed(server, vector["provider"], vector["input"]) == [ListedModel(vector["expected"]["id"])]


# Endpoints that credentials may go to.

SECRET = "a-credential-nobody-should-see"
HOSTS = (
    "myres.services.ai.azure.com",
    "api.openai.com",
    *(f"{name}.example.com" for name in ("host-chosen", "anywhere", "proxy", "evil")),
)


class Entra:
    """A machine with an identity."""

    def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        return AccessToken(SECRET, 2**40)

    def close(self) -> None: ...


@pytest.fixture
def internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    """Every host of the internet, and a machine with credentials."""
    with Internet(tmp_path, HOSTS, Chat().whole("Hello")) as internet:
        internet.use(monkeypatch.setenv)
        for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"):
            monkeypatch.setenv(name, SECRET)
        for name in ("OPENAI_BASE_URL", "PROMPTY_TRUSTED_ENDPOINTS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(azure.identity, "DefaultAzureCredential", Entra)
        load_certificates.cache_clear()
        yield internet
        close_clients()
    load_certificates.cache_clear()


@pytest.fixture
def host_client(internet: Internet) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{internet.url}/v1", api_key="of-the-host") as client:
        yield client


# The inputs of three vectors are unknown. These are written from their names and what they load.
OWN_CONNECTIONS = {
    "trusted_endpoint_env_list_allowed": "{kind: key, endpoint: 'LOOPBACK/v1'}",
    "trusted_endpoint_option_allowed": "{kind: foundry, endpoint: 'https://proxy.example.com:443/openai/v1'}",
    "untrusted_endpoint_mismatched_credential_rejected": (
        "{kind: foundry, endpoint: 'https://evil.example.com', apiKey: literal}"
    ),
}


def trust_agent(vector: Vector, folder: Path, internet: Internet) -> PromptAgent:
    (folder / "conn.json").write_text(json.dumps(read("endpoint_trust")["host_settings"]["conn.json"]))
    connection = vector["input_connection_reconstructed_by_us"] or OWN_CONNECTIONS[vector["name"]]
    connection = connection.replace("LOOPBACK", internet.url)
    provider = "foundry" if "kind: foundry" in connection or "conn.json" in connection else "openai"
    trusted = ["https://proxy.example.com"] if vector["name"] == "trusted_endpoint_option_allowed" else []
    head = f"---\nmodel:\n  id: m\n  provider: {provider}\n  connection: {connection}\n---\nuser:\nHi"
    return loads(head, base_dir=folder, registry=Registry(), trusted_endpoints=trusted)


@pytest.mark.parametrize("vector", later("endpoint_trust"))
def test_endpoint_trust(
    vector: Vector,
    internet: Internet,
    host_client: openai.OpenAI,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    """A file loads. Its call arrives where the file says, or is refused before anything is sent."""
    name, is_waived = vector["name"], vector["name"] in WAIVED
    if is_waived:
        record_property("waived", f"{name} ({WAIVED[name]})")
    elif name in OWN_CONNECTIONS:
        record_property("waived", f"{name} in part (its input is unknown; ours is written from its name)")
    for variable, value in read("endpoint_trust")["host_settings"]["env"].items():
        monkeypatch.setenv(variable, value)
    if name == "trusted_endpoint_env_list_allowed":
        monkeypatch.setenv("PROMPTY_TRUSTED_ENDPOINTS", internet.url)
    agent = trust_agent(vector, tmp_path, internet)
    if name == "trusted_endpoint_reference_skipped":
        register_connection("my-connection", host_client, registry=agent.registry)
    if vector["outcome"] == "rejected" or is_waived:
        with pytest.raises((RequestError, ModelError) if is_waived else RequestError) as caught:
            invoke(agent, max_retries=0)
        assert SECRET not in str(caught.value)
        assert internet.arrivals == []
        return
    assert invoke(agent, max_retries=0) == "Hello"
    [arrival] = internet.arrivals
    endpoint = getattr(agent.model.connection, "endpoint", internet.url)
    assert arrival.origin == str(parse_origin(endpoint))
