"""The interface of §7.8 for the providers that are built in: raw replies out, raw replies in."""

from collections.abc import Sequence

from prompty.drivers.calls import prepared_call
from prompty.drivers.decoding import as_object, reply_of
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message
from prompty.pipeline.process import result_of
from prompty.providers import providers
from prompty.wire.json_bytes import read_bytes


class ProviderExecutor:
    """Calls the model an agent names and gives back its JSON."""

    def execute(self, agent: PromptAgent, messages: Sequence[Message], /) -> Json:
        provider = providers.get(agent.model.provider)
        _, request = prepared_call(provider, agent, messages, stream=False, timeout=None)
        return as_object(read_bytes(provider.transport(agent).send(request)))

    async def execute_async(self, agent: PromptAgent, messages: Sequence[Message], /) -> Json:
        provider = providers.get(agent.model.provider)
        _, request = prepared_call(provider, agent, messages, stream=False, timeout=None)
        return as_object(read_bytes(await provider.transport_async(agent).send(request)))


class ProviderProcessor:
    """Reads the JSON of the provider an agent names."""

    def process(self, agent: PromptAgent, response: object, /) -> object:
        api = providers.get(agent.model.provider).api(agent.model.api_type)
        return result_of(agent, reply_of(api, response))

    async def process_async(self, agent: PromptAgent, response: object, /) -> object:
        return self.process(agent, response)
