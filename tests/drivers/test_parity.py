"""Drivers are twins: the same scenes, run in every way, come to the same results, requests, events and spans.

Both drivers run the same loop, so what the loop decides is tested in one way (`tests/loop`).
"""

import logging
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.drivers.play import SCENES, played
from tests.drivers.scenes import invoke_text

pytestmark = pytest.mark.usefixtures("clean_registry")  # scenes register executors, also for providers that there are

# Scenes whose outcome depends on the way, each with the reason.
NOT_IN_SYNC = {"cancelling": "a coroutine that is cancelled stops; a function on a thread runs to its end"}
NOT_AS_A_STREAM = {
    "invoke_refusal": "a refusal ends a stream with an error; whole, it is the text (P2)",
    "turn_refusal": "likewise",
    "invoke_cut_stream": "only a stream can be cut",
    "turn_cut_stream": "likewise",
    "recordings": "a recording holds the bytes of the answer, which are those of a stream",
}


@pytest.fixture(autouse=True)
def no_logging() -> Iterator[None]:
    """Scenes let functions of the host fail, which is logged."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@cache
def shown(name: str, *, streamed: bool) -> list[Any]:
    """Play a scene, streamed or not, in sync and async code."""
    function, ways = SCENES[name]
    return [played(function, way) for way in ways if way.streamed == streamed]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", [name for name in SCENES if name not in NOT_IN_SYNC])
def test_sync_and_async_code_come_to_the_same(name: str, streamed: bool) -> None:
    first, *others = shown(name, streamed=streamed) or [None]
    assert all(other == first for other in others)


@pytest.mark.parametrize("name", [name for name in SCENES if name not in NOT_AS_A_STREAM])
def test_a_stream_comes_to_the_same_as_a_whole_answer(name: str) -> None:
    ends = [[end(step) for step in scene["steps"]] for way in (False, True) for scene in shown(name, streamed=way)[:1]]
    assert all(end == ends[0] for end in ends)


def end(step: dict[str, Any]) -> dict[str, Any]:
    """What a caller gets, whichever way it was asked for."""
    return {name: step.get(name) for name in ("verb", "result", "error", "noted")}


def test_every_scene_is_in_the_table_and_exceptions_are_scenes() -> None:
    assert len(SCENES) > 60
    assert SCENES["invoke_text"][0] is invoke_text
    assert {*NOT_IN_SYNC, *NOT_AS_A_STREAM} <= SCENES.keys()


@pytest.mark.parametrize("name", NOT_AS_A_STREAM)
def test_an_exception_is_one(name: str) -> None:
    whole, stream = (shown(name, streamed=streamed)[0] for streamed in (False, True))
    assert [end(step) for step in whole["steps"]] != [end(step) for step in stream["steps"]]
