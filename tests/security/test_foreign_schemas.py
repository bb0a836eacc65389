"""No schema from outside opens a file or calls a server, wherever it is written.

`jsonschema_rs` is not written in Python, so its own access raises no audit events. The kernel's notes on planted files
and a server that counts see it nevertheless.
"""

import ctypes
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from prompty.cases.case_file import Check
from prompty.cases.checks import Observation, run_checks
from prompty.safety.schemas import get_validator
from tests.loopback import Server, json_reply
from tests.security.foreign_schemas import PLACES, PLANTED, SCHEMAS, SECRET, write_schemas

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is a part of Linux")

TIME_LIMIT = 120  # seconds for all schemas of a place; one that hangs exceeds any limit
REFUSALS = {
    **dict.fromkeys(("prompty check", "prompty test", "pytest", "function tools"), "outside the schema"),
    "approval conditions": "Paused",
    "MCP listings": "an external reference",
}
_OPENED_OR_READ = 0x20 | 0x01  # IN_OPEN, IN_ACCESS
_EVENT = struct.Struct("iIII")


class Watcher:
    """The kernel's notes about some files: how often any process has opened or read them."""

    def __init__(self, files: list[Path]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK)
        assert self.descriptor >= 0
        for file in files:
            assert libc.inotify_add_watch(self.descriptor, os.fsencode(file), _OPENED_OR_READ) >= 0

    def count(self) -> int:
        """Return how many notes have come since the last time."""
        try:
            notes = os.read(self.descriptor, 1_000_000)
        except BlockingIOError:
            return 0
        return len(notes) // _EVENT.size  # a watched file has no name in its notes


@contextmanager
def planted(folder: Path) -> Iterator[tuple[Path, Watcher, Server]]:
    """A file with a secret, a pipe, and a server that has the same secret."""
    app = folder / "app"
    app.mkdir()
    (app / "planted.json").write_text(json.dumps({"const": SECRET}))
    os.mkfifo(app / "planted.fifo")
    watcher = Watcher([app / name for name in PLANTED])
    try:
        with Server() as server:
            server.answer(json_reply({"const": SECRET}))
            yield app, watcher, server
    finally:
        os.close(watcher.descriptor)


def has_reader(fifo: Path) -> bool:
    """Return True if a process has the pipe open, or waits for a writer."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_there_are_forty_schemas() -> None:
    assert len(SCHEMAS) >= 40


@pytest.mark.process
@pytest.mark.parametrize("place", PLACES)
def test_no_schema_opens_a_file_or_calls_a_server(place: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    with planted(tmp_path) as (app, watcher, server):
        command = [sys.executable, "-m", "tests.security.foreign_schemas", place, str(app), server.url]
        environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}", "COLUMNS": "200"}
        done = subprocess.run(  # noqa: S603  our own code
            command, cwd=app, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT
        )
        output = done.stdout + done.stderr
        assert "Traceback" not in output
        assert "AUDIT" not in output
        assert SECRET not in output
        assert output.count(REFUSALS.get(place, "\n")) > 15  # the schemas came to where they are used
        assert watcher.count() == 0
        assert server.accepted == 0
        assert not has_reader(app / "planted.fifo")


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_validator_reads_nothing_outside_its_schema(name: str, tmp_path: Path) -> None:
    with planted(tmp_path) as (app, watcher, server):
        schema = write_schemas(app, server.url)[name]
        try:
            get_validator(json.dumps(schema)).is_valid(SECRET)
        except ValueError as error:
            assert SECRET not in str(error)
        assert watcher.count() == 0
        assert server.accepted == 0


def test_the_watchers_see_what_an_ordinary_validator_reads(tmp_path: Path) -> None:
    with planted(tmp_path) as (app, watcher, server):
        schemas = write_schemas(app, server.url)
        jsonschema_rs.validator_for(schemas["$ref to a file"])
        assert watcher.count() > 0
        jsonschema_rs.validator_for(schemas["$ref to a server"])
        jsonschema_rs.validator_for(schemas["$schema at a server"])
        assert server.accepted == 2
        reader = os.open(app / "planted.fifo", os.O_RDONLY | os.O_NONBLOCK)
        assert has_reader(app / "planted.fifo")
        os.close(reader)


def test_the_error_of_a_schema_names_the_place_and_no_value() -> None:
    for schema, text in (
        ({"properties": {"a": {"type": SECRET}}}, "properties.a.type: the value is not valid under any"),
        ({"$ref": "#/a", "a": SECRET}, 'a: the value is not of types "boolean", "object"'),
        ({"$ref": "http://127.0.0.1:9/a"}, "it refers to http://127.0.0.1:9/a, outside the schema"),
    ):
        with pytest.raises(ValueError, match=r"^") as caught:
            get_validator(json.dumps(schema))
        assert str(caught.value).startswith(text)
        assert SECRET not in str(caught.value)


def test_the_failed_check_of_a_test_file_does_not_quote_its_schema() -> None:
    check = Check.model_validate({"json_schema": {"type": SECRET}})
    [result] = run_checks("render", [check], Observation("{}", dict), _no_evaluators)
    assert result.message.startswith("the JSON Schema is invalid: type: the value is not valid")


def _no_evaluators() -> Any:
    raise AssertionError("no check here runs code")
