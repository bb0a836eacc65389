"""A test that forgets its script calls no model."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import prompty
from prompty.errors import RequestError
from prompty.testing import Player, Recorder, Script, forbid_models
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.loopback import Server, json_reply

pytest_plugins = ["pytester"]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.answer(json_reply(Chat().whole("Warm")))
        yield server
        close_clients()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTY_OFFLINE", "")  # so that the change is taken back
    forbid_models()


def look() -> str:
    """Look."""
    return "Nothing."


def ask(server: Server) -> prompty.PromptAgent:
    connection = {"kind": "key", "endpoint": f"{server.url}/v1", "apiKey": "k"}
    return prompty.PromptAgent.model_validate(
        {"model": {"id": "m", "connection": connection}, "instructions": "user:\nHi"}
    )


@pytest.mark.usefixtures("offline")
def test_no_way_of_calling_reaches_a_model(server: Server) -> None:
    agent, refused = ask(server), "the model 'm' would be called, and PROMPTY_OFFLINE forbids it"
    with pytest.raises(RequestError, match=refused):
        prompty.invoke(agent)
    with pytest.raises(RequestError, match=refused):
        asyncio.run(prompty.invoke_async(agent))
    with pytest.raises(RequestError, match=refused):
        prompty.turn(agent, tools=[look])
    with pytest.raises(RequestError, match=refused):
        list(prompty.invoke(agent, stream=True))
    assert not server.accepted


@pytest.mark.usefixtures("offline")
def test_a_thread_of_a_test_reaches_no_model(server: Server) -> None:
    errors: list[Exception] = []

    def work() -> None:
        try:
            prompty.invoke(ask(server))
        except RequestError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors
    assert not server.accepted


def test_scripts_and_recordings_answer(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = tmp_path / "warm.jsonl"
    with Recorder(recording):
        assert prompty.invoke(ask(server)) == "Warm"
    monkeypatch.setenv("PROMPTY_OFFLINE", "1")
    with Script("Cold"):
        assert prompty.invoke(ask(server)) == "Cold"
    with Player(recording):
        assert prompty.invoke(ask(server)) == "Warm"
    with pytest.raises(RequestError, match="PROMPTY_OFFLINE"), Recorder(tmp_path / "other.jsonl"):
        prompty.invoke(ask(server))
    assert len(server.requests) == 1


FORGETFUL = """
import prompty

def test_forgets():
    connection = {{"kind": "key", "endpoint": "{url}/v1", "apiKey": "k"}}
    model = {{"id": "m", "connection": connection}}
    agent = prompty.PromptAgent.model_validate({{"model": model, "instructions": "user:\\nHi"}})
    assert prompty.invoke(agent) == "Warm"
"""


def test_the_option_of_pytest_holds_until_models_are_wanted(pytester: pytest.Pytester, server: Server) -> None:
    pytester.makepyfile(FORGETFUL.format(url=server.url))
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    pytester.makeini("[pytest]\nprompty_offline = true\n")
    asked = len(server.requests)
    refused = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    refused.assert_outcomes(failed=1)
    refused.stdout.fnmatch_lines(["*PROMPTY_OFFLINE*", "*prompty_script*"])
    assert len(server.requests) == asked
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "--prompty-live").assert_outcomes(passed=1)


def test_the_option_ends_with_the_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMPTY_OFFLINE", raising=False)
    pytester.makeini("[pytest]\nprompty_offline = true\n")
    pytester.makepyfile("import os\ndef test_is_offline(): assert os.environ['PROMPTY_OFFLINE'] == '1'")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    assert "PROMPTY_OFFLINE" not in os.environ


@pytest.mark.process
def test_unittest_forbids_models_with_a_call(tmp_path: Path, server: Server) -> None:
    text = "import unittest, prompty, prompty.testing\nprompty.testing.forbid_models()\n"
    forgetful = FORGETFUL.format(url=server.url)
    text += forgetful.replace("def test_forgets():", "class Tests(unittest.TestCase):\n  def test(self):")
    (tmp_path / "test_unit.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "unittest", "test_unit.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  our own program
    assert "PROMPTY_OFFLINE forbids it" in done.stderr
    assert not server.accepted
