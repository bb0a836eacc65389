"""An answer in pieces is one answer: it is continued, bounded, counted once and kept in order (K3)."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import prompty
from prompty import Budget, CancelToken, Message, pipeline, user
from prompty.errors import BudgetSpent, Cancelled, ModelError, ResponseFailed, StreamCut
from prompty.events import IterationStarted, TextDelta
from prompty.loop.model_step import MAX_CONTINUATIONS
from tests import hosted
from tests.hosted import FUNCTION, Json, agent_at, answer
from tests.loop.bodies import sent
from tests.loopback import Server, json_reply
from tests.ways import Way, every_way, one_way, whole_and_streamed

FIRST = [hosted.thought("Hm."), hosted.text_block("I will search."), hosted.search()]
SECOND = [hosted.search_result(), hosted.search("more", at="2")]
LAST = [hosted.search_result("2"), hosted.text_block("It is so.", hosted.CITATION)]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.loop.model_step.FIRST_WAIT", 0.01)
    monkeypatch.setattr("prompty.loop.model_step.LONGEST_WAIT", 0.02)


def pieces(*groups: list[Json], streamed: bool, **last: Any) -> list[Any]:
    paused = [answer("messages", *group, stop="pause_turn", streamed=streamed) for group in groups[:-1]]
    return [*paused, answer("messages", *groups[-1], streamed=streamed, **last)]


def last_turn(server: Server) -> Json:
    turn: Json = server.requests[-1].body["messages"][-1]
    return turn


# pause_turn


@every_way
@pytest.mark.parametrize("verb", ["turn", "invoke"])
def test_a_paused_answer_is_continued_to_its_end(server: Server, way: Way, verb: str) -> None:
    server.answer(*pieces(FIRST, SECOND, LAST, streamed=way.streamed))
    seen = getattr(way, verb)(agent_at(server, "messages", hosted.WEB_SEARCH))
    assert seen.result == "I will search.\n\nIt is so."
    assert not way.streamed or seen.text == seen.result
    bodies = [request.body for request in server.requests]
    assert [len(body["messages"]) for body in bodies] == [1, 2, 2]
    assert bodies[1]["messages"][1] == {"role": "assistant", "content": FIRST}
    assert bodies[2]["messages"][1] == {"role": "assistant", "content": [*FIRST, *SECOND]}
    assert bodies[0]["tools"] == bodies[1]["tools"] == bodies[2]["tools"] == [hosted.WEB_SEARCH]
    reply = seen.messages[-1]
    assert [message.role for message in seen.messages] == ["user", "assistant"]
    assert reply.finish_reason == "stop"
    assert sent("messages", [*seen.messages, user("And?")])["messages"][1]["content"] == [*FIRST, *SECOND, *LAST]
    assert len(seen.of(IterationStarted)) == 1


def test_usage_and_details_are_those_of_all_pieces(server: Server) -> None:
    server.answer(*pieces(FIRST, SECOND, LAST, streamed=False))
    result: Any = prompty.turn(agent_at(server, "messages", hosted.WEB_SEARCH), details=True)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (30, 15)
    assert [(call.tool, call.status) for call in result.provider_calls] == [("web_search", "completed")] * 2
    [citation] = result.citations
    assert result.value[citation.start : citation.end] == "It is so."
    assert result.finish_reason == "stop"


def test_a_row_of_a_batch_is_continued(server: Server) -> None:
    server.answer(*pieces(FIRST, SECOND, LAST, streamed=False))
    [row] = prompty.batch(agent_at(server, "messages", hosted.WEB_SEARCH), [{}])
    assert row.result is not None
    assert row.result.value == "I will search.\n\nIt is so."


@whole_and_streamed
def test_an_answer_that_never_ends_is_given_up_and_leaves_no_half(server: Server, way: Way) -> None:
    server.answer(answer("messages", *FIRST, stop="pause_turn", streamed=way.streamed))
    seen = way.turn(agent_at(server, "messages", hosted.WEB_SEARCH))
    assert isinstance(seen.error, StreamCut)
    assert "`pause_turn`" in seen.cause
    assert len(server.requests) == 1 + MAX_CONTINUATIONS
    assert getattr(seen.error.partial, "text", "").startswith("I will search.")
    assert [message.role for message in seen.messages] == ["user"]


@one_way
def test_continuations_are_no_rounds_and_calls_in_the_last_piece_run(server: Server, way: Way) -> None:
    calls = [hosted.search_result("2"), hosted.tool_use("look", at="a")]
    container = {"id": "container_1", "expires_at": "2026-11-18T00:00:00Z"}
    server.answer(
        *pieces(FIRST, SECOND, calls, streamed=False, stop="tool_use", container=container),
        answer("messages", hosted.text_block("Seen."), streamed=False),
    )
    agent = agent_at(server, "messages", hosted.WEB_SEARCH, tools=[FUNCTION])
    seen = way.turn(agent, tools={"look": lambda at="": "a wall"}, max_iterations=1)
    assert seen.result == "Seen."
    turns = server.requests[3].body["messages"]
    assert turns[1]["content"] == [*FIRST, *SECOND, *calls]
    assert turns[2]["content"][0]["content"] == "a wall"
    assert server.requests[3].body["container"] == "container_1"


@one_way
def test_a_container_is_sent_back_as_text(server: Server, way: Way) -> None:
    container = {"id": "container_1", "expires_at": "2026-11-18T00:00:00Z"}
    server.answer(
        answer("messages", *FIRST, stop="pause_turn", container=container, streamed=False),
        answer("messages", hosted.search_result(), hosted.text_block("So."), streamed=False),
    )
    agent = agent_at(server, "messages", hosted.WEB_SEARCH, extra={"container": {"skills": []}})
    seen = way.turn(agent)
    assert [request.body["container"] for request in server.requests] == [{"skills": []}, "container_1"]
    assert "container" not in sent("messages", [*seen.messages, user("And?")])


@one_way
def test_a_failed_continuation_repeats_itself_and_not_the_turn(server: Server, way: Way) -> None:
    first, last = pieces(FIRST, [hosted.search_result(), hosted.text_block("So.")], streamed=False)
    server.answer(first, json_reply({"error": {"type": "overloaded_error", "message": "x"}}, 529), last)
    seen = way.turn(agent_at(server, "messages", hosted.WEB_SEARCH), fallbacks=["other"])
    assert seen.result == "I will search.\n\nSo."
    assert [len(request.body["messages"]) for request in server.requests] == [1, 2, 2]
    assert {request.body["model"] for request in server.requests} == {"m"}


@one_way
def test_no_fallback_answers_the_rest_of_an_answer(server: Server, way: Way) -> None:
    server.answer(
        answer("messages", *FIRST, stop="pause_turn", streamed=False),
        json_reply({"error": {"type": "overloaded_error", "message": "x"}}, 529),
    )
    seen = way.turn(agent_at(server, "messages", hosted.WEB_SEARCH), fallbacks=["other"], max_retries=0)
    assert isinstance(seen.error, ModelError)
    assert len(server.requests) == 2


@one_way
def test_a_budget_ends_an_answer_between_its_pieces(server: Server, way: Way) -> None:
    server.answer(*pieces(FIRST, SECOND, LAST, streamed=False))
    seen = way.turn(agent_at(server, "messages", hosted.WEB_SEARCH), budget=Budget(tokens=20))
    assert isinstance(seen.error, BudgetSpent)
    assert len(server.requests) == 2


@one_way
def test_a_cancelled_run_asks_for_no_further_piece(server: Server, way: Way) -> None:
    token = CancelToken()
    server.answer(*pieces(FIRST, SECOND, LAST, streamed=False))
    seen = way.turn(
        agent_at(server, "messages", hosted.WEB_SEARCH),
        cancel=token,
        on_event=lambda event: token.cancel() if type(event).__name__ == "ModelReply" else None,
    )
    assert isinstance(seen.error, Cancelled)
    assert len(server.requests) == 1


@one_way
def test_an_answer_after_a_pause_is_checked_against_the_outputs(server: Server, way: Way) -> None:
    server.answer(*pieces([hosted.search()], [hosted.search_result(), hosted.text_block('{"a":1}')], streamed=False))
    agent = agent_at(server, "messages", hosted.WEB_SEARCH, outputs=[{"name": "a", "kind": "integer"}])
    assert way.turn(agent).result == {"a": 1}


# compaction


@whole_and_streamed
def test_an_answer_goes_on_after_a_compaction(server: Server, way: Way) -> None:
    server.answer(
        answer("messages", hosted.compaction_block(), stop="compaction", streamed=way.streamed),
        answer("messages", hosted.text_block("Hello again."), streamed=way.streamed),
    )
    seen = way.turn(agent_at(server, "messages"), sendable=False)
    assert seen.result == "Hello again."
    assert last_turn(server) == {"role": "assistant", "content": [hosted.compaction_block()]}
    kept = sent("messages", [*seen.messages, user("And?")])["messages"][1]["content"]
    assert kept == [hosted.compaction_block(), hosted.text_block("Hello again.")]


@whole_and_streamed
def test_items_before_a_compaction_are_not_sent_again(server: Server, way: Way) -> None:
    items = [hosted.searched(), hosted.compacted(), hosted.spoken("Go on.")]
    server.answer(answer("responses", *items, streamed=way.streamed))
    seen = way.turn(agent_at(server, "responses"), messages=[user("Once"), Message("assistant", "Yes."), user("Hi")])
    assert sent("responses", [*seen.messages, user("And?")])["input"] == [
        *items[1:],
        {"role": "user", "content": "And?"},
    ]


# background


def queued(status: str = "queued") -> Any:
    return json_reply(hosted.response(status=status, background=True))


@every_way
def test_an_answer_in_the_background_is_fetched_and_not_asked_for_again(server: Server, way: Way) -> None:
    if way.streamed:
        server.answer(answer("responses", hosted.spoken("Done."), background=True, streamed=True))
    else:
        server.answer(queued(), queued("in_progress"), json_reply(hosted.response(hosted.spoken("Done."))))
    seen = way.turn(agent_at(server, "responses", extra={"background": True}))
    assert seen.result == "Done."
    sent_as = [(request.method, request.path) for request in server.requests]
    polls = [("GET", "/responses/resp_1")] * 2
    assert sent_as == [("POST", "/responses"), *([] if way.streamed else polls)]


@one_way
def test_a_poll_that_fails_is_repeated_and_a_job_that_failed_is_not(server: Server, way: Way) -> None:
    failure = hosted.response(status="failed", error={"code": "server_error", "message": "broke"})
    server.answer(queued(), json_reply({"error": {"message": "x"}}, 500), json_reply(failure))
    seen = way.turn(agent_at(server, "responses", extra={"background": True}), fallbacks=["other"])
    assert isinstance(seen.error, ResponseFailed)
    assert "broke" in seen.cause
    assert [request.method for request in server.requests] == ["POST", "GET", "GET"]


@one_way
def test_an_answer_that_stays_in_the_background_is_cancelled(
    server: Server, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prompty.loop.model_step.MAX_POLLS", 3)
    server.answer(queued())
    seen = way.turn(agent_at(server, "responses", extra={"background": True}))
    assert "still `queued`" in seen.cause
    assert [request.path for request in server.requests][-1] == "/responses/resp_1/cancel"
    assert [request.method for request in server.requests] == ["POST", "GET", "GET", "GET", "POST"]


@one_way
def test_a_timeout_cancels_the_answer_in_the_background(server: Server, way: Way) -> None:
    server.answer(queued())
    seen = way.turn(agent_at(server, "responses", extra={"background": True}), timeout=0.3)
    assert isinstance(seen.error, ModelError)
    assert server.requests[-1].path == "/responses/resp_1/cancel"


def test_a_cancelled_run_cancels_the_answer_in_the_background(server: Server) -> None:
    token = CancelToken()
    server.answer(queued())

    def cancel() -> None:
        server.wait_until(lambda: len(server.requests) > 2)
        token.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(Cancelled):
        prompty.turn(agent_at(server, "responses", extra={"background": True}), cancel=token)
    thread.join()
    paths = [request.path for request in server.requests]
    assert paths.count("/responses/resp_1/cancel") == 1  # a poll that was under way may arrive after it


def test_a_cancelled_task_cancels_the_answer_in_the_background(server: Server) -> None:
    server.answer(queued())

    async def run() -> None:
        task = asyncio.create_task(prompty.turn_async(agent_at(server, "responses", extra={"background": True})))
        await asyncio.to_thread(server.wait_until, lambda: len(server.requests) > 2)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert server.requests[-1].path == "/responses/resp_1/cancel"


def test_processing_an_unfinished_answer_by_hand_is_an_error(server: Server) -> None:
    agent = agent_at(server, "messages", hosted.WEB_SEARCH)
    with pytest.raises(ModelError, match="`pause_turn`"):
        pipeline.process(agent, hosted.message(*FIRST, stop="pause_turn"))


def test_the_text_of_a_stream_is_that_of_its_result(server: Server) -> None:
    server.answer(*pieces(FIRST, SECOND, LAST, streamed=True))
    with prompty.turn(agent_at(server, "messages", hosted.WEB_SEARCH), stream=True) as stream:
        texts = [event.text for event in stream.events() if isinstance(event, TextDelta)]
        assert "".join(texts) == stream.result == stream.text
