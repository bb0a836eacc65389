"""The scripted model: prompts that run without a key and without a network, through the code of real providers."""

import asyncio
import contextvars
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from prompty import ModelError, PromptAgent, ToolCall, Usage, invoke, loads, tool_result, user
from prompty.errors import PromptyWarning, RequestError, StreamCut
from prompty.events import ModelReply, ReasoningDelta, TextDelta, ToolCallDelta
from prompty.model.message import Json, Reply
from prompty.model.request import WireRequest
from prompty.pipeline import run
from prompty.testing import Fault, Script, answer, call, register_script
from prompty.testing.encoding import WIRES
from prompty.testing.provider import PROVIDER
from prompty.wire.json_bytes import read_bytes, write_bytes
from prompty.wire.stream import EventReader
from tests.legality import assert_legal
from tests.strategies import json_objects, names, texts
from tests.ways import ASYNC, SYNC, WAYS, Way

APIS = tuple(api for api in PROVIDER.apis if api != "embedding")  # those that answer with messages
LOOK = {"name": "look", "kind": "function", "parameters": [{"name": "at", "kind": "string"}]}
BROKEN = "the connection failed: scripted"

every_api = pytest.mark.parametrize("api_type", APIS)
every_mode = pytest.mark.parametrize("way", WAYS, ids=str)


def agent_of(api_type: str = "chat", script: object = None, **model: Any) -> PromptAgent:
    model = {"id": "m", "provider": "scripted", "apiType": api_type, "script": script, **model}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", "tools": [LOOK]})


@every_api
@every_mode
def test_a_script_answers_in_its_order(api_type: str, way: Way) -> None:
    with Script("Hello there, Ada", call("look", at="the sky"), [call("look"), call("look", id="x")]) as played:
        seen = way.invoke_often(3, agent_of(api_type))
    assert [entry.error for entry in seen] == [None] * 3
    assert [entry.result for entry in seen] == [
        "Hello there, Ada",
        [ToolCall(id="call_1", name="look", arguments='{"at":"the sky"}')],
        [ToolCall(id="call_2", name="look"), ToolCall(id="x", name="look")],
    ]
    assert len(played.requests) == 3
    for body in played.requests:
        assert_legal(api_type, body)


@every_api
def test_a_stream_comes_in_pieces_of_every_kind(api_type: str) -> None:
    reply = answer("Let me see.", call("look", at="it"), reasoning="Hm, well.")
    with Script(reply), invoke(agent_of(api_type), stream=True) as stream:
        events = list(stream.events())
    for kind in (TextDelta, ReasoningDelta):
        assert len([event for event in events if isinstance(event, kind)]) > 1
    arguments = [event.arguments for event in events if isinstance(event, ToolCallDelta)]
    assert "".join(arguments) == '{"at":"it"}'
    assert '{"at":"it"}' not in arguments
    [told] = [event.reply for event in events if isinstance(event, ModelReply)]
    assert (told.text, told.reasoning, told.finish_reason, told.model) == (
        "Let me see.",
        "Hm, well.",
        "tool_calls",
        "m",
    )
    assert told.usage == Usage(input_tokens=10, output_tokens=5)


@every_mode
def test_an_item_may_be_computed_from_the_request(way: Way) -> None:
    with Script(lambda request: answer(f"{request.path} {request.stream}")):
        assert way.invoke(agent_of()).result == f"/chat/completions {way.streamed}"


def test_the_requests_are_copies() -> None:
    def spoil(request: WireRequest) -> str:
        request.body["messages"] = []
        return "done"

    with Script(spoil) as played:
        assert invoke(agent_of()) == "done"
    assert played.requests[0]["messages"] == [{"role": "user", "content": "Hi"}]


@every_api
@every_mode
def test_a_fault_is_raised_before_anything_is_sent(api_type: str, way: Way) -> None:
    busy = ModelError("busy", status=503, retryable=True, retry_after=0)
    with Script(Fault(busy), "Now") as played:
        assert way.invoke(agent_of(api_type)).result == "Now"
    assert len(played.requests) == 2
    with Script(Fault()):
        seen = way.invoke(agent_of(api_type), max_retries=0)
    assert isinstance(seen.error, ModelError)
    assert seen.error.retryable
    assert seen.cause == BROKEN


@every_api
@pytest.mark.parametrize("way", [way for way in WAYS if way.streamed], ids=str)
def test_a_fault_cuts_a_stream_after_some_events(api_type: str, way: Way) -> None:
    reply = answer("one two three four")
    with Script(*(Fault(after=number, reply=reply) for number in range(9))):
        seen = way.invoke_often(9, agent_of(api_type), max_retries=0)
    heard = [entry.text for entry in seen]
    assert heard[0] == ""
    assert "one two " in heard
    for entry in seen:
        assert isinstance(entry.error, StreamCut)
        assert entry.cause == BROKEN
        assert isinstance(entry.error.partial, Reply)
        assert entry.error.partial.text == entry.text
        assert entry.error.retryable is (not entry.text)


@every_mode
def test_a_call_without_a_stream_fails_where_a_stream_would_be_cut(way: Way) -> None:
    with Script(Fault(ModelError("gone"), after=1, reply=answer("a b c"))):
        seen = way.invoke(agent_of())
    assert seen.cause == "gone"


@every_mode
def test_a_script_that_runs_out_says_how_many_answers_it_had(way: Way) -> None:
    with Script("one"):
        first, second = way.invoke_often(2, agent_of())
    assert first.result == "one"
    assert isinstance(second.error, ModelError)
    assert not second.error.retryable
    assert str(second.error).startswith("the script has no reply left: it had 1\n    Pass `Script(…)` one item")


@every_api
@every_mode
def test_a_time_limit_and_a_script_go_together(api_type: str, way: Way) -> None:
    with Script("Hello there"):
        assert way.invoke(agent_of(api_type), timeout=60).result == "Hello there"


def test_the_innermost_script_answers_and_a_context_ends_with_its_block() -> None:
    with Script("outer", "outer again"):
        assert invoke(agent_of()) == "outer"
        with Script("inner"):
            assert invoke(agent_of()) == "inner"
        assert invoke(agent_of()) == "outer again"
    with pytest.raises(ModelError, match=r"the model 'm' has no script\n    .*register_script\('m'"):
        invoke(agent_of())


@pytest.mark.filterwarnings("default:.*of the Script not used")
@pytest.mark.parametrize(("used", "left"), [(0, 3), (1, 2), (2, 1)])
def test_a_reply_that_no_call_used_is_a_warning(used: int, left: int) -> None:
    replies = ("one", "two", "three")
    message = f"{left} of 3 replies of the Script not used.*'{replies[used]}'"
    with pytest.warns(PromptyWarning, match=message) as caught, Script(*replies):
        SYNC.invoke_often(used, agent_of())
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("error:.*of the Script not used")
def test_a_block_that_fails_does_not_warn_of_unused_replies() -> None:
    with pytest.raises(ZeroDivisionError), Script("never used"):
        _ = 1 / 0


@pytest.mark.filterwarnings("error:.*of the Script not used")
def test_a_script_is_used_up_when_its_outermost_block_ends() -> None:
    with (script := Script("one", "two")):
        with script:
            assert invoke(agent_of()) == "one"
        assert invoke(agent_of()) == "two"


def test_a_stream_keeps_the_script_it_was_started_with() -> None:
    with Script("one two"):
        stream = invoke(agent_of(), stream=True)
    with stream:
        assert [event.text for event in stream.events() if isinstance(event, TextDelta)] == ["one ", "two"]
        assert stream.result == "one two"


def test_a_context_reaches_threads_that_copy_it_and_all_of_them_get_an_answer() -> None:
    found: list[list[ToolCall]] = []
    with Script(*(call("look") for _ in range(40))) as played:
        contexts = [contextvars.copy_context() for _ in range(40)]
        threads = [
            threading.Thread(target=context.run, args=(lambda: found.append(invoke(agent_of())),))
            for context in contexts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(played.requests) == 40
    assert {calls[0].id for calls in found} == {f"call_{number}" for number in range(1, 41)}


def test_tasks_have_scripts_of_their_own() -> None:
    async def ask(text: str) -> object:
        with Script(text):
            await asyncio.sleep(0)
            return await ASYNC.invoke_async(agent_of())

    async def both() -> list[Any]:
        return list(await asyncio.gather(ask("a"), ask("b")))

    assert [seen.result for seen in asyncio.run(both())] == ["a", "b"]


@pytest.mark.usefixtures("clean_registry")
def test_the_context_comes_before_the_registered_script_and_that_before_the_file() -> None:
    agent = agent_of(script=["file"])
    assert invoke(agent) == "file"
    register_script("m", Script("registered", "registered again"))
    assert invoke(agent) == "registered"
    with Script("context"):
        assert invoke(agent) == "context"
    assert invoke(agent) == "registered again"


def followed(agent: PromptAgent, messages: list[Any], times: int) -> Iterator[Any]:
    """The results of calling a model again and again, each call answered in one word."""
    api = PROVIDER.api(agent.model.api_type)
    for _ in range(times):
        result = run(agent, messages)
        yield result
        calls = tuple(result) if isinstance(result, list) else ()
        reply = Reply(tool_calls=calls) if calls else Reply(text=result)
        messages += api.tool_messages(reply, [tool_result(call.id, "fine") for call in calls])
        if not calls:
            messages.append(user("And now?"))


FILE_SCRIPT = [
    {"call": "look", "arguments": {"at": "this", "id": 1}},
    [{"call": "look"}, {"call": "look"}],
    {"text": "Done looking.", "reasoning": "Enough."},
]


@every_api
def test_the_script_of_a_file_begins_anew_with_each_turn_of_the_user(api_type: str) -> None:
    agent = agent_of(api_type, FILE_SCRIPT)
    first, two, done, again, *_ = followed(agent, [user("Hi")], 6)
    assert first == [ToolCall(id="call_1", name="look", arguments='{"at":"this","id":1}')]
    assert [entry.id for entry in two] == ["call_2", "call_3"]
    assert done == "Done looking."
    assert again == [replace(first[0], id="call_4")]


@every_api
def test_the_script_of_a_file_is_not_sent(api_type: str) -> None:
    with Script("Hello") as played:
        assert invoke(agent_of(api_type, ["other"])) == "Hello"
    assert_legal(api_type, played.requests[0])


@every_api
def test_a_text_at_the_end_of_a_file_repeats_and_calls_do_not(api_type: str) -> None:
    history: list[Any] = [user("Hi")]
    calls = agent_of(api_type, [{"call": "look"}])
    with pytest.raises(ModelError, match="no reply left: it had 1\n    End the file's `script` with a text"):
        list(followed(calls, history, 2))
    assert run(agent_of(api_type, ["done"]), history) == "done"


call_entries = st.builds(lambda name, arguments: {"call": name, "arguments": arguments}, names, json_objects)
file_replies = (
    call_entries
    | st.lists(call_entries, min_size=1, max_size=3)
    | st.builds(lambda text, calls: {"text": text, "calls": calls}, texts, st.lists(call_entries, min_size=1))
)


def expect_calls(entry: Any) -> list[tuple[str, Any]]:
    """Return the names and the arguments of the calls in a reply of a file."""
    calls = entry if isinstance(entry, list) else entry.get("calls", [entry])
    return [(one["call"], one["arguments"]) for one in calls]


@every_api
@settings(deadline=None)
@given(rounds=st.lists(file_replies, max_size=4), last=texts.filter(bool))
def test_any_script_of_a_file_answers_in_its_order(api_type: str, rounds: list[Any], last: str) -> None:
    model = {"provider": "scripted", "apiType": api_type, "script": [*rounds, last]}
    agent = loads(f"---\n{yaml.safe_dump({'model': model})}---\nuser:\nHi")
    found = list(followed(agent, [user("Hi")], len(rounds) + 1))
    calls = [[(one.name, json.loads(one.arguments)) for one in reply] for reply in found[:-1]]
    assert calls == [expect_calls(entry) for entry in rounds]
    assert found[-1] == last


def test_a_scripted_model_needs_no_id_and_ignores_the_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTY_MODEL", "openai:gpt-test")
    assert invoke(loads("---\nmodel: {provider: scripted, script: [Hello]}\n---\nuser:\nHi")) == "Hello"


def test_the_script_of_a_file_is_saved_with_it() -> None:
    agent = loads("---\nmodel: {provider: scripted, script: [{call: look}, Hello]}\n---\nuser:\nHi")
    for unset in (True, False):
        assert PromptAgent.model_validate_json(agent.model_dump_json(exclude_unset=unset)).model == agent.model
    assert "script" not in loads("user:\nHi").model.model_dump()


def test_a_script_takes_variables_because_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_REPLY", "Hello")
    assert (
        invoke(loads("---\nmodel: {provider: scripted, script: ['${env:SCRIPTED_REPLY}']}\n---\nuser:\nHi")) == "Hello"
    )


@pytest.mark.parametrize(
    "model", ["{provider: scripted}", "{provider: scripted, options: {additionalProperties: {script: [Hi]}}}"]
)
def test_a_model_without_a_script_says_how_to_write_one(model: str) -> None:
    with pytest.raises(ModelError, match=r"`model: \{provider: scripted, script: \[Hello\]\}`"):
        invoke(loads(f"---\nmodel: {model}\n---\nuser:\nHi"))


@pytest.mark.parametrize("script", [[1], [{}], [{"txt": "a"}], [{"call": 1}], [[{"call": "a", "with": 1}]]])
def test_a_script_of_a_file_that_cannot_be_read_says_what_can(script: object) -> None:
    with pytest.raises(RequestError, match="Write a text"):
        invoke(agent_of(script=script))


def test_media_in_results_are_no_new_turn_of_the_user() -> None:
    url = "https://example.com/a.png"
    tools: list[Json] = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": tools},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "image_url", "image_url": {"url": url}}]},
    ]
    assert run(agent_of(script=[{"call": "look"}, "Seen."]), history) == "Seen."


@every_api
def test_ids_that_are_empty_or_repeated_are_sent_as_they_are(api_type: str) -> None:
    with Script([call("look", id=""), call("look", id="a"), call("look", id="a")]):
        ids = [entry.id for entry in invoke(agent_of(api_type))]
    assert ids == ["call_0" if api_type == "chat" else "", "a", "a"]


@every_api
@every_mode
def test_arguments_that_are_not_json_stay_the_text_they_are(api_type: str, way: Way) -> None:
    broken = ToolCall(id="a", name="look", arguments='{"at": ')
    with Script(broken):
        assert way.invoke(agent_of(api_type)).result == [broken]


@every_api
def test_what_a_model_refuses_is_told(api_type: str) -> None:
    with Script(Reply(refusal="I would rather not.")):
        assert invoke(agent_of(api_type)) == "I would rather not."


@every_api
@every_mode
def test_a_call_that_the_length_limit_cut_in_two_is_none(api_type: str, way: Way) -> None:
    half = ToolCall(id="a", name="look", arguments='{"at": ')
    with Script(answer("Well", half, finish_reason="length")):
        assert way.invoke(agent_of(api_type)).result == "Well"


# What is written is read back, whole and in pieces.

counts = st.none() | st.integers(0, 9)
calls = st.builds(
    ToolCall,
    id=st.sampled_from(["a", "a", "b"]),
    name=names,
    arguments=json_objects.map(lambda o: write_bytes(o).decode()),
)
DETAILS: list[Json] = [{"type": "reasoning.text", "text": "Hm", "signature": "s", "index": 0}]


@st.composite
def replies(draw: st.DrawFn, api_type: str) -> Reply:
    wanted = tuple(draw(st.lists(calls, max_size=3)))
    reasons = ["tool_calls"] if wanted else ["stop", "length", "strange"]
    usage = Usage(
        input_tokens=draw(st.none() | st.integers(20, 30)),
        output_tokens=draw(counts),
        cache_read_tokens=draw(counts),
        cache_write_tokens=(written := draw(counts)),
        cache_write_1h_tokens=draw(st.none() | st.integers(0, written)) if written and api_type == "messages" else None,
        reasoning_tokens=draw(counts),
    )
    return Reply(
        text=draw(texts),
        tool_calls=wanted,
        reasoning=draw(texts),
        finish_reason=draw(st.sampled_from(reasons)),
        usage=usage,
        id="a",
        model="m",
        opaque=draw(st.sampled_from([{}, METADATA[api_type]])),
    )


METADATA: dict[str, Json] = {
    "chat": {"reasoning_details": DETAILS},
    "responses": {"encrypted_content": "secret"},
    "messages": {"signature": "signed"},
}


def kept(api_type: str, reply: Reply) -> Json:
    """What goes back to the API from metadata, read as the real reader leaves it."""
    items = {"responses": "responses_items", "messages": "anthropic_blocks"}.get(api_type)
    if items is None:
        return reply.opaque
    found: Any = reply.opaque.get(items)
    thoughts = [entry for entry in found or () if entry["type"] in ("reasoning", "thinking")]
    names = ("encrypted_content", "signature")
    return {name: entry[name] for entry in thoughts for name in names if name in entry}


def assert_same(api_type: str, found: Reply, reply: Reply) -> None:
    assert replace(found, opaque={}) == replace(reply, opaque={})
    if api_type == "chat" or (reply.tool_calls and reply.reasoning):
        default: Json = {"signature": "sig"} if api_type == "messages" else {}
        assert kept(api_type, found) == {**default, **reply.opaque}


@every_api
@settings(deadline=None)
@given(data=st.data())
def test_what_is_written_is_read_back_whole_and_in_pieces(api_type: str, data: st.DataObject) -> None:
    reply = data.draw(replies(api_type))
    api = PROVIDER.api(api_type)
    wire = WIRES[api.path]
    whole: Any = read_bytes(write_bytes(wire.whole(reply)))
    assert_same(api_type, api.reply(whole), reply)
    sent = b"".join(wire.events(reply))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=12)))
    reader = EventReader()
    assert api.decoder is not None
    decoder = api.decoder()
    deltas = []
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        deltas += [delta for event in reader.feed(sent[start:end]) for delta in decoder.feed(event)]
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.text
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == reply.reasoning
    assert_same(api_type, decoder.finish(), reply)


def vectors_file(script: str, body: str = "user:\nOne\n") -> str:
    return f"---\nmodel: {{provider: scripted, apiType: embedding, script: {script}}}\n---\n{body}"


def test_the_script_of_a_file_answers_each_text_with_a_vector() -> None:
    two = "user:\nOne\n\nuser:\nTwo\n"
    assert invoke(loads(vectors_file("[[0.5, -1], [2, 3]]"))) == [0.5, -1]
    assert invoke(loads(vectors_file("[[0.5, -1], [2, 3]]", two))) == [[0.5, -1], [2, 3]]
    assert invoke(loads(vectors_file("[[0.5, -1]]", two))) == [[0.5, -1], [0.5, -1]]


@pytest.mark.parametrize("script", ["[]", "[Hello]", "[[a]]", "[0.5]"])
def test_a_script_without_vectors_cannot_answer_for_embeddings(script: str) -> None:
    with pytest.raises(RequestError, match="not a list of vectors"):
        invoke(loads(vectors_file(script)))
