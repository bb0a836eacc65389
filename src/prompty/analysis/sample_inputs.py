"""Choose values for the inputs of a prompt, for its first test and for a preview."""

from typing import Any

from prompty.analysis.schema_values import create_value
from prompty.model.agent import PromptAgent
from prompty.model.property import Property
from prompty.model.structure import mark
from prompty.renderers import RENDERERS
from prompty.safety.redaction import is_credential_name
from prompty.wire.structured import build_schema

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_RICH_VALUES: dict[str, Any] = {
    "thread": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello! How can I help?"}],
    "image": f"data:image/png;base64,{_PIXEL}",
    "audio": "data:audio/wav;base64,UklGRiQAAABXQVZF",
    "file": "data:text/plain;base64,SGVsbG8=",
}


def choose_inputs(agent: PromptAgent) -> list[tuple[str, Any]]:
    """Return a value for each input: its example, its default, or one of its kind."""
    engine = agent.registry[RENDERERS].get(agent.template.format.kind)
    used = engine.variables(mark(agent.instructions)) if hasattr(engine, "variables") else {}
    known = {entry.name for entry in agent.inputs}
    chosen = [(entry.name, _choose_value(entry)) for entry in agent.inputs if not _has_secret_default(entry)]
    return [*chosen, *((name, "text") for name in used if name not in known)]


def _has_secret_default(declared: Property) -> bool:
    return declared.default is not None and (declared.sensitive or is_credential_name(declared.name))


def _choose_value(declared: Property) -> Any:
    for value in (declared.example, declared.default):
        if value is not None and not declared.sensitive:
            return value
    if declared.kind in _RICH_VALUES:
        return _RICH_VALUES[declared.kind]
    return create_value(build_schema([declared]))[declared.name]
