"""Build the request for messages (§7), and process its reply into a result (§8)."""

import json
import warnings
from collections.abc import Mapping, Sequence
from shlex import quote

from prompty.errors import InvalidMessage, PromptyWarning, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message, Reply, parse_messages
from prompty.model.request import Function, WireRequest
from prompty.model.tool import FunctionTool, McpTool, runs_at_provider
from prompty.model.trust import FieldKind, refuse_credential
from prompty.pipeline.history import normalize_history
from prompty.providers import PROVIDERS, Api, RequestBase, RequestPreview, has_server
from prompty.providers.credentials import check_header, find_target
from prompty.safety.redaction import mask_secrets, mask_url
from prompty.tools.kinds import check_function_name, check_tool_target, project_tools
from prompty.tools.toolbox import describe_custom_tools
from prompty.tracing.spans import begin
from prompty.wire.structured import build_function, parse_structured

NO_MODEL = "the prompt names no model"
MODEL_VARIABLE = "PROMPTY_MODEL"
_LISTS = ("anthropic-beta",)  # headers with a list, to which the file and an API both add


def build_request(
    agent: PromptAgent,
    messages: Sequence[object],
    base: RequestBase,
    *,
    functions: Sequence[Function] | None = None,
    stream: bool = False,
    timeout: float | None = None,
) -> WireRequest:
    """Return the request for one call to a model, with a repaired history."""
    api = base.api
    is_named = agent.model.id or agent.trust.lacks("model", "id")
    if not is_named and api.path:  # a host's executor may choose its own model
        others = f"write `model: <id>` in the file, or set {MODEL_VARIABLE}."
        raise RequestError(
            NO_MODEL, f"Pass model='provider:id', {others}", f"Pass --model provider:id, {others}", keys=("model",)
        )
    offered = list_functions(agent) if functions is None else functions
    read = normalize_history(read_messages(messages), api.call_ids)
    if agent.tools:
        check_hosted_servers(agent)
    for option, reason in base.omitted.items():
        warn_once(agent, option, f"`{option}` is not sent: {reason}")
    body = api.request(base, read, offered)
    body.pop("stream", None)  # the caller chooses whether to stream
    return WireRequest(
        path=api.path,
        body=api.stream_body(body) if stream else body,
        headers=_add_file_headers(agent, api.headers(base)),
        omitted=base.omitted,
        stream=stream,
        timeout=timeout,
        messages=read,
        functions=offered,
    )


def _add_file_headers(agent: PromptAgent, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers of an API with those of the file's connection."""
    written = getattr(agent.model.connection, "headers", None)
    if not written:
        return headers
    own = {name.lower(): check_header(f"the header '{name}' of the connection", text) for name, text in written.items()}
    joined = {name: f"{own[name]},{headers[name]}" for name in _LISTS if name in own and name in headers}
    return {**own, **headers, **joined}


def check_hosted_servers(agent: PromptAgent) -> None:
    """Raise an error if the provider would send a key to an MCP server that may not get it, or if the model's endpoint
    may not get it: the request has it."""
    for tool in agent.tools:
        if not isinstance(tool, McpTool) or tool.execution != "provider" or not has_server():
            continue
        check_tool_target(agent, tool, getattr(tool.connection, "endpoint", None))
        hosts = agent.registry[PROVIDERS].get(agent.model.provider).hosts
        target = find_target(agent, hosts or ())
        if hosts is None or not target.endpoint:
            continue
        for use in agent.trust.find("tools", tool.name, "connection"):
            if use.kind in (FieldKind.CREDENTIAL, FieldKind.HEADER) and (
                refusal := refuse_credential(use.variable, use.source, target)
            ):
                cause = f"the tool '{tool.name}': its key would also go to the model's endpoint: {refusal.cause}"
                raise RequestError(cause, refusal.fix)


_MAX_WARNED = 10_000


def warn_once(agent: PromptAgent, option: str, text: str) -> None:
    """Warn of what happens to an option, once for each agent, model and option."""
    name = str(agent.path or agent.name or "the prompt")
    key = (name, f"{agent.model.provider}:{agent.model.id}", option)
    warned = agent.registry.warned
    if key in warned:
        return
    if len(warned) >= _MAX_WARNED:
        warned.clear()
    warned.add(key)
    warnings.warn(f"{name}: {text}", PromptyWarning, stacklevel=2)


def read_messages(messages: Sequence[object]) -> list[Message]:
    """Return messages as `Message` objects. Dicts in wire form are converted."""
    try:
        return parse_messages(messages)
    except InvalidMessage as error:
        raise RequestError(f"a message is invalid: {error}", "Pass Message objects or dicts with a role.") from None


def list_declared_functions(agent: PromptAgent) -> list[Function]:
    """Return the functions that a file declares. A duplicate name is an error before anything is sent."""
    functions = [build_function(tool) for tool in agent.tools if isinstance(tool, FunctionTool)]
    names = [function.name for function in functions]
    for name in names:
        check_function_name(name)
        if names.count(name) > 1:
            raise RequestError(f"two tools are named '{name}'", "Give each tool a unique name.")
    return functions


def list_functions(agent: PromptAgent) -> list[Function]:
    """Return the functions of a prompt's tools, in sync code. Tools of other kinds may use the network."""
    if not has_kinds(agent):
        return list_declared_functions(agent)
    from prompty.concurrency import run_in_event_loop  # it imports asyncio, which functions do not need

    return run_in_event_loop(list_offered_functions(agent))


def has_kinds(agent: PromptAgent) -> bool:
    """Return True if a prompt has tools whose functions are not in the file, such as those of an MCP server."""
    return any(not isinstance(tool, FunctionTool) and not runs_at_provider(tool) for tool in agent.tools)


async def list_offered_functions(agent: PromptAgent, timeout: float | None = None) -> list[Function]:
    """Return the functions of a prompt's tools of every kind (§7.1.3)."""
    functions = [*list_declared_functions(agent), *describe_custom_tools(agent)]
    projected = await project_tools(agent, [function.name for function in functions], timeout)
    return [*functions, *(tool.function for tool in projected)]


def describe_request(agent: PromptAgent, api: Api, request: WireRequest, body: Json) -> Json:
    """Return a request in readable form. `body` is its body without secrets."""
    preview = agent.registry[PROVIDERS].get(agent.model.provider).preview(agent, api)
    return {
        "url": mask_url(preview.url),
        "request": body,
        "curl": build_curl(mask_url(preview.url), build_headers(preview, request), body),
    }


def build_headers(preview: RequestPreview, request: WireRequest) -> tuple[str, ...]:
    """Return the headers of a request as people read them: those of its preview first."""
    present = {header.partition(":")[0].lower() for header in preview.headers}
    own = [f"{name}: {mask_secrets(value)}" for name, value in request.headers.items() if name.lower() not in present]
    return (*preview.headers, "Content-Type: application/json", *own)


def build_curl(url: str, headers: Sequence[str], body: Json) -> str:
    """Return the command that sends a request."""
    # Double quotes let the shell expand the key's variable. Other headers need no expansion.
    options = [f'-H "{header}"' if "$" in header else f"-H {quote(header)}" for header in headers]
    return " ".join(["curl", quote(url), *options, "-d", quote(json.dumps(body, ensure_ascii=False))])


def process_reply(agent: PromptAgent, reply: Reply) -> object:
    """Return the result of a reply, inside a `process` span."""
    with begin("process") as span:
        result = extract_result(agent, reply)
        span.record("result", result)
        return result


def extract_result(agent: PromptAgent, reply: Reply) -> object:
    """Return tool calls as a list, vectors and images unchanged, a refusal as text, and text parsed as data if the
    prompt declares outputs. Images that are all of an answer are returned like those of the Images API."""
    if reply.tool_calls:
        return list(reply.tool_calls)
    if reply.value is not None:
        return reply.value
    if reply.refusal:
        return reply.refusal
    if reply.parts and not reply.text:
        images = [part.value for part in reply.parts]
        return images[0] if len(images) == 1 else images
    return parse_structured(reply.text) if agent.outputs and reply.text else reply.text
