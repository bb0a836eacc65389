"""Text of a document as a model may read it, and names as the APIs of models take them."""

import re

LONGEST_DESCRIPTION = 1_000
LONGEST_NAME = 64

# Control characters (but for newline and tab), and the marks that hide or reorder text: what a person who reads the
# document cannot see must not reach the model unseen either.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e01ef]"
)
_NOT_IN_FUNCTIONS = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_IN_ARGUMENTS = re.compile(r"[^A-Za-z0-9_.-]+")


def readable(text: object) -> str:
    """A description with hidden characters shown as their escapes, and of a bounded length."""
    if not isinstance(text, str):
        return ""
    shown = text[: LONGEST_DESCRIPTION + 1].replace("\r\n", "\n").strip()
    shown = _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), shown)
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
