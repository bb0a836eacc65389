"""A recording belongs to the text that was sent: to the partials and the variant of its prompt, too."""

from pathlib import Path

import pytest

from prompty import invoke, load
from prompty.testing import Player, Recorder, RecordingMissing
from tests.drivers.clients import close_clients
from tests.drivers.wires import KEY, Chat
from tests.loopback import Server, json_reply


def test_a_recording_answers_the_same_text_and_no_other(tmp_path: Path) -> None:
    path, recording = tmp_path / "ask.prompty", tmp_path / "one.jsonl"
    (tmp_path / "_rules.md").write_text("Be kind.\n")
    (tmp_path / "ask.big.prompty").write_text("---\nmodel: {id: big}\n---\n")

    def write(endpoint: str) -> None:
        connection = f"{{kind: key, endpoint: {endpoint}, apiKey: {KEY}}}"
        head = f"model:\n  id: m\n  connection: {connection}\n"
        path.write_text(f'---\n{head}---\nsystem:\n{{% include "_rules.md" %}}\nuser:\nHi\n')

    with Server() as server:
        server.answer(json_reply(Chat().whole("Hello.")), json_reply(Chat().whole("Big hello.")))
        write(server.url)
        with Recorder(recording):
            assert invoke(load(path)) == "Hello."
            assert invoke(load(path, variant="big")) == "Big hello."
        close_clients()
    write("http://127.0.0.1:9")
    with Player(recording):
        assert invoke(load(path, variant="big")) == "Big hello."
        assert invoke(load(path)) == "Hello."
    (tmp_path / "_rules.md").write_text("Be brief.\n")
    with Player(recording), pytest.raises(RecordingMissing):
        invoke(load(path))
