"""The nine readers of what a file, a user, a model and a server may send, as targets of the fuzzer.

A target makes one input by the dice.
"""

import json
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from copy import deepcopy
from functools import cache, partial
from random import Random
from types import SimpleNamespace
from typing import Any

import mcp_types

from prompty import Message, Paused, PromptAgent, ToolContext, invoke, loads, prepare, turn
from prompty.analysis.check import check_text
from prompty.concurrency import in_event_loop
from prompty.errors import ArgumentsError, PausedRefused
from prompty.loop.effects import OfferedTool
from prompty.loop.tool_step import Toolset
from prompty.model.marker import ROLE_MARK
from prompty.model.request import WireRequest
from prompty.model.structure import mark, read_structure
from prompty.pipeline import parse
from prompty.pipeline.prepare import RenderedText
from prompty.providers import PROVIDERS, Provider
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, embeddings, images, responses
from prompty.registry import Registry
from prompty.safety.redaction import Redactor
from prompty.safety.schemas import get_validator
from prompty.testing.script import AsyncLocalTransport, LocalTransport
from prompty.tools import KindTool
from prompty.tools.calls import failure_message, resolve_arguments, result_message
from prompty.tools.kinds import TOOL_KINDS, project_tools
from prompty.tools.mcp import KnownServer, McpKind, Pins
from prompty.tools.mcp.content import LineDecoder, McpError, to_parts
from prompty.tools.mcp.sessions import ServerAddress, Session, is_lost, is_unreadable
from prompty.tools.openapi import add_credential, find_base_url, find_scheme
from prompty.tools.openapi.client import Permissions
from prompty.tools.openapi.document import ApiDocument, parse_document
from prompty.tools.openapi.operations import Operation, list_operations
from prompty.tools.openapi.request import build_call
from tests.conversations.test_mutated_pauses import mutate, pauses, resume_mutated, seal
from tests.security.fuzz import seeds
from tests.security.fuzz.mutation import cut, mutate_bytes, mutate_text, mutate_trees, write_json
from tests.security.fuzz.words import (
    JSON_WORDS,
    MARKER_WORDS,
    MCP_WORDS,
    OPENAPI_WORDS,
    PROMPT_WORDS,
    SSE_WORDS,
    TEMPLATE_WORDS,
    WIRE_WORDS,
)

Input = tuple[object, Callable[[], object]]  # as a person sees it, and the code that reads it
ENVIRONMENT = {"X": "y", "KEY": "k"}
NONCE = "01234567890123456789"


def make_load(dice: Random) -> Input:
    if dice.random() < 0.4:
        data = mutate_trees(dice.choice(seeds.frontmatters()), dice, PROMPT_WORDS)
        text = f"---\n{write_json(data, dice, PROMPT_WORDS)}\n---\n{dice.choice(seeds.BODIES)}"
    else:
        text = mutate_text(dice.choice(seeds.prompts()), dice, PROMPT_WORDS, seeds.prompts())
    return text, partial(_load, text, checked=dice.random() < 0.1)


def _load(text: str, *, checked: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if checked:
            check_text(text, env=ENVIRONMENT)
        loads(text, env=ENVIRONMENT)


def make_render(dice: Random) -> Input:
    template = dice.choice(seeds.templates())
    if dice.random() < 0.7:
        template = mutate_text(template, dice, TEMPLATE_WORDS, seeds.templates())
    values = mutate_trees(dice.choice(seeds.inputs()), dice, TEMPLATE_WORDS)
    given = values if isinstance(values, dict) else {"q": values}
    engine = dice.choice(("jinja2", "jinja2", "mustache"))
    run = partial(_render, template, engine, given, strict=dice.random() < 0.2)
    return (engine, template, given), run


def _render(template: str, engine: str, given: dict[str, Any], *, strict: bool) -> None:
    declared = [{"name": "p", "kind": "image"}, {"name": "t", "kind": "thread"}] if "t" in given or "p" in given else []
    agent = PromptAgent.model_validate({"instructions": template, "template": engine, "inputs": declared})
    prepare(agent, given, strict=strict, extra_inputs="ignore")


def make_parse(dice: Random) -> Input:
    text = mutate_text(dice.choice(seeds.rendered()), dice, MARKER_WORDS, seeds.rendered())
    return text, partial(_parse, text, dice.randrange(3))


def _parse(text: str, form: int) -> None:
    """Parse trusted text, a template with its marks, or text with nonces at places where no renderer puts them."""
    agent = PromptAgent()
    match form:
        case 0:
            parse(agent, text)
        case 1:
            read_structure(text)
            parse(agent, RenderedText(mark(text).replace(ROLE_MARK, NONCE), NONCE, {}))
        case _:
            parse(agent, RenderedText(text.replace(":", f"{NONCE}:").replace("user", f"{NONCE}user"), NONCE, {}))


def make_arguments(dice: Random) -> Input:
    at = dice.randrange(len(seeds.SCHEMAS))
    text = write_json(mutate_trees(seeds.ARGUMENTS[at], dice, WIRE_WORDS), dice, JSON_WORDS)
    if dice.random() < 0.1:
        text = f"```json\n{text}\n```"
    bound = ("to",) if dice.random() < 0.2 else ()
    defaults = {"amount": 5, "b": [1]} if dice.random() < 0.2 else {}
    validator = get_validator(json.dumps(seeds.SCHEMAS[at]))
    return text, partial(resolve_arguments, text, bound, validator, defaults)


def make_paused(dice: Random) -> Input:
    name, world, original = dice.choice(_pauses())
    value = deepcopy(original)
    for _ in range(dice.randrange(3)):
        mutate(value, dice)
    changed = mutate_trees(value, dice, WIRE_WORDS) if dice.random() < 0.7 else value
    text = json.dumps(changed if isinstance(changed, dict) else value)  # as a store keeps it
    value = json.loads(text)
    return text, partial(_resume, value, name, world, dice.randrange(2**32))


def _resume(value: Any, name: str, world: Any, seed: int) -> None:
    """Resume as a host would, after somebody has written the checksum anew."""
    try:
        seal(value)
    except RecursionError:
        return
    Paused.from_json(value)
    if seed % 20 == 0:
        resume_mutated(value, name, world, Random(seed))  # noqa: S311  not for secrets
        world.ran.clear()


@cache
def _pauses() -> list[Any]:
    return list(pauses())


_APIS = {
    "chat": chat.API,
    "responses": responses.API,
    "messages": messages.API,
    "embedding": embeddings.API,
    "image": images.API,
}


class _Answers:
    """A server that sends the bytes of one input to every request."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def respond(self, _: WireRequest) -> Generator[bytes, None, None]:
        yield from self.chunks


_SERVER = _Answers()


@cache
def _agent(api: str, outputs: bool) -> PromptAgent:
    registry = Registry()
    provider = Provider(
        key="fuzz",
        apis=_APIS,
        transport=lambda _: LocalTransport(_SERVER.respond),
        transport_async=lambda _: AsyncLocalTransport(_SERVER.respond),
        hosts=None,
    )
    registry[PROVIDERS].register("fuzz", provider)
    declared = {"outputs": {"answer": "object"}} if outputs else {}
    data = {"model": {"id": "m", "provider": "fuzz", "apiType": api}, "instructions": "user:\nHi", **declared}
    return PromptAgent.model_validate(data).model_copy(update={"registry": registry})


def pay(amount: int = 1, to: str = "") -> str:
    """A tool that the model may call."""
    return f"{amount} {to}"


def _ask(api: str, chunks: list[bytes], *, outputs: bool, stream: bool, tools: bool) -> None:
    """Ask the model once, or in a turn with tools: its second answer is the same as the first."""
    _SERVER.chunks = chunks
    agent = _agent(api, outputs)
    options: Any = {"stream": stream, "max_retries": 0, **({"tools": [pay], "max_iterations": 2} if tools else {})}
    result = turn(agent, **options) if tools else invoke(agent, **options)
    if stream:
        for _ in result.events():
            pass


def make_reply(dice: Random) -> Input:
    api, answer = dice.choice(seeds.answers())
    text = write_json(mutate_trees(answer, dice, WIRE_WORDS), dice, WIRE_WORDS)
    data = text.encode(errors="surrogatepass")
    if dice.random() < 0.05:
        data = mutate_bytes(data, dice, SSE_WORDS)
    if dice.random() < 0.02:
        api = dice.choice(tuple(_APIS))
    tools = dice.random() < 0.1 and api not in ("embedding", "image")
    return (api, data), partial(_ask, api, [data], outputs=dice.random() < 0.3, stream=False, tools=tools)


def make_stream(dice: Random) -> Input:
    api, events = dice.choice(seeds.streams())
    changed = list(events)
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        at = dice.randrange(len(changed) + 1)
        match dice.randrange(8):
            case 0:
                changed[at : at + 1] = []
            case 1:
                changed.insert(at, dice.choice(changed or [{}]))
            case 2:
                changed.insert(at, dice.choice(dice.choice(seeds.streams())[1]))
            case 3 if changed:
                dice.shuffle(changed)
            case _ if at < len(changed):
                changed[at] = mutate_trees(changed[at], dice, WIRE_WORDS)
    end = dice.choice(("\n\n", "\n\n", "\n\n", "\r\n\r\n", "\r\r", "\n"))
    data = "".join(
        f"data: {write_json(event, dice, WIRE_WORDS) if dice.random() < 0.1 else json.dumps(event)}{end}"
        for event in changed
    )
    raw = data.encode(errors="surrogatepass") + (b"data: [DONE]\n\n" if dice.random() < 0.5 else b"")
    if dice.random() < 0.4:
        raw = mutate_bytes(raw, dice, SSE_WORDS)
    chunks = cut(raw, dice)
    run = partial(_ask, api, chunks, outputs=dice.random() < 0.2, stream=True, tools=dice.random() < 0.05)
    return (api, chunks), run


def make_openapi(dice: Random) -> Input:
    document = mutate_trees(dice.choice(seeds.documents()), dice, OPENAPI_WORDS)
    text = write_json(document, dice, OPENAPI_WORDS)
    data = text.encode(errors="surrogatepass")
    arguments = mutate_trees(
        {"id": "a", "q": {"b": 1}, "h": ["x"], "c": 1, "name": "n", "tags": []}, dice, OPENAPI_WORDS
    )
    return (data, arguments), partial(_describe, data, arguments)


def _describe(data: bytes, arguments: Any) -> None:
    """Read a document, describe its operations, and build the request of a call to each."""
    document = parse_document(data, "api.json", "https://a.example/api.json")
    operations = list_operations(document)
    find_base_url(document, None, Permissions())
    for operation in operations[:5]:
        with suppress(ArgumentsError):
            _build_call(document, operation, arguments)


def _build_call(document: ApiDocument, operation: Operation, arguments: Any) -> None:
    text = json.dumps(arguments if isinstance(arguments, dict) else {"id": arguments})
    resolved = resolve_arguments(text, (), get_validator(json.dumps(operation.function.parameters)), {})
    request = build_call(operation, resolved)
    scheme = find_scheme(document, operation)
    if scheme is not None:
        add_credential(request, scheme, "secret")


class _Client:
    """The SDK's client of a hostile server: it validates what the server sends, as the SDK does."""

    def __init__(self, tools: Any, result: Any) -> None:
        self._tools, self._result = tools, result

    async def list_tools(self, *, cursor: str | None = None) -> Any:
        return mcp_types.ListToolsResult.model_validate(self._tools, by_name=False)

    async def call_tool(self, name: str, arguments: Any, progress_callback: Any = None) -> Any:
        result = mcp_types.CallToolResult.model_validate(self._result, by_name=False)
        await progress_callback(0.5, None, name)
        return result


class _Connection:
    """A connection that runs requests at once."""

    def __init__(self, client: _Client) -> None:
        self._client = client

    async def run(self, work: Callable[[Any], Any], logger: object = None) -> Any:
        return await work(self._client)

    run_idempotent = run


def make_mcp(dice: Random) -> Input:
    tools: Any = seeds.MCP_TOOLS
    result: Any = dice.choice(seeds.MCP_RESULTS)
    match dice.randrange(3):
        case 0:
            tools = _as_read(mutate_trees(tools, dice, MCP_WORDS))
            return tools, partial(_list, tools, result)
        case 1:
            result = _as_read(mutate_trees(result, dice, MCP_WORDS))
            return result, partial(_call_tool, result)
        case _:
            message = mutate_trees(dice.choice(seeds.MCP_MESSAGES), dice, MCP_WORDS)
            data = (write_json(message, dice, MCP_WORDS) + "\n").encode(errors="surrogatepass")
            if dice.random() < 0.3:
                data = mutate_bytes(data, dice, SSE_WORDS)
            return data, partial(_read_lines, cut(data, dice))


def _as_read(value: Any) -> Any:
    """Return a value as the SDK reads it from JSON. What it cannot read never comes to us."""
    result = value if isinstance(value, dict) else {"tools": value}
    try:
        text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result})
        message: Any = mcp_types.jsonrpc_message_adapter.validate_json(text)
    except (ValueError, RecursionError):
        return {}
    return message.result


@cache
def _kind() -> tuple[PromptAgent, McpKind]:
    registry = Registry()
    kind = McpKind()
    registry[TOOL_KINDS].register("mcp", kind)
    agent = PromptAgent.model_validate({"tools": [{"name": "own", "kind": "mcp"}], "instructions": "user:\nHi"})
    return agent.model_copy(update={"registry": registry}), kind


def _list(tools: Any, result: Any) -> None:
    """Describe the tools of a server, as a turn does."""
    agent, kind = _kind()
    server = KnownServer("own", ServerAddress(command=("own",)), Pins("own"))
    connection = _Connection(_Client(tools, result))
    servers: Any = SimpleNamespace(find=lambda *_: server, is_registered=lambda _: True)
    kind.servers = servers
    clients: Any = SimpleNamespace(in_loop=lambda: SimpleNamespace(get=lambda *_: connection))
    agent.registry.clients = clients
    projected = in_event_loop(project_tools(agent, ())).result()
    Toolset(OfferedTool(function=one.function) for one in projected)
    for one in projected:
        result_of_call = in_event_loop(_call(one.kind_tool)).result()
        json.dumps(result_of_call.to_json()).encode()


async def _call(tool: KindTool) -> Message:
    call = seeds.CALLS[0]
    try:
        return result_message(call, await tool.call({}, ToolContext(run_id="r", call_id="c", name="n", key="k")))
    except Exception as error:  # as whatever a tool raises
        return failure_message(call, error)


def _call_tool(result: Any) -> None:
    """Make the message of a result."""
    call = seeds.CALLS[0]
    try:
        parsed = mcp_types.CallToolResult.model_validate(result, by_name=False)
    except ValueError:
        return
    try:
        message = result_message(call, to_parts(parsed))
    except McpError as error:
        message = failure_message(call, error)
    json.dumps(message.to_json()).encode()


def _read_lines(chunks: list[bytes]) -> None:
    """Read the lines of a process, as the SDK does with our decoder, and the messages in them."""
    decoder = LineDecoder("replace")
    text = "".join([*(decoder.decode(chunk) for chunk in chunks), decoder.decode(b"", True)])
    for line in text.splitlines():
        try:
            message: Any = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:
            is_unreadable(error)
            is_lost(error)
            continue
        if getattr(message, "method", None) == "notifications/message":
            _log(message.params)


def _log(params: Any) -> None:
    try:
        logged = mcp_types.LoggingMessageNotificationParams.model_validate(params, by_name=False)
    except ValueError:
        return
    session: Any = SimpleNamespace(_calls={}, _redactor=Redactor())
    in_event_loop(Session._on_log(session, logged)).result()


TARGETS: dict[str, Callable[[Random], Input]] = {
    "load": make_load,
    "render": make_render,
    "parse": make_parse,
    "arguments": make_arguments,
    "paused": make_paused,
    "reply": make_reply,
    "stream": make_stream,
    "openapi": make_openapi,
    "mcp": make_mcp,
}
ALLOWED: dict[str, type[Exception]] = {"arguments": ArgumentsError, "paused": PausedRefused}  # else PromptyError
