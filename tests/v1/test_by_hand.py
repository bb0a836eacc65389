"""What v1 files send, compared with requests that are written by hand from the description of the format.

The files together have every key and every idiom that is translated.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from prompty import PromptAgent, invoke, loads, prepare
from prompty.errors import UnknownName
from prompty.pipeline.migrate import migrate_text
from tests.loopback import Server
from tests.v1.corpus import load_quietly

FILES = sorted(Path(__file__).parent.glob("files/[0-9]*.prompty"))


def both(file: Path) -> dict[str, PromptAgent]:
    migrated = migrate_text(file.read_text("utf-8"), file.name, file.parent).text
    return {"v1": load_quietly(file), "v2": loads(migrated, base_dir=file.parent)}


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_sends_the_request_that_is_written_by_hand(
    file: Path, version: str, provider: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER", provider.url)
    monkeypatch.setenv("PROMPTY_TRUSTED_ENDPOINTS", provider.url)  # tokens of the machine stay off its own servers
    expected: dict[str, Any] = json.loads(file.with_suffix(".json").read_text("utf-8"))
    agent = both(file)[version]
    if "fails" in expected:
        with pytest.raises(UnknownName, match=expected["fails"]):
            invoke(agent, expected["inputs"])
        assert [message.to_json() for message in prepare(agent, expected["inputs"])] == expected["messages"]
        return
    options = {"model": expected["model"]} if "model" in expected else {}
    invoke(agent, expected["inputs"], outputs_mode="lenient", **options)
    request = provider.requests.pop()
    header, _, value = expected["credential"].partition(": ")
    assert request.body == expected["body"]
    assert request.path == expected["path"]
    assert request.headers[header] == value


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_cannot_be_translated_is_listed_with_its_line(file: Path) -> None:
    expected = json.loads(file.with_suffix(".json").read_text("utf-8"))["notes"]
    notes = migrate_text(file.read_text("utf-8"), file.name, file.parent).notes
    assert [note.line for note in notes] == [line for line, _ in expected]
    assert all(said in note.message for note, (_, said) in zip(notes, expected, strict=True))
    assert all(note.fix and note.code == "version-1-part" for note in notes)


def test_there_are_twelve_files() -> None:
    assert len(FILES) == 12
