"""`prompty keys`: as a person uses it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drivers.wires import Chat
from tests.loopback import Server, json_reply

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "prompty"]
KEY = "sk-nobody-should-see-this"


def run(*arguments: str | Path, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return subprocess.run(  # noqa: S603  our own command
        [*COMMAND, *map(str, arguments)],
        input=given,
        capture_output=True,
        text=True,
        env={**environment, "COLUMNS": "200", "PYTHONIOENCODING": "utf-8", **env},
        timeout=60,
        check=False,
    )


def get_file() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"]) / "prompty" / "keys"


def test_a_key_is_set_listed_used_and_removed(tmp_path: Path) -> None:
    done = run("keys", "set", "openai", given=f"{KEY}\n")
    assert (done.returncode, done.stdout) == (0, f"Stored the key for openai in {get_file()}.\n")
    listed = run("keys", "list")
    assert (listed.returncode, listed.stdout) == (0, f"openai  {get_file()}\n")
    (tmp_path / "p.prompty").write_text("---\nmodel: m\n---\nuser:\nHi\n")
    with Server() as server:
        server.answer(json_reply(Chat().whole("Hello")), json_reply({"error": {"message": KEY}}, 401))
        base = {"OPENAI_BASE_URL": f"{server.url}/v1"}
        assert run("run", tmp_path / "p.prompty", **base).stdout == "Hello\n"
        refused = run("run", tmp_path / "p.prompty", "--debug", **base)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    removed = run("keys", "remove", "openai")
    assert (removed.returncode, removed.stdout) == (0, f"Removed the key for openai from {get_file()}.\n")
    again = run("keys", "remove", "openai")
    assert (again.returncode, again.stderr) == (1, "error: no key for openai is stored\n    See `prompty keys list`.\n")
    assert not [one for one in (done, listed, refused, removed, again) if KEY in one.stdout + one.stderr]


def test_two_names_of_one_key_share_it() -> None:
    run("keys", "set", "foundry", given=KEY)
    run("keys", "set", "bedrock-anthropic", given=KEY)
    assert [entry["provider"] for entry in json.loads(run("keys", "list", "--json").stdout)] == ["azure", "bedrock"]
    assert run("keys", "remove", "azure").returncode == 0


def test_the_list_says_which_keys_the_environment_overrides() -> None:
    run("keys", "set", "groq", given=KEY)
    listed = run("keys", "list", GROQ_API_KEY="x")
    assert "(the environment variable GROQ_API_KEY is used instead)" in listed.stdout
    assert "No keys are stored" not in listed.stderr


@pytest.mark.parametrize("arguments", [["openai", KEY], ["openai", f"--key={KEY}"], [KEY], [KEY, "openai"]])
def test_a_key_on_the_command_line_is_refused_and_not_repeated(arguments: list[str]) -> None:
    done = run("keys", "set", *arguments, given=KEY)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "nobody-should" not in done.stdout + done.stderr
    assert not get_file().exists()


@pytest.mark.parametrize("given", ["", "\n", "a key with\x00bytes\n", "schlüssel\n", "x" * 20_000])
def test_what_cannot_be_a_key_is_not_stored(given: str) -> None:
    done = run("keys", "set", "openai", given=given)
    assert done.returncode == 1
    assert not get_file().exists()


def test_a_misspelt_provider_is_met_with_the_right_one() -> None:
    done = run("keys", "set", "antropic", given=KEY)
    assert done.returncode == 1
    assert "Did you mean `anthropic`?" in done.stderr


def test_a_file_that_others_can_read_is_an_error_with_its_fix() -> None:
    run("keys", "set", "openai", given=KEY)
    get_file().chmod(0o644)
    done = run("keys", "list")
    assert done.returncode == 1
    assert f"{get_file()} is not read, because other users can read it" in done.stderr
    assert f"chmod 600 '{get_file()}'" in done.stderr


def test_a_terminal_is_asked_without_echo() -> None:
    code = f"import pty; pty.spawn({[*COMMAND, 'keys', 'set', 'openai']!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603  our own command
        assert process.stdin
        assert process.stdout
        shown = b""
        while b"Key for openai: " not in shown:
            byte = process.stdout.read(1)
            assert byte, shown
            shown += byte
        process.stdin.write(f"{KEY}\n".encode())
        process.stdin.flush()
        while b"Stored" not in shown:
            byte = process.stdout.read(1)
            assert byte, shown
            shown += byte
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert KEY.encode() not in shown
    assert json.loads(get_file().read_text()) == {"openai": KEY}


def test_the_keyring_is_used_if_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "ring.py").write_text(
        "import json, pathlib\nfrom keyring.backend import KeyringBackend\n"
        "PATH = pathlib.Path(__file__).with_name('ring.json')\n"
        "def read(): return json.loads(PATH.read_text()) if PATH.exists() else {}\n"
        "class Ring(KeyringBackend):\n"
        "    priority = 5\n"
        "    def get_password(self, service, name): return read().get(name)\n"
        "    def set_password(self, service, name, key): PATH.write_text(json.dumps({**read(), name: key}))\n"
        "    def delete_password(self, service, name): PATH.write_text('{}')\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    ring = {"PYTHONPATH": path, "PYTHON_KEYRING_BACKEND": "ring.Ring"}
    done = run("keys", "set", "openai", given=KEY, **ring)
    assert (done.returncode, done.stdout) == (0, "Stored the key for openai in the keyring (ring.Ring).\n")
    assert not get_file().exists()
    assert run("keys", "list", **ring).stdout == "openai  the keyring (ring.Ring)\n"
    assert run("keys", "remove", "openai", **ring).returncode == 0
    assert run("keys", "list", **ring).stdout == ""
