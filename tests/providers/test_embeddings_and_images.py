"""Embeddings and images: requests and results (000 §7.2, §7.3, 002 §8.2, §8.3, W8)."""

from typing import Any

import pytest

from prompty import Message, PromptAgent, Usage, assistant, system, user
from prompty.errors import EmptyReply, RequestError
from prompty.model.content import ImagePart
from prompty.pipeline.request import process_reply
from prompty.providers import PROVIDERS, RequestBase
from prompty.providers.fitting import fit_request
from prompty.providers.openai import embeddings, images
from prompty.registry import DEFAULT
from prompty.tools import Function
from prompty.wire.request import list_dropped_options
from tests.legality import assert_legal

Json = dict[str, Any]

APIS = {"embedding": embeddings.API, "image": images.API}
PICTURE = ImagePart("https://example.com/a.png")


def agent(api_type: str, **options: Any) -> PromptAgent:
    return PromptAgent.model_validate({"model": {"id": "m", "apiType": api_type, "options": options}})


def base(api_type: str, **options: Any) -> RequestBase:
    return fit_request(agent(api_type, **options), APIS[api_type])


def body(api_type: str, *messages: Message, **options: Any) -> Json:
    made = APIS[api_type].request(base(api_type, **options), messages, [])
    assert_legal(api_type, made)
    return made


INPUTS: dict[str, tuple[list[Message], object]] = {
    "one text": ([user("a")], "a"),
    "several messages": ([system("a"), user("b"), assistant("c")], ["a", "b", "c"]),
    "several parts": ([user("a", "b")], ["a", "b"]),
    "one text beside an image": ([user(PICTURE, "a")], "a"),
    "an empty text": ([user("")], ""),
}


@pytest.mark.spec("000 §7.2", "an embeddings request is built")
@pytest.mark.spec("000 §7.2", "one text is a string, several are an array")
@pytest.mark.parametrize(("messages", "expected"), INPUTS.values(), ids=INPUTS)
def test_every_text_of_the_messages_is_embedded(messages: list[Message], expected: object) -> None:
    assert body("embedding", *messages) == {"model": "m", "input": expected}


@pytest.mark.spec("000 §7.2", "messages without text are embedded as an empty list")
@pytest.mark.parametrize("messages", [[], [user(PICTURE)]], ids=["nothing", "no text"])
def test_nothing_to_embed_is_an_error_before_the_call(messages: list[Message]) -> None:
    with pytest.raises(RequestError, match="no text to embed"):
        embeddings.request(base("embedding"), messages, [])


PROMPTS: dict[str, tuple[list[Message], str]] = {
    "one user message": ([system("Be kind"), user("a cat")], "a cat"),
    "the last of several": ([user("a dog"), assistant("Here"), user("a cat"), assistant("Here")], "a cat"),
    "in two parts": ([user("a ", PICTURE, "cat")], "a cat"),
    "no user message": ([system("a cat")], ""),
    "no message": ([], ""),
}


@pytest.mark.spec("000 §7.3", "only the first text of that message counts")
@pytest.mark.spec("000 §7.3", "an image request is built")
@pytest.mark.spec("000 §7.3", "the last user message is the prompt")
@pytest.mark.spec("000 §7.3", "without a user message the prompt is empty")
@pytest.mark.parametrize(("messages", "expected"), PROMPTS.values(), ids=PROMPTS)
def test_the_prompt_is_the_text_of_the_last_user_message(messages: list[Message], expected: str) -> None:
    assert body("image", *messages) == {"model": "m", "prompt": expected}


CHAT_OPTIONS: Json = {
    "temperature": 0.5,
    "maxOutputTokens": 9,
    "topP": 0.5,
    "topK": 3,
    "frequencyPenalty": 1,
    "presencePenalty": 1,
    "seed": 3,
    "stopSequences": ["x"],
    "allowMultipleToolCalls": True,
}
OWN_OPTIONS: dict[str, Json] = {"embedding": {"dimensions": 256}, "image": {"size": "1024x1024", "n": 2}}


@pytest.mark.spec("000 §7.3", "options of the model are sent for an image")
@pytest.mark.parametrize("api_type", APIS)
def test_only_additional_properties_cross_and_override_nothing(api_type: str) -> None:
    added = {**OWN_OPTIONS[api_type], "model": "x", "input": "x", "prompt": "x"}
    own = {"embedding": {"input": "a"}, "image": {"prompt": "a"}}[api_type]
    made = APIS[api_type].request(base(api_type, **CHAT_OPTIONS, additionalProperties=added), [user("a")], [])
    assert made == {**added, "model": "m", **own}
    assert_legal(api_type, body(api_type, user("a"), **CHAT_OPTIONS, additionalProperties=OWN_OPTIONS[api_type]))


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
def test_what_is_left_out_can_be_asked_for(api: Any) -> None:
    dropped = list_dropped_options(agent("embedding", **CHAT_OPTIONS).model.options, api.options)
    assert dropped == [name for name in CHAT_OPTIONS if name != "allowMultipleToolCalls"]


@pytest.mark.parametrize("api_type", APIS)
def test_tools_and_outputs_do_not_cross(api_type: str) -> None:
    told = PromptAgent.model_validate({"model": {"id": "m"}, "outputs": {"x": {"kind": "string"}}})
    function = Function(name="t", description=None, parameters={})
    assert APIS[api_type].request(fit_request(told, APIS[api_type]), [user("a")], [function]).keys() <= {
        "model",
        "input",
        "prompt",
    }


def vectors(*given: tuple[int, list[float]]) -> Json:
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in given]
    return {"object": "list", "model": "m-2025", "data": data, "usage": {"prompt_tokens": 5, "total_tokens": 5}}


@pytest.mark.spec("002 §8.2", "one vector is not a list of one")
def test_one_vector_is_the_result_itself() -> None:
    answer = embeddings.reply(vectors((0, [0.1, 0.2])))
    assert process_reply(agent("embedding"), answer) == [0.1, 0.2]
    assert (answer.usage, answer.model) == (Usage(input_tokens=5), "m-2025")


@pytest.mark.spec("002 §8.2", "several vectors are a list")
def test_several_vectors_are_a_list_in_the_order_of_the_texts() -> None:
    answer = embeddings.reply(vectors((1, [0.3]), (0, [0.1]), (2, [0.5])))
    assert process_reply(agent("embedding"), answer) == [[0.1], [0.3], [0.5]]


FOUND: dict[str, tuple[list[Json], object]] = {
    "a URL": ([{"url": "https://x/1"}], "https://x/1"),
    "base64": ([{"b64_json": "AAAA", "url": None}], "AAAA"),
    "both": ([{"b64_json": "AAAA", "url": "https://x/1"}], "https://x/1"),
    "several": ([{"url": "https://x/1"}, {"b64_json": "AAAA"}], ["https://x/1", "AAAA"]),
    "one of them empty": ([{"revised_prompt": "a cat"}, {"b64_json": "AAAA"}], "AAAA"),
}


@pytest.mark.spec("002 §8.3", "one image is a text, several are a list")
@pytest.mark.spec("002 §8.3", "a URL is preferred over base64")
@pytest.mark.parametrize(("data", "expected"), FOUND.values(), ids=FOUND)
def test_images_are_urls_or_else_base64(data: list[Json], expected: object) -> None:
    answer = images.reply({"created": 1, "data": data, "usage": {"input_tokens": 5, "output_tokens": 9}})
    assert process_reply(agent("image"), answer) == expected
    assert answer.usage == Usage(input_tokens=5, output_tokens=9)


@pytest.mark.spec("002 §8.2", "no vector is a ValueError")
@pytest.mark.spec("002 §8.3", "no image is a ValueError")
@pytest.mark.parametrize("payload", [{"data": []}, {}], ids=["no entries", "no data"])
@pytest.mark.parametrize(("api_type", "said"), [("embedding", "Empty embedding"), ("image", "Empty image")])
def test_an_empty_answer_is_an_error(api_type: str, said: str, payload: Json) -> None:
    with pytest.raises(ValueError, match=f"{said} response") as caught:
        APIS[api_type].reply(payload)
    assert isinstance(caught.value, EmptyReply)


def test_telemetry_has_a_name_for_each() -> None:
    assert (embeddings.API.operation, images.API.operation) == ("embeddings", "generate_content")


OFFERED = {
    "openai": {"chat", "responses", "embedding", "image"},
    "foundry": {"chat", "responses", "embedding"},
    "azure": {"chat", "responses", "embedding"},
    "anthropic": {"chat"},
}


@pytest.mark.spec("004 Provider Support", "each provider offers the APIs of the table")
@pytest.mark.parametrize("api_type", ["chat", "responses", "embedding", "image", "telepathy"])
@pytest.mark.parametrize("name", OFFERED)
def test_an_api_that_a_provider_does_not_have_is_an_error_naming_those_it_has(name: str, api_type: str) -> None:
    provider = DEFAULT[PROVIDERS].get(name)
    if api_type in OFFERED[name]:
        assert provider.api(api_type).path
        return
    with pytest.raises(RequestError, match=f"'{name}' has no API of type '{api_type}'") as caught:
        provider.api(api_type)
    assert all(offered in caught.value.fix for offered in OFFERED[name])
