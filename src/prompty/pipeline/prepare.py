"""From an agent and inputs to text and to messages: validate → render → parse → rich."""

from collections.abc import Mapping
from secrets import randbits, token_hex

from prompty.model.agent import PromptAgent
from prompty.model.marker import mark
from prompty.model.message import Message
from prompty.pipeline.rich_inputs import hide_rich, show_rich
from prompty.pipeline.telemetry import record_inputs
from prompty.pipeline.validate import to_plain_inputs, validate_inputs
from prompty.tracing.spans import begin


def render(agent: PromptAgent, inputs: Mapping[str, object] | None = None, *, strict: bool = False) -> str:
    """The body with its inputs put in. Rich inputs show as placeholders; `prepare` puts them in."""
    with begin("render") as span:
        record_inputs(span, agent, inputs)
        shown, _ = hide_rich(agent, to_plain_inputs(agent, validate_inputs(agent, inputs)), token_hex(8))
        renderer = agent.registry.renderers.get(agent.template.format.kind)
        text = renderer(mark(agent.instructions), shown, strict=strict)
        span.record("result", text)
        return text


def parse(agent: PromptAgent, text: str, *, nonce: str | None = None) -> list[Message]:
    """Rendered text as messages. Without a nonce every marker line is structure: for text you trust."""
    with begin("parse") as span:
        messages = agent.registry.parsers.get(agent.template.parser.kind)(text, nonce=nonce)
        span.record("result", messages)
        return messages


def prepare(agent: PromptAgent, inputs: Mapping[str, object] | None = None, *, strict: bool = False) -> list[Message]:
    """Messages ready for a model. What an input says is never structure: markers count by this render's nonce."""
    with begin("prepare") as span:
        record_inputs(span, agent, inputs)
        nonce = f"{randbits(64):020d}"  # digits only, so that a filter like `upper` around a marker leaves it whole
        shown, table = hide_rich(agent, to_plain_inputs(agent, validate_inputs(agent, inputs)), token_hex(8))
        messages = parse(agent, _rendered(agent, shown, nonce, strict), nonce=nonce)
        messages = show_rich(messages, table) if table else messages
        span.record("result", messages)
        return messages


def _rendered(agent: PromptAgent, shown: Mapping[str, object], nonce: str, strict: bool) -> str:
    with begin("render") as span:
        text = agent.registry.renderers.get(agent.template.format.kind)(
            mark(agent.instructions), shown, nonce=nonce, strict=strict
        )
        span.record("result", text.replace(nonce, "") if span.live else None)
        return text
