"""Who answers a prompt: a provider, or an executor and a processor (§7.8), which every provider can stand in for."""

from collections.abc import Sequence
from contextlib import suppress

from prompty.drivers.decoding import as_object, reply_of
from prompty.errors import PromptyError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message
from prompty.pipeline.process import result_of
from prompty.pipeline.request import request_for
from prompty.pipeline.telemetry import call_span, show_reply
from prompty.providers import Api, Provider, providers
from prompty.providers.foreign import ExecutorProtocol, Pair, ProcessorProtocol, executors, processors
from prompty.providers.transport import address_of
from prompty.tracing.spans import Span
from prompty.wire.json_bytes import read_bytes


class ProviderExecutor:
    """Calls the model an agent names and gives back its JSON."""

    def execute(self, agent: PromptAgent, messages: Sequence[Message], /) -> Json:
        provider = providers.get(agent.model.provider)
        api, transport = provider.api(agent.model.api_type), provider.transport_for(agent)
        request = request_for(agent, messages, api)
        with call_span(agent, api, request, address_of(transport)) as span:
            return _shown(span, api, as_object(read_bytes(transport.send(request))))

    async def execute_async(self, agent: PromptAgent, messages: Sequence[Message], /) -> Json:
        provider = providers.get(agent.model.provider)
        api, transport = provider.api(agent.model.api_type), provider.transport_async_for(agent)
        request = request_for(agent, messages, api)
        with call_span(agent, api, request, address_of(transport)) as span:
            return _shown(span, api, as_object(read_bytes(await transport.send(request))))


def _shown(span: Span, api: Api, payload: Json) -> Json:
    """Have the span of a call say what came of it, if it can be read."""
    if span.live:
        with suppress(PromptyError):
            show_reply(span, reply_of(api, payload))
    return payload


class ProviderProcessor:
    """Reads the JSON of the provider an agent names."""

    def process(self, agent: PromptAgent, response: object, /) -> object:
        api = providers.get(agent.model.provider).api(agent.model.api_type)
        return result_of(agent, reply_of(api, response))

    async def process_async(self, agent: PromptAgent, response: object, /) -> object:
        return self.process(agent, response)


def executor_for(key: str) -> ExecutorProtocol:
    """The executor of a provider key: one registered from code comes before a provider."""
    return ProviderExecutor() if not executors.registered(key) and providers.has(key) else executors.get(key)


def processor_for(key: str) -> ProcessorProtocol:
    """The processor of a provider key: one registered from code comes before a provider."""
    return ProviderProcessor() if not processors.registered(key) and providers.has(key) else processors.get(key)


def target_of(agent: PromptAgent) -> Provider | Pair:
    """Who answers. Where the host has put an executor or a processor of its own in the place of a provider, the
    other half is the provider's."""
    key = agent.model.provider
    replaced = executors.registered(key) or processors.registered(key)
    if not replaced and (providers.has(key) or not executors.has(key)):
        return providers.get(key)
    return Pair(executor_for(key), processor_for(key))
