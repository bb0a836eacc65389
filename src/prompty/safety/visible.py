"""Escape characters that hide, reorder or control text.

Used where text from outside is shown: to a user on a terminal, and to a model as a tool's description.
`viewer/page.js` has the same rule for the browser; a test compares the two.
"""

import re
from unicodedata import category

# Controls, formatting (bidi marks, zero-width characters, tags), unassigned, private use, surrogates, line separators.
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
# Invisible letters, marks and symbols that have been used to hide text: fillers, the blank Braille pattern, vowel signs
# without a form, variation selectors.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0").union(
    map(chr, range(0xFE00, 0xFE10)), map(chr, range(0xE0100, 0xE01F0))
)
_EMOJI_STYLE, _KEYCAP = "\ufe0f", "\u20e3"
_UNCOMMON = re.compile(r"[^\n\t -~]")


def visible(text: str) -> str:
    """Return `text` with every hidden, control, ANSI and bidi character written as its Python escape.

    Newlines and tabs stay. So does an emoji selector (U+FE0F) after a symbol, because models often write ⚠️ and ❤️, and
    one at the start, because a chunk of a stream may start with it.
    """
    return _UNCOMMON.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    hidden = character in _BLANK or category(character) in _HIDDEN_CATEGORIES
    if not hidden or (character == _EMOJI_STYLE and _styles_a_symbol(match.string, match.start())):
        return character
    return character.encode("unicode_escape").decode()


def _styles_a_symbol(text: str, position: int) -> bool:
    before, after = text[position - 1 : position], text[position + 1 : position + 2]
    if not before or after == _KEYCAP:
        return True
    return before not in _BLANK and category(before).startswith("S")
