"""From a reply to a result (§8): calls first, then what the model said, as the prompt's outputs ask for it."""

from prompty.model.agent import PromptAgent
from prompty.model.reply import Reply
from prompty.tracing.spans import begin
from prompty.wire.structured import structured


def result_of(agent: PromptAgent, reply: Reply) -> object:
    """Tool calls as a list; vectors and images as they are; a refusal as its text; JSON where outputs are declared."""
    with begin("process") as span:
        result = _result_of(agent, reply)
        span.record("result", result)
        return result


def _result_of(agent: PromptAgent, reply: Reply) -> object:
    if reply.tool_calls:
        return list(reply.tool_calls)
    if reply.value is not None:
        return reply.value
    if reply.refusal:
        return reply.refusal
    return structured(reply.text) if agent.outputs and reply.text else reply.text
