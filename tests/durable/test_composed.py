"""A durable run keeps the text it began with, whatever happens to the files of its prompt."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from prompty import load
from prompty.events import Done
from tests.durable.databases import Databases
from tests.durable.shop import SECONDS, Shop, kill
from tests.durable.worker import script

pytestmark = pytest.mark.process


@pytest.fixture
def shop(databases: Databases, tmp_path: Path) -> Iterator[Shop]:
    found = Shop(databases.new("sqlite"), tmp_path)
    yield found
    found.close()


def write_prompt(folder: Path) -> Path:
    folder.mkdir()
    options = json.dumps({"additionalProperties": {"script": script("composed")}})
    head = f"model:\n  provider: scripted\n  id: small\n  options: {options}\n"
    body = 'system:\n{% block rules %}Old.{% endblock %}\n{% include "_rules.md" %}\nuser:\nHi\n'
    (folder / "ask.prompty").write_text(f"---\n{head}---\n{body}")
    (folder / "ask.big.prompty").write_text("---\nmodel: {id: big}\n---\n{% block rules %}Big.{% endblock %}\n")
    (folder / "_rules.md").write_text("Be kind.\n")
    return folder / "ask.prompty"


def test_a_run_that_another_worker_recovers_keeps_the_text_it_began_with(shop: Shop, tmp_path: Path) -> None:
    path = write_prompt(tmp_path / "prompts")
    agent = load(path, variant="big")
    shop.started.append("composed")
    shop.client.start(agent, run_id="composed", tools=["pay", "look"])
    first = shop.worker(dies_at=40)
    first.join(SECONDS)
    assert first.exitcode == -signal.SIGKILL
    (path.parent / "_rules.md").write_text("Be rude.\n")
    (path.parent / "ask.big.prompty").write_text("---\nmodel: {id: other}\n---\n")
    path.unlink()
    second = shop.worker()
    shop.finish()
    kill(second)
    shop.check_nothing_is_repeated(shop.effects())
    *_, last = shop.client.events("composed")
    assert isinstance(last.event, Done)
    assert last.event.messages[0].text == "Big.\nBe kind."
    status = shop.client.engine.status("composed")
    assert status is not None
    stored = json.dumps(status.record)
    assert all(digest in stored for digest in agent.files.values())
    assert agent.files.keys() == {"ask.prompty", "_rules.md"}
