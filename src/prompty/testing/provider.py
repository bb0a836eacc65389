"""The provider `scripted`: the formats of the real ones, and a transport that leads to a script."""

from collections.abc import Sequence
from dataclasses import replace

from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message
from prompty.model.request import Function
from prompty.providers import Api, Provider
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, responses
from prompty.testing.transport import AsyncScriptedTransport, ScriptedTransport


def _without_script(api: Api) -> Api:
    """An API whose requests leave the script of the file out: no server would be sent it."""

    def request(agent: PromptAgent, messages: Sequence[Message], functions: Sequence[Function]) -> Json:
        body = api.request(agent, messages, functions)
        body.pop("script", None)
        return body

    return replace(api, request=request)


_APIS = {"chat": chat.API, "responses": responses.API, "messages": messages.API}

PROVIDER = Provider(
    key="scripted",
    apis={name: _without_script(api) for name, api in _APIS.items()},
    transport=ScriptedTransport,
    transport_async=AsyncScriptedTransport,
)
