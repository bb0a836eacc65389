"""Read prompts: a text, or a list of messages."""

from collections.abc import Callable, Sequence

from prompty.cases.imports.draft import DraftMessage
from prompty.cases.imports.templates import convert_template
from prompty.cases.reading import RULES
from prompty.model.marker import ROLES
from prompty.safety.json import read_json
from prompty.safety.yaml import YamlError, read_yaml

Report = Callable[[str, str], None]
NOT_A_PROMPT = "The prompt was left out. Write it as a .prompty file."


def parse_prompt(text: str, report: Report) -> list[DraftMessage] | None:
    """Parse a prompt of promptfoo: messages as JSON or YAML, or the text of one message for the user.

    `report` gets the reason and the fix for whatever was left out. Return None if that is the whole prompt.
    """
    stripped = text.lstrip()
    if stripped.startswith("["):
        try:
            return convert_messages(read_json(text), report)
        except ValueError:
            pass
    elif stripped.startswith("- role:"):
        try:
            return convert_messages(read_yaml(text, RULES)[0], report)
        except YamlError:
            pass
    return [convert_message("user", text, report)]


def convert_messages(data: object, report: Report) -> list[DraftMessage] | None:
    """Convert a list of messages with a role and a content."""
    if not isinstance(data, list) or not data:
        report("the prompt is not a list of messages", NOT_A_PROMPT)
        return None
    found = []
    for message in data:
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role not in ROLES or not isinstance(content, str):
            report("a message has a role or a content that is more than text", NOT_A_PROMPT)
            return None
        found.append(convert_message(role, content, report))
    return found


def convert_message(role: str, content: str, report: Report) -> DraftMessage:
    template, escaped = convert_template(content)
    for tag in dict.fromkeys(escaped):
        report(f"`{_shorten(tag)}` is kept as text", "Write it in Jinja2, if the prompt needs it.")
    return DraftMessage(role, template)


def _shorten(tag: str) -> str:
    line = " ".join(tag.split())
    return line if len(line) <= 60 else f"{line[:60]}…"


def split_prompts(text: str) -> Sequence[str]:
    """Split a text file of prompts at its lines `---`."""
    parts = [part.strip("\n") for part in f"\n{text}\n".split("\n---\n")]
    return [part for part in parts if part.strip()]
