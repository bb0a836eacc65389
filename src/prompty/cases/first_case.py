"""Write the first test file of a prompt: one case with values for its inputs, which passes offline at once."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from prompty.cases.evaluators import load_prompt
from prompty.cases.reading import SUFFIXES, find_file_reference, find_test_file, write_yaml
from prompty.errors import InputError, RenderError, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.message import Message
from prompty.model.property import Property
from prompty.model.structure import mark
from prompty.pipeline.files import create_files
from prompty.pipeline.prepare import prepare
from prompty.renderers import RENDERERS
from prompty.safety.redaction import is_credential_name
from prompty.safety.visible import visible
from prompty.testing.schema_values import create_value
from prompty.wire.structured import build_schema

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_RICH_VALUES: dict[str, Any] = {
    "thread": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello! How can I help?"}],
    "image": f"data:image/png;base64,{_PIXEL}",
    "audio": "data:audio/wav;base64,UklGRiQAAABXQVZF",
    "file": "data:text/plain;base64,SGVsbG8=",
}
_MAX_CHECKED = 60  # characters of a message that the case looks for


def write_first_tests(prompt: Path, roots: Sequence[Path] = ()) -> Path:
    """Create the test file of a prompt and return its path. Never write to a file or through a link that exists."""
    path = find_test_file(prompt) or prompt.with_name(f"{prompt.stem}{SUFFIXES[0]}")
    agent = load_prompt(prompt, prompt.parent, roots=roots)
    inputs = {name: value for name, value in choose_inputs(agent) if find_file_reference(value) is None}
    try:
        messages = prepare(agent, inputs)
    except (InputError, RenderError) as error:
        fix = "Add an `example:` to the inputs in the file, or write the test file yourself."
        raise RequestError(f"prompty cannot choose inputs for {prompt}: {error.cause}", fix) from None
    text = _write_case(" ".join(visible(prompt.name).split()), inputs, _choose_text(inputs, messages))
    try:
        create_files({path: text.encode()})
    except FileExistsError:
        raise RequestError(f"{path} already exists", f"Add a case to it, and run prompty test {prompt}.") from None
    return path


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


def _choose_text(inputs: dict[str, Any], messages: Sequence[Message]) -> str:
    """Return a text that the messages contain: an input, or else the start of their first line."""
    whole = "\n\n".join(message.text for message in messages)
    values = [value for value in inputs.values() if isinstance(value, str) and value.strip() and "\n" not in value]
    lines = [line for line in whole.splitlines() if line.strip()]
    found = [text for text in (*values, *lines[:1]) if text[:_MAX_CHECKED] in whole]
    return found[0][:_MAX_CHECKED].strip() if found else ""


def _write_case(prompt: str, inputs: dict[str, Any], text: str) -> str:
    case: dict[str, Any] = {"name": "the first case", "inputs": inputs, "expect": {"render": {"contains": text}}}
    for key, is_used in (("inputs", inputs), ("expect", text)):
        if not is_used:
            del case[key]
    return f"""\
# Tests of {prompt}. To run them: prompty test {prompt}
cases:
{indent(write_yaml([case]), "  ")}
# `render` looks at the messages, so it needs no key. Next:
# - Name the case, and write inputs that matter to you.
# - Check the answer: add `replay: {{contains: …}}` below `expect:`, and run `prompty test {prompt} --record` once.
#   The tests then read the recorded answer. Commit the folder `recordings` with the prompt.
"""
