"""Keys that `prompty keys` stores: where they are, who can read them, and when a call uses them."""

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keyring
import pytest

from prompty import Registry, invoke, invoke_async, loads, trace_to
from prompty.errors import RequestError
from prompty.providers import keys
from prompty.providers.keys import KeyFile, find_key_file, find_keyring, find_stored_key, find_stores
from prompty.registry import DEFAULT
from prompty.tracing import Tracer
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.keyrings import LockedKeyring, MemoryKeyring
from tests.loopback import Server, json_reply

KEY = "stored-key-nobody-should-see"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in {*keys.get_key_names().values(), "ANTHROPIC_AUTH_TOKEN", "OPENAI_BASE_URL"}:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(keys, "_MISS_SECONDS", 0.0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        yield server
        close_clients()


def prompt(connection: str = "null", **settings: Any) -> Any:
    return loads(f"---\nmodel: {{id: m, connection: {connection}}}\n---\nuser:\nHi", **settings)


def sent_key(server: Server, agent: Any) -> str:
    server.answer(json_reply(Chat().whole("Hello")))
    assert invoke(agent) == "Hello"
    return server.requests[-1].headers["authorization"].removeprefix("Bearer ")


# The file.


def test_the_file_and_its_folder_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        find_key_file().write("openai", KEY)
    finally:
        os.umask(before)
    path = find_key_file().path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["keys"]
    assert json.loads(path.read_text()) == {"openai": KEY}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_use_is_not_read(mode: int) -> None:
    file = find_key_file()
    file.write("openai", KEY)
    file.path.chmod(mode)
    with pytest.raises(RequestError, match="because other users can read it") as caught:
        file.read("openai")
    assert f"chmod 600 '{file.path}'" in caught.value.fix
    with pytest.raises(RequestError):
        file.write("groq", KEY)
    assert json.loads(file.path.read_text()) == {"openai": KEY}


@pytest.mark.parametrize("content", ["", "sk-quoted", "[]", '{"openai": 3}', "\xff", "{" * 10_000])
def test_a_file_that_is_none_is_an_error_that_quotes_nothing(content: str) -> None:
    file = find_key_file()
    file.write("openai", KEY)
    file.path.write_bytes(content.encode("latin-1"))
    with pytest.raises(RequestError, match="is not a file of keys") as caught:
        file.read("openai")
    assert "quoted" not in str(caught.value)


def test_a_folder_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    with pytest.raises(RequestError):
        KeyFile(tmp_path / "keys").read("openai")
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot be written"):
        KeyFile(tmp_path / "file" / "below" / "keys").write("openai", KEY)


def test_writers_at_once_lose_no_key(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")

    def write(number: int) -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                return file.write(f"name{number}", KEY)
            except RequestError as error:
                assert "another process is changing the keys" in str(error)
        pytest.fail("never got its turn")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(12)))
    assert file.read_all() == {f"name{number}": KEY for number in range(12)}


def test_a_write_that_fails_leaves_the_file_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    file = find_key_file()
    file.write("openai", KEY)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RequestError, match="No space left"):
        file.write("openai", "another")
    assert file.read_all() == {"openai": KEY}
    assert [entry.name for entry in file.path.parent.iterdir()] == ["keys"]


@pytest.mark.parametrize("folder", ["", "relative/path"])
def test_a_configuration_folder_must_be_absolute(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_key_file().path == tmp_path / ".config" / "prompty" / "keys"


# The keyring.


def test_the_keyring_comes_first_if_it_is_usable() -> None:
    assert find_keyring() is None  # the one of the tests holds nothing
    assert [type(store).__name__ for store in find_stores()] == ["KeyFile"]
    keyring.set_keyring(MemoryKeyring())
    assert [type(store).__name__ for store in find_stores()] == ["Keyring", "KeyFile"]


def test_without_the_package_keys_are_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert find_keyring() is None


def test_a_locked_keyring_does_not_hide_a_key_in_the_file() -> None:
    keyring.set_keyring(LockedKeyring())
    find_key_file().write("openai", KEY)
    assert find_stored_key("OPENAI_API_KEY", DEFAULT.clients) == KEY
    with pytest.raises(RequestError, match="the keyring cannot be used: KeyringLocked") as caught:
        find_stored_key("GROQ_API_KEY", DEFAULT.clients)
    assert "quoted" not in str(caught.value)


# Calls.


def test_each_source_wins_over_those_after_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    find_key_file().write("openai", "of-the-keys-file")
    assert sent_key(server, prompt()) == "of-the-keys-file"
    close_clients()  # calls keep a key for a while
    keyring.set_keyring(MemoryKeyring({"openai": "of-the-keyring"}))
    assert sent_key(server, prompt()) == "of-the-keyring"
    registry = Registry()
    registry.dotenv = {"OPENAI_API_KEY": "of-the-dotenv"}
    assert sent_key(server, prompt(registry=registry)) == "of-the-dotenv"
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-environment")
    assert sent_key(server, prompt()) == "of-the-environment"
    assert sent_key(server, prompt("{kind: key, apiKey: of-the-file}")) == "of-the-file"
    assert sent_key(server, prompt("{kind: key}")) == "of-the-environment"


def test_a_token_of_the_environment_wins_over_a_stored_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    find_key_file().write("anthropic", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-the-environment")
    answer = {"content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"}
    for expected in ("token-of-the-environment", KEY):
        server.answer(json_reply(answer))
        agent = loads("---\nmodel: {id: m, provider: anthropic}\n---\nuser:\nHi")
        assert invoke(agent) == "Hello"
        assert expected in str(server.requests[-1].headers)
        monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)


def test_azure_takes_a_stored_key_before_entra(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    find_key_file().write("azure", KEY)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
    server.answer(json_reply(Chat().whole("Hello")))
    assert invoke(loads("---\nmodel: {id: m, provider: azure}\n---\nuser:\nHi")) == "Hello"
    assert server.requests[-1].headers["api-key"] == KEY


def test_the_key_of_another_server_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    find_key_file().write("openai", KEY)
    with pytest.raises(RequestError, match="the connection has no `apiKey`") as caught:
        invoke(prompt("{kind: key, endpoint: 'https://api.groq.com/openai/v1'}"))
    assert "prompty keys set groq" in caught.value.fix
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.groq.com/openai/v1")
    with pytest.raises(RequestError, match="there is no key for OpenAI"):
        invoke(prompt())


def test_a_key_is_looked_up_once_and_a_missing_one_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_MISS_SECONDS", 60.0)
    backend = MemoryKeyring()
    keyring.set_keyring(backend)
    assert find_stored_key("OPENAI_API_KEY", DEFAULT.clients) is None
    assert find_stored_key("OPENAI_API_KEY", DEFAULT.clients) is None
    assert backend.asked == 1
    backend.keys["openai"] = KEY
    monkeypatch.setattr(keys, "_MISS_SECONDS", 0.0)
    assert find_stored_key("OPENAI_API_KEY", DEFAULT.clients) == KEY
    assert find_stored_key("OPENAI_API_KEY", DEFAULT.clients) == KEY
    assert backend.asked == 2


def test_no_key_says_how_to_store_one() -> None:
    with pytest.raises(RequestError, match="there is no key for OpenAI") as caught:
        invoke(prompt())
    assert "run `prompty keys set openai`" in caught.value.fix
    find_key_file().write("openai", KEY)
    with pytest.raises(RequestError, match="which only the file names"):
        invoke(prompt("{kind: key, endpoint: 'http://127.0.0.1:9/v1'}"))


@pytest.mark.parametrize("store", ["keyring", "file"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_stored_key_is_in_no_error_trace_log_or_repr(
    store: str, asynchronous: bool, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    if store == "keyring":
        keyring.set_keyring(MemoryKeyring({"openai": KEY}))
    else:
        find_key_file().write("openai", KEY)
    server.answer(json_reply({"error": {"message": f"bad key {KEY}"}}, 401), json_reply(Chat().whole(f"I saw {KEY}")))
    trace_to(f"file:{tmp_path / 'traces'}", capture="wire")
    agent = prompt()
    try:
        with pytest.raises(Exception, match="bad key") as caught:
            asyncio.run(invoke_async(agent)) if asynchronous else invoke(agent)
        invoke(agent)
    finally:
        Tracer.clear()
    written = "".join(path.read_text() for path in (tmp_path / "traces").rglob("*") if path.is_file())
    shown = [str(caught.value), repr(caught.value), repr(agent), str(find_stores()), written, caplog.text]
    assert written
    assert [text for text in shown if KEY in text] == []


@pytest.mark.process
def test_a_call_with_a_key_of_the_environment_imports_neither_keyring_nor_store() -> None:
    with Server() as server:
        server.answer(json_reply(Chat().whole("Hello")))
        code = (
            "import sys, prompty; print(prompty.invoke(prompty.loads('---\\nmodel: m\\n---\\nuser:\\nHi')));"
            "print(*[name for name in sys.modules if 'keyring' in name or name == 'prompty.providers.keys'])"
        )
        env = {**os.environ, "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{server.url}/v1"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)  # noqa: S603  our own code
    assert done.stdout.split() == ["Hello"]
