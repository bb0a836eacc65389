"""A scripted model: prompts run without a key and without a network.

Files say `provider: scripted`. Only the transport is replaced: requests are built and answers are read by the code
of the real providers, in the formats of `apiType: chat`, `responses` or `messages`.
"""

from collections.abc import Sequence
from dataclasses import replace

from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message
from prompty.providers import Api, Provider
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, responses
from prompty.testing.script import Fault, Script, answer, call, register_script
from prompty.testing.transport import AsyncScriptedTransport, ScriptedTransport
from prompty.wire.functions import Function

__all__ = ["Fault", "Script", "answer", "call", "register_script"]


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
