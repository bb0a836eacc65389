"""What must not be shown: the one place that knows how a secret looks, and which ones this process has met."""

import re
from collections.abc import Iterable
from functools import lru_cache
from json import dumps
from traceback import format_exception

MASK = "••••"
SHORTEST_SECRET = 8  # what is shorter is a placeholder, and a word that stands elsewhere too
SHORTEST_NAMED = 4  # where a name says that it is one
JSON_IN_JSON = 3
LONGEST_WORD = 64
MOST_SECRETS = 10_000  # the newest are kept: a process that meets more renews them all the time

# `token` is a credential and `tokens` a count; `author` is a person and `authorization` a header.
_WORDS = frozenset(
    {"key", "apikey", "secret", "password", "passwd", "passphrase", "credential", "credentials"}
    | {"cookie", "authorization", "token"}
)
_HARMLESS = frozenset({"keyword", "keyboard"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SHAPES = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|hf|xox[abprs])[-_][A-Za-z0-9_-]{8,}"
    r"|\bAKIA[A-Z0-9]{16}\b"
    r"|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\b(?:Bearer|Basic) [A-Za-z0-9._~+/=-]{8,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{1,2000})?"
    r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]{0,20000}(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?"
    r"|(?<=://)[^\s/@:]{0,256}:[^\s/@]{1,256}(?=@)"
    r"|(?<=[?&])(?:sig|signature|key|code|auth)=[^&\s\"'#]{4,}"
)
# A name of a credential inside a text, up to its value: of a header, a URL, a setting, or JSON, which may itself stand
# in JSON, so that its quotes have backslashes. `key` alone is a word of everyday speech, but not as a name in quotes.
_NAMED = re.compile(
    r"(?=[aApPsScCtTkK])(?:(?:api|access|private|secret|account|subscription)[_-]?key"
    r"|secret|passw(?:or)?d|passphrase|credentials?|cookie|authorization|token"
    r"|(?:(?<![a-z])key|(?-i:(?<=[a-z])Key))(?=\\{0,15}[\"']))"
    r"(\\{0,15}[\"'])?\s{0,4}[:=]\s{0,4}(\\{0,15}[\"'])?(?!\$\{|(?:Bearer|Basic) )",
    re.IGNORECASE,
)
_BARE_VALUE = re.compile(r"(?!(?:null|true|false)\b)[^\s\"'&,;}\\]{4,}(?:;\s?[^\s\"';\\]+)*")
_QUOTE = re.compile(r"(?<!\\)(\\*+)([\"'])|\n")
# What must stand in a text for the two above to be tried: looking for words takes a hundredth of their time.
_SHAPE_HINTS = (
    *("sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "hf_", "xox"),
    *("AKIA", "AIza", "Bearer ", "Basic ", "eyJ", "PRIVATE KEY", "@", "sig=", "signature=", "key=", "code=", "auth="),
)
_NAME_HINTS = ("key", "secret", "passw", "passphrase", "credential", "cookie", "authorization", "token")
_ASSIGNMENT = re.compile(r"^([ \t]*(?:-[ \t]+)?[\"']?([A-Za-z][\w.-]{0,99})[\"']?[ \t]*[:=][ \t]*)(\S.*)$")
_met: dict[str, None] = {}
_longest_first: tuple[str, ...] = ()  # one secret may begin another


def remember_secrets(values: Iterable[str]) -> None:
    """Mask these from now on, wherever they stand."""
    global _longest_first
    new = [value for value in values if len(value) >= SHORTEST_SECRET and value not in _met]
    if not new:
        return
    for value in new:
        _met.update(dict.fromkeys(written(value)))
    while len(_met) > MOST_SECRETS:
        del _met[next(iter(_met))]
    _longest_first = tuple(sorted(_met, key=len, reverse=True))
    _masked_word.cache_clear()


def written(text: str) -> list[str]:
    """A text as it stands by itself, and in JSON, which may itself stand in JSON."""
    forms = {text: None}
    for _ in range(JSON_IN_JSON):
        forms |= {dumps(form, ensure_ascii=ascii_only)[1:-1]: None for form in forms for ascii_only in (False, True)}
    return list(forms)


@lru_cache(maxsize=4096)
def names_a_credential(name: str) -> bool:
    """Whether a key or variable of this name holds a secret, going by its words."""
    words = [word.lower() for word in _WORD.findall(name)]
    joined = "".join(words)
    return any(word in _WORDS for word in words) and joined not in _HARMLESS


def find_secret(text: str) -> re.Match[str] | None:
    """The first stretch of text with the shape of a known kind of secret."""
    return _SHAPES.search(text) if _has(text, _SHAPE_HINTS) else None


def masked_line(line: str) -> str:
    """A line of a file that may be shown: the value of a credential key and known shapes are masked."""
    assignment = _ASSIGNMENT.match(line)
    if assignment and names_a_credential(assignment[2]) and "${" not in assignment[3]:
        return assignment[1] + MASK
    return masked_text(line)


def masked_name(text: str) -> str:
    """The same for a text that is shown again and again."""
    return _masked_word(text) if len(text) <= LONGEST_WORD else _masked(text)


def masked_text(text: str) -> str:
    """Text of a server or a person without the secrets that this process has met, and without everything that has the
    shape or the name of one."""
    return _masked(text) if len(text) >= SHORTEST_SECRET else text


@lru_cache(maxsize=4096)
def _masked_word(text: str) -> str:
    """Most of what a trace shows are names that it shows again and again."""
    return _masked(text)


def _masked(text: str) -> str:
    if not may_hold_secrets(text):
        return text
    for secret in _longest_first:
        if secret in text:
            text = text.replace(secret, MASK)
    if _has(text, _SHAPE_HINTS):
        text = _SHAPES.sub(MASK, text)
    if (":" in text or "=" in text) and _has(text.lower(), _NAME_HINTS):
        text = _without_named(text)
    return text


def _without_named(text: str) -> str:
    shown: list[str] = []
    done = 0
    for found in _NAMED.finditer(text):
        name_quote, opening = found[1] or "", found[2]
        end = _end_of_value(text, found.end(), name_quote, opening) if found.start() >= done else 0
        if end - found.end() >= SHORTEST_NAMED:
            quote = "" if opening else name_quote  # a number of JSON becomes a text, so that it is JSON still
            shown += text[done : found.end()], f"{quote}{MASK}{quote}"
            done = end
    return "".join([*shown, text[done:]])


def _end_of_value(text: str, start: int, name_quote: str, opening: str | None) -> int:
    """Where a value ends: with the quote that closes it, or else with the text it is part of. A quote in the value has
    more backslashes than those around it."""
    if not opening:
        bare = None if name_quote and text.startswith(("{", "["), start) else _BARE_VALUE.match(text, start)
        return bare.end() if bare else start
    around = len(opening) - 1
    for found in _QUOTE.finditer(text, start):
        escapes = len(found[1] or "")
        if found[2] is None or (found[2] == '"' and escapes < around):
            return found.start()
        if found[2] in ('"', opening[-1]) and escapes % (2 * around + 2) == around:
            return found.end() - len(opening)
    return len(text)


def may_hold_secrets(text: str) -> bool:
    """Whether it is worth looking closer; a quick no to most texts. Every text of a trace is asked this, and a chain of
    `in` takes a fifth of the time of a loop over the hints, of which these are the telling parts."""
    lowered = text.lower()
    return (
        ("k-" in text or "k_" in text or "@" in text or "=" in text or "xox" in text or "hf_" in text)
        or ("AKIA" in text or "AIza" in text or "eyJ" in text or "PRIVATE" in text or "pat-" in text)
        or ("earer " in text or "asic " in text or ("gh" in text and _has(text, _SHAPE_HINTS)))
        or ("key" in lowered or "token" in lowered or "secret" in lowered or "passw" in lowered)
        or ("cookie" in lowered or "passphrase" in lowered or "credential" in lowered or "authorization" in lowered)
        or _has(text, _longest_first)
    )


def told(error: BaseException) -> str:
    """An error with its traceback, for a log: an error may quote anything."""
    return masked_text("".join(format_exception(error)).rstrip())


def _has(text: str, hints: tuple[str, ...]) -> bool:
    for hint in hints:  # noqa: SIM110  `any` takes three times as long, and this runs for every text of a trace
        if hint in text:
            return True
    return False
