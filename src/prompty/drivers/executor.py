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
from prompty.providers import Api, Provider
from prompty.providers.foreign import ExecutorProtocol, Pair, ProcessorProtocol
from prompty.providers.transport import address_of
from prompty.tracing.spans import Span
from prompty.wire.json_bytes import read_bytes


class ProviderExecutor:
    """Calls the model an agent names and gives back its JSON."""

    def execute(self, agent: PromptAgent, messages: Sequence[Message], /) -> Json:
        provider = agent.registry.providers.get(agent.model.provider)
        api, transport = provider.api(agent.model.api_type), provider.transport_for(agent)
        request = request_for(agent, messages, api)
        with call_span(agent, api, request, address_of(transport)) as span:
            return _shown(span, api, as_object(read_bytes(transport.send(request))))

    async def execute_async(self, agent: PromptAgent, messages: Sequence[Message], /) -> Json:
        provider = agent.registry.providers.get(agent.model.provider)
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
        api = agent.registry.providers.get(agent.model.provider).api(agent.model.api_type)
        return result_of(agent, reply_of(api, response))

    async def process_async(self, agent: PromptAgent, response: object, /) -> object:
        return self.process(agent, response)


def executor_for(agent: PromptAgent) -> ExecutorProtocol:
    """Return the executor of an agent's provider. One registered from code comes before a provider."""
    key, registry = agent.model.provider, agent.registry
    is_provider = not registry.executors.is_registered(key) and registry.providers.has(key)
    return ProviderExecutor() if is_provider else registry.executors.get(key)


def processor_for(agent: PromptAgent) -> ProcessorProtocol:
    """Return the processor of an agent's provider. One registered from code comes before a provider."""
    key, registry = agent.model.provider, agent.registry
    is_provider = not registry.processors.is_registered(key) and registry.providers.has(key)
    return ProviderProcessor() if is_provider else registry.processors.get(key)


def target_of(agent: PromptAgent) -> Provider | Pair:
    """Who answers. Where the host has put an executor or a processor of its own in the place of a provider, the
    other half is the provider's."""
    key, registry = agent.model.provider, agent.registry
    replaced = registry.executors.is_registered(key) or registry.processors.is_registered(key)
    if not replaced and (registry.providers.has(key) or not registry.executors.has(key)):
        return registry.providers.get(key)
    return Pair(executor_for(agent), processor_for(agent))
