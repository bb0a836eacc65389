"""Repairing a history: whatever it looks like, what comes of it can be sent, and what was fine stays as it was."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from prompty import Message, PromptAgent, ToolCall, assistant, invoke, loads, system, tool_result, turn, user
from prompty.analysis.explain import explain
from prompty.errors import RequestError
from prompty.messages import repair
from prompty.model.content import ImagePart
from prompty.model.message import Reply
from prompty.pipeline import executor_of, run
from prompty.pipeline.history import NO_RESULT, normalize_history
from prompty.pipeline.request import build_request
from prompty.providers.anthropic.messages import BLOCKS
from prompty.providers.fitting import fit_request
from prompty.testing import Script
from prompty.testing.encoding import WIRES
from tests.loop.bodies import APIS, NAME, assert_sendable, assert_taken, calls_in, results_in, sent
from tests.loop.plays import IDS, id_lists
from tests.loop.test_state_machine import EXAMPLES

THREADED = """---
model: {id: m, provider: scripted}
inputs: {history: {kind: thread}}
---
{{history}}"""

every_api = pytest.mark.parametrize("api_name", APIS)
often = settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ids = st.sampled_from(IDS)
arguments = st.sampled_from(["{}", '{"at": "me"}', '{"at": ', "", '```json\n{"at": "me"}\n```', "[1]"])


def turn_with(*call_ids: str, name: str = "look", text: str = "") -> Message:
    calls = [ToolCall(id=one, name=name, arguments=f'{{"n":{n}}}') for n, one in enumerate(call_ids)]
    return assistant(text, tool_calls=calls)


@st.composite
def asking(draw: st.DrawFn) -> Message:
    """A turn with calls: as one of the APIs gave it, with what belongs to its thoughts, or from anywhere."""
    named = draw(id_lists(draw(st.integers(1, 3))))
    calls = tuple(ToolCall(id=one, name="look", arguments=draw(arguments)) for one in named)
    reply = Reply(text=draw(st.sampled_from(["", "Well."])), tool_calls=calls, id="r", model="m", reasoning="Hm")
    api = draw(st.none() | st.sampled_from(sorted(APIS)))
    return reply.message() if api is None else APIS[api].reply(WIRES[APIS[api].path].whole(reply)).message()


@st.composite
def results_for(draw: st.DrawFn, said: Message) -> list[Message]:
    """Results of a turn: all of them in their order, or some, twice, in another order, or of calls that nobody made."""
    right = [call.id for call in said.tool_calls]
    anything = st.lists(st.sampled_from([*right, *right, *IDS]), max_size=4)
    answered = draw(st.just(right) | anything)
    results = [tool_result(one, f"result {number}") for number, one in enumerate(answered)]
    return [draw(st.sampled_from([one, one, _nameless(one)])) for one in results]


def _nameless(result: Message) -> Message:
    return Message("tool", result.content)


@st.composite
def broken(draw: st.DrawFn) -> list[Message]:
    """A history that begins with anything and where results are anywhere."""
    history: list[Message] = draw(st.sampled_from([[], [system("Be kind.")], [tool_result("call_0", "Whose?")]]))
    if draw(st.sampled_from([True, True, True, False])):
        history = [*history, user("Hi")]
    for kind in draw(st.lists(st.sampled_from(["calls", "calls", "calls", "user", "text", "stray"]), max_size=5)):
        history = [*history, *draw(PIECES[kind])]
    return history


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    said = draw(asking())
    results = draw(results_for(said))
    between = draw(st.integers(0, len(results)))
    interposed = draw(st.sampled_from([[], [], [user("Wait!")], [system("Mind this.")]]))
    return [said, *results[:between], *interposed, *results[between:]]


PIECES: dict[str, st.SearchStrategy[list[Message]]] = {
    "calls": turns(),
    "user": st.just([user("And now?")]),
    "text": st.just([assistant("So.", reasoning="Hm")]),
    "stray": ids.map(lambda one: [tool_result(one, "stray")]),
}


def begins_with_the_user(history: Sequence[Message]) -> bool:
    """The one thing about a history that is not for us to mend: Anthropic wants the user to speak first."""
    spoken = [message.role for message in history if message.role not in ("system", "tool")]
    return spoken[:1] == ["user"]


def somebody_speaks(history: Sequence[Message]) -> bool:
    return any(message.role in ("user", "assistant") for message in history)


@pytest.mark.spec("001 How a Turn Interleaves", "a stored conversation is sent as it is")
@often
@given(history=broken().filter(somebody_speaks))
def test_any_history_can_be_sent_once_it_is_normalize_history(history: list[Message]) -> None:
    for api_name in APIS:
        if api_name == "messages" and not begins_with_the_user(history):
            with pytest.raises(RequestError, match="begins without a user message"):
                sent(api_name, history)
        else:
            assert_taken(api_name, sent(api_name, history))


@often
@given(history=broken(), api_name=st.sampled_from(sorted(APIS)))
def test_repairing_is_done_once_and_keeps_the_beginning(history: list[Message], api_name: str) -> None:
    pattern = APIS[api_name].call_ids
    before = list(history)
    fixed = normalize_history(history, pattern)
    assert history == before
    again = normalize_history(fixed, pattern)
    assert list(map(id, again)) == list(map(id, fixed))
    check_order_and_words(history, fixed)
    for length in range(len(history)):
        ids_then = [one.id for message in normalize_history(history[:length], pattern) for one in message.tool_calls]
        ids_now = [one.id for message in fixed for one in message.tool_calls]
        assert ids_now[: len(ids_then)] == ids_then


def check_order_and_words(history: Sequence[Message], fixed: Sequence[Message]) -> None:
    """Who spoke speaks in the same order with the same words, arguments and thoughts; no result is made up."""
    spoken = [message for message in history if message.role != "tool"]
    kept = [message for message in fixed if message.role != "tool"]
    assert [untouched(message) for message in kept] == [untouched(message) for message in spoken]
    calls = [call for message in kept for call in message.tool_calls]
    for before, after in zip((call for message in spoken for call in message.tool_calls), calls, strict=True):
        assert after.name == before.name
        assert means_the_same(before.arguments, after.arguments), after.arguments
    given_results = Counter(message.text for message in history if message.role == "tool")
    found = Counter(message.text for message in fixed if message.role == "tool" and message.text != NO_RESULT)
    assert found <= given_results


def untouched(message: Message) -> object:
    """A message without its calls."""
    return replace(message, tool_calls=())


def means_the_same(before: str, after: str) -> bool:
    """Arguments stay as they are. Servers that read them again fail on what is no JSON object, so that may travel
    inside one, whole."""
    if after == before:
        return True
    return bool(json.loads(after) == ({"INVALID_JSON": before} if before.strip() else {}))


OBJECTS = ["{}", '{ "at":"it" }', '{"at": 1.50}', '{"ä": "\\u00e4"}']


@every_api
@pytest.mark.parametrize("text", OBJECTS)
def test_arguments_that_are_an_object_keep_every_letter(api_name: str, text: str) -> None:
    history = [user("Hi"), assistant("", tool_calls=[ToolCall(id="a b", name="n!", arguments=text)])]
    assert normalize_history(history, APIS[api_name].call_ids)[1].tool_calls[0].arguments == text


NO_OBJECTS = {'{"at": ': '{"INVALID_JSON": "{\\"at\\": "}', "[1]": '{"INVALID_JSON": "[1]"}', " ": "{}"}


@every_api
@pytest.mark.parametrize("text", NO_OBJECTS)
def test_arguments_that_are_no_object_travel_inside_one(api_name: str, text: str) -> None:
    history = [user("Hi"), assistant("", tool_calls=[ToolCall(id="a", name="n", arguments=text)])]
    assert normalize_history(history, APIS[api_name].call_ids)[1].tool_calls[0].arguments == NO_OBJECTS[text]


@every_api
@settings(max_examples=EXAMPLES // 6, deadline=None)
@given(data=st.data())
def test_what_is_fine_is_left_alone(api_name: str, data: st.DataObject) -> None:
    history = [user("Hi")]
    for number in range(data.draw(st.integers(0, 4))):
        named = [f"call_{number}_{position}" for position in range(data.draw(st.integers(0, 3)))]
        answered = [tool_result(one, "seen") for one in named]
        said = turn_with(*named) if named else assistant("So.")
        history += [said, *answered, *data.draw(st.sampled_from([[], [user("And?")]]))]
    fixed = normalize_history(history, APIS[api_name].call_ids)
    assert list(map(id, fixed)) == list(map(id, history))


def told(history: Sequence[Message]) -> list[str]:
    return [message.text for message in history if message.role == "tool"]


def ids_of(history: Sequence[Message]) -> list[tuple[list[str], str | None]]:
    return [([call.id for call in message.tool_calls], message.tool_call_id) for message in history]


HISTORIES: dict[str, tuple[list[Message], list[str]]] = {
    "a result that is missing": ([turn_with("a", "b"), tool_result("a", "1")], ["1", NO_RESULT]),
    "no result at all": ([turn_with("a", "b")], [NO_RESULT, NO_RESULT]),
    "a result twice": ([turn_with("a"), tool_result("a", "1"), tool_result("a", "2")], ["1"]),
    "another order": ([turn_with("a", "b"), tool_result("b", "2"), tool_result("a", "1")], ["1", "2"]),
    "a result of nothing": ([turn_with("a"), tool_result("a", "1"), tool_result("z", "2")], ["1"]),
    "a result under another id": ([turn_with("a", "b"), tool_result("z", "1"), tool_result("b", "2")], ["1", "2"]),
    "one id for all": ([turn_with("a", "a"), tool_result("a", "1"), tool_result("a", "2")], ["1", "2"]),
    "no ids": ([turn_with("", ""), tool_result("", "1"), tool_result("", "2")], ["1", "2"]),
    "the user between": ([turn_with("a"), user("Wait!"), tool_result("a", "1")], ["1"]),
    "results before everything": ([tool_result("a", "0"), user("Hi"), turn_with("a"), tool_result("a", "1")], ["1"]),
    "a result after the next answer": ([turn_with("a"), assistant("So."), tool_result("a", "1")], [NO_RESULT]),
    "one id in two turns": ([turn_with("a"), tool_result("a", "1"), turn_with("a"), tool_result("a", "2")], ["1", "2"]),
}


@every_api
@pytest.mark.parametrize(("history", "expected"), HISTORIES.values(), ids=HISTORIES)
@pytest.mark.spec("001 Pairing: One Result per Call", "each call has one result, whatever its id")
def test_each_call_gets_the_result_that_is_its_own(api_name: str, history: list[Message], expected: list[str]) -> None:
    fixed = normalize_history([user("Hi"), *history], APIS[api_name].call_ids)
    assert told(fixed) == expected
    assert_sendable([user("Hi"), *history])


def test_ids_that_repeat_are_numbered_and_no_number_is_given_twice() -> None:
    history = [turn_with("call_0", "call_0", "call_0_2"), turn_with("call_0_3", "call_0")]
    fixed = normalize_history(history, re.compile(".+"))
    assert [call.id for message in fixed for call in message.tool_calls] == [
        "call_0",
        "call_0_2",
        "call_0_2_2",
        "call_0_3",
        "call_0_4",
    ]
    assert ids_of(history)[0] == (["call_0", "call_0", "call_0_2"], None)


def test_ids_of_letters_that_an_api_refuses_are_rewritten_only_for_that_api() -> None:
    history = [user("Hi"), turn_with("a b"), tool_result("a b", "1")]
    assert calls_in("chat", sent("chat", history))[0]["id"] == "a b"
    assert calls_in("messages", sent("messages", history))[0]["id"] == "a_b"
    assert calls_in("responses", sent("responses", history))[0]["id"] == "a_b"


@pytest.mark.parametrize("wanted", ["x" * 41, "x" * 200, "é" * 60, "x" * 40], ids=len)
def test_ids_are_no_longer_than_openai_takes_them(wanted: str) -> None:
    """Chat takes 40 letters, Responses 64; other servers give longer ones, want them back whole, and a conversation may
    have begun there."""
    history = [user("Hi"), turn_with(wanted, wanted, wanted[:-1] + "y")]
    openai = PromptAgent.model_validate({"model": "gpt-4o"})
    assert calls_in("chat", sent("chat", history))[0]["id"] == wanted
    for api_name, most in {"chat": 40, "responses": 64}.items():
        api = APIS[api_name]
        body = build_request(openai, normalize_history(history, api.call_ids), fit_request(openai, api)).body
        ids_sent = [call["id"] for call in calls_in(api_name, body)]
        assert [result["id"] for result in results_in(api_name, body)] == ids_sent
        assert len(set(ids_sent)) == 3
        assert max(map(len, ids_sent)) <= most


def test_repair_is_there_for_hosts_too_and_reads_messages_in_wire_form() -> None:
    call = {"id": "a b", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    history: list[Any] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    fixed = repair(history, "anthropic", "chat")
    assert [message.role for message in fixed] == ["user", "assistant", "tool"]
    assert (fixed[1].tool_calls[0].id, fixed[2].tool_call_id, fixed[2].text) == ("a_b", "a_b", NO_RESULT)
    assert [message.tool_call_id for message in repair(history)] == [None, None, "a b"]


@every_api
def test_media_in_results_stay(api_name: str) -> None:
    image = ImagePart("aGk=", "image/png")
    result = tool_result("a", image)
    history = [user("Hi"), turn_with("a"), user("Wait!"), result]
    assert normalize_history(history, APIS[api_name].call_ids)[2].content == (image,)
    assert_taken(api_name, sent(api_name, history))


@pytest.mark.parametrize("api_name", ["responses", "messages"])
def test_what_goes_back_as_it_came_has_the_same_ids_as_the_results(api_name: str) -> None:
    """Thoughts, signatures and calls are one piece in these APIs; only the ids of the calls are changed in it."""
    api = APIS[api_name]
    calls = tuple(ToolCall(id="call_0", name="look", arguments='{"at":1}') for _ in range(2))
    signed: dict[str, object] = {"signature": "c2ln"} if api_name == "messages" else {"encrypted_content": "c2ln"}
    whole = WIRES[api.path].whole(Reply(tool_calls=calls, reasoning="Hm", id="r", model="m", opaque=signed))
    turn = api.reply(whole).message()
    body = sent(api_name, [user("Hi"), turn, *(tool_result("call_0", str(n)) for n in range(2))])
    assert_taken(api_name, body)
    assert [one["id"] for one in calls_in(api_name, body)] == ["call_0", "call_0_2"]
    assert [one["content"] for one in results_in(api_name, body)] == ["0", "1"]
    assert "c2ln" in json.dumps(body)
    assert BLOCKS not in json.dumps(body)


@every_api
@pytest.mark.parametrize("name", ["", "no such tool!", "naïve", "a.b"])
@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "from the wire"])
def test_a_name_that_a_model_invented_is_sent_back_in_letters_that_every_api_takes(
    api_name: str, name: str, by_hand: bool
) -> None:
    reply = Reply(tool_calls=(ToolCall(id="a", name=name),), id="r", model="m")
    api = APIS[api_name]
    turn = (reply if by_hand else api.reply(WIRES[api.path].whole(reply))).message()
    body = sent(api_name, [user("Hi"), turn, tool_result("a", "There is no such tool.")])
    assert all(NAME.fullmatch(call["name"]) for call in calls_in(api_name, body))


REPEATED: list[Any] = [
    user("Hi"),
    assistant(tool_calls=[ToolCall(id="call_0", name="look"), ToolCall(id="call_0", name="look")]),
    tool_result("call_0", "one"),
    user("Go on."),
]


def run_it(agent: PromptAgent) -> None:
    run(agent, REPEATED)


def invoke_it(agent: PromptAgent) -> None:
    invoke(agent, {"history": REPEATED})


def turn_it(agent: PromptAgent) -> None:
    turn(agent, {"history": REPEATED})


def execute_it(agent: PromptAgent) -> None:
    executor_of(agent).execute(agent, REPEATED)


def execute_it_in_async_code(agent: PromptAgent) -> None:
    asyncio.run(executor_of(agent).execute_async(agent, REPEATED))


@pytest.mark.spec("001 Pairing: One Result per Call", "each call has one result, whatever its id")
@pytest.mark.parametrize("send", [run_it, invoke_it, turn_it, execute_it, execute_it_in_async_code])
def test_every_request_is_repaired_however_it_is_made(send: Callable[[PromptAgent], None]) -> None:
    agent = loads(THREADED)
    with Script("Yes.") as script:
        send(agent)
    assert [call["id"] for call in calls_in("chat", script.requests[0])] == ["call_0", "call_0_2"]
    results = {result["id"]: result["content"] for result in results_in("chat", script.requests[0])}
    assert results == {"call_0": "one", "call_0_2": NO_RESULT}


def test_an_explained_request_is_the_one_that_is_sent() -> None:
    agent = loads(THREADED)
    with Script("Yes.") as script:
        invoke(agent, {"history": REPEATED})
    assert explain(agent, {"history": REPEATED}).body["messages"] == script.requests[0]["messages"]


@every_api
@pytest.mark.spec("000 §7.4.1", "a call goes back from the metadata of the message with its result")
def test_a_result_that_carries_its_call_is_sent_after_it(api_name: str) -> None:
    """Document 000 stores a call of the Responses API in the metadata of its result."""
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"x"}'}
    metadata = {"tool_call_id": "c1", "responses_function_call": call}
    result = Message.from_json({"role": "tool", "content": [{"kind": "text", "value": "out"}], "metadata": metadata})
    body = sent(api_name, [user("Hi"), result, user("And?")])
    [told], [answered] = calls_in(api_name, body), results_in(api_name, body)
    assert (told["id"], told["name"]) == ("c1", "look")
    assert (answered["id"], answered["content"]) == ("c1", "out")
    assert_taken(api_name, body)
    # a call that is there already is not sent twice
    assert len(calls_in(api_name, sent(api_name, [user("Hi"), turn_with("c1"), result]))) == 1
