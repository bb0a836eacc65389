"""Links that a folder brings: no command writes through one, or reads an argument through one that leads elsewhere.

Each test runs a command in a folder with a link to a file outside it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loopback import Server, json_reply

pytestmark = pytest.mark.process

PROMPT = """\
---
name: a
model: {{id: m, connection: {{kind: anonymous, endpoint: '{url}/v1'}}}}
---
user:
hi {{{{ q }}}}
"""
VERSION_1 = "---\nname: a\nmodel: {api: chat, configuration: {type: openai}}\n---\nuser:\nhi\n"
TESTS = "cases:\n- name: a\n  inputs: {q: x}\n  expect: {live: {contains: OK}}\n"
ANSWER = {
    "id": "x",
    "object": "chat.completion",
    "model": "m",
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "OK"}}],
}
RUN = ["run", "a.prompty", "-i", "q=1"]
BATCH = ["batch", "a.prompty", "rows.jsonl", "-o"]


class Place:
    """A working folder, with a link in it, and a folder outside that nothing may change."""

    def __init__(self, root: Path, server: Server) -> None:
        self.here, self.outside, self.server = root / "here", root / "outside", server
        self.here.mkdir()
        self.outside.mkdir()
        (self.outside / "keep").write_text(VERSION_1)
        (self.here / "a.prompty").write_text(PROMPT.format(url=server.url))
        (self.here / "a.test.yaml").write_text(TESTS)
        (self.here / "rows.jsonl").write_text('{"q": "1"}\n')

    def link(self, name: str, target: str) -> None:
        place = self.here / name
        place.unlink(missing_ok=True)
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(self.outside / target)

    def run(self, *words: str) -> tuple[int, str]:
        environment = {**os.environ, "XDG_STATE_HOME": str(self.here.parent / "state"), "COLUMNS": "300"}
        done = subprocess.run(  # noqa: S603  our own command
            [sys.executable, "-m", "prompty", *words], cwd=self.here, env=environment, capture_output=True, timeout=120
        )
        return done.returncode, (done.stdout + done.stderr).decode()

    def list_outside(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.outside.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Server() as server:
        server.answer(*[json_reply(ANSWER)] * 5)
        yield Place(tmp_path, server)


WRITING = {
    "run -o, a link to a file": ("out.md", "keep", [*RUN, "-o", "out.md"]),
    "run -o, a link to nothing": ("out.md", "new", [*RUN, "-o", "out.md"]),
    "run -o, below a link to a folder": ("out", "", [*RUN, "-o", "out/a.md"]),
    "batch -o": ("out.jsonl", "new", [*BATCH, "out.jsonl"]),
    "batch -o, a table": ("out.csv", "keep", [*BATCH, "out.csv"]),
    "the failures of a batch": ("out.failed.jsonl", "new", [*BATCH, "out.jsonl"]),
    "the journal of a batch": ("out.started", "keep", [*BATCH, "out.jsonl"]),
    "migrate --write": ("v1.prompty", "keep", ["migrate", "v1.prompty", "--write"]),
    "run --trace, a folder": ("traces", "", [*RUN, "--trace", "file:traces"]),
    "run --trace, below a folder": ("build", "", [*RUN, "--trace", "file:build/traces"]),
    "test --html": ("out.html", "keep", ["test", "--live", "--html", "out.html", "a.test.yaml"]),
    "test --html, below a folder": ("build", "", ["test", "--live", "--html", "build/out.html", "a.test.yaml"]),
    "test --junit": ("out.xml", "new", ["test", "--live", "--junit", "out.xml", "a.test.yaml"]),
    "test --update": ("a.baseline.json", "new", ["test", "--live", "--update", "a.test.yaml"]),
    "test --record, all recordings": ("recordings", "", ["test", "--live", "--record", "a.test.yaml"]),
    "test --record, a recording": ("recordings/a/a.jsonl", "new", ["test", "--live", "--record", "a.test.yaml"]),
    "test --init": ("b.test.yaml", "new", ["test", "--init", "b.prompty"]),
    "new": ("n.prompty", "new", ["new", "chat", "n"]),
    "trace html": ("t.html", "keep", ["trace", "html", "t.jsonl"]),
}


@pytest.mark.parametrize(("link", "target", "words"), WRITING.values(), ids=WRITING)
def test_nothing_is_written_through_a_link(place: Place, link: str, target: str, words: list[str]) -> None:
    if "recordings/" in link:
        (place.here / "recordings" / "a").mkdir(parents=True)
    if link == "b.test.yaml":
        (place.here / "b.prompty").write_text((place.here / "a.prompty").read_text())
    if link == "t.html":
        place.run(*RUN, "--trace", "file:.")
        next(place.here.glob("a.2*.jsonl")).rename(place.here / "t.jsonl")
    place.link(link, target)
    before = place.list_outside()
    code, told = place.run(*words)
    assert (code, place.list_outside()) == (1, before), told
    assert (place.here / link).is_symlink()
    named = "already exists" if words[0] == "new" or "--init" in words else str(place.outside / target)
    assert named in told.replace("\n", "")


@pytest.mark.parametrize("words", [RUN, BATCH[:-1]], ids=["run", "batch"])
def test_a_link_is_refused_before_a_model_is_asked(place: Place, words: list[str]) -> None:
    place.link("out.jsonl", "new")
    assert place.run(*words, "-o", "out.jsonl")[0] == 1
    assert place.server.requests == []


def test_the_target_of_a_link_is_written_if_a_person_names_it(place: Place) -> None:
    place.link("out.md", "keep")
    place.link("traces", "")
    code, told = place.run(*RUN, "-o", str(place.outside / "keep"), "--trace", f"file:{place.outside}")
    assert code == 0, told
    assert (place.outside / "keep").read_text() == "OK\n"
    assert len(list(place.outside.glob("*.jsonl"))) == 1


def test_a_trace_is_not_written_over_files_whose_names_a_folder_has_foretold(place: Place) -> None:
    now = time.time()
    for second in range(60):
        stem = f"a.{time.strftime('%Y%m%d.%H%M%S', time.localtime(now + second))}"
        for name in (f"{stem}.jsonl", f"{stem}.jsonl.new", f"{stem}.tracy.partial"):
            place.link(f"traces/{name}", "keep")
    code, told = place.run(*RUN, "--trace", "file:traces")
    assert (code, place.list_outside()) == (0, {"keep": VERSION_1}), told
    [trace] = [path for path in (place.here / "traces").iterdir() if not path.is_symlink()]
    assert trace.suffix == ".jsonl"


def test_a_pipe_or_a_folder_is_not_an_output(place: Place) -> None:
    os.mkfifo(place.here / "pipe")
    for name, reason in {"pipe": "not a regular file", "folder": "is a folder", "pipe.jsonl": "not a regular"}.items():
        if name == "folder":
            (place.here / name).mkdir()
        if name == "pipe.jsonl":
            os.mkfifo(place.here / name)
        words = [*BATCH, name] if name.endswith("jsonl") else [*RUN, "-o", name]
        code, told = place.run(*words)
        assert (code, reason in told) == (1, True), told
    assert place.server.requests == []


READING = {
    "an input": ("a.txt", [*RUN[:2], "-i", "q=@a.txt"]),
    "an input below a link to a folder": ("sub", [*RUN[:2], "-i", "q=@sub/keep"]),
    "a file of inputs": ("a.json", [*RUN[:2], "--inputs", "a.json"]),
    "rows": ("linked.jsonl", ["batch", "a.prompty", "linked.jsonl", "-o", "out.jsonl"]),
}


@pytest.mark.parametrize(("link", "words"), READING.values(), ids=READING)
def test_no_argument_is_read_through_a_link_that_leads_out(place: Place, link: str, words: list[str]) -> None:
    (place.outside / "keep").write_text('{"q": "planted"}\n')
    target = "" if link == "sub" else "keep"
    place.link(link, target)
    code, told = place.run(*words)
    assert (code, place.server.requests) == (1, [])
    assert f"to '{place.outside / 'keep'}'" in told.replace("\n", "")
    named = [word.replace(words[-1].rpartition("@")[2], str(place.outside / "keep")) for word in words]
    if words[0] == "run":
        assert place.run(*named)[0] == 0
        assert "planted" in str(place.server.requests)


def test_an_argument_is_read_through_a_link_that_stays_inside(place: Place) -> None:
    (place.here / "texts").mkdir()
    (place.here / "texts" / "a.txt").write_text("mine")
    (place.here / "a.txt").symlink_to("texts/a.txt")
    assert place.run(*RUN[:2], "-i", "q=@a.txt")[0] == 0
    assert "mine" in str(place.server.requests)
