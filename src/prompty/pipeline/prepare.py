"""Prepare the messages of a prompt: validate inputs → render → parse.

Rendered text carries what `parse` needs: the places of the template's role markers, and the rich inputs (threads,
images, audio and files). A rich input is rendered as a placeholder with 16 random digits, new for each render. Only
these placeholders are replaced; text that looks like one stays text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from secrets import randbits, token_hex

from prompty.errors import InputError, InputProblem, InvalidMessage, RenderError, RequestError, WrongArgument
from prompty.model.agent import FileLine, PromptAgent, hide_values, list_bound_values
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart, TextPart, parse_media
from prompty.model.marker import find_role_line
from prompty.model.message import Message
from prompty.model.property import RICH_KINDS
from prompty.model.structure import COMPUTED_ROLE, ChangedMarker, mark, read_structure
from prompty.parsers import PARSERS
from prompty.pipeline.load import StrPath, open_agent
from prompty.pipeline.places import BODY
from prompty.pipeline.thread_input import parse_thread
from prompty.pipeline.validate import (
    ExtraInputs,
    can_show_inputs,
    resolve_kind,
    to_plain_inputs,
    validate_run_inputs,
)
from prompty.providers import active_interceptors
from prompty.renderers import RENDERERS
from prompty.safety.redaction import MASK, is_credential_name
from prompty.tracing.spans import Span, begin

Media = ImagePart | AudioPart | FilePart
Placeholders = dict[str, Media | list[Message]]


class RenderedText(str):
    """Rendered text that carries its marks: the places of the template's role markers, and the rich inputs.

    Otherwise it is an ordinary str. What str methods and f-strings make of it is a plain str, without the marks.
    """

    __slots__ = ("marked", "nonce", "rich")
    marked: str
    """The text with the nonce on both sides of each role marker of the template."""
    nonce: str
    rich: Placeholders

    def __new__(cls, marked: str, nonce: str, rich: Placeholders) -> "RenderedText":
        """Remove the nonces from the text that is shown."""
        text = super().__new__(cls, marked.replace(nonce, ""))
        text.marked, text.nonce, text.rich = marked, nonce, rich
        return text

    def __reduce__(self) -> tuple[type["RenderedText"], tuple[str, str, Placeholders]]:
        """Keep the marks in copies and pickles."""
        return RenderedText, (self.marked, self.nonce, self.rich)


def hide_rich_inputs(agent: PromptAgent, values: Mapping[str, object]) -> tuple[dict[str, object], Placeholders]:
    """Return the values with placeholders for rich inputs, and the rich values by placeholder."""
    hidden, placeholders = dict(values), Placeholders()
    for index, declared in enumerate(agent.inputs):
        name = declared.name
        kind = resolve_kind(declared, values.get(name)) if declared.branches else declared.kind
        if kind in RICH_KINDS and name in values:
            label = name if name.isidentifier() and "__" not in f"_{name}_" else str(index)
            hidden[name] = placeholder = f"__PROMPTY_{kind.upper()}_{token_hex(8)}_{label}__"
            placeholders[placeholder] = _parse_rich_value(agent, name, kind, values[name])
    return hidden, placeholders


def _parse_rich_value(agent: PromptAgent, name: str, kind: str, value: object) -> Media | list[Message]:
    try:
        return parse_thread(agent, name, value) if kind == "thread" else parse_media(kind, value)
    except InvalidMessage as error:
        raise InputError(name, f"Input '{name}' is not a valid {kind}: {error}", _FIXES[kind]) from None


_FIXES = {
    "thread": "Pass a list of messages, for example [{'role': 'user', 'content': 'Hi'}].",
    "image": "Pass a URL, a data URI, {'value': base64, 'mediaType': 'image/png'}, or Image.from_file(path).",
    "audio": "Pass a data URI, {'value': base64, 'mediaType': 'audio/wav'}, or Audio.from_file(path).",
    "file": "Pass a URL, a data URI, {'value': base64, 'mediaType': 'application/pdf'}, File('id'), or "
    "File.from_file(path).",
}


def insert_rich_inputs(messages: list[Message], placeholders: Placeholders) -> list[Message]:
    """Replace placeholders with their values, in the template's order."""
    return [expanded for message in messages for expanded in _expand(message, placeholders)]


def _expand(message: Message, placeholders: Placeholders) -> Iterator[Message]:
    """Yield the message with its media. A thread splits it: the text before, the thread, the text after."""
    pieces = [message.text]
    for placeholder in placeholders:
        split = [[cut for text in piece.split(placeholder) for cut in (placeholder, text)][1:] for piece in pieces]
        pieces = [cut for cuts in split for cut in cuts]
    if len(pieces) == 1:
        yield message
        return
    parts: list[ContentPart] = []
    for piece in pieces:
        value = placeholders.get(piece, TextPart(piece))
        if isinstance(value, list):
            yield from _with_content(message, parts)
            yield from value
            parts = []
        else:
            parts.append(value)
    yield from _with_content(message, parts)


def _with_content(message: Message, parts: list[ContentPart]) -> Iterator[Message]:
    """Yield the message with these parts, unless they are blank. Newlines at its edges are stripped, and blank text
    between media is dropped."""
    for edge, strip in ((0, str.lstrip), (-1, str.rstrip)):
        if isinstance(text := parts[edge], TextPart):
            parts[edge] = TextPart(strip(text.value, "\r\n"))
    content = [part for part in parts if not isinstance(part, TextPart) or part.value.strip()]
    if content:
        yield replace(message, content=tuple(content))


def validate_inputs(
    agent_or_path: PromptAgent | StrPath,
    inputs: Mapping[str, object] | None = None,
    *,
    extra_inputs: ExtraInputs = "error",
) -> dict[str, object]:
    """Return a prompt's input values, with defaults. Raise `InputError` with every problem.

    None means that an input has no value. An `example` is never used as a value. A name that is neither declared, nor
    used by the template, nor bound to a parameter is an error, unless `extra_inputs` is "ignore".
    """
    agent = open_agent(agent_or_path, "validate_inputs()")
    return validate_run_inputs(agent, inputs, extra_inputs=extra_inputs)


def render(
    agent_or_path: PromptAgent | StrPath,
    inputs: Mapping[str, object] | None = None,
    *,
    strict: bool = False,
    extra_inputs: ExtraInputs = "error",
) -> str:
    """Render the body with its inputs. A thread, an image, audio or a file is a placeholder in the text.

    Pass the text to `parse` unchanged: it carries the places of the template's role markers and the values of the
    placeholders. The result of `.strip()`, of an f-string or of any other operation on it is a plain str without them.
    """
    agent = open_agent(agent_or_path, "render()")
    with begin("render") as span:
        record_inputs(span, agent, inputs)
        valid = validate_run_inputs(agent, inputs, extra_inputs=extra_inputs)
        return _render(span, agent, valid, strict)


def parse(agent_or_path: PromptAgent | StrPath, text: str, *, trusted: bool = False) -> list[Message]:
    """Parse the text that `render` returned. Together they return the messages that `prepare` returns.

    Only role markers of the template start a message. In a plain str, every role marker starts one: if the prompt takes
    inputs, this raises `RequestError`, unless you pass `trusted=True` for a text that you trust.
    """
    agent = open_agent(agent_or_path, "parse()")
    if not isinstance(text, str):
        raise WrongArgument("parse()", text, "rendered text", "Pass what `render` returned.")
    if not trusted and not isinstance(text, RenderedText) and can_show_inputs(agent):
        raise RequestError(
            "parse() got plain text for a prompt that takes inputs, so it cannot tell the template's role markers from "
            "lines of an input such as `system:`",
            "Pass what `render` returned, unchanged: parse(agent, render(agent, inputs)). If you trust every line of "
            "the text, pass trusted=True.",
        )
    return _parse(agent, text)


def _parse(agent: PromptAgent, text: str) -> list[Message]:
    with begin("parse") as span:
        marked, nonce = (text.marked, text.nonce) if isinstance(text, RenderedText) else (text, None)
        try:
            messages = agent.registry[PARSERS].get(agent.template.parser.kind)(marked, nonce=nonce)
        except ChangedMarker as changed:
            raise _marker_error(agent, changed) from None
        if isinstance(text, RenderedText) and text.rich:
            messages = insert_rich_inputs(messages, text.rich)
        span.record("result", messages)
        return messages


def _marker_error(agent: PromptAgent, changed: ChangedMarker) -> RenderError:
    if not changed.is_computed:
        cause = "the template changes one of its role markers, so the role of the text after it is unknown"
        return RenderError(cause, "Write role markers outside filters, and close tags on a marker's line.")
    computed = sorted(read_structure(agent.instructions).computed, key=lambda marker: not marker.is_privileged)
    cause, fix = COMPUTED_ROLE
    cause += ". It would turn the text after it into an instruction"
    error = RenderError(cause, fix, computed[0].line if computed else None)
    return _locate_error(error, error.line, agent) if error.line else error


def prepare(
    agent_or_path: PromptAgent | StrPath,
    inputs: Mapping[str, object] | None = None,
    *,
    strict: bool = False,
    extra_inputs: ExtraInputs = "error",
) -> list[Message]:
    """Render and parse a prompt: return messages ready for a model.

    Only role markers of the template start a message.
    """
    agent = open_agent(agent_or_path, "prepare()")
    valid = validate_run_inputs(agent, inputs, extra_inputs=extra_inputs)
    return prepare_valid(agent, valid, recorded=inputs, strict=strict)


def prepare_valid(
    agent: PromptAgent,
    valid: Mapping[str, object],
    *,
    recorded: Mapping[str, object] | None = None,
    strict: bool = False,
) -> list[Message]:
    """Like `prepare`, for inputs from `validate_inputs`. The span records the caller's, `recorded`."""
    with begin("prepare") as span:
        record_inputs(span, agent, recorded)
        with begin("render") as render_span:
            text = _render(render_span, agent, valid, strict)
        messages = _parse(agent, text)
        span.record("result", messages)
        return messages


def _render(span: Span, agent: PromptAgent, valid: Mapping[str, object], strict: bool) -> RenderedText:
    values, rich = hide_rich_inputs(agent, to_plain_inputs(agent, valid))
    nonce = f"{randbits(64):020d}"  # digits only, so that filters like `upper` don't change it
    text = RenderedText(_render_body(agent, values, nonce, strict), nonce, rich)
    span.record("result", str(text) if span.live else None)
    if agent.files:
        span.record("files", agent.files)
    return text


def _render_body(agent: PromptAgent, values: Mapping[str, object], nonce: str, strict: bool) -> str:
    renderer = agent.registry[RENDERERS].get(agent.template.format.kind)
    if agent.template.format.strict:
        _refuse_role_lines(values)
    try:
        return renderer(mark(agent.instructions), values, nonce=nonce, strict=strict)
    except RenderError as error:
        if error.line is None:
            raise
        raise _locate_error(error, error.line, agent) from None


def _refuse_role_lines(values: Mapping[str, object]) -> None:
    """Raise InputError for each input whose text has a line that looks like a role marker."""
    problems = [_forged(name, role) for name, value in values.items() if (role := _find_role(value))]
    if problems:
        raise InputError(*problems[0], others=problems[1:])


def _forged(name: str, role: str) -> InputProblem:
    cause = f"Input '{name}' has a line that looks like the role marker `{role}:`, which the file's template refuses"
    fix = "Remove that line, or remove `strict: true` from `template.format` in the file: then the line stays text."
    return InputProblem(name, cause, fix)


def _find_role(value: object) -> str | None:
    if isinstance(value, str):
        return find_role_line(value)
    if isinstance(value, Mapping):
        return next(filter(None, map(_find_role, (*value, *value.values()))), None)
    return next(filter(None, map(_find_role, value)), None) if isinstance(value, list) else None


def _locate_error(error: RenderError, line: int, agent: PromptAgent) -> RenderError:
    """Return an error with the file and line that a line of the body comes from."""
    path, line = agent.body_lines.locate(line) if agent.body_lines else FileLine(None, line)
    own = f"the body of {agent.path.name}" if agent.path else None
    located = RenderError(error.cause, error.fix, line, own if path is None else path.name)
    if path is None:
        located.keys = (BODY, line)
    return located


def record_inputs(span: Span, agent: PromptAgent, inputs: Mapping[str, object] | None) -> None:
    """Record inputs, with sensitive ones masked. The agent's secrets, and what its tools bind, are masked in the whole
    trace."""
    interceptors = active_interceptors()
    if not span.live and not interceptors:
        return
    given = dict(inputs or {})
    hidden = list_hidden_inputs(agent, given)
    for interceptor in interceptors:
        interceptor.hide([*hidden, *list_bound_values(agent.tools)])
    if not span.live:
        return
    hide_values(span.trace.redactor, agent)
    span.hide(hidden)
    sensitive = {one.name for one in agent.inputs if one.sensitive}
    span.record("inputs", {name: MASK if name in sensitive else value for name, value in given.items()})


def list_hidden_inputs(agent: PromptAgent, given: Mapping[str, object]) -> list[object]:
    """Return the values of inputs that nothing shows: sensitive ones, with their defaults, and those whose names are
    like those of credentials."""
    sensitive = {one.name: one.default for one in agent.inputs if one.sensitive}
    values = [value for name, value in given.items() if name in sensitive or is_credential_name(name)]
    return [*values, *sensitive.values()]
