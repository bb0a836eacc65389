"""From messages to the request that is sent (§7)."""

from collections.abc import Sequence

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.message import Message
from prompty.model.tool import FunctionTool
from prompty.pipeline.messages import NotAMessage, message_from
from prompty.providers import Api, WireRequest
from prompty.wire.functions import Function, function_of


def request_for(
    agent: PromptAgent,
    messages: Sequence[object],
    api: Api,
    *,
    functions: Sequence[Function] | None = None,
    stream: bool = False,
    timeout: float | None = None,
) -> WireRequest:
    """The request one call to a model takes."""
    if not agent.model.id and api.path:  # an executor of the host's may know its model itself
        raise RequestError("the prompt names no model", "Write `model: <id>` in the file.")
    offered = functions_of(agent) if functions is None else functions
    body = api.request(agent, read_messages(messages), offered)
    body.pop("stream", None)  # whether a call streams is the caller's choice: the file's would break the other one
    return WireRequest(
        path=api.path,
        body=api.stream_body(body) if stream else body,
        headers=api.headers(agent),
        stream=stream,
        timeout=timeout,
    )


def read_messages(messages: Sequence[object]) -> list[Message]:
    """Messages as our own objects; dicts in wire form are taken too."""
    try:
        return [message_from(message) for message in messages]
    except NotAMessage as error:
        raise RequestError(f"a message cannot be used: {error}", "Pass Message objects or dicts with a role.") from None


def functions_of(agent: PromptAgent) -> list[Function]:
    """What the model is told it can call. Two functions of one name are an error before anything is sent (W6)."""
    functions = [function_of(tool) for tool in agent.tools if isinstance(tool, FunctionTool)]
    names = [function.name for function in functions]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"two tools are called '{name}'", "Give each tool a name of its own.")
    return functions
