"""Run what may hang, so that a hang fails the test with the stacks of all threads, and not the whole suite."""

import faulthandler
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

import pytest

T = TypeVar("T")
PATIENCE = 60.0  # seconds; what is tested takes a fraction of one


def within(function: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Return the result of a function that runs on a thread of its own, without the context of the test."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # raised in the thread of the test
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():
            raise
    pytest.fail(f"it hangs: no result within {seconds:g} s\n{list_stacks()}", pytrace=False)


def list_stacks() -> str:
    """Return the stacks of all threads."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()
