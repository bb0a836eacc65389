"""Where spans go: the console, files, sinks of the host. None of them changes a run."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prompty import invoke, tool, trace_to, turn
from prompty.errors import RequestError
from prompty.testing import Script, call
from prompty.tracing import Span, Tracer
from prompty.tracing.files import FileSink
from prompty.tracing.sanitize import Sanitizer
from prompty.tracing.spans import begin
from prompty.viewer.trace import read_trace
from tests.conversations.turns import scripted
from tests.tracing.watching import Seen
from tests.ways import Way, sync_and_async

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nobody_listens_afterwards() -> Iterator[None]:
    yield
    Tracer.clear()


class Background(Seen):
    immediate = False


@tool
def look(city: str) -> str:
    """Look outside."""
    return f"sunny in {city}"


def a_turn() -> object:
    with Script([call("look", city="Paris"), call("look", city="Rome")], "Sunny."):
        return turn(scripted(name="weather"), {"q": "How is it?"}, tools=[look])


def test_the_console_is_a_tree_of_names_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    trace_to("console")
    with Script("Hello."):
        invoke(scripted(name="greet"), {"q": "\x1b[31mred\u202e"})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "[prompty] ▶ invoke greet"
    assert [line.split("(")[0].rstrip() for line in lines[1:6]] == [
        "[prompty]   ▶ prepare",
        "[prompty]     ▶ render",
        "[prompty]     ◀ render",
        "[prompty]     ▶ parse",
        "[prompty]     ◀ parse",
    ]
    assert lines[-1].startswith("[prompty] ◀ invoke (")
    assert "10 → 5 tokens" in lines[-1]
    assert "red" not in "\n".join(lines)


def test_the_console_shows_control_characters_of_an_error_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    trace_to("console")
    with pytest.raises(RuntimeError), begin("mine"):
        raise RuntimeError("\x1b[2J\u202e\nsecond line")
    assert "RuntimeError: \\x1b[2J\\u202e second line" in capsys.readouterr().err


def test_a_file_holds_the_whole_turn_and_belongs_to_its_owner(tmp_path: Path) -> None:
    trace_to(f"file:{tmp_path / 'traces'}")
    a_turn()
    [file] = (tmp_path / "traces").iterdir()
    assert file.name.startswith("weather.")
    assert file.suffix == ".jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    trace = read_trace(file)
    assert trace.runtime.startswith("prompty-python")
    root, *frames = trace.frames
    assert (root.name, root.status) == ("turn", "ok")
    assert root.content == {"inputs": {"q": "How is it?"}, "result": "Sunny."}
    assert root.duration is not None
    assert root.duration > 0
    assert root.usage == {"input_tokens": 20, "output_tokens": 10}
    below = [frame for frame in frames if frame.depth == 1]
    assert [frame.name for frame in below] == [
        "prepare",
        "connect",
        "execute",
        "process",
        "execute_tool",
        "execute_tool",
        "execute",
        "process",
    ]
    assert below[4].content["inputs"] == {"city": "Paris"}
    assert "sunny in Rome" in str(below[6].content["inputs"])


def test_traces_of_the_same_moment_have_files_of_their_own(tmp_path: Path) -> None:
    trace_to(f"file:{tmp_path}")
    threads = [threading.Thread(target=a_turn) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [read_trace(file).root.status for file in tmp_path.iterdir()] == ["ok"] * 8


@pytest.mark.process
def test_a_run_that_is_killed_in_the_middle_leaves_a_readable_trace(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.tracing.killed", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, timeout=60, check=False)  # noqa: S603  our own code
    assert done.returncode == -signal.SIGKILL
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    trace = read_trace(file)
    assert [frame.title for frame in trace.frames if not frame.finished] == [
        "invoke_agent doomed",
        "execute_tool step",
    ]
    last = trace.frames[-1]
    assert last.content["inputs"] == {"number": 2}
    assert any("step 1 is done" in str(frame.content) for frame in trace.frames)


def test_a_sink_that_fails_changes_nothing_for_the_run_or_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Seen):
        def started(self, span: Span, /) -> None:
            raise RuntimeError("no, with sk-abcdefghijklmnop")

        def ended(self, span: Span, /) -> None:
            raise OSError("no")

        def entered(self, span: Span, /) -> Any:
            if span.name == "turn":
                raise RuntimeError("not here")
            return lambda: 1 / 0

    seen = Seen()
    Tracer.add("broken", Broken())
    Tracer.add("seen", seen)
    trace_to(f"file:{tmp_path}")
    assert a_turn() == "Sunny."
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    seen.assert_complete()
    assert "a trace sink failed: Broken" in caplog.text
    assert "sk-abc" not in caplog.text


def test_a_slow_sink_does_not_slow_the_run(caplog: pytest.LogCaptureFixture) -> None:
    turn_is_over = threading.Event()
    waits: list[bool] = []

    class Slow(Seen):
        immediate = False

        def started(self, span: Span, /) -> None:
            waits.append(turn_is_over.wait(30))

    Tracer.add("slow", Slow())
    assert a_turn() == "Sunny."
    Tracer.flush(0.01)
    assert "a trace sink is slow: Slow" in caplog.text
    turn_is_over.set()
    Tracer.flush(30)
    assert waits
    assert all(waits), "the turn waited for the sink"


def test_a_sink_whose_queue_is_full_drops_spans_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    stuck = threading.Event()

    class Stuck(Seen):
        immediate = False

        def started(self, span: Span, /) -> None:
            stuck.wait(30)

    Tracer.add("stuck", Stuck())
    with begin("root"):
        for _ in range(6_000):
            with begin("step"):
                pass
    stuck.set()
    assert caplog.text.count("spans are dropped") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_the_thread_of_a_sink_ends_when_the_sink_is_removed_or_replaced() -> None:
    before = threading.active_count()
    seen = [Background() for _ in range(50)]
    for sink in seen:
        Tracer.add("mine", sink)
        with begin("work"):
            pass
    Tracer.remove("mine")
    Tracer.add("other", Background())
    Tracer.clear()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert all(len(sink.over) == 1 for sink in seen)


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("prompty.tracing.files._open_new", lambda _: os.open("/dev/full", os.O_WRONLY))
    Tracer.add("file", FileSink(tmp_path))
    assert a_turn() == "Sunny."
    assert "No space left on device" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    trace_to(f"file:{tmp_path / 'file' / 'traces'}")
    assert a_turn() == "Sunny."
    assert caplog.text.count("no trace is written") == 1
    assert "Traceback" not in caplog.text


@pytest.mark.process
def test_the_environment_turns_sinks_on(tmp_path: Path) -> None:
    code = "from prompty.tracing import Tracer\nwith Tracer.start('mine') as span:\n    span.record('inputs', {'a': 1})"
    environment = {**os.environ, "PROMPTY_TRACE": f"console, file:{tmp_path}"}
    done = subprocess.run(  # noqa: S603  our own code
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.startswith("[prompty] ▶ mine")
    assert [file.suffix for file in tmp_path.iterdir()] == [".jsonl"]


@pytest.mark.process
def test_a_mistake_in_the_environment_is_a_warning_and_not_the_end(caplog: pytest.LogCaptureFixture) -> None:
    start = "from prompty.tracing import Tracer\nwith Tracer.start('mine'): print('done')"
    code = f"import logging\nlogging.basicConfig()\n{start}"
    environment = {**os.environ, "PROMPTY_TRACE": "consol"}
    done = subprocess.run(  # noqa: S603  our own code
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "done\n"
    assert "PROMPTY_TRACE: 'consol' is not a trace sink" in done.stderr


def test_a_mistake_in_code_is_an_error_with_what_to_write() -> None:
    with pytest.raises(RequestError, match="Write console, file:FOLDER, otel"):
        trace_to("files")


@sync_and_async
def test_the_exact_exchange_is_kept_on_request(tmp_path: Path, way: Way) -> None:
    trace_to(f"file:{tmp_path}", capture="wire")
    with Script("Hello."):
        way.turn(scripted(name="greet"), {"q": "Hi"})
    [file] = tmp_path.iterdir()
    [execute] = [frame for frame in read_trace(file).frames if frame.name == "execute"]
    wire: Any = execute.content["wire"]
    [exchange] = wire
    assert exchange["request"]["messages"][-1] == {"role": "user", "content": "Hi"}
    assert exchange["response"]["choices"][0]["message"]["content"] == "Hello."
    assert exchange["curl"].startswith("curl ")
    assert exchange["error"] is None


def test_without_that_request_no_exchange_is_kept(tmp_path: Path) -> None:
    trace_to(f"file:{tmp_path}")
    with Script("Hello."):
        invoke(scripted())
    assert b'"wire"' not in next(tmp_path.iterdir()).read_bytes()


@pytest.mark.process
def test_the_command_line_traces_too(tmp_path: Path) -> None:
    model = "{id: m, provider: scripted, script: [Hello.]}"
    (tmp_path / "greet.prompty").write_text(f"---\nname: greet\nmodel: {model}\n---\nuser:\nHi")
    command = [sys.executable, "-m", "prompty.cli", "run", "greet.prompty", "--trace", "console,file:out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  our own code
    assert done.stdout == "Hello.\n", done.stderr
    assert "[prompty] ▶ invoke greet" in done.stderr
    assert read_trace(next((tmp_path / "out").iterdir())).root.title == "invoke greet"


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return inner | st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5)
values = nested(nested(nested(leaves)))


@given(values)
def test_whatever_is_shown_is_json(value: object) -> None:
    json.loads(Sanitizer().json(value))
    json.loads(Sanitizer().json([value, {"password": value}]))


@given(values, st.text("abcdefgh0123456789", min_size=7, max_size=20).map("g".__add__))  # no number has a g
def test_what_is_hidden_is_nowhere(value: object, hidden: str) -> None:
    masking = Sanitizer()
    masking.redactor.hide([hidden])
    shown = masking.json({"a": [value, f"x {hidden}-y", {hidden: 1, "b": hidden}], "c": json.dumps({"d": hidden})})
    assert hidden.encode() not in shown


def test_what_has_no_end_and_what_is_of_no_known_kind_is_shown_all_the_same() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert Sanitizer().json(endless).startswith(b"[[[[")
    assert b"object at" in Sanitizer().json({"a": object()})
    assert json.loads(Sanitizer().json("half a character: \ud800"))
    logging.getLogger("prompty.tracing").debug("nothing was raised")


def test_what_a_model_writes_into_sensitive_parameters_is_not_shown(tmp_path: Path) -> None:
    head = "---\nname: {name}\nmodel: {{id: m, provider: scripted}}\n{more}---\nuser:\nHi"
    more = "inputs: {passport: {kind: string, sensitive: true}}\n"
    (tmp_path / "child.prompty").write_text(head.format(name="child", more=more) + " {{ passport }}")
    look = "{name: look, kind: function, parameters: {pin: {kind: string, sensitive: true}}}"
    more = f"tools: [{{name: ask, kind: prompty, path: child.prompty}}, {look}]\n"
    (tmp_path / "parent.prompty").write_text(head.format(name="parent", more=more))
    trace_to(f"file:{tmp_path / 'traces'}", capture="wire")
    with Script([call("ask", passport="X7Y8"), call("look", pin="ZZ99")], "From the child: X7Y8.", "Done."):
        turn(tmp_path / "parent.prompty", tools={"look": lambda pin: f"{pin} is right"})
    [file] = (tmp_path / "traces").iterdir()
    written = file.read_bytes()
    assert b"X7Y8" not in written
    assert b"ZZ99" not in written
    assert b"is right" in written
