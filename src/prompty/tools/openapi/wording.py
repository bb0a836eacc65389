"""Text of a document as a model may read it, and names as the APIs of models take them."""

import re

from prompty.safety.visible import visible

LONGEST_DESCRIPTION = 1_000
LONGEST_NAME = 64

_NOT_IN_FUNCTIONS = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_IN_ARGUMENTS = re.compile(r"[^A-Za-z0-9_.-]+")


def clean_description(text: object) -> str:
    """Return a description without hidden characters and of a bounded length; "" for what is no text."""
    if not isinstance(text, str):
        return ""
    shown = visible(text[: LONGEST_DESCRIPTION + 1].replace("\r\n", "\n").strip())
    return shown if len(shown) <= LONGEST_DESCRIPTION else f"{shown[: LONGEST_DESCRIPTION - 1]}…"


def function_name(text: str) -> str:
    """A name that every API takes for a function."""
    return _NOT_IN_FUNCTIONS.sub("_", text).strip("_")[:LONGEST_NAME] or "operation"


def argument_name(text: str) -> str:
    """A name that every API takes for an argument: `page[size]` becomes `page_size`."""
    if text and len(text) <= LONGEST_NAME and not _NOT_IN_ARGUMENTS.search(text):
        return text
    return _NOT_IN_ARGUMENTS.sub("_", text).strip("_")[:LONGEST_NAME] or "value"


def numbered(name: str, taken: set[str]) -> str:
    """The name, with a number behind it if it is taken; it is taken from then on."""
    found, number = name, 1
    while found in taken:
        number += 1
        ending = f"_{number}"
        found = name[: LONGEST_NAME - len(ending)] + ending
    taken.add(found)
    return found
