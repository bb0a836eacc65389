"""A llama.cpp server of one's own: a made-up model of half a megabyte, on loopback, ready in a moment.

The two scripts that make and serve the model are not of this repository; they are in the folder of shared tools.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from urllib.parse import urlsplit

import pytest

from tests.public_data import SHARED

MAKE_MODEL = SHARED / "tools" / "make_tiny_gguf.py"
SERVE = SHARED / "tools" / "serve_tiny.py"
PACKAGES = ("xllamacpp", "gguf", "numpy")
START_TIMEOUT = 60.0
STOP_TIMEOUT = 10.0


def why_not() -> str | None:
    """What is missing to start a server, and how to get it."""
    absent = [package for package in PACKAGES if find_spec(package) is None]
    if absent:
        return f"{' and '.join(absent)} not installed. Run: pip install {' '.join(PACKAGES)}"
    if not (MAKE_MODEL.is_file() and SERVE.is_file()):
        command = "python ../shared/tools/serve_tiny.py tiny.gguf PORT --embedding"
        return f"what starts the server is not there ({command}); set PROMPTY_SHARED to the folder that holds tools/"
    return None


@contextmanager
def llama_server(folder: Path, port: int = 0) -> Iterator[str]:
    """The URL of a server, for as long as it is needed. Where there can be none, skips the test; in CI, fails it.

    Port 0 is any that is free.
    """
    if reason := why_not():
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    model, log = folder / "tiny.gguf", folder / "server.log"
    subprocess.run([sys.executable, MAKE_MODEL, model], check=True, capture_output=True)  # noqa: S603  our own tool
    command: list[str | Path] = [sys.executable, SERVE, model, str(port), "--embedding"]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,  # noqa: S603  our own tool
    ):
        try:
            yield _url_when_ready(process, log)
        finally:
            _end(process)


def _url_when_ready(process: subprocess.Popen[str], log: Path) -> str:
    """The URL that the server says it listens at, once it answers there."""
    watchdog = Timer(START_TIMEOUT, process.kill)
    watchdog.start()
    try:
        lines = process.stdout or ()
        url = next((line.split()[1] for line in lines if line.startswith("LISTENING ")), None)
    finally:
        watchdog.cancel()
    if url is None or not _is_healthy(url):
        raise RuntimeError(
            f"`python {SERVE.name} tiny.gguf PORT --embedding` did not start:\n{log.read_text()[-2000:]}"
        )
    return url


def _is_healthy(url: str) -> bool:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=START_TIMEOUT)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
