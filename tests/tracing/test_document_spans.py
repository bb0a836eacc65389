"""The spans that the documents ask for: one `process` per answer, the provider's key, every option of the request."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from prompty import PromptAgent, invoke, tool, turn
from prompty.errors import ModelError
from prompty.pipeline import process, process_async
from prompty.providers import register_executor, register_processor
from prompty.safety.redaction import MASK
from prompty.testing import Script, call
from prompty.tracing import names
from tests.conversations.turns import scripted
from tests.drivers.clients import close_clients
from tests.loopback import Server, json_reply
from tests.providers.test_foreign import Echo, Said
from tests.tracing.watching import Seen, watching

LOOK = {"name": "look", "kind": "function", "parameters": [{"name": "city", "kind": "string"}]}
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}]}


@pytest.fixture
def seen() -> Iterator[Seen]:
    with watching() as one:
        yield one
        one.assert_complete()


@tool
def look(city: str) -> str:
    """Look outside."""
    return f"sunny in {city}"


def echoing() -> PromptAgent:
    return PromptAgent.model_validate({"model": {"id": "m", "provider": "echo"}, "instructions": "user:\nHi"})


class Failing(Said):
    def process(self, *_: object) -> object:
        raise ModelError("nothing was said")


@pytest.mark.spec("002 §8", "process and process_async are spans")
@pytest.mark.parametrize("api", ["chat", "embedding"])
@pytest.mark.spec("002 §8", "processing that fails is a span, and so is that of each reply of a turn")
def test_an_answer_that_cannot_be_processed_leaves_a_span_with_its_error(seen: Seen, api: str) -> None:
    agent = PromptAgent.model_validate({"model": {"id": "m", "provider": "openai", "apiType": api}})
    with pytest.raises(ModelError):
        process(agent, {"data": []})
    with pytest.raises(ModelError):
        asyncio.run(process_async(agent, {"data": []}))
    assert [tree[0] for tree in seen.trees()] == ["process", "process"]
    assert all(span.error for span in seen.named("process"))


@pytest.mark.spec("002 §8", "process and process_async are spans")
@pytest.mark.usefixtures("clean_registry")
def test_a_processor_of_the_host_is_a_span_too(seen: Seen) -> None:
    register_executor("echo", Echo())
    register_processor("echo", Said())
    assert process(echoing(), {"said": "Hi"}) == "Hi"
    assert asyncio.run(process_async(echoing(), {"said": "Ho"})) == "Ho"
    assert [span.content for span in seen.named("process")] == [{"result": "Hi"}, {"result": "Ho"}]
    register_processor("echo", Failing())
    with pytest.raises(ModelError, match="nothing was said"):
        process(echoing(), {})
    assert seen.named("process")[-1].error


@pytest.mark.spec("002 §8", "process and process_async are spans")
@pytest.mark.usefixtures("clean_registry")
def test_an_answer_is_processed_once_if_only_the_executor_is_the_hosts(seen: Seen) -> None:
    class Ready(Echo):
        def execute(self, *_: object) -> object:
            return ANSWER

    register_executor("openai", Ready())
    agent = PromptAgent.model_validate({"model": {"id": "m", "provider": "openai"}, "instructions": "user:\nHi"})
    assert invoke(agent) == "Yes."
    assert len(seen.named("process")) == 1


@pytest.mark.spec("002 §8", "process and process_async are spans")
@pytest.mark.spec("002 §8", "processing that fails is a span, and so is that of each reply of a turn")
def test_each_answer_of_a_turn_is_processed(seen: Seen) -> None:
    with Script(call("look", city="Bonn"), "Sunny."):
        assert turn(scripted(tools=[LOOK]), tools=[look]) == "Sunny."
    assert [child[0] for child in seen.trees()[0][1]] == [
        "prepare",
        "connect",
        "execute",
        "process",
        "execute_tool",
        "execute",
        "process",
    ]
    calls, text = (span.content["result"] for span in seen.named("process"))
    assert ([one["name"] for one in calls], text) == (["look"], "Sunny.")


@pytest.mark.spec("002 §8", "a reply that cannot be read is a process span")
@pytest.mark.usefixtures("clean_registry")
def test_an_answer_that_cannot_be_read_is_an_error_of_its_call(seen: Seen) -> None:
    with Server() as server:
        server.answer(json_reply({"choices": []}))
        connection = {"kind": "anonymous", "endpoint": server.url}
        model = {"id": "m", "provider": "openai", "connection": connection}
        with pytest.raises(ModelError, match="without a choice"):
            invoke(PromptAgent.model_validate({"model": model, "instructions": "user:\nHi"}), max_retries=0)
        close_clients()
    assert seen.one("execute").error
    assert seen.named("process") == []


@pytest.mark.spec("000 §7.1.8", "a call is a span with the attributes of generative AI")
@pytest.mark.parametrize(("provider", "known_as"), [("azure", "azure.ai.openai"), ("openai", "openai")])
def test_the_key_of_the_provider_in_the_file_is_on_every_call(seen: Seen, provider: str, known_as: str) -> None:
    connection = {"kind": "key", "endpoint": "http://127.0.0.1:9/", "apiKey": "k"}
    model = {"id": "m", "provider": provider, "connection": connection}
    agent = PromptAgent.model_validate({"model": model, "instructions": "user:\nHi"})
    with pytest.raises(ModelError):
        invoke(agent, max_retries=0)
    attributes = seen.one("execute").attributes
    assert (attributes["prompty.provider"], attributes[names.PROVIDER_NAME]) == (provider, known_as)


@pytest.mark.spec("000 §7.1.8", "a call is a span with the attributes of generative AI")
@pytest.mark.spec("000 §7.1.8", "every option of the request is an attribute of its span")
def test_options_under_additional_properties_are_on_the_span(seen: Seen) -> None:
    extra = {
        "user": "me",
        "logit_bias": {"50256": -100},
        "temperature": 0.9,
        "api_key": "sk-abcdefghijklmnopqrstuvwx",
        "stream": True,
    }
    model: Any = {"options": {"temperature": 0.1, "additionalProperties": extra}}
    with Script("Yes."):
        invoke(scripted(model=model))
    attributes = seen.one("execute").attributes
    assert attributes["gen_ai.request.user"] == "me"
    assert attributes["gen_ai.request.logit_bias"] == '{"50256":-100}'
    assert attributes["gen_ai.request.temperature"] == 0.1
    assert attributes["gen_ai.request.api_key"] == MASK
    assert names.REQUEST_STREAM not in attributes
