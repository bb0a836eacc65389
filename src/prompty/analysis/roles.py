"""Find lines that are probably meant as role markers, but are text."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from prompty.errors import Problem
from prompty.model.marker import ROLES, read_marker
from prompty.pipeline.source_map import Edit, Finding, Line

_LONE_WORD = re.compile(r"[ \t]*(?:#{1,6}[ \t]*)?(\w+)[ \t]*(?:\[[^\]\n]*\][ \t]*)?(?::[ \t]*)?:[ \t]*\Z")
_ROLE_AND_TEXT = re.compile(rf"[ \t]*(?:#[ \t]*)?({'|'.join(ROLES)})[ \t]*:[ \t]*\S", re.IGNORECASE)
# Names of roles in other tools.
_SYNONYMS = {
    "human": "user",
    "person": "user",
    "customer": "user",
    "ai": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "instructions": "system",
}


def find_misspelt_roles(lines: Sequence[Line]) -> Iterator[Finding]:
    """Yield a warning for each line that looks like a role marker but is text of the previous message."""
    for line in lines:
        if "{" in line.text or read_marker(line.text):
            continue
        if (word := _LONE_WORD.match(line.text)) and (role := _meant_role(word[1])):
            message = f"`{word[1]}:` is not a role, so this line and those below it belong to the previous message"
            start, end = line.start + word.start(1), line.start + word.end(1)
            problem = Problem(code="misspelt-role", message=message, fix=f"Write `{role}:`.", severity="warning")
            yield Finding(start, end, problem, (Edit(start, end, role),))
        elif inline := _ROLE_AND_TEXT.match(line.text):
            role = inline[1].lower()
            message = f"`{inline[1]}:` followed by text is not a role marker, so the line is text"
            fix = f"Write `{role}:` on its own line, and the text below it."
            problem = Problem(code="text-after-role", message=message, fix=fix, severity="warning")
            yield Finding(*line.content, problem)


def _meant_role(word: str) -> str | None:
    word = word.lower()
    return _SYNONYMS.get(word) or next(iter(get_close_matches(word, ROLES, 1, cutoff=0.75)), None)
