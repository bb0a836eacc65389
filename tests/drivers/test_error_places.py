"""An error of a model call names the call: provider, model, URL, file and attempt, without secrets."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prompty import ModelError, PromptAgent, PromptyError, load, turn
from prompty.durable.codec import error_from, error_to_json
from prompty.errors import InputError, Refused, StreamCut
from prompty.events import FellBack, ModelFailed, Retry
from prompty.pipeline import executor_of
from prompty.testing import Fault, Player, Recorder, Script, answer, call
from tests.loopback import Server, event, json_reply, refusing_port, reply, stream
from tests.ways import STREAMED, SYNC, WHOLE, Way, every_way

KEY = "sk-planted-0123456789"
UNAUTHORIZED = json_reply({"error": {"message": f"wrong key {KEY}"}}, status=401)
BUSY = json_reply({"error": {"message": "busy"}}, status=503, headers={"retry-after": "0"})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def write_prompt(folder: Path, url: str, provider: str = "openai", name: str = "answer", **extra: str) -> Path:
    path = folder / f"{name}.prompty"
    more = "".join(f"{key}: {value}\n" for key, value in extra.items())
    path.write_text(
        f"---\nmodel:\n  id: gpt-x\n  provider: {provider}\n"
        f"  connection: {{kind: key, endpoint: '{url}', apiKey: {KEY}}}\n{more}---\nuser:\nHi\n"
    )
    return path


@every_way
def test_an_error_names_the_call(way: Way, server: Server, tmp_path: Path) -> None:
    server.answer(UNAUTHORIZED)
    path = write_prompt(tmp_path, f"{server.url}/v1")
    error = way.invoke(path).error
    assert isinstance(error, ModelError)
    assert (error.provider, error.model, error.file) == ("openai", "gpt-x", str(path))
    assert (error.url, error.attempt, error.status) == (f"{server.url}/v1/chat/completions", 1, 401)
    place = f"\n    Model 'gpt-x' of openai in answer.prompty at {server.url}/v1/chat/completions, attempt 1."
    assert str(error) == f"{error.cause}{place}\n    {error.fix}"
    assert error.fix == "Check the key: `prompty doctor` shows where it comes from."
    assert KEY not in str(error)


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("openai", "/chat/completions"),
        ("anthropic", "/v1/messages"),
        ("azure", "/openai/v1/chat/completions"),
    ],
)
def test_the_url_is_the_one_the_server_saw(provider: str, path: str, server: Server, tmp_path: Path) -> None:
    server.answer(UNAUTHORIZED)
    error = SYNC.invoke(write_prompt(tmp_path, server.url, provider)).error
    assert isinstance(error, ModelError)
    asked = server.requests[0].path
    assert error.url == server.url + asked
    assert asked.startswith(path)


@every_way
def test_a_url_shows_no_credentials(way: Way, server: Server, tmp_path: Path) -> None:
    server.answer(UNAUTHORIZED)
    url = f"http://ada:hunter2hunter2@127.0.0.1:{server.port}/v1?api-version=7"
    error = way.invoke(write_prompt(tmp_path, url)).error
    assert isinstance(error, ModelError)
    for secret in ("hunter2hunter2", KEY, "ada:"):
        assert secret not in f"{error} {error!r} {vars(error)}"
    assert f"127.0.0.1:{server.port}/v1/chat/completions" in (error.url or "")


@every_way
def test_an_unreachable_server_is_named(way: Way, tmp_path: Path) -> None:
    with refusing_port() as port:
        error = way.invoke(write_prompt(tmp_path, f"http://127.0.0.1:{port}/v1"), max_retries=0).error
    assert f"http://127.0.0.1:{port}/v1/chat/completions" in str(error)


@every_way
def test_the_last_attempt_counts_and_events_have_the_cause_alone(way: Way, server: Server, tmp_path: Path) -> None:
    server.answer(BUSY)
    seen = way.invoke(write_prompt(tmp_path, server.url), max_retries=2)
    assert isinstance(seen.error, ModelError)
    assert seen.error.attempt == 3
    assert [failed.error.attempt for failed in seen.of(ModelFailed)] == [1, 2, 3]
    assert all("answer.prompty" not in retry.reason for retry in seen.of(Retry))


@pytest.mark.parametrize("way", STREAMED, ids=str)
def test_a_broken_stream_names_the_call(way: Way, server: Server, tmp_path: Path) -> None:
    delta = {"choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}]}
    server.answer(stream(event(delta)))
    error = way.invoke(write_prompt(tmp_path, server.url), max_retries=0).error
    assert isinstance(error, StreamCut)
    assert (error.attempt, error.file) == (1, str(tmp_path / "answer.prompty"))


def test_each_fallback_is_named_by_itself(server: Server, tmp_path: Path) -> None:
    server.answer(UNAUTHORIZED)
    fallback = {"id": "other", "provider": "anthropic", "connection": {"kind": "anonymous", "endpoint": server.url}}
    seen = SYNC.invoke(write_prompt(tmp_path, server.url), fallbacks=[fallback])
    assert isinstance(seen.error, ModelError)
    assert (seen.error.provider, seen.error.model) == ("anthropic", "other")
    assert [failed.error.model for failed in seen.of(ModelFailed)] == ["gpt-x", "other"]
    assert seen.of(FellBack)[0].reason == seen.of(ModelFailed)[0].error.cause


def test_a_fault_that_is_used_twice_names_both_calls() -> None:
    fault = Fault(ModelError("no"))
    agent = PromptAgent.model_validate({"model": {"id": "a", "provider": "openai"}, "instructions": "user:\nHi"})
    with Script(fault, fault):
        seen = SYNC.invoke(agent, fallbacks=["b"])
    assert [failed.error.model for failed in seen.of(ModelFailed)] == ["a", "b"]
    assert str(seen.error) == "no\n    Model 'b' of openai, attempt 1."


def test_the_model_of_a_parent_is_not_told_where_a_child_failed(tmp_path: Path, server: Server) -> None:
    write_prompt(tmp_path, server.url, name="child")
    parent = write_prompt(tmp_path, server.url, name="parent", tools="[{name: c, kind: prompty, path: child.prompty}]")
    with Script(call("c"), Fault(ModelError("broken down")), "Done.") as script:
        assert turn(parent) == "Done."
    assert script.requests[-1]["messages"][-1]["content"] == "Error: Tool 'c' failed: broken down"


@pytest.mark.parametrize("way", WHOLE, ids=str)
def test_an_executor_of_a_provider_names_the_call(way: Way, server: Server, tmp_path: Path) -> None:
    server.answer(UNAUTHORIZED)
    agent = load(write_prompt(tmp_path, server.url))
    executor: Any = executor_of(agent)
    with pytest.raises(ModelError, match=r"Model 'gpt-x' of openai in answer.prompty at http") as caught:
        asyncio.run(executor.execute_async(agent, [])) if way.asynchronous else executor.execute(agent, [])
    assert KEY not in str(caught.value)


@every_way
def test_a_recording_keeps_the_cause_and_a_replay_names_its_own_call(way: Way, server: Server, tmp_path: Path) -> None:
    server.answer(reply(b"<html>bad gateway</html>", status=502))
    path, recording = write_prompt(tmp_path, server.url), tmp_path / "r.jsonl"
    with Recorder(recording):
        live = way.invoke(path, max_retries=0).error
    with Player(recording):
        played = way.invoke(path, max_retries=0).error
    assert isinstance(live, ModelError)
    assert isinstance(played, ModelError)
    assert b"answer.prompty" not in recording.read_bytes()
    assert (played.cause, played.file, played.attempt, played.url) == (live.cause, live.file, 1, None)


def test_durable_records_keep_the_call() -> None:
    error = ModelError("no", status=400)
    error.provider, error.model, error.url, error.file, error.attempt = "openai", "m", "https://a/b", "/x/y.prompty", 2
    again = error_from(error_to_json(error), "here")
    assert str(again) == str(error) == "no\n    Model 'm' of openai in y.prompty at https://a/b, attempt 2."


def test_a_refusal_in_a_stream_names_the_call() -> None:
    agent = PromptAgent.model_validate({"model": {"id": "a", "provider": "openai"}, "instructions": "user:\nHi"})
    refusal = answer("")
    with Script(Fault(Refused("I can't"), after=0, reply=refusal)):
        seen = STREAMED[0].invoke(agent)
    assert str(seen.error) == "Model refused: I can't\n    Model 'a' of openai, attempt 1."


BROKEN = {
    "a provider": ("model: {id: m, provider: opnai}\n", "user:\nHi", 2),
    "an engine": ("model: m\ntemplate:\n  format: jinja3\n", "user:\nHi", 4),
    "an API": ("model:\n  id: m\n  apiType: chats\n", "user:\nHi", 4),
    "a tool without a function": (
        "model: m\ntools:\n- name: a\n  kind: mine\n- name: b\n  kind: function\n",
        "user:\nHi",
        6,
    ),
    "a tool of an unknown kind": ("model: m\ntools:\n- name: a\n  kind: mine\n", "user:\nHi", 5),
    "a line of the body": ("model: m\n", "user:\nHi\n{{ 1 / 0 }}", 6),
}


@every_way
@pytest.mark.parametrize(("keys", "body", "line"), BROKEN.values(), ids=BROKEN)
def test_an_error_has_its_place_although_the_file_is_gone(
    way: Way, keys: str, body: str, line: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.prompty"
    path.write_text(f"---\n{keys}---\n{body}\n")
    agent = load(path)
    path.unlink()
    with Script():
        error = way.turn(agent, sendable=False).error
    assert isinstance(error, PromptyError)
    assert error.problem is not None
    assert (error.problem.path, error.problem.line) == (str(path), line)
    assert str(error).startswith(f"{path}:{line}:")


@every_way
def test_each_input_has_its_place_although_the_file_is_gone(way: Way, tmp_path: Path) -> None:
    path = tmp_path / "a.prompty"
    path.write_text("---\nmodel: m\ninputs:\n  a: {kind: string}\n  b: {kind: string, required: true}\n---\nHi\n")
    agent = load(path)
    path.unlink()
    error = way.turn(agent, {"a": 3, "c": 4}).error
    assert isinstance(error, InputError)
    assert {one.name: one.place for one in error.problems} == {"a": f"{path}:4", "b": f"{path}:5", "c": f"{path}:3"}


def test_what_the_program_replaced_has_no_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.prompty"
    path.write_text("---\nmodel: {id: m, apiType: chat}\n---\nuser:\nHi\n")
    agent = load(path)
    api = agent.model_copy(update={"model": agent.model.model_copy(update={"api_type": "chats"})})
    body = agent.model_copy(update={"instructions": "{{ 1 / 0 }}"})
    for changed in (api, body):
        with Script(), pytest.raises(PromptyError) as caught:
            turn(changed)
        assert caught.value.problem is None
