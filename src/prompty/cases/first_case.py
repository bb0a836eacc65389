"""Write the first test file of a prompt: one case with values for its inputs, which passes offline at once."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from prompty.analysis.sample_inputs import choose_inputs
from prompty.cases.evaluators import load_prompt
from prompty.cases.file_names import SUFFIXES, find_test_file
from prompty.cases.reading import find_file_reference, write_yaml
from prompty.errors import InputError, RenderError, RequestError
from prompty.model.message import Message
from prompty.pipeline.prepare import prepare
from prompty.safety.visible import visible
from prompty.safety.write_files import create_files

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
