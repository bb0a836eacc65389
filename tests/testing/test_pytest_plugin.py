"""The pytest plugin, in projects of its own."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.loopback import Server, json_reply

pytest_plugins = ["pytester"]

RECORDED = """
import pytest
from prompty import PromptAgent, invoke, invoke_async

def ask(question="Hi"):
    connection = {{"kind": "key", "endpoint": "{url}/v1", "apiKey": "a-key-of-no-known-shape"}}
    model = {{"id": "m", "provider": "openai", "connection": connection}}
    return PromptAgent.model_validate({{"model": model, "instructions": "user:\\n" + question}})

def test_asks(prompty_recording):
    assert invoke(ask()) == {expected!r}

@pytest.mark.parametrize("word", ["a", "a/b", "a_b", "x" * 300])
def test_asks_for(word, prompty_recording):
    assert invoke(ask(word)) == {expected!r}

class TestAsking:
    def test_asks(self, prompty_recording):
        assert invoke(ask()) == {expected!r}

    @pytest.mark.anyio
    @pytest.mark.parametrize("anyio_backend", ["asyncio"])
    async def test_asks_async(self, prompty_recording):
        assert await invoke_async(ask()) == {expected!r}
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        close_clients()


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error", *options)


def write(pytester: pytest.Pytester, url: str, expected: str) -> None:
    pytester.makepyfile(test_weather=RECORDED.format(url=url, expected=expected))


def test_recordings_are_made_live_and_then_played(pytester: pytest.Pytester, server: Server) -> None:
    server.answer(json_reply(Chat().whole("Warm")))
    write(pytester, server.url, "Warm")
    run(pytester, "--prompty-live").assert_outcomes(passed=7)
    assert len(server.requests) == 7
    run(pytester).assert_outcomes(passed=7)
    assert len(server.requests) == 7
    names = sorted(file.name for file in (pytester.path / "recordings" / "test_weather").iterdir())
    assert len(names) == 7
    assert {"test_asks.jsonl", "TestAsking.test_asks.jsonl", "test_asks_for[a].jsonl"} <= set(names)


def test_a_test_that_fails_keeps_its_recording(pytester: pytest.Pytester, server: Server) -> None:
    server.answer(json_reply(Chat().whole("Warm")))
    write(pytester, server.url, "Warm")
    run(pytester, "--prompty-live").assert_outcomes(passed=7)
    server.answer(json_reply(Chat().whole("Cold")))
    run(pytester, "--prompty-live").assert_outcomes(failed=7)
    run(pytester).assert_outcomes(passed=7)
    write(pytester, server.url, "Cold")
    run(pytester, "--prompty-live").assert_outcomes(passed=7)
    run(pytester).assert_outcomes(passed=7)
    assert not list(pytester.path.rglob("*.new"))


def test_a_missing_recording_says_how_to_make_it(pytester: pytest.Pytester) -> None:
    write(pytester, "http://127.0.0.1:9", "Warm")
    result = run(pytester, "-k", "test_asks and not for and not Asking")
    result.assert_outcomes(failed=1, deselected=6)
    result.stdout.fnmatch_lines(["*RecordingMissing: no recording matches*test_asks.jsonl does not exist*"])
    result.stdout.fnmatch_lines(["*To record it again, run `pytest --prompty-live`*"])


def test_scripts_answer_for_one_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from prompty import ModelError, PromptAgent, invoke

        AGENT = PromptAgent.model_validate({"model": {"id": "m", "provider": "scripted"}, "instructions": "user:\\nHi"})

        def test_script(prompty_script):
            script = prompty_script("one", "two")
            assert [invoke(AGENT), invoke(AGENT)] == ["one", "two"]
            assert len(script.requests) == 2
            prompty_script("three")
            assert invoke(AGENT) == "three"

        def test_no_script():
            with pytest.raises(ModelError, match="no script"):
                invoke(AGENT)
    """)
    run(pytester).assert_outcomes(passed=2)


@pytest.mark.process
def test_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import prompty.testing.pytest_plugin;"
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  our own code
    assert set(done.stdout.split()) == {
        "prompty",
        "prompty.lazy",
        "prompty.version",
        "prompty.testing",
        "prompty.testing.pytest_plugin",
    }
