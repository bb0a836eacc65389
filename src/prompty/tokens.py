r"""Estimate how many tokens a text has, without a tokenizer.

Texts are split as OpenAI's tokenizers split them, and each kind of piece has a weight. Against `o200k_base` (GPT-4o and
later), English and code are within 15 %, and other languages in Latin script within 30 %. For other scripts it can be
wrong by a factor of 2, and for another tokenizer by 3. `docs/how-to/estimate-a-batch.md` has the measurements.
"""

import re
from collections import Counter

ERROR = 0.3  # of texts in Latin script
FACTOR = 3  # of all other texts

_LATIN = r"A-Za-z\u00c0-\u024f\u1e00-\u1eff"
# Compiled when a text is first estimated: it takes long, and most commands estimate none.
_PIECES = rf"""(?sx)
      [^\r\n\w]?(?P<word>[A-Z]*[a-z]+|[A-Z]+|_+)(?![\u00c0-\u024f\u1e00-\u1eff])
    | [^\r\n\w]?(?P<accented>[{_LATIN}]+)
    | (?P<digits>[0-9]{{1,3}})
    | (?P<marks>[ ]?[!-/:-@[-^`{{-~]+[\r\n]*)
    | (?P<space>\s*[\r\n]+|\s+(?!\S)|\s)
    | (?P<cyrillic>[ ]?[\u0400-\u04ff])
    | (?P<wide>[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff])
    | (?P<letter>[ ]?[\u0370-\u1fff])
    | (?P<other>.)
    """
_WEIGHTS = {
    "digits": 1.0,
    "marks": 1.0,
    "mark beyond three": 0.35,
    "space": 0.95,
    "cyrillic": 0.38,
    "wide": 0.85,
    "letter": 0.52,
    "other": 1.5,
}
# A word, and each of its letters beyond five. Tokenizers know fewer words of other languages than English.
_ENGLISH = {"word": 1.01, "accented": 1.51, "letter beyond five": 0.045}
_OTHER_LATIN = {"word": 1.1, "accented": 1.6, "letter beyond five": 0.15}
_ACCENTED_WORDS = 1 / 40  # a text with a larger share is not English
_FOREIGN_LETTER = re.compile(rf"[^\W\d_{_LATIN}]")
_FOREIGN_LETTERS = 1 / 20  # a text with a larger share is not in Latin script


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a model reads for a text."""
    counts: Counter[str] = Counter()
    for piece in re.finditer(_PIECES, text):
        kind = piece.lastgroup or ""
        counts[kind] += 1
        if kind in ("word", "accented"):
            counts["letter beyond five"] += max(piece.end(kind) - piece.start(kind) - 5, 0)
        elif kind == "marks":
            counts["mark beyond three"] += max(piece.end() - piece.start() - 3, 0)
    is_english = counts["accented"] <= (counts["word"] + counts["accented"]) * _ACCENTED_WORDS
    weights = _WEIGHTS | (_ENGLISH if is_english else _OTHER_LATIN)
    return round(sum(count * weights[kind] for kind, count in counts.items()))


def is_latin(text: str) -> bool:
    """Return True if nearly all letters of a text are in Latin script, so that its estimate is a good one."""
    return len(_FOREIGN_LETTER.findall(text)) <= len(text) * _FOREIGN_LETTERS
