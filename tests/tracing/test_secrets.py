"""Secrets of many kinds, planted wherever a prompt, its inputs, its model, its tools and its servers can have them:
none is in anything that comes out, searched as bytes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from prompty import trace_to
from prompty.safety.redaction import MASK, mask_secrets
from prompty.tracing import Tracer
from prompty.viewer.page import write_page
from prompty.viewer.trace import find_traces, read_trace
from tests.loopback import Reply, Server, event, json_reply, reply, stream
from tests.tools.openapi_parts import PLAIN, agent_of, called, own_kind
from tests.tracing.collector import Collector
from tests.tracing.planted import (
    KINDS,
    Kind,
    Planted,
    all_needles_in,
    answers,
    as_events,
    inputs,
    known,
    needles,
    prompt,
    result,
)
from tests.tracing.program import SWITCH
from tests.tracing.programs import ROOT, clean_environment

SCENES = ("whole", "streamed", "cut", "refused", "gated")
every_scene = pytest.mark.parametrize("scene", SCENES)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)

# What is known to get out, and why.
IN_FILE = {"user of the endpoint", "parameter of the endpoint"}
DEFAULTS = {"default of a sensitive input", "default of an input of a telling name"}
GIVEN = {"input of a telling name", "sensitive input", "inside of a sensitive input", "default of a sensitive input"}


@dataclass
class Watched:
    """Everything that came out of the program, by what it came out of."""

    folder: Path
    outputs: Mapping[str, bytes]
    planted: Mapping[tuple[str, str], Planted]

    def __post_init__(self) -> None:
        self._needles = {output: all_needles_in(content) for output, content in self.outputs.items()}

    def found(self, planted: Planted, *, known: bool = False) -> list[str]:
        """Where secrets are that should be nowhere, or those of them that are known to be."""
        return [
            f"{place}: in {output}"
            for place, core in planted.places.items()
            for output, there in self._needles.items()
            if needles(core) & there and _is_known(planted.kind, place, output) is known
        ]


def _is_known(kind: Kind, place: str, output: str) -> bool:
    if output == "agents.txt":
        return place in IN_FILE | DEFAULTS
    return output == "recording.jsonl" and place in GIVEN and not kind.shape


def replies(planted: Planted, scene: str) -> list[Reply]:
    """What the provider answers: all it knows of secrets, at the latest in an error."""
    told = f"No: {known(planted)} and {planted.told('error of the server')}"
    if scene == "refused":
        return [json_reply({"error": {"message": told, "code": told}, "detail": told}, 401)]
    if scene == "cut":
        return [stream(*map(event, [as_events(answers(planted)[0])[0], {"error": {"message": told}}]))]
    if scene == "streamed":
        return [stream(*map(event, as_events(whole))) for whole in answers(planted)]
    return [json_reply(whole) for whole in answers(planted)]


def planned(planted: Planted, scene: str, server: Server, folder: Path) -> dict[str, Any]:
    path = folder / f"{planted.kind.name}-{scene}.prompty".replace(" ", "-")
    path.write_text(prompt(planted, server.url, path.stem))
    plan: dict[str, Any] = {"file": str(path), "inputs": inputs(planted), "stream": scene in ("streamed", "cut")}
    server.answer(*replies(planted, scene))
    plan |= {"result": result(planted), "progress": planted.told("progress of a tool")}
    plan |= {"failure": f"{known(planted)} {planted.told('error of a tool')}"}
    if scene == "gated":
        plan |= {name: f"{known(planted)} {planted.told(f'error of a {name}')}" for name in ("gate", "listener")}
    return plan


def run_program(folder: Path, scenes: list[dict[str, Any]], collector: Collector) -> bytes:
    """What the program writes to stdout and stderr."""
    (folder / "plan.json").write_text(json.dumps({"folder": str(folder / "out"), "scenes": scenes}))
    (folder / "out").mkdir()
    tracing = {
        "PROMPTY_TRACE": f"console,file:{folder / 'out' / 'traces'},otel,wire",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        SWITCH: "SPAN_AND_EVENT",
    }
    done = subprocess.run(  # noqa: S603  our own code
        [sys.executable, "-W", "error", "-m", "tests.tracing.secret_program", str(folder / "plan.json")],
        env={**clean_environment(), **tracing},
        capture_output=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:].decode()
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder = tmp_path_factory.mktemp("secrets")
    everything = {(kind.name, scene): Planted(kind, scene) for kind in KINDS for scene in SCENES}
    with Collector() as collector, ExitStack() as servers:
        scenes = [
            planned(planted, scene, servers.enter_context(Server()), folder)
            for (_, scene), planted in everything.items()
        ]
        printed = run_program(folder, scenes, collector)
        outputs = {"console": printed, "OTLP": b"".join(collector.bodies())}
    for path in sorted((folder / "out").rglob("*")):
        if path.is_file():
            name = "a trace" if path.parent.name == "traces" else path.name
            outputs[name] = outputs.get(name, b"") + path.read_bytes()
    for trace in find_traces(folder / "out" / "traces"):
        write_page(read_trace(trace), folder / "page.html")
        outputs["HTML"] = outputs.get("HTML", b"") + (folder / "page.html").read_bytes()
    return Watched(folder, outputs, everything)


@every_scene
@every_kind
def test_no_secret_is_in_anything_that_comes_out(watched: Watched, kind: Kind, scene: str) -> None:
    planted = watched.planted[kind.name, scene]
    assert len(planted.places) >= 12
    assert watched.found(planted) == []


OUTPUTS: dict[str, bytes] = {
    "console": "[prompty]   ◀ execute".encode(),
    "OTLP": b"What of Lisbon-of-whole?",
    "a trace": b"What of Lisbon-of-whole?",
    "lines.txt": b"What of Lisbon-of-whole?",
    "factory.txt": b"What of Lisbon-of-whole?",
    "recording.jsonl": b"What of Lisbon-of-whole?",
    "HTML": b"What of Lisbon-of-whole?",
    "prompty.log": b"A listener raised on",
    "agents.txt": b"name='OpenAI-whole'",
    "errors.txt": b"ModelError",
}


@pytest.mark.parametrize(("output", "said"), OUTPUTS.items(), ids=OUTPUTS)
def test_what_is_no_secret_is_there(watched: Watched, output: str, said: bytes) -> None:
    assert said in watched.outputs[output]
    assert watched.outputs.keys() == OUTPUTS.keys()


def test_a_secret_that_gets_out_would_be_found(watched: Watched) -> None:
    planted = watched.planted["OpenAI", "whole"]
    leaky = {"somewhere": planted.bare("apiKey").encode()}
    assert Watched(watched.folder, leaky, {}).found(planted) == ["apiKey: in somewhere"]


def test_the_exact_exchange_is_there_without_its_secrets(watched: Watched) -> None:
    traces = watched.outputs["a trace"]
    assert b"$OPENAI_API_KEY" in traces
    assert "••••@127.0.0.1".encode() in traces
    assert b'"wire":[{' in traces


@pytest.mark.parametrize("name", ["OpenAI-whole", "odd-password-streamed"])
def test_a_page_that_the_command_writes_has_no_secret_either(watched: Watched, tmp_path: Path, name: str) -> None:
    [trace] = (watched.folder / "out" / "traces").glob(f"{name}.*.jsonl")
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "prompty.cli", "trace", "html", str(trace), "-o", str(page)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True, env=clean_environment())  # noqa: S603  our own command
    written = page.read_bytes() + done.stdout + done.stderr
    assert b"Lisbon-of-" in written
    there = all_needles_in(written)
    for planted in watched.planted.values():
        assert [place for place, core in planted.places.items() if needles(core) & there] == []


def test_the_repr_of_an_agent_has_neither_the_password_in_its_address_nor_the_default_of_a_secret_input(
    watched: Watched,
) -> None:
    known = [one for planted in watched.planted.values() for one in watched.found(planted, known=True)]
    assert [one for one in known if one.endswith("agents.txt")] == []


def test_a_recording_has_no_sensitive_input_that_looks_like_nothing(watched: Watched) -> None:
    known = [one for planted in watched.planted.values() for one in watched.found(planted, known=True)]
    assert [one for one in known if one.endswith("recording.jsonl")] == []


@given(before=st.text(), after=st.text(), levels=st.integers(0, 3), ascii_only=st.booleans())
@example(before='"', after="\\", levels=3, ascii_only=True)
def test_the_value_of_a_telling_name_is_masked_in_json_however_deep_and_the_json_stays_json(
    before: str, after: str, levels: int, ascii_only: bool
) -> None:
    text = json.dumps(
        {"n": 1, "sortKey": f"0{before}NEEDLE{after}", "token": None, "end": "z"}, ensure_ascii=ascii_only
    )
    for _ in range(levels):
        text = json.dumps({"inner": text}, ensure_ascii=ascii_only)
    masked = mask_secrets(text)
    assert "NEEDLE" not in masked
    for _ in range(levels):
        masked = json.loads(masked)["inner"]
    assert json.loads(masked) == {"n": 1, "sortKey": MASK, "token": None, "end": "z"}


@pytest.fixture
def traces(tmp_path: Path) -> Iterator[Callable[[], bytes]]:
    """Traces of this process; what is called gives their bytes."""
    trace_to(f"file:{tmp_path / 'traces'}", capture="wire")
    yield lambda: b"".join(path.read_bytes() for path in (tmp_path / "traces").iterdir())
    Tracer.clear()


@pytest.mark.parametrize("status", [200, 500])
def test_the_key_of_a_service_that_repeats_it_is_in_no_trace(
    traces: Callable[[], bytes], tmp_path: Path, status: int
) -> None:
    key = "0a1b2c3d4e5f/+&60718293a4b5c6d7"
    echo = f"{key} Bearer {key} 0a1b2c3d4e5f%2F%2B%2660718293a4b5c6d7 the end"
    with Server() as service, own_kind(f"127.0.0.1:{service.port}"):
        service.answer(reply(echo.encode(), status, {"content-type": "text/plain", "set-cookie": f"sid={key}"}))
        called(agent_of(tmp_path, PLAIN, connection={"endpoint": service.url, "apiKey": key}), {})
        assert service.requests[0].headers["authorization"] == f"Bearer {key}"
    assert b"the end" in traces()
    assert b"0a1b2c3d" not in traces()
    assert b"a4b5c6d7" not in traces()
