"""Make a mistake again, in a folder of its own, and return what a person reads."""

import gc
import os
import re
import runpy
import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from errno import ECONNREFUSED, ENETUNREACH
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, TextIO
from unittest.mock import patch

import prompty
from benchmarks.mistakes.mistake import SERVERS, Mistake, read_yaml
from prompty.cli import main
from tests.loopback import Pause, Reply, Server, json_reply, reply

PATIENCE = 60  # seconds
LOCAL = ("127.", "localhost", "::1")
OLLAMA = 11434  # the port where it would answer, if it ran
PACKAGE = str(Path(prompty.__file__).parent)
KEPT = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
KEYS = {"OPENAI_API_KEY": "sk-planted-for-openai-0001", "ANTHROPIC_API_KEY": "sk-ant-planted-for-anthropic-0001"}
REPLACED = (
    (r"\x1b\[[\d;?]*[A-Za-z]", ""),
    (r"(?:  [+|] )?(?:Exception Group )?Traceback \(most recent call last\):\n(?:  +.*\n)+", ""),
    (r"retrying in [\d.]+ s", "retrying in <seconds>"),
    (r"(?<=\[Errno )-?\d+", "…"),
    (r"0x[0-9a-f]{6,}", "<address>"),
    (r"[\d.]+ rows/s", "<rate> rows/s"),
    (r"errors\.pydantic\.dev/[\d.]+/", "errors.pydantic.dev/<version>/"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?[\d.Z+:]*", "<time>"),
    (re.escape(prompty.__version__), "<version>"),
    (re.escape(python_version()), "<python>"),
    (r"[ \t]+$", ""),
)


class CannotRun(BaseException):
    """A mistake that cannot be made: its data are wrong, or it takes too long."""


def perform_alone(mistake: Mistake) -> tuple[str, str]:
    """Make a mistake in a fresh process, without a network; return its message and what kept it from running."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)  # what programs that it starts write is not ours
        sys.addaudithook(refuse_network)
        signal.signal(signal.SIGALRM, give_up)
        signal.alarm(PATIENCE)
        try:
            return perform(mistake, Path(folder).resolve()), ""
        except (Exception, CannotRun) as error:  # the others still run
            return "", f"{type(error).__name__}: {error}"


def refuse_network(event: str, arguments: tuple[object, ...]) -> None:
    """Let a connection to this machine pass, and no other."""
    if event in ("socket.connect", "socket.getaddrinfo"):
        address = arguments[1] if event == "socket.connect" else arguments
        host = address[0] if isinstance(address, tuple) else address
        if isinstance(host, str) and not host.startswith((*LOCAL, "/")):
            raise OSError(ENETUNREACH, "Network is unreachable")
        if event == "socket.connect" and isinstance(address, tuple) and address[1] == OLLAMA:
            raise ConnectionRefusedError(ECONNREFUSED, "Connection refused")


def give_up(*_: object) -> NoReturn:
    raise CannotRun(f"no end after {PATIENCE} seconds")


def perform(mistake: Mistake, root: Path) -> str:
    """Make the mistake in the folder `root/work`, and return all that is printed, normalised."""
    work, home = root / "work", root / "home"
    work.mkdir()
    home.mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(_serve(mistake.server))
        address = server.url if server else ""
        for name, text in {**mistake.files, **({"program.py": mistake.python} if mistake.python else {})}.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text.replace("SERVER", address or "SERVER"), encoding="utf-8")
        variables = {name: text.replace("SERVER", address) for name, text in mistake.env.items()}
        stack.enter_context(_enter(work, _get_environment(home, address) | variables))
        if mistake.missing:
            stack.enter_context(patch.dict(sys.modules, dict.fromkeys(mistake.missing)))
        for line in mistake.before:
            _capture(root / "before", "", line)
        code, text = _capture(root / "output", mistake.stdin, mistake.command)
    for found, name in (
        (address, "<server>"),
        (str(work), "<folder>"),
        (str(home), "<home>"),
        (str(root), "<root>"),
        (PACKAGE, "<package>"),
    ):
        text = text.replace(found, name) if found else text
    for pattern, placeholder in REPLACED:
        text = re.sub(pattern, placeholder, text, flags=re.MULTILINE)
    text = text.strip("\n")
    return f"{text}\n\nexit code {code}".lstrip() if mistake.command else text


def _capture(file: Path, stdin: str, command: str) -> tuple[int, str]:
    """Run a command line or, without one, the program; return the exit code and what it printed."""
    (source := file.with_suffix(".stdin")).write_text(stdin, encoding="utf-8")
    with (
        file.open("w+", encoding="utf-8", buffering=1) as output,
        source.open(encoding="utf-8") as typed,
        redirect_stdout(output),
        redirect_stderr(output),
        patch.object(sys, "stdin", typed),
        patch.object(sys, "argv", shlex.split(command) or ["program.py"]),
    ):
        code = _run(command, output)
        gc.collect()  # what is forgotten, such as a coroutine that nobody awaits, is reported when it is collected
    return code, file.read_text(encoding="utf-8")


def _run(command: str, output: TextIO) -> int:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            if command:
                main()
            else:
                runpy.run_path("program.py", run_name="__main__")
            gc.collect()
    except CannotRun:
        raise
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=output)
            return 1
        return end.code or 0
    except BaseException as error:  # what Python would print at the end
        output.write("".join(traceback.format_exception_only(error)))
        return 1
    return 0


@contextmanager
def _enter(work: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Work in a folder, with these variables and no others."""
    before = Path.cwd()
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    with patch.dict(os.environ, {**kept, **environment}, clear=True), patch.object(sys, "path", [str(work), *sys.path]):
        os.chdir(work)
        try:
            yield
        finally:
            os.chdir(before)


def _get_environment(home: Path, address: str) -> dict[str, str]:
    own = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
    }
    if not address:
        return own
    return {**own, **KEYS, "OPENAI_BASE_URL": f"{address}/v1", "ANTHROPIC_BASE_URL": address}


@contextmanager
def _serve(name: str) -> Iterator[Server | None]:
    """Start the server whose answers have this name."""
    if not name:
        yield None
        return
    answers = read_yaml(SERVERS)[name]
    with Server() as server:
        server.answer(*map(_read_reply, answers))
        yield server


def _read_reply(answer: Mapping[str, Any]) -> Reply:
    """Read one answer: a `text` or `json`, with a `status`, `headers` and a wait `after`."""
    status, headers = answer.get("status", 200), answer.get("headers", {})
    if "text" in answer:
        made = reply(answer["text"].encode(), status, {"content-type": "text/html", **headers})
    else:
        made = json_reply(answer["json"], status, headers)
    return [Pause(answer.get("after", 0)), *made]
