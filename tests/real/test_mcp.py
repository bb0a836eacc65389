"""Against real MCP servers over stdio, which others wrote: `server-everything` and `server-filesystem`."""

import asyncio
import fcntl
import os
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from logging import INFO, Handler, LogRecord, getLogger
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

import prompty
from prompty import CancelToken, turn, turn_async
from prompty.errors import Cancelled
from prompty.events import ToolFinished
from prompty.mcp import register_mcp_server
from prompty.messages import TextPart
from prompty.model.content import FilePart, ImagePart
from prompty.testing import Script, call
from tests.conversations.turns import scripted
from tests.real.ways import SOAK
from tests.ways import SYNC, Seen, Way, sync_and_async

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "npm"
VERSION = "2026.8.31"
CYCLES = 200 if SOAK else 20
TURNS = 50


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the servers' programs; they are installed once, also when several processes test."""
    found = FOLDER / "node_modules" / ".bin"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER.parent / "npm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (found / "mcp-server-everything").exists() or not (found / "mcp-server-filesystem").exists():
            packages = [f"@modelcontextprotocol/server-{name}@{VERSION}" for name in ("everything", "filesystem")]
            command = ["npm", "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", "--silent", *packages]
            subprocess.run(command, check=True, timeout=300)  # noqa: S603  our own words
    return found


@pytest.fixture
def servers(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_registry: None) -> Iterator[Path]:
    """Both servers; the one for files has a folder of its own."""
    monkeypatch.setenv("MADE_UP_API_KEY", "sk-of-the-host")
    everything = [str(programs / "mcp-server-everything"), "stdio"]
    register_mcp_server("everything", command=everything, env={"GIVEN": "by the host"})
    register_mcp_server("files", command=[str(programs / "mcp-server-filesystem"), str(tmp_path)], cwd=tmp_path)
    yield tmp_path
    prompty.close()
    assert processes() == {}


def processes() -> dict[int, str]:
    """The MCP servers among our own children, with those that are dead and not yet buried."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().rpartition(")")
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        state, parent = rest.split()[:2]
        if int(parent) == os.getpid() and (b"mcp-server" in words or (state == "Z" and "(node" in name)):
            found[int(folder.name)] = state
    return found


def asked(way: Way, server: str, *answers: Any, **options: Any) -> Seen:
    with Script(*answers, "Done."):
        return way.turn(scripted(tools=[{"name": server, "kind": "mcp"}]), **options)


def answers_of(seen: Seen) -> list[list[Any]]:
    return [list(message.content) for message in seen.messages if message.role == "tool"]


@sync_and_async
def test_every_tool_is_offered(way: Way, servers: Path) -> None:
    agent = scripted(tools=[{"name": name, "kind": "mcp"} for name in ("everything", "files")])
    with Script("Done.") as script:
        assert way.turn(agent).result == "Done."
    functions = {one["function"]["name"]: one["function"] for one in script.requests[0]["tools"]}
    assert len(functions) == 13 + 14
    assert functions["get-sum"]["parameters"]["required"] == ["a", "b"]
    assert functions["read_text_file"]["description"].startswith("Read the complete contents of a file")
    assert len(processes()) == 2


@sync_and_async
def test_calls_give_text_images_resources_and_structures(way: Way, servers: Path) -> None:
    calls = [
        call("echo", message="hello"),
        call("get-tiny-image"),
        call("get-resource-reference", resourceType="Blob", resourceId=2),
        call("get-structured-content", location="Chicago"),
        call("get-resource-links", count=1),
        call("get-sum", a=1, b="x"),
    ]
    echo, image, resource, structure, links, refused = answers_of(asked(way, "everything", calls))
    assert echo == [TextPart("Echo: hello")]
    [picture] = [part for part in image if isinstance(part, ImagePart)]
    assert (b64decode(picture.value)[1:4], picture.media_type) == (b"PNG", "image/png")
    assert any(isinstance(part, FilePart | TextPart) and "Resource" in str(part) for part in resource)
    assert "temperature" in structure[0].value
    assert "demo://" in links[-1].value
    assert "is not of type" in refused[0].value


@sync_and_async
def test_files_are_written_and_read_and_what_is_outside_is_refused(way: Way, servers: Path) -> None:
    path = str(servers / "note.txt")
    seen = asked(
        way,
        "files",
        call("write_file", path=path, content="tea"),
        [call("read_text_file", path=path), call("read_text_file", path="/etc/passwd")],
    )
    _, read, refused = answers_of(seen)
    assert (servers / "note.txt").read_text() == "tea"
    assert read == [TextPart("tea")]
    assert refused[0].value.startswith("Error: Tool 'read_text_file' failed: Access denied")


def test_a_process_knows_nothing_of_our_keys(servers: Path) -> None:
    [[part]] = answers_of(asked(SYNC, "everything", call("get-env")))
    assert '"GIVEN": "by the host"' in part.value
    assert '"PATH"' in part.value
    assert "MADE_UP_API_KEY" not in part.value


@sync_and_async
def test_progress_goes_to_the_logger(way: Way, servers: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(INFO, "prompty.tools")
    asked(way, "everything", call("trigger-long-running-operation", duration=0.2, steps=2))
    assert "trigger-long-running-operation: 1 of 2" in caplog.text


LONG = call("trigger-long-running-operation", duration=60, steps=600)


class InTheMiddle(Handler):
    """Does something once the long call runs: its server tells how far it is."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.acts = iter([act])

    def emit(self, record: LogRecord) -> None:
        if "trigger-long-running-operation: " in record.getMessage():
            next(self.acts, int)()


@pytest.fixture
def in_the_middle(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Has something done in the middle of the long call."""
    caplog.set_level(INFO, "prompty.tools")
    logger, handlers = getLogger("prompty.tools"), list[Handler]()

    def listen(act: Callable[[], object]) -> None:
        handlers.append(InTheMiddle(act))
        logger.addHandler(handlers[-1])

    yield listen
    for handler in handlers:
        logger.removeHandler(handler)


@sync_and_async
def test_a_server_that_is_killed_in_a_call_is_an_error_and_comes_back(
    way: Way, servers: Path, in_the_middle: Callable[[Callable[[], object]], None]
) -> None:
    asked(way, "everything")
    [first] = processes()
    in_the_middle(lambda: os.kill(first, SIGKILL))
    seen = asked(way, "everything", LONG)
    assert seen.result == "Done."
    [[part]] = answers_of(seen)
    assert part.value.startswith(
        "Error: Tool 'trigger-long-running-operation' failed: the connection to the MCP server"
    )
    assert answers_of(asked(way, "everything", call("echo", message="back"))) == [[TextPart("Echo: back")]]
    [second] = processes()
    assert second != first


@sync_and_async
def test_a_server_that_died_between_turns_is_started_again(way: Way, servers: Path) -> None:
    asked(way, "everything")
    [first] = processes()
    os.kill(first, SIGKILL)
    assert answers_of(asked(way, "everything", call("echo", message="back"))) == [[TextPart("Echo: back")]]


@sync_and_async
def test_a_call_that_is_given_up_leaves_the_session_whole(
    way: Way, servers: Path, in_the_middle: Callable[[Callable[[], object]], None]
) -> None:
    cancel = CancelToken()
    timed_out = asked(way, "everything", LONG, tool_timeout=0.2)
    assert "no result within 0.2 s" in answers_of(timed_out)[0][0].value
    [first] = processes()
    in_the_middle(cancel.cancel)
    assert isinstance(asked(way, "everything", LONG, cancel=cancel).error, Cancelled)
    assert answers_of(asked(way, "everything", call("echo", message="on"))) == [[TextPart("Echo: on")]]
    assert list(processes()) == [first]


def echoed(events: list[Any]) -> str:
    return next(event.result.text for event in events if isinstance(event, ToolFinished))


def test_many_turns_at_once_share_a_process(servers: Path) -> None:
    agent = scripted(tools=[{"name": "everything", "kind": "mcp"}])

    def one(number: int) -> str:
        events: list[Any] = []
        with Script(call("echo", message=str(number)), "Done."):
            turn(agent, on_event=events.append)
        return echoed(events)

    async def one_async(number: int) -> str:
        events: list[Any] = []
        with Script(call("echo", message=str(number)), "Done."):
            await turn_async(agent, on_event=events.append)
        return echoed(events)

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(asyncio.create_task(one_async(number)) for number in range(TURNS)))

    expected = [f"Echo: {number}" for number in range(TURNS)]
    with ThreadPoolExecutor(TURNS) as threads:
        from_threads = threads.map(one, range(TURNS))
        assert asyncio.run(all_of_them()) == expected
        assert list(from_threads) == expected
    assert len(processes()) == 1


@sync_and_async
def test_servers_open_and_close_again_and_again(way: Way, servers: Path) -> None:
    for number in range(CYCLES // 2):
        seen = asked(way, "everything", call("echo", message=str(number)))
        assert answers_of(seen) == [[TextPart(f"Echo: {number}")]]
        if way.asynchronous:
            asyncio.run(prompty.aclose())
        else:
            prompty.close()
        assert processes() == {}


PROGRAM = """
import sys
from prompty import turn
from prompty.testing import Script, call
from prompty.tools.mcp import register_mcp_server
from tests.conversations.turns import scripted
register_mcp_server("everything", command=sys.argv[1:])
with Script(call("echo", message="hello"), "Done."):
    print(turn(scripted(tools=[{"name": "everything", "kind": "mcp"}])))
"""


def test_a_program_that_ends_leaves_nothing_behind(programs: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(programs / "mcp-server-everything"), "stdio"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603  our own code
    assert (done.stdout, done.stderr) == ("Done.\n", "")


STARTS = {
    "no such program": (["/no/such/program"], "No such file or directory"),
    "one that fails": ([sys.executable, "-c", "raise SystemExit('no paper')"], "standard error ends with: no paper"),
    "one that talks": ([sys.executable, "-c", "print('hello')"], "Connection closed"),
    "one that is silent": ([sys.executable, "-c", "import sys; sys.stdin.read()"], "no answer within 0.5 s"),
}


@sync_and_async
@pytest.mark.parametrize(("command", "said"), STARTS.values(), ids=STARTS)
def test_a_server_that_does_not_start_says_why(
    way: Way, command: list[str], said: str, servers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "within" in said:
        monkeypatch.setattr("prompty.tools.mcp.sessions.CONNECT_SECONDS", 0.5)
    register_mcp_server("broken", command=command)
    seen = asked(way, "broken")
    assert "cannot use the MCP server 'broken' (tool 'broken')" in str(seen.error)
    assert said in str(seen.error)
