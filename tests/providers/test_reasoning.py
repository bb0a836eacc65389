"""What a model thought goes back to it with the calls it led to, exactly as it came, and nowhere else (L6)."""

import asyncio
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import pytest

from prompty import Message, PromptAgent, turn, turn_async, user
from prompty.events import Done, Event
from prompty.pipeline.request import build_request
from prompty.providers import PROVIDERS
from prompty.providers.fitting import fit_request
from prompty.registry import DEFAULT
from tests.drivers.clients import close_clients
from tests.legality import assert_legal
from tests.loopback import Reply, Server, event, json_reply, stream
from tests.ways import SYNC, Way, every_way

Json = dict[str, Any]

TOOL = {"name": "look", "kind": "function", "parameters": [{"name": "at", "kind": "string"}]}
THOUGHT = re.compile(r"THOUGHT-\w+")  # every text, summary, signature and ciphertext below holds one
PIECE = 7  # letters that come at once in a stream


class Answer(NamedTuple):
    """One answer as its API writes it: fields of a chat message, or items, or blocks; calls and text are among them."""

    parts: Any
    calls: bool = True


@dataclass(frozen=True)
class Wire:
    """How an API says an answer, whole and in events, and where in a request the answers before it are."""

    name: str
    provider: str
    api_type: str
    base: str

    def whole(self, answer: Answer) -> Json:
        raise NotImplementedError

    def events(self, answer: Answer) -> Iterator[object]:
        raise NotImplementedError

    def sent(self, body: Json, of: int) -> list[Any]:
        """What a request holds of the answer number `of`, of those before it: its parts, in their places."""
        raise NotImplementedError

    def expected(self, answer: Answer) -> list[Any]:
        """What must be there: of one with calls everything, as it came."""
        raise NotImplementedError

    def reply(self, answer: Answer, *, streamed: bool) -> Reply:
        return stream(*map(event, self.events(answer))) if streamed else json_reply(self.whole(answer))


def pieces(text: str) -> list[str]:
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


class Chat(Wire):
    """`parts` are the fields of a message."""

    def whole(self, answer: Answer) -> Json:
        reason = "tool_calls" if answer.calls else "stop"
        choice = {"index": 0, "message": {"role": "assistant", **answer.parts}, "finish_reason": reason}
        return {"id": "a", "model": "m", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 5}}

    def chunk(self, finish: str | None = None, **delta: object) -> Json:
        return {"id": "a", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def events(self, answer: Answer) -> Iterator[object]:
        yield self.chunk(role="assistant", content="")
        for name, value in answer.parts.items():
            if isinstance(value, str):
                yield from (self.chunk(**{name: piece}) for piece in pieces(value))
            elif name == "reasoning_details":
                yield from (
                    self.chunk(reasoning_details=[piece]) for detail in value for piece in detail_pieces(detail)
                )
            else:
                yield from (self.chunk(tool_calls=[{"index": index, **call}]) for index, call in enumerate(value or []))
        yield self.chunk("tool_calls" if answer.calls else "stop")
        yield "[DONE]"

    def sent(self, body: Json, of: int) -> list[Any]:
        message = [one for one in body["messages"] if one["role"] == "assistant"][of]
        return [{name: value for name, value in message.items() if name not in ("role", "content")}]

    def expected(self, answer: Answer) -> list[Any]:
        """Details are all of the thoughts; without them the text goes back, whatever name it came under."""
        given = answer.parts
        text = given.get("reasoning_content") or given.get("reasoning")
        details = given.get("reasoning_details")
        thoughts = {"reasoning_details": details} if details else {"reasoning_content": text} if text else {}
        return [{"tool_calls": given["tool_calls"], **thoughts}] if answer.calls else [{}]


def detail_pieces(detail: Json) -> Iterator[Json]:
    """A detail as a stream brings it: texts grow, the signature comes after them, ciphertext comes at once."""
    grows = {"reasoning.text": "text", "reasoning.summary": "summary"}.get(detail["type"])
    if not grows:
        yield detail
        return
    signature = {"signature": detail["signature"]} if "signature" in detail else {}
    same = {name: value for name, value in detail.items() if name not in (grows, "signature")}
    yield from ({**same, grows: piece} for piece in pieces(detail[grows]))
    if signature:
        yield {**same, **signature}


class Responses(Wire):
    """`parts` are the items of the output."""

    def response(self, status: str, output: Sequence[Json]) -> Json:
        usage = {"input_tokens": 3, "output_tokens": 5}
        return {"id": "a", "model": "m", "status": status, "output": list(output), "usage": usage}

    def whole(self, answer: Answer) -> Json:
        return self.response("completed", answer.parts)

    def events(self, answer: Answer) -> Iterator[object]:
        yield {"type": "response.created", "response": self.response("in_progress", [])}
        for index, item in enumerate(answer.parts):
            yield {"type": "response.output_item.added", "output_index": index, "item": self.begun(item)}
            for part_index, part in enumerate(item.get("summary", [])):
                for piece in pieces(part["text"]):
                    place = {"output_index": index, "summary_index": part_index}
                    yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
            for piece in pieces(item.get("arguments", "")):
                yield {"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": self.whole(answer)}

    def begun(self, item: Json) -> Json:
        empty: Json = {"summary": [], "arguments": "", "content": []}
        return {**item, **{name: value for name, value in empty.items() if name in item}}

    def sent(self, body: Json, of: int) -> list[Any]:
        """Answers are between what others said: the user, and outputs of calls."""
        answers: list[list[Json]] = [[]]
        for item in body["input"]:
            if item.get("role") == "user" or item.get("type") == "function_call_output":
                answers += [[]] if answers[-1] else []
            else:
                answers[-1].append(item)
        return answers[of]

    def expected(self, answer: Answer) -> list[Any]:
        if answer.calls:
            return list(answer.parts)
        text = next(item["content"][0]["text"] for item in answer.parts if item["type"] == "message")
        return [{"role": "assistant", "content": text}]


class SparingResponses(Responses):
    """A server whose last event leaves the output out."""

    def events(self, answer: Answer) -> Iterator[object]:
        *others, _ = super().events(answer)
        yield from others
        yield {"type": "response.completed", "response": self.response("completed", [])}


class Messages(Wire):
    """`parts` are blocks."""

    def message(self, content: Sequence[Json], reason: str | None) -> Json:
        head = {"id": "a", "type": "message", "role": "assistant", "model": "m"}
        usage = {"input_tokens": 3, "output_tokens": 5}
        return {**head, "content": list(content), "stop_reason": reason, "usage": usage}

    def whole(self, answer: Answer) -> Json:
        return self.message(answer.parts, "tool_use" if answer.calls else "end_turn")

    def events(self, answer: Answer) -> Iterator[object]:
        yield {"type": "message_start", "message": self.message([], None)}
        for index, block in enumerate(answer.parts):
            begun, deltas = self.grown(block)
            yield {"type": "content_block_start", "index": index, "content_block": begun}
            yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
            yield {"type": "content_block_stop", "index": index}
        reason = "tool_use" if answer.calls else "end_turn"
        yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}
        yield {"type": "message_stop"}

    def grown(self, block: Json) -> tuple[Json, list[Json]]:
        """How a block begins, and what is added to it."""
        match block["type"]:
            case "thinking":
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
                signed = {"type": "signature_delta", "signature": block["signature"]}
                return {**block, "thinking": "", "signature": ""}, [*deltas, signed]
            case "text":
                return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
            case "tool_use":
                written = json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(written)]
                return {**block, "input": {}}, deltas
        return block, []  # redacted thoughts come at once

    def sent(self, body: Json, of: int) -> list[Any]:
        found: list[Any] = [one["content"] for one in body["messages"] if one["role"] == "assistant"][of]
        return found

    def expected(self, answer: Answer) -> list[Any]:
        return [part for part in answer.parts if answer.calls or part["type"] == "text"]


CHAT = Chat("chat", "openai", "chat", "/v1")
RESPONSES = Responses("responses", "openai", "responses", "/v1")
SPARING = SparingResponses("responses", "openai", "responses", "/v1")
MESSAGES = Messages("messages", "anthropic", "chat", "")


@dataclass(frozen=True)
class Case:
    """A model that thinks, calls two tools, thinks, calls one more, thinks, and answers."""

    wire: Wire
    model: str
    first: Any
    second: Any
    last: Any

    @property
    def answers(self) -> list[Answer]:
        return [Answer(self.first), Answer(self.second), Answer(self.last, calls=False)]

    def agent(self, url: str) -> PromptAgent:
        connection = {"kind": "key", "endpoint": url + self.wire.base, "apiKey": "a-key-of-no-known-shape"}
        return agent_of(self.model, self.wire.provider, self.wire.api_type, connection=connection)


def agent_of(model: str, provider: str = "openai", api_type: str = "chat", **parts: object) -> PromptAgent:
    told = {"id": model, "provider": provider, "apiType": api_type, **parts}
    return PromptAgent.model_validate({"model": told, "instructions": "user:\nLook!", "tools": [TOOL]})


def chat_call(number: int) -> Json:
    function = {"name": "look", "arguments": f'{{"at": "place {number}"}}'}
    return {"id": f"call_{number}", "type": "function", "function": function}


def chat_case(model: str, *thoughts: Json) -> Case:
    """A case of three thoughts."""
    first, second, last = thoughts
    return Case(
        CHAT,
        model,
        {**first, "content": "Let me see.", "tool_calls": [chat_call(1), chat_call(2)]},
        {**second, "content": None, "tool_calls": [chat_call(3)]},
        {**last, "content": "It is there."},
    )


def text_case(model: str, field: str) -> Case:
    """A model whose thoughts are plain text; blanks at their ends are part of them."""
    said = ('\nWas ist dort? 思考 THOUGHT-first\u2028 "quoted" \\ \n\n', " THOUGHT-second ", "THOUGHT-last")
    return chat_case(model, *({field: text} for text in said))


def detail(number: int, mark: str, **parts: object) -> Json:
    """Beside what is documented a server may send what nobody knows yet."""
    more = {"format": "google-gemini-v1", "index": number, "unknown": {"n": 12345678901234567890, "x": [1.5, None]}}
    return {"type": "reasoning.encrypted", "id": None, "data": f"CiQB/+==THOUGHT-{mark}", **more, **parts}


def text_detail(number: int, mark: str, **parts: object) -> Json:
    text = {"type": "reasoning.text", "text": f"First, é and 考:\n THOUGHT-{mark}. "}
    return {**text, "format": "google-gemini-v1", "index": number, **parts}


DETAILS = chat_case(
    "google/gemini-3-pro",
    {
        "reasoning": "THOUGHT-first",
        "reasoning_details": [
            text_detail(0, "first"),
            detail(0, "first", id="call_1"),
            detail(1, "first", id="call_2"),
        ],
    },
    {"reasoning_details": [detail(0, "second")]},
    {"reasoning": "THOUGHT-last", "reasoning_details": [text_detail(0, "last"), detail(1, "last")]},
)
SIGNED_DETAILS = chat_case(
    "anthropic/claude-sonnet-4-5",
    {
        "reasoning_details": [
            text_detail(0, "first", signature="THOUGHT-first=="),
            text_detail(1, "first", signature="THOUGHT-first/=="),
            {"type": "reasoning.summary", "summary": "In short: THOUGHT-first", "index": 2},
        ]
    },
    {"reasoning_details": [text_detail(0, "second", signature="THOUGHT-second==")]},
    {"reasoning_details": [text_detail(0, "last", signature="THOUGHT-last==")]},
)


def signed_call(number: int, mark: str) -> Json:
    """Google's own chat API puts the signature into the call; of calls beside each other only the first has one."""
    return {**chat_call(number), "extra_content": {"google": {"thought_signature": f"CiQB/+THOUGHT-{mark}=="}}}


SIGNED_CALLS = Case(
    CHAT,
    "gemini-3-pro",
    {"content": None, "tool_calls": [signed_call(1, "first"), chat_call(2)]},
    {"content": None, "tool_calls": [signed_call(3, "second")]},
    {"reasoning_content": "THOUGHT-last", "content": "It is there."},
)


def item(number: int, mark: str, *summary: str) -> Json:
    told = [{"type": "summary_text", "text": f"{text} THOUGHT-{mark}"} for text in summary]
    return {"id": f"rs_{number}", "type": "reasoning", "summary": told, "encrypted_content": f"gAAAA/+THOUGHT-{mark}=="}


def item_call(number: int) -> Json:
    named = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "look"}
    return {**named, "arguments": f'{{"at": "place {number}"}}', "status": "completed"}


def item_text(number: int, text: str) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": list[object](), "logprobs": list[object]()}]
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed", "content": content}


def items_case(wire: Wire) -> Case:
    return Case(
        wire,
        "gpt-5",
        [
            item(1, "first", "**Looking** é 考", "Then\n\n"),
            item_text(1, "Let me see."),
            item_call(1),
            item(2, "first"),
            item_call(2),
        ],
        [item(3, "second", ""), item_call(3)],
        [item(4, "last", "So."), item_text(2, "It is there.")],
    )


def thinking(mark: str, text: str = "é and 考:\n ") -> Json:
    return {"type": "thinking", "thinking": f"{text}THOUGHT-{mark} ", "signature": f"EqQB/+THOUGHT-{mark}=="}


def redacted(mark: str) -> Json:
    return {"type": "redacted_thinking", "data": f"EmwK/+THOUGHT-{mark}=="}


def tool_use(number: int) -> Json:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": {"at": f"place {number}"}}


BLOCKS = Case(
    MESSAGES,
    "claude-sonnet-4-5",
    [
        thinking("first"),
        redacted("first"),
        {"type": "text", "text": "Let me see."},
        tool_use(1),
        thinking("first", "Between the calls: "),
        tool_use(2),
    ],
    # what a model was asked not to show is empty, and signed all the same
    [redacted("second"), {"type": "thinking", "thinking": "", "signature": "EqQB/+THOUGHT-second=="}, tool_use(3)],
    [thinking("last"), redacted("last"), {"type": "text", "text": "It is there."}],
)

CASES = {
    "DeepSeek": text_case("deepseek-reasoner", "reasoning_content"),
    "Qwen": text_case("qwen3-max", "reasoning_content"),
    "Qwen on a newer vLLM": text_case("qwen3-32b", "reasoning"),
    "GLM": text_case("glm-4.6", "reasoning_content"),
    "Kimi": text_case("kimi-k2-thinking", "reasoning_content"),
    "Kimi through a router": text_case("moonshotai/kimi-k2-thinking", "reasoning"),
    "Gemini through a router": DETAILS,
    "Gemini at Google": SIGNED_CALLS,
    "Claude through a router": SIGNED_DETAILS,
    "OpenAI Responses": items_case(RESPONSES),
    "OpenAI Responses, sparing": items_case(SPARING),
    "Anthropic": BLOCKS,
}

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_", "AZURE_")):
            monkeypatch.delenv(name)
    with Server() as server:
        yield server
        close_clients()


def look(at: str) -> str:
    return f"Nothing at {at}"


def done(way: Way, agent: PromptAgent, messages: Sequence[object] | None = None) -> Done:
    """What a turn comes to."""
    heard: list[Event] = []
    options: dict[str, Any] = {"tools": [look], "on_event": heard.append, "messages": messages}

    async def asynchronously() -> None:
        if way.streamed:
            async with await turn_async(agent, stream=True, **options) as streamed:
                await streamed.result()
        else:
            await turn_async(agent, **options)

    if way.asynchronous:
        asyncio.run(asynchronously())
    elif way.streamed:
        with turn(agent, stream=True, **options) as streamed:
            assert streamed.result == "It is there."
    else:
        turn(agent, **options)
    (found,) = [one for one in heard if isinstance(one, Done)]
    assert found.result == "It is there."
    return found


def exchange(case: Case, way: Way, server: Server, *answers: Answer) -> Done:
    """A turn in which the model gives these answers, or those of the case."""
    server.answer(*(case.wire.reply(one, streamed=way.streamed) for one in answers or case.answers))
    return done(way, case.agent(server.url))


def going_on(case: Case, way: Way, server: Server, before: Done) -> Json:
    """The request of a turn that follows another."""
    server.answer(case.wire.reply(case.answers[-1], streamed=way.streamed))
    done(way, case.agent(server.url), [*before.messages, user("And now?")])
    return server.requests[-1].body


def without_extras(body: Any) -> Any:
    """A body without what Google puts into calls: OpenAI's document does not know it."""
    if isinstance(body, list):
        return [without_extras(entry) for entry in body]
    if not isinstance(body, dict):
        return body
    return {name: without_extras(value) for name, value in body.items() if name != "extra_content"}


def digest(items: object) -> str:
    return sha256(json.dumps(items, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def thoughts_in(body: object) -> set[str]:
    return set(THOUGHT.findall(json.dumps(body)))


@pytest.mark.spec("001 Interleaved Thinking", "structured thoughts go back as they came, in their order")
@pytest.mark.spec("001 Interleaved Thinking", "thoughts go back with the calls they led to and are left out of answers")
@every_way
@each_case
def test_thoughts_go_back_with_their_calls_exactly_as_they_came(case: Case, way: Way, server: Server) -> None:
    exchange(case, way, server)
    first, second, third = (request.body for request in server.requests)
    assert thoughts_in(first) == set()
    for body, answers in ((second, case.answers[:1]), (third, case.answers[:2])):
        assert_legal(case.wire.name, without_extras(body))
        sent = [case.wire.sent(body, number) for number in range(len(answers))]
        expected = [case.wire.expected(answer) for answer in answers]
        assert sent == expected  # says more than the digests when it fails
        assert list(map(digest, sent)) == list(map(digest, expected))
    assert thoughts_in(second) == {"THOUGHT-first"}
    assert thoughts_in(third) == {"THOUGHT-first", "THOUGHT-second"}


@pytest.mark.spec("001 Interleaved Thinking", "thoughts go back with the calls they led to and are left out of answers")
@every_way
@each_case
def test_thoughts_that_led_to_no_call_stay_here_in_the_next_turn(case: Case, way: Way, server: Server) -> None:
    before = exchange(case, way, server)
    last_of_turn, body = server.requests[-1].body, going_on(case, way, server, before)
    assert_legal(case.wire.name, without_extras(body))
    key = "input" if case.wire.name == "responses" else "messages"
    assert body[key][: len(last_of_turn[key])] == last_of_turn[key]  # what a provider has cached is sent again
    assert case.wire.sent(body, 2) == case.wire.expected(case.answers[2])
    assert thoughts_in(body) == {"THOUGHT-first", "THOUGHT-second"}


@pytest.mark.spec("001 Where the rule lives", "what is stored keeps all thoughts")
@every_way
@each_case
def test_of_a_conversation_without_calls_no_thought_is_sent(case: Case, way: Way, server: Server) -> None:
    before = exchange(case, way, server, case.answers[-1])
    assert thoughts_in(before.messages[-1].to_json()) == {"THOUGHT-last"}  # it is kept, for people to read
    body = going_on(case, way, server, before)
    assert_legal(case.wire.name, without_extras(body))
    assert thoughts_in(body) == set()
    assert not reasoning_keys(body)


def reasoning_keys(value: object) -> set[str]:
    """Names in a body that have to do with thoughts, and types of items and blocks that do."""
    if isinstance(value, list):
        return set().union(*map(reasoning_keys, value))
    if not isinstance(value, dict):
        return set()
    inner = set().union(*map(reasoning_keys, value.values()))
    words = {*value, str(value.get("type"))}
    return inner | {word for word in words if re.search("reason|think|thought|signature|encrypted", word)}


OWN_SERVERS: dict[str, Json] = {
    "no connection": {},
    "a key and no endpoint": {"connection": {"kind": "key", "apiKey": "k"}},
    "its endpoint": {"connection": {"kind": "key", "apiKey": "k", "endpoint": "https://api.openai.com/v1"}},
    "its endpoint in Europe": {
        "connection": {"kind": "key", "apiKey": "k", "endpoint": "https://eu.api.openai.com/v1/"}
    },
    "its endpoint, shouted": {
        "connection": {"kind": "key", "apiKey": "k", "endpoint": "HTTPS://API.OPENAI.COM:443/v1"}
    },
    "a client of the host's": {"connection": {"kind": "reference", "name": "somewhere"}},
    "Azure": {
        "provider": "azure",
        "connection": {"kind": "key", "apiKey": "k", "endpoint": "https://mine.openai.azure.com"},
    },
    "Azure behind a gateway": {
        "provider": "azure",
        "connection": {"kind": "key", "apiKey": "k", "endpoint": "https://gateway.example"},
    },
}


@pytest.mark.parametrize("place", OWN_SERVERS.values(), ids=OWN_SERVERS)
@each_case
def test_no_thought_ever_goes_to_the_chat_api_of_openai(case: Case, place: Json, server: Server) -> None:
    messages: Sequence[Message] = exchange(case, SYNC, server).messages
    agent = agent_of("gpt-4o", **place)
    api = DEFAULT[PROVIDERS].get(agent.model.provider).api_for(agent)
    body = build_request(agent, [*messages, user("And now?")], fit_request(agent, api)).body
    assert_legal("chat", body)
    assert len([one for one in body["messages"] if one.get("tool_calls")]) == 2  # type: ignore[attr-defined]  # a body is plain JSON
    assert thoughts_in(body) == set()
    assert not reasoning_keys(body)
