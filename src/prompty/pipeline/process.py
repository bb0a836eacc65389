"""Process a reply into a result (§8)."""

from prompty.model.agent import PromptAgent
from prompty.model.reply import Reply
from prompty.tracing.spans import begin
from prompty.wire.structured import parse_structured


def process_reply(agent: PromptAgent, reply: Reply) -> object:
    """Return the result of a reply, inside a `process` span."""
    with begin("process") as span:
        result = extract_result(agent, reply)
        span.record("result", result)
        return result


def extract_result(agent: PromptAgent, reply: Reply) -> object:
    """Return tool calls as a list, vectors and images unchanged, a refusal as text, and text parsed as data if the
    prompt declares outputs."""
    if reply.tool_calls:
        return list(reply.tool_calls)
    if reply.value is not None:
        return reply.value
    if reply.refusal:
        return reply.refusal
    return parse_structured(reply.text) if agent.outputs and reply.text else reply.text
