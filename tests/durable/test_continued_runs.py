"""Answers in pieces in durable runs: each piece is a step, so that no death of a process pays for one twice."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS

from prompty import Guardrails, Message
from prompty.durable import dbos as durable
from tests import hosted
from tests.durable.own import launched, until, wrap_model_calls
from tests.hosted import agent_at, answer
from tests.loopback import Server, json_reply
from tests.soak import SOAK

PAUSES = 6 if SOAK else 3


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


class OneCall:
    """Lets a process make one call of the model. The next one never begins."""

    count = 0

    def __call__(self, events: Any) -> Any:
        return self._pass(events)

    async def _pass(self, events: Any) -> Any:
        self.count += 1
        while self.count > 1:
            await asyncio.sleep(0.01)
        async for event in events:
            yield event


def test_a_process_that_dies_between_any_two_pieces_asks_for_none_of_them_twice(
    server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = [answer("messages", *blocks_of(at), stop="pause_turn", streamed=False) for at in range(PAUSES)]
    server.answer(*paused, answer("messages", *last_blocks(), streamed=False))
    calls, seen = OneCall(), list[Message]()
    wrap_model_calls(monkeypatch, calls)

    def read(message: Message) -> bool:
        seen.append(message)
        return True

    for number in range(1, PAUSES + 2):
        calls.count = 0
        with launched(url) as program:
            if number == 1:
                agent = agent_at(server, "messages", hosted.WEB_SEARCH)
                program.start_turn(agent, guardrails=Guardrails(output=read))
            if number <= PAUSES:
                until(lambda: calls.count == 2)
                assert len(server.requests) == number
            else:
                parts = [f"Part {at}." for at in range(PAUSES)]
                assert program.result() == "\n\n".join([*parts, "It is so."])
    sizes = [len(request.body["messages"][-1]["content"]) for request in server.requests]
    assert sizes == [1, *range(2, 3 * PAUSES, 3)]
    whole = [block for number in range(PAUSES) for block in blocks_of(number)] + last_blocks()
    assert seen[-1].opaque["anthropic_blocks"] == whole


def test_an_answer_in_the_background_is_asked_for_once_and_fetched(server: Server, url: str) -> None:
    server.answer(json_reply(hosted.response(status="queued")), json_reply(hosted.response(hosted.spoken("Done."))))
    with launched(url) as program:
        agent = agent_at(server, "responses", extra={"background": True})
        assert program.start_turn(agent).get_result() == "Done."
    assert [request.method for request in server.requests] == ["POST", "GET"]


def test_an_approval_that_is_answered_twice_lets_the_call_run_once(server: Server, url: str) -> None:
    asked = [hosted.listed_tools(), hosted.asked_approval(page="Home")]
    server.answer(
        answer("responses", *asked, streamed=False),
        answer("responses", hosted.ran_mcp(), hosted.spoken("Gone."), streamed=False),
    )
    wiki = {"type": "mcp", "server_label": "wiki", "server_url": "https://wiki.example/mcp"}
    with launched(url) as program:
        program.start_turn(agent_at(server, "responses", wiki), approval="always")
        paused = program.pause()
        durable.answer(DBOS, "mine", [True], paused=paused)
        durable.answer(DBOS, "mine", [True], paused=paused)
        durable.answer(DBOS, "mine", [False], paused=paused)
        assert program.result() == "Gone."
    answers = [item for request in server.requests for item in request.body["input"] if "approve" in item]
    assert [item["approve"] for item in answers] == [True]
