"""Where what a model thought goes back, in the chat format (L6): every server that extends it has its own name for it.

Sent are the thoughts of turns that called tools only: servers of thinking models refuse such a turn without them, and
ignore all others. A file can say it itself: `metadata: {reasoning: reasoning}`, or `none`.
"""

from urllib.parse import urlsplit

from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message

# The end of a host's name → the field for plain text. These servers answer 400 to a field that they do not know.
_FIELDS: dict[str, str | None] = {
    ".openai.com": None,
    ".azure.com": None,
    ".mistral.ai": None,
    ".cerebras.ai": None,
    ".groq.com": "reasoning",
    ".openrouter.ai": "reasoning",
}
# DeepSeek, Qwen, GLM, Kimi, and the servers that people run open models on.
_USUAL = "reasoning_content"
_KNOWN = {"reasoning": "reasoning", "reasoning_content": "reasoning_content", "none": None}


def reasoning_field(agent: PromptAgent) -> str | None:
    """The field in which the server of an agent takes thoughts back; None if it takes none."""
    told = (agent.metadata or {}).get("reasoning")
    if isinstance(told, str) and told in _KNOWN:
        return _KNOWN[told]
    endpoint = getattr(agent.model.connection, "endpoint", None)
    if not endpoint or agent.model.provider in ("azure", "foundry"):
        return None
    host = f".{urlsplit(endpoint).hostname or ''}"
    return next((field for end, field in _FIELDS.items() if host.endswith(end)), _USUAL)


def reasoning_to_wire(message: Message, field: str) -> Json:
    """The thoughts of a turn: structured ones exactly as they came, since they are signed, else as text."""
    details = message.opaque.get("reasoning_details")
    if details:
        return {"reasoning_details": details}
    return {field: message.reasoning} if message.reasoning else {}
