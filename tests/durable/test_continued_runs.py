"""Answers in pieces in durable runs: each piece is a step, so that no death of a process pays for one twice (K3)."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prompty import Message, Paused
from prompty.durable import Runs, Worker, dbos, worker as durable_worker
from prompty.durable.dbos import DbosSteps
from prompty.durable.steps import Wanted
from prompty.errors import RequestError
from prompty.events import Done
from prompty.loop.effects import CallModel
from prompty.model.message import Json
from tests import hosted
from tests.durable.runs import working
from tests.durable.shop import PROCESSES, kill, until
from tests.durable.worker import LEASE
from tests.hosted import agent_at, answer
from tests.loopback import Server, json_reply
from tests.soak import SOAK

PAUSES = 6 if SOAK else 3
SECONDS = 300


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def blocks_of(number: int) -> list[hosted.Json]:
    """The blocks of a piece: the result of the search before, and the next search."""
    before = [hosted.search_result(str(number - 1))] if number else []
    return [*before, hosted.text_block(f"Part {number}."), hosted.search(at=str(number))]


def last_blocks() -> list[hosted.Json]:
    return [hosted.search_result(str(PAUSES - 1)), hosted.text_block("It is so.", hosted.CITATION)]


def work(url: str, name: str, dies_after: int | None) -> None:
    """Work until killed: by itself, once this many answers of the model are stored."""
    kept = 0

    class MortalSteps(DbosSteps):
        async def keep(self, name: str, wanted: Wanted, /, **options: Any) -> Json:
            nonlocal kept
            result = await super().keep(name, wanted, **options)
            kept += isinstance(wanted, CallModel)
            if kept == dies_after:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

    vars(dbos).update(DbosSteps=MortalSteps)
    vars(durable_worker).update(QUARANTINE_DEATHS=100)  # so many deaths in a row look like the run's own fault
    Worker(url, name=name, lease=LEASE).open()
    signal.pause()


@pytest.mark.process
def test_a_process_that_dies_between_any_two_pieces_asks_for_none_of_them_twice(server: Server, url: str) -> None:
    paused = [answer("messages", *blocks_of(at), stop="pause_turn", streamed=False) for at in range(PAUSES)]
    server.answer(*paused, answer("messages", *last_blocks(), streamed=False))
    with Runs(url) as client:
        client.submit(agent_at(server, "messages", hosted.WEB_SEARCH), run_id="run")
        for number in range(1, PAUSES + 1):
            worker = PROCESSES.Process(target=work, args=(url, f"worker{number}", number))
            worker.start()
            worker.join(SECONDS)
            assert worker.exitcode == -signal.SIGKILL
            assert len(server.requests) == number
        last = PROCESSES.Process(target=work, args=(url, "last", None))
        last.start()
        try:
            until(lambda: client.get("run").state == "done", SECONDS)
        finally:
            kill(last)
        *_, ended = client.events("run")
    sizes = [len(request.body["messages"][-1]["content"]) for request in server.requests]
    assert sizes == [1, *range(2, 3 * PAUSES, 3)]
    assert isinstance(ended.event, Done)
    check_answer(ended.event)


def check_answer(done: Done) -> None:
    assert [message.role for message in done.messages] == ["user", "assistant"]
    parts = [f"Part {number}." for number in range(PAUSES)]
    assert done.result == "\n\n".join([*parts, "It is so."])
    whole = [block for number in range(PAUSES) for block in blocks_of(number)] + last_blocks()
    assert done.messages[-1].opaque["anthropic_blocks"] == whole
    assert (done.usage.input_tokens, done.usage.output_tokens) == (10 * (PAUSES + 1), 5 * (PAUSES + 1))


def test_an_answer_in_the_background_is_asked_for_once_and_fetched(server: Server, url: str) -> None:
    server.answer(json_reply(hosted.response(status="queued")), json_reply(hosted.response(hosted.spoken("Done."))))
    with Runs(url) as client, working(url):
        client.submit(agent_at(server, "responses", extra={"background": True}), run_id="run")
        assert client.result("run", timeout=SECONDS) == "Done."
    assert [request.method for request in server.requests] == ["POST", "GET"]


def test_an_approval_that_is_answered_twice_lets_the_call_run_once(server: Server, url: str) -> None:
    asked = [hosted.listed_tools(), hosted.asked_approval(page="Home")]
    server.answer(
        answer("responses", *asked, streamed=False),
        answer("responses", hosted.ran_mcp(), hosted.spoken("Gone."), streamed=False),
    )
    wiki = {"type": "mcp", "server_label": "wiki", "server_url": "https://wiki.example/mcp"}
    with Runs(url) as client, working(url):
        client.submit(agent_at(server, "responses", wiki), run_id="run", approval="always")
        paused = client.result("run", timeout=SECONDS)
        assert isinstance(paused, Paused)
        client.answer(paused, [True])
        client.answer(paused, [True])
        with pytest.raises(RequestError):
            client.answer(paused, [False])
        until(lambda: client.get("run").state == "done", SECONDS)
        *_, ended = client.events("run")
    assert isinstance(ended.event, Done)
    assert ended.event.result == "Gone."
    assert isinstance(ended.event.messages[-1], Message)
    answers = [item for request in server.requests for item in request.body["input"] if "approve" in item]
    assert [item["approve"] for item in answers] == [True]
