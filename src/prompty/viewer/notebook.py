"""Views for notebooks: agents, messages, results, streams and traces as small pieces of HTML.

Every text is masked, made visible and escaped. Styles are inline and use the notebook's own colours, so that they suit
light and dark themes. No external resource is loaded, and no script runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import singledispatch
from html import escape

from pydantic_core import to_json

from prompty.drivers.run import Result
from prompty.drivers.stream import StreamState
from prompty.model.agent import PromptAgent
from prompty.model.citation import Citation, ProviderCall, list_sources
from prompty.model.content import MediaPart, TextPart
from prompty.model.message import Message, ToolCall, Usage
from prompty.model.property import Property
from prompty.safety.redaction import MASK, Redactor, mask_secrets, mask_url
from prompty.safety.visible import visible
from prompty.viewer.trace import (
    MODEL_CALL,
    TOOL_CALL,
    Frame,
    RecordedTrace,
    format_cost,
    format_duration,
    format_tokens,
)

LONGEST_TEXT = 4000
MOST_FRAMES = 200
_LINE = "rgba(128,128,128,.35)"
_COLORS = {"system": "#8a63d2", "developer": "#8a63d2", "user": "#2f81f7", "assistant": "#2da44e", "tool": "#bf8700"}
_BOX = f"border:1px solid {_LINE};border-radius:6px;padding:.6em .9em;margin:.25em 0;max-width:60em;line-height:1.45"
_PRE = (
    "white-space:pre-wrap;overflow-wrap:anywhere;margin:.25em 0;padding:.5em .7em;background:rgba(128,128,128,.1);"
    "border-radius:4px;font-family:ui-monospace,monospace;font-size:.92em;text-align:left;color:inherit"
)
_CELL = f"text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid {_LINE};vertical-align:top"


@singledispatch
def render_html(value: object) -> str:
    """Return the view of a value. Other values are shown as text."""
    return _box(_pre(repr(value)))


@render_html.register
def _(agent: PromptAgent) -> str:
    model, endpoint = agent.model, getattr(agent.model.connection, "endpoint", None)
    facts = [f"{model.provider}:{model.id}" if model.id else "no model", model.api_type]
    facts += [mask_url(endpoint)] if endpoint else []
    facts += [str(agent.path)] if agent.path else []
    parts = [_heading(agent.display_name or agent.name or "prompt"), _facts(facts)]
    if agent.description:
        parts.append(f"<div>{_text(agent.description)}</div>")
    for title, entries in (("inputs", agent.inputs), ("outputs", agent.outputs)):
        if entries:
            parts.append(_table([title, "kind", "", "description"], map(_property_cells, entries)))
    if agent.tools:
        rows = ([tool.name, tool.kind, tool.description or ""] for tool in agent.tools)
        parts.append(_table(["tools", "kind", "description"], rows))
    return _box(*parts, _fold("template", _pre(agent.instructions)))


def _property_cells(declared: Property) -> list[str]:
    state = "required" if declared.required else ""
    if declared.default is not None:
        default = declared.default
        text = default if isinstance(default, str) else to_json(default, fallback=repr).decode()
        state = f"default {MASK if declared.sensitive else text}"
    return [declared.name, declared.kind, state, declared.description or ""]


@render_html.register
def _(message: Message) -> str:
    return _box(*_message(message))


def _message(message: Message) -> Iterator[str]:
    name = message.tool_name or message.name or ""
    color = _COLORS.get(message.role, "#6e7781")
    style = f"background:{color};color:#fff;border-radius:4px;padding:0 .5em;font-size:.85em"
    badge = f"<span style='{style}'>{_text(message.role)}</span>"
    yield f"<div style='margin-top:.3em'>{badge} <span style='opacity:.7'>{_text(name)}</span></div>"
    if message.reasoning:
        yield _fold("reasoning", _pre(message.reasoning))
    for part in message.content:
        if isinstance(part, TextPart):
            yield _pre(part.value)
        elif isinstance(part, MediaPart):
            yield _facts([part.kind, part.media_type or "", f"{len(part.value):,} characters"])
    for call in message.tool_calls:
        yield _call(call)
    if message.provider_calls:
        yield _provider_calls(message.provider_calls)
    if message.citations:
        yield _sources(message.citations)


def _call(call: ToolCall) -> str:
    return f"<div>calls <b>{_text(call.name)}</b></div>{_pre(call.arguments)}"


def _provider_calls(calls: Sequence[ProviderCall]) -> str:
    rows = ([call.tool, to_json(dict(call.input), fallback=repr).decode(), call.error or call.status] for call in calls)
    return _table(["run by the provider", "input", "status"], rows)


def _sources(citations: Sequence[Citation]) -> str:
    """Return the sources of an answer as text. Pages named them, so no address is a link."""
    cited = list_sources(citations)
    rows = ([one.title or "", one.url or one.file_id or "", one.quote or ""] for one in cited)
    return _table(["source", "address", "quote"], rows)


@render_html.register
def _(result: Result) -> str:  # type: ignore[type-arg]  # dispatch needs the class itself
    facts = [result.model, *_usage(result.usage), *_cost(result.cost)]
    facts += [f"finish reason: {result.finish_reason}"] if result.finish_reason else []
    redactor = Redactor(result._sensitive)
    sources = _sources(_mask_citations(result.citations, redactor)) if result.citations else ""
    messages = [_mask_message(message, redactor) for message in result.messages] if redactor else result.messages
    value = redactor.mask(result.value) if isinstance(result.value, str) else result.value
    return _box(_value(value), sources, _facts(facts), _conversation(messages))


def _mask_message(message: Message, redactor: Redactor) -> Message:
    """Mask sensitive inputs in a message, because notebooks are saved and shared."""
    content = tuple([replace(part, value=redactor.mask(part.value)) for part in message.content])
    calls = tuple([replace(call, arguments=redactor.mask(call.arguments)) for call in message.tool_calls])
    cited, ran = _mask_citations(message.citations, redactor), _mask_provider_calls(message.provider_calls, redactor)
    own = replace(message, content=content, tool_calls=calls, reasoning=redactor.mask(message.reasoning))
    return replace(own, citations=cited, provider_calls=ran) if cited or ran else own


def _mask_citations(citations: Iterable[Citation], redactor: Redactor) -> tuple[Citation, ...]:
    return tuple(
        [
            replace(
                one,
                title=one.title and redactor.mask(one.title),
                url=one.url and redactor.mask(one.url),
                quote=one.quote and redactor.mask(one.quote),
            )
            for one in citations
        ]
    )


def _mask_provider_calls(calls: Iterable[ProviderCall], redactor: Redactor) -> tuple[ProviderCall, ...]:
    """Mask sensitive inputs in what the model searched for."""
    return tuple(
        [
            replace(call, input={name: redactor.mask(_to_text(value)) for name, value in call.input.items()})
            for call in calls
        ]
    )


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else to_json(value, fallback=repr).decode()


@render_html.register
def _(stream: StreamState) -> str:  # type: ignore[type-arg]  # dispatch needs the class itself
    state = "complete" if stream.messages else "running"
    facts = [state, *_usage(stream.usage), *_cost(stream.cost)]
    return _box(_facts(facts), _pre(stream.text))


@render_html.register
def _(trace: RecordedTrace) -> str:
    root = trace.root
    facts = [
        _count(trace.count(MODEL_CALL), "model call"),
        _count(trace.count(TOOL_CALL), "tool call"),
        format_duration(root.duration),
        format_tokens(root.usage),
        format_cost(root),
        trace.path.name,
    ]
    rows = map(_frame_cells, trace.frames[:MOST_FRAMES])
    parts = [_heading(root.title), _facts(facts), _table(["span", "time", "tokens", "cost", ""], rows, indent=trace)]
    if (left := len(trace.frames) - MOST_FRAMES) > 0:
        parts.append(_facts([f"{left:,} more spans"]))
    return _box(*parts)


def _frame_cells(frame: Frame) -> list[str]:
    error = (frame.error or {}).get("message", "")
    status = "" if frame.status == "ok" else f"{frame.status} {error}"
    return [frame.title, format_duration(frame.duration), format_tokens(frame.usage), format_cost(frame), status]


def _text(value: object) -> str:
    """Return a text for HTML: without secrets and hidden characters, and truncated if it is very long."""
    shown = visible(mask_secrets(str(value)))
    if len(shown) > LONGEST_TEXT:
        shown = f"{shown[:LONGEST_TEXT]}… ({len(shown) - LONGEST_TEXT:,} more characters)"
    return escape(shown)


def _value(value: object) -> str:
    if isinstance(value, str):
        return _pre(value)
    if isinstance(value, list) and value and all(isinstance(entry, ToolCall) for entry in value):
        return "".join(map(_call, value))
    return _pre(to_json(value, indent=2, fallback=repr, inf_nan_mode="constants").decode())


def _usage(usage: Usage) -> list[str]:
    counts = {"input": usage.input_tokens, "output": usage.output_tokens}
    tokens = [f"{count:,} {name} tokens" for name, count in counts.items() if count is not None]
    return [*tokens, *[f"{tool}: {'unknown' if count is None else count}" for tool, count in usage.requests.items()]]


def _cost(cost: Decimal | None) -> list[str]:
    return [] if cost is None else [f"${cost:.6f}".rstrip("0").rstrip(".")]


def _conversation(messages: Sequence[Message]) -> str:
    content = "".join(part for message in messages for part in _message(message))
    return _fold(_count(len(messages), "message"), content)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _box(*parts: str) -> str:
    return f"<div style='{_BOX}'>{''.join(parts)}</div>"


def _heading(text: str) -> str:
    return f"<div style='font-weight:600;font-size:1.1em'>{_text(text)}</div>"


def _facts(facts: Iterable[str]) -> str:
    return f"<div style='opacity:.75;font-size:.92em'>{' · '.join(_text(fact) for fact in facts if fact)}</div>"


def _pre(text: str) -> str:
    return f"<pre style='{_PRE}'>{_text(text)}</pre>"


def _fold(title: str, content: str) -> str:
    summary = f"<summary style='cursor:pointer;opacity:.75'>{_text(title)}</summary>"
    return f"<details style='margin:.3em 0'>{summary}{content}</details>"


def _table(head: list[str], rows: Iterable[list[str]], *, indent: RecordedTrace | None = None) -> str:
    """Return a table. The first cells of a trace's frames are indented by their depth."""
    heads = "".join(f"<th style='{_CELL};font-weight:600'>{_text(cell)}</th>" for cell in head)
    body = []
    for at, row in enumerate(rows):
        depth = indent.frames[at].depth if indent else 0
        styles = [f"{_CELL};padding-left:{min(depth, 20) * 1.2:.1f}em", *[_CELL] * (len(row) - 1)]
        cells = (f"<td style='{style}'>{_text(cell)}</td>" for style, cell in zip(styles, row, strict=True))
        body.append(f"<tr style='background:none'>{''.join(cells)}</tr>")
    return (
        "<table style='border-collapse:collapse;margin:.4em 0;font-size:.95em;color:inherit'>"
        f"<tr style='background:none'>{heads}</tr>{''.join(body)}</table>"
    )
