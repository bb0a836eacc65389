"""`prompty run`: call the model a file names."""

from dataclasses import asdict
from typing import Annotated, Any

from rich.text import Text
from typer import Option

from prompty.api import invoke
from prompty.cli.check import report_problems
from prompty.cli.console import err, out, print_json
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
)
from prompty.drivers.target import override_model
from prompty.model.event import Event, ModelReply, ReasoningDelta, Retry, TextDelta
from prompty.model.reply import Reply
from prompty.pipeline.load import load
from prompty.safety.visible import visible


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
    replies: list[Reply] = []
    streamed = False

    def show(event: Event) -> None:
        nonlocal streamed
        if isinstance(event, ModelReply):
            replies.append(event.reply)
        streamed = _show_event(event, quiet=as_json) or streamed

    report_problems(file, overridden=bool(model or provider or api))
    agent = override_model(load(file), model, provider=provider, api_type=api)
    start_tracing(trace)
    values = read_pairs(agent, inputs or [])
    answer: Any = invoke(agent, values, stream=stream, timeout=timeout, on_event=show)  # type: ignore[call-overload]  # `stream` is not a literal
    result = answer.result if stream else answer
    _show_result(replies[-1], result, streamed=streamed, as_json=as_json)


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
