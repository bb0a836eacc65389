"""Prepare the messages of a prompt: validate inputs → render → parse → insert rich inputs."""

from collections.abc import Mapping
from secrets import randbits, token_hex

from prompty.model.agent import PromptAgent
from prompty.model.marker import mark
from prompty.model.message import Message
from prompty.pipeline.rich_inputs import hide_rich_inputs, insert_rich_inputs
from prompty.pipeline.telemetry import record_inputs
from prompty.pipeline.validate import to_plain_inputs, validate_inputs
from prompty.tracing.spans import begin


def render(agent: PromptAgent, inputs: Mapping[str, object] | None = None, *, strict: bool = False) -> str:
    """Return the body with its inputs. Rich inputs stay placeholders; `prepare` inserts them."""
    with begin("render") as span:
        record_inputs(span, agent, inputs)
        values, _ = hide_rich_inputs(agent, to_plain_inputs(agent, validate_inputs(agent, inputs)), token_hex(8))
        renderer = agent.registry.renderers.get(agent.template.format.kind)
        text = renderer(mark(agent.instructions), values, strict=strict)
        span.record("result", text)
        return text


def parse(agent: PromptAgent, text: str, *, nonce: str | None = None) -> list[Message]:
    """Parse rendered text as messages. Without a nonce every marker line starts a message: for text you trust."""
    with begin("parse") as span:
        messages = agent.registry.parsers.get(agent.template.parser.kind)(text, nonce=nonce)
        span.record("result", messages)
        return messages


def prepare(agent: PromptAgent, inputs: Mapping[str, object] | None = None, *, strict: bool = False) -> list[Message]:
    """Return messages ready for a model. Text of an input never starts one: markers carry the nonce of this render."""
    with begin("prepare") as span:
        record_inputs(span, agent, inputs)
        nonce = f"{randbits(64):020d}"  # digits only, so that a filter like `upper` around a marker leaves it whole
        values, rich = hide_rich_inputs(agent, to_plain_inputs(agent, validate_inputs(agent, inputs)), token_hex(8))
        messages = parse(agent, _render(agent, values, nonce, strict), nonce=nonce)
        messages = insert_rich_inputs(messages, rich) if rich else messages
        span.record("result", messages)
        return messages


def _render(agent: PromptAgent, values: Mapping[str, object], nonce: str, strict: bool) -> str:
    with begin("render") as span:
        text = agent.registry.renderers.get(agent.template.format.kind)(
            mark(agent.instructions), values, nonce=nonce, strict=strict
        )
        span.record("result", text.replace(nonce, "") if span.live else None)
        return text
