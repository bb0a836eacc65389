"""Random agents and random conversations, of what each API takes by design.

A turn that calls tools is made as in life: an answer in the API's own JSON, read by its `reply`, followed by the
results of its calls. Some come from elsewhere instead, as a plain assistant message with `tool_calls`.
"""

import json
from base64 import b64encode
from typing import Any

from hypothesis import strategies as st

from prompty import Message, PromptAgent, ToolCall, assistant, tool_result, user
from prompty.messages import TextPart
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart
from prompty.model.message import Json
from prompty.providers import Api
from tests.legality import OWN_OPTION

Draw = st.DrawFn
Made = dict[str, Any]

# few letters: what a name is made of matters less here than what stands around it
names = st.text("abXY_-09", max_size=4).map(lambda rest: f"n{rest}")
words = st.text("aZ9 .,ß漢🌍", max_size=5).map(lambda rest: f"w{rest}")
# everything but surrogates, which no JSON in UTF-8 can hold
texts = st.just("") | words | st.text(st.characters(codec="utf-8"), max_size=6)
base64 = st.binary(min_size=1, max_size=12).map(lambda data: b64encode(data).decode())
urls = st.sampled_from(["https://example.com/a", "http://localhost:8000/b.png?c=d", "HTTPS://EXAMPLE.COM/e"])
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
json_objects = st.dictionaries(names, plain_json, max_size=2)


# What a file says.

SAID: dict[str, st.SearchStrategy[Any]] = {
    "description": texts,
    "required": st.booleans(),
    "nullable": st.booleans(),
}
leaves = st.fixed_dictionaries(
    {"kind": st.sampled_from(["string", "integer", "float", "boolean", "object", "array", "image"])}, optional=SAID
) | st.fixed_dictionaries(
    {"kind": st.just("string"), "enumValues": st.lists(words, min_size=1, max_size=2)}, optional=SAID
)


def declarations(depth: int = 4, *, one_of: bool = False) -> st.SearchStrategy[Made]:
    """Properties with so many levels at most: lists, mappings and unions around a leaf."""
    if depth == 1:
        return leaves
    inner = declarations(depth - 1, one_of=one_of)
    fields = st.dictionaries(names, inner, max_size=2)
    shapes = [
        leaves,
        st.fixed_dictionaries({"kind": st.just("array"), "items": inner}, optional=SAID),
        st.fixed_dictionaries({"kind": st.just("object"), "properties": fields}, optional=SAID),
    ]
    for key in ("anyOf", "oneOf") if one_of else ("anyOf",):
        branches = st.lists(inner, min_size=1, max_size=3)
        shapes.append(st.fixed_dictionaries({"kind": st.just("union"), key: branches}, optional=SAID))
    return st.one_of(shapes)


# in a strict schema a union is `anyOf`
properties = st.dictionaries(names, declarations(), max_size=3)
loose_properties = st.dictionaries(names, declarations(one_of=True), max_size=3)


@st.composite
def tools(draw: Draw) -> Made:
    strict = draw(st.booleans())
    parameters = draw(properties if strict else loose_properties)
    bound = draw(st.lists(st.sampled_from(sorted(parameters)), unique=True)) if parameters else []
    binding = st.fixed_dictionaries({"input": names}) | words
    tool: Made = {
        "name": draw(names),
        "kind": "function",
        "parameters": parameters,
        "strict": strict,
        "bindings": {name: draw(binding) for name in bound},
    }
    return {**tool, "description": draw(texts)} if draw(st.booleans()) else tool


def options(api_name: str) -> st.SearchStrategy[Made]:
    penalty = st.floats(-2, 2)
    stops = words if api_name == "messages" else texts
    return st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, 1 if api_name == "messages" else 2),
            "maxOutputTokens": st.integers(16, 100_000),
            "topP": st.floats(0, 1),
            "topK": st.integers(1, 500),
            "frequencyPenalty": penalty,
            "presencePenalty": penalty,
            "seed": st.integers(-(2**31), 2**31),
            "stopSequences": st.lists(stops, max_size=4),
            "allowMultipleToolCalls": st.booleans(),
            "additionalProperties": st.dictionaries(names.map(lambda name: OWN_OPTION + name), plain_json, max_size=2),
        },
    )


connections = st.sampled_from(
    [
        None,
        {"kind": "key", "apiKey": "k"},
        {"kind": "key", "apiKey": "k", "endpoint": "https://api.openai.com/v1"},
        {"kind": "anonymous", "endpoint": "http://localhost:8080/v1"},
    ]
)


@st.composite
def agents(draw: Draw, api_name: str) -> PromptAgent:
    """A prompt for this API with any options, tools and outputs."""
    model = {"id": "some-model", "connection": draw(connections), "options": draw(options(api_name))}
    if api_name == "messages":
        model["provider"] = "anthropic"
    elif api_name != "chat":
        model["apiType"] = api_name
    offered = st.lists(tools(), max_size=2, unique_by=lambda tool: str(tool["name"]))
    return PromptAgent.model_validate({"model": model, "tools": draw(offered), "outputs": draw(properties)})


# What is said.

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
AUDIO_TYPES = ("audio/wav", "audio/x-wav", "audio/mp3", "audio/mpeg", "audio/flac", "audio/ogg", "audio/aac")
FILE_TYPES = ("application/pdf", "text/plain")


def _data(types: tuple[str, ...]) -> st.SearchStrategy[tuple[str, str | None]]:
    """Base64 with its media type beside it, or a data URI without."""
    bare = st.tuples(base64, st.sampled_from(types))
    return bare | bare.map(lambda pair: (f"data:{pair[1]};base64,{pair[0]}", None))


def _located(media_types: tuple[str, ...]) -> st.SearchStrategy[tuple[str, str | None]]:
    return _data(media_types) | st.tuples(urls, st.none() | st.sampled_from(media_types))


text_parts = texts.map(TextPart)
details = st.none() | st.sampled_from(["auto", "low", "high"])
images = st.builds(lambda at, detail: ImagePart(at[0], at[1], detail), _located(IMAGE_TYPES), details)
audio = _data(AUDIO_TYPES).map(lambda at: AudioPart(*at))
_text_file = texts.map(lambda text: (b64encode(text.encode()).decode(), "text/plain"))
file_ids = names.map(lambda name: FilePart(f"file-{name}"))


def _files(with_urls: bool) -> st.SearchStrategy[FilePart]:
    held = _data(("application/pdf",)) | _text_file
    located = held | st.tuples(urls, st.none()) if with_urls else held
    return st.builds(lambda at, name: FilePart(at[0], at[1], name), located, st.none() | words)


PARTS: dict[str, st.SearchStrategy[ContentPart]] = {
    "chat": text_parts | images | audio | _files(with_urls=False) | file_ids,
    "responses": text_parts | images | _files(with_urls=True) | file_ids,
    "messages": text_parts | images | _files(with_urls=True) | file_ids,
    "embedding": text_parts | images,
    "image": text_parts | images,
}
# attributes are ours, and must not cross
strange = st.fixed_dictionaries(
    {}, optional={"x_note": texts, "reasoning_content": texts, "turn": st.integers(), "finish_reason": words}
)


def fronts() -> st.SearchStrategy[list[Message]]:
    roles = st.sampled_from(["system", "developer"])
    words_only = st.lists(text_parts, max_size=2)
    return st.lists(st.builds(Message, roles, words_only, reasoning=texts, attributes=strange), max_size=2)


def users(api_name: str) -> st.SearchStrategy[Message]:
    parts = st.lists(PARTS[api_name], max_size=3)
    return st.builds(Message, st.just("user"), parts, name=st.none() | names, attributes=strange)


def answers() -> st.SearchStrategy[Message]:
    words_only = st.lists(text_parts, max_size=2)
    finish_reasons = st.none() | words
    return st.builds(
        Message, st.just("assistant"), words_only, reasoning=texts, attributes=strange, finish_reason=finish_reasons
    )


def calls() -> st.SearchStrategy[list[ToolCall]]:
    one = st.builds(ToolCall, id=st.just(""), name=names, arguments=json_objects.map(json.dumps))
    return st.lists(one, min_size=1, max_size=3)


@st.composite
def tool_turns(draw: Draw, api_name: str, api: Api, number: int) -> list[Message]:
    """A turn that calls tools, and the results of its calls in their order."""
    wanted = [
        ToolCall(id=f"call_{number}_{position}", name=call.name, arguments=call.arguments)
        for position, call in enumerate(draw(calls()))
    ]
    said, thought = draw(texts), draw(texts)
    results = [tool_result(call.id, *draw(result_parts(api_name))) for call in wanted]
    if draw(st.booleans()):
        reply = api.reply(PAYLOADS[api_name](wanted, said, thought))
        return api.tool_messages(reply, results)
    return [assistant(said, tool_calls=wanted), *results]


def result_parts(api_name: str) -> st.SearchStrategy[list[ContentPart]]:
    return st.lists(text_parts | images if api_name != "chat" else PARTS["chat"], max_size=3)


@st.composite
def histories(draw: Draw, api_name: str, api: Api) -> list[Message]:
    """Instructions, then a conversation that waits for the model: it ends in a user message or in results."""
    messages = [*draw(fronts()), user(draw(words))]
    if api_name in ("embedding", "image"):
        return [*messages, *draw(st.lists(users(api_name), max_size=3))]
    for number in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["user", "answer", "tools", "tools"]))
        if kind == "tools":
            messages += draw(tool_turns(api_name, api, number))
        elif kind == "user":
            messages.append(draw(users(api_name)))
        else:
            messages += [draw(answers()), draw(users(api_name))]
    return messages


# Answers in the JSON of each API.


def chat_payload(wanted: list[ToolCall], said: str, thought: str) -> Json:
    turn: Made = {"role": "assistant", "content": said or None, "tool_calls": [c.to_wire() for c in wanted]}
    if thought:
        turn |= {"reasoning_content": thought, "reasoning_details": [{"type": "reasoning.text", "text": thought}]}
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "message": turn, "finish_reason": "tool_calls"}]}


def responses_payload(wanted: list[ToolCall], said: str, thought: str) -> Json:
    output: list[Made] = [{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": thought}]}]
    if said:
        content = [{"type": "output_text", "text": said, "annotations": [], "logprobs": []}]
        output.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        )
    for number, call in enumerate(wanted):
        asked = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        output.append({"type": "function_call", "id": f"fc_{number}", "status": "completed", **asked})
    return {"id": "resp_1", "object": "response", "status": "completed", "output": output}


def messages_payload(wanted: list[ToolCall], said: str, thought: str) -> Json:
    content: list[Made] = [{"type": "thinking", "thinking": thought, "signature": "c2lnbmVk"}] if thought else []
    if said:
        content.append({"type": "text", "text": said})
    for call in wanted:
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)})
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use"}


PAYLOADS = {"chat": chat_payload, "responses": responses_payload, "messages": messages_payload}
