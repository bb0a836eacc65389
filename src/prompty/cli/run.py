"""`prompty run`: call the model a file names."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from rich.text import Text
from typer import Option

from prompty.api import MAX_RETRIES, load, prepare
from prompty.cli.console import err, fail, out, print_json
from prompty.cli.inputs import load_dotenv, read_pairs
from prompty.cli.options import (
    ApiType,
    AsJson,
    File,
    InputPairs,
    ModelId,
    ProviderKey,
    TraceTo,
    start_tracing,
    with_model,
)
from prompty.drivers.calls import reply_events
from prompty.drivers.spanning import spanned
from prompty.drivers.stream import PromptyStream
from prompty.errors import PromptyError
from prompty.model.agent import PromptAgent
from prompty.model.event import Event, ModelReply, ReasoningDelta, Retry, TextDelta
from prompty.model.message import Message
from prompty.model.reply import Reply
from prompty.pipeline.process import result_of
from prompty.pipeline.telemetry import begin_call, show_call
from prompty.safety.visible import visible
from prompty.tracing.spans import Span


def run(
    file: File,
    inputs: InputPairs = None,
    stream: Annotated[bool, Option("--stream", "-s", help="Show the answer while it comes.")] = False,
    as_json: AsJson = False,
    model: ModelId = None,
    provider: ProviderKey = None,
    api: ApiType = None,
    timeout: Annotated[float | None, Option(help="Seconds the call may take.")] = None,
    trace: TraceTo = None,
) -> None:
    """Call the model of FILE once and print its answer."""
    load_dotenv(file)
    try:
        start_tracing(trace)
        span = begin_call("invoke", file)
        with span.within("on failure"):
            agent = with_model(load(file), model, provider, api)
            given = read_pairs(agent, inputs or [])
            show_call(span, agent, given)
            answer = _stream(span, agent, prepare(agent, given), stream=stream, timeout=timeout)
        events = [(event, _show_event(event, quiet=as_json)) for event in answer.events()]
        result = answer.result
    except PromptyError as error:
        fail(error)
    [reply] = [event.reply for event, _ in events if isinstance(event, ModelReply)]
    _show_result(reply, result, streamed=any(shown for _, shown in events), as_json=as_json)


def _stream(span: Span, agent: PromptAgent, messages: Sequence[Message], **options: Any) -> PromptyStream[object]:
    """The answer, whole or in pieces, and what it comes to."""
    events = reply_events(agent, messages, max_retries=MAX_RETRIES, span=span, **options)
    return PromptyStream(*spanned(span, events, lambda reply: result_of(agent, reply)))


def _show_event(event: Event, *, quiet: bool) -> bool:
    """Show what happens; whether any of it was the answer itself."""
    if isinstance(event, Retry):
        err.print(Text(f"attempt {event.attempt} failed: {visible(event.reason)}; trying again", "yellow"))
    elif quiet:
        return False
    elif isinstance(event, ReasoningDelta):
        err.print(Text(visible(event.text), "dim"), end="")
    elif isinstance(event, TextDelta):
        out.print(Text(visible(event.text)), end="")
        return True
    return False


def _show_result(reply: Reply, result: object, *, streamed: bool, as_json: bool) -> None:
    plain = [call.to_json() for call in reply.tool_calls] if reply.tool_calls else result
    if as_json:
        usage = {name: value for name, value in asdict(reply.usage).items() if value is not None}
        shown = {"result": plain, "model": reply.model, "finishReason": reply.finish_reason, "usage": usage}
        print_json(shown)
    elif streamed and not reply.tool_calls:
        out.print()
    elif isinstance(plain, str):
        out.print(Text(visible(plain)))
    else:
        print_json(plain)
