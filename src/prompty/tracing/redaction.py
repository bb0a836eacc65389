"""What must not be shown: the one place that knows how a secret looks, and which ones this process has met."""

import re
from collections.abc import Iterable
from traceback import format_exception

MASK = "••••"
SHORTEST_SECRET = 8  # what is shorter is a placeholder, and a word that stands elsewhere too
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
# A name of a credential and its value inside a text: of a header, a URL, a setting, or JSON, which may itself stand
# in JSON, so that its quotes have backslashes.
_ASSIGNED = re.compile(
    r"((?:(?:api|access|private|secret|account)[_-]?key|secret|passw(?:or)?d|passphrase|credentials?|cookie"
    r"|authorization|token)[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4})(?!\$\{|(?:Bearer|Basic) )"
    r"[^\s\"'&,;}\\]{4,}(?:;\s?[^\s\"';\\]+)*",
    re.IGNORECASE,
)
# What must stand in a text for the two above to be tried: looking for words takes a hundredth of their time.
_SHAPE_HINTS = (
    *("sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "hf_", "xox"),
    *("AKIA", "AIza", "Bearer ", "Basic ", "eyJ", "PRIVATE KEY", "@", "sig=", "signature=", "key=", "code=", "auth="),
)
_NAME_HINTS = ("key", "secret", "passw", "passphrase", "credential", "cookie", "authorization", "token")
_ASSIGNMENT = re.compile(r"^([ \t]*(?:-[ \t]+)?[\"']?([A-Za-z][\w.-]{0,99})[\"']?[ \t]*[:=][ \t]*)(\S.*)$")
_met: dict[str, None] = {}


def remember_secrets(values: Iterable[str]) -> None:
    """Mask these from now on, wherever they stand."""
    for value in values:
        if len(value) >= SHORTEST_SECRET and value not in _met:
            _met[value] = None
            if len(_met) > MOST_SECRETS:
                del _met[next(iter(_met))]


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
    """Text of a server or a person without the secrets that this process has met, and without everything that has the
    shape or the name of one."""
    for secret in [*_met]:
        if secret in text:
            text = text.replace(secret, MASK)
    if _has(text, _SHAPE_HINTS):
        text = _SHAPES.sub(MASK, text)
    if _has(text.lower(), _NAME_HINTS):
        text = _ASSIGNED.sub(rf"\g<1>{MASK}", text)
    return text


def told(error: BaseException) -> str:
    """An error with its traceback, for a log: an error may quote anything."""
    return masked_text("".join(format_exception(error)).rstrip())


def _has(text: str, hints: tuple[str, ...]) -> bool:
    for hint in hints:  # noqa: SIM110  `any` takes three times as long, and this runs for every text of a trace
        if hint in text:
            return True
    return False
