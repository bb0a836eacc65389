"""The provider `scripted`: the real providers' wire formats over a transport that answers from a script.

The transport returns the bytes that a server would send.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from prompty.errors import ModelError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message
from prompty.model.request import Function, WireRequest
from prompty.providers import Api, Provider
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, embeddings, responses
from prompty.testing.file_script import parse_file_script, parse_file_vectors
from prompty.testing.local import AsyncLocalTransport, Chunks, LocalTransport
from prompty.testing.responder import Responder, respond
from prompty.testing.script import find_script


class ScriptedTransport(LocalTransport):
    """Transport that replies from a script."""

    def __init__(self, agent: PromptAgent) -> None:
        super().__init__(_find_answers(agent))


class AsyncScriptedTransport(AsyncLocalTransport):
    """Async counterpart of `ScriptedTransport`."""

    def __init__(self, agent: PromptAgent) -> None:
        super().__init__(_find_answers(agent))


def _find_answers(agent: PromptAgent) -> Callable[[WireRequest], Chunks]:
    """Return a function that answers the agent's requests with the bytes that a server would send."""
    if agent.model.api_type == "embedding":
        return parse_file_vectors(_get_entries(agent))
    return partial(respond, _find_responder(agent))


def _find_responder(agent: PromptAgent) -> Responder:
    """Return the script registered for the model, or the one in the file. Not called within `with Script(…):`."""
    script = find_script(agent.model.id)
    if script is not None:
        return script
    return parse_file_script(_get_entries(agent))


def _get_entries(agent: PromptAgent) -> object:
    """Return the script in the file."""
    entries = (agent.model.options.additional_properties or {}).get("script")
    if entries is None:
        raise ModelError(
            f"no script is registered for the model '{agent.model.id}'\n"
            f"    Call it within `with Script(…):`, or `register_script('{agent.model.id}', Script(…))`, "
            "or write `model.options.additionalProperties.script` in the file."
        )
    return entries


def _omit_script(api: Api) -> Api:
    """Return the API with requests that omit the file's script, like a real provider's."""

    def request(agent: PromptAgent, messages: Sequence[Message], functions: Sequence[Function]) -> Json:
        body = api.request(agent, messages, functions)
        body.pop("script", None)
        return body

    return replace(api, request=request)


_APIS = {"chat": chat.API, "responses": responses.API, "messages": messages.API, "embedding": embeddings.API}

PROVIDER = Provider(
    key="scripted",
    apis={name: _omit_script(api) for name, api in _APIS.items()},
    transport=ScriptedTransport,
    transport_async=AsyncScriptedTransport,
    hosts=None,
)
