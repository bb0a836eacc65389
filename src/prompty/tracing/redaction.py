"""What must not be shown: the one place that knows how a secret looks."""

import re

MASK = "••••"

# `token` is a credential and `tokens` a count; `author` is a person and `authorization` a header.
_WORDS = frozenset(
    {"key", "apikey", "secret", "password", "passwd", "passphrase", "credential", "credentials"}
    | {"cookie", "authorization", "token"}
)
_HARMLESS = frozenset({"keyword", "keyboard"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SHAPES = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|xox[abp])[-_][A-Za-z0-9_-]{8,}"
    r"|\bAKIA[A-Z0-9]{16}\b"
    r"|\bBearer [A-Za-z0-9._~+/-]{8,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    r"|(?<=://)[^\s/@:]{1,256}:[^\s/@]{1,256}(?=@)"
)
_ASSIGNMENT = re.compile(r"^([ \t]*(?:-[ \t]+)?[\"']?([A-Za-z][\w.-]{0,99})[\"']?[ \t]*[:=][ \t]*)(\S.*)$")


def names_a_credential(name: str) -> bool:
    """Whether a key or variable of this name holds a secret, going by its words."""
    words = [word.lower() for word in _WORD.findall(name)]
    joined = "".join(words)
    return any(word in _WORDS for word in words) and joined not in _HARMLESS


def find_secret(text: str) -> re.Match[str] | None:
    """The first stretch of text with the shape of a known kind of secret."""
    return _SHAPES.search(text)


def masked_line(line: str) -> str:
    """A line of a file that may be shown: the value of a credential key and known shapes are masked."""
    assignment = _ASSIGNMENT.match(line)
    if assignment and names_a_credential(assignment[2]) and "${" not in assignment[3]:
        return assignment[1] + MASK
    return masked_text(line)


def masked_text(text: str) -> str:
    """Text of a server or a person with everything that has the shape of a secret masked."""
    return _SHAPES.sub(MASK, text)
