"""Redaction: detect secrets and mask them in everything that is shown or stored.

A text is masked in three steps: the values that its owner hides (a `Redactor`), text in the format of a known kind of
secret, and values with a credential's name (`password: …`). Traces, errors, logs, reprs, recordings and batch results
are all masked here.

No list of secrets is shared: what one run hides leaves the texts of others as they are.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar, Token
from dataclasses import fields, is_dataclass
from functools import lru_cache
from json import dumps
from threading import Lock
from traceback import format_exception

MASK = "••••"
SHORTEST_SECRET = 8  # shorter values are placeholders (`none`, `ollama`) and parts of other words
SHORTEST_NAMED = 4  # for a value whose name or file marks it as a secret
_JSON_LEVELS = 3  # of JSON inside JSON strings

# Each shape is a pattern with <> for one of the literals. A text without any literal is not searched.
_PREFIXES = ("ghp", "gho", "ghs", "hf")
_SHAPES = (
    (r"\b[spr]<>[A-Za-z0-9_-]{8,}", ("k-", "k_")),
    (r"\b<>[A-Za-z0-9_-]{8,}", tuple(f"{prefix}{separator}" for prefix in _PREFIXES for separator in "-_")),
    (r"\b(?:github_|gl)<>[A-Za-z0-9_-]{8,}", ("pat-", "pat_")),
    (r"\b<>[abprs][-_][A-Za-z0-9_-]{8,}", ("xox",)),
    (r"\b<>[A-Z0-9]{16}\b", ("AKIA",)),
    (r"\b<>[A-Za-z0-9_-]{30,}", ("AIza",)),
    (r"\b<>[A-Za-z0-9._~+/=-]{8,}", ("Bearer ", "Basic ")),
    (r"\b<>[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{1,2000})?", ("eyJ",)),
    (
        r"-----BEGIN [A-Z ]{0,20}<>[A-Za-z0-9+/=\s\\]{0,20000}(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?",
        ("PRIVATE KEY-----",),
    ),
    (r"(?<=://)[^\s/@:]{0,256}:[^\s/@]{1,256}(?=<>)", ("@",)),
    (r"\b<>[0-9a-f]{32,}", ("Signature=",)),  # AWS
    (r"(?<=[?&])<>[^&\s\"'#]{4,}", ("sig=", "signature=", "key=", "code=", "auth=")),
)
# `token` is a credential and `tokens` a count; `author` is a person and `authorization` a header. `key` is one in a
# name, but in a text only with a word before it or in quotes.
_WORDS = ("secret", "password", "passwd", "passphrase", "credential", "credentials", "cookie", "authorization", "token")
_KINDS_OF_KEY = ("api", "access", "private", "secret", "account", "subscription")
_HARMLESS_NAMES = frozenset({"keyword", "keyboard", "promptcachekey"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _either(literals: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, literals))})"


_SHAPE = re.compile("|".join(pattern.replace("<>", _either(literals)) for pattern, literals in _SHAPES))
# A credential's name in a text, up to its value: in a header, a URL, a setting, or JSON, whose quotes have backslashes
# if it is inside a JSON string.
_NAMED = re.compile(
    rf"(?=[{''.join({word[0] for word in (*_WORDS, *_KINDS_OF_KEY, 'key')})}])"  # fails fast for most characters
    rf"(?:{_either(_KINDS_OF_KEY)}[_-]?key|{_either(_WORDS)}"
    r"|(?:(?<![a-z])key|(?-i:(?<=[a-z])Key))(?=\\{0,15}[\"']))"
    r"(\\{0,15}[\"'])?\s{0,4}[:=]\s{0,4}(\\{0,15}[\"'])?(?!\$\{|(?:Bearer|Basic) )",
    re.IGNORECASE,
)
_URL_USER = re.compile(r"://[^/?#@\s]*@")
_URL_VALUE = re.compile(r"([?&](?!api-version=)[^=&#\s]*=)[^&#\s]+")
_QUERY = re.compile(r"(?<=[\w/.}])\?[^\s'\"?=]*=[^\s'\"]*")  # of a URL in a line
_BARE_VALUE = re.compile(r"(?!(?:null|true|false)\b)[^\s\"'&,;}\\]{4,}(?:;\s?[^\s\"';\\]+)*")
# Before a value: an escape of JSON or Python, of a URL, or of a terminal.
_ESCAPE = re.compile(r"(?:\\(?:[abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})|%[0-9a-fA-F]{2}|\[[0-9;]{0,20}[A-Za-z])\Z")
_FIRST_WITHOUT_SPACES = "\u0e00"
_QUOTE = re.compile(r"(?<!\\)(\\*+)([\"'])|\n")
_ASSIGNMENT = re.compile(r"^([ \t]*(?:-[ \t]+)?[\"']?([A-Za-z][\w.-]{0,99})[\"']?[ \t]*[:=][ \t]*)(\S.*)$")


def _by_rarest_character(literals: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Group literals by their rarest character in ordinary text, because searching for one character is fast."""
    common = " etaoinsrhldcumfpgwybvkxjqz"
    groups: dict[str, tuple[str, ...]] = {}
    for literal in literals:
        rarest = max(literal, key=lambda character: common.find(character) % 100)
        groups[rarest] = (*groups.get(rarest, ()), literal)
    return groups


_SHAPE_HINTS = tuple(_by_rarest_character(literal for _, literals in _SHAPES for literal in literals).items())
_NAME_HINTS = tuple(word for word in (*_WORDS, "key") if word != "credentials")
_PLAIN = re.compile(r"[ !#-\[\]-~]*")  # the same in a JSON string


class Redactor:
    """Masks the values of one owner: an endpoint, an agent, a run, a trace, a recording or a command.

    It also masks those of its `parent`: those of a run are that of the run above it, or of the command around it.
    """

    __slots__ = ("_hidden", "_lock", "_ordered", "_own_changes", "_parent", "_values")

    def __init__(
        self, values: Iterable[object] = (), *, shortest: int = SHORTEST_NAMED, parent: "Redactor | None" = None
    ) -> None:
        self._parent = parent
        self._hidden: list[tuple[Iterable[object], int]] = []  # read when a text is masked: most runs mask none
        self._values: set[str] = set()
        self._lock = Lock()
        self._own_changes = 0
        self._ordered: tuple[int, tuple[str, ...], tuple[str, ...]] = (0, (), ())
        if values:
            self.hide(values, shortest=shortest)

    def __contains__(self, text: str) -> bool:
        long, short = self._order()
        return text in long or text in short

    @property
    def changes(self) -> int:
        """How often values were added, here and above."""
        return self._own_changes + (self._parent.changes if self._parent else 0)

    def hide(self, values: Iterable[object], *, shortest: int = SHORTEST_NAMED) -> None:
        """Mask the texts and numbers in these values from now on, including in JSON.

        A value is masked only where no other letter or digit continues it, and not if it is shorter than `shortest`: a
        customer called "1" would blank every number. An iterator is read when a text is masked.
        """
        if values:
            self._hidden.append((values, shortest))
            self._own_changes += 1

    def mask(self, text: str) -> str:
        """Mask these values and secrets in `text`. Short values are last: they may be part of a secret."""
        long, short = self._order()
        return _replace(short, _mask_formats(_replace(long, text)))

    def inside(self) -> "RedactorScope":
        """Let `mask_secrets` mask these values inside a `with` statement, and `hide_secrets` add to them."""
        return RedactorScope(self)

    def _order(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the long and the short values, the longest first: one secret may be a prefix of another."""
        changes, long, short = self._ordered
        if changes != (now := self.changes):
            values = sorted(self._collect(), key=len, reverse=True)
            long = tuple(value for value in values if len(value) >= SHORTEST_SECRET)
            short = tuple(value for value in values if len(value) < SHORTEST_SECRET)
            self._ordered = now, long, short
        return long, short

    def _collect(self) -> set[str]:
        with self._lock:
            while self._hidden:
                values, shortest = self._hidden.pop()
                texts = (text for value in values for text in leaves(value) if len(text) >= shortest)
                self._values.update(form for text in texts for form in _json_forms(text))
            return self._values | (self._parent._collect() if self._parent else set())


class RedactorScope:
    """Makes a redactor the current one."""

    __slots__ = ("_redactor", "_token")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._token: Token[Redactor | None] | None = None

    def __enter__(self) -> Redactor:
        self._token = _current.set(self._redactor)
        return self._redactor

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current.reset(self._token)


_current: ContextVar[Redactor | None] = ContextVar("prompty_redactor", default=None)


def current_redactor() -> Redactor | None:
    """Return the redactor of the current run, trace or command, if there is one."""
    return _current.get()


def hide_secrets(values: Iterable[object]) -> None:
    """Mask these values from now on in the run, the trace or the command that needs them now."""
    if (redactor := _current.get()) is not None:
        redactor.hide(values, shortest=SHORTEST_SECRET)


def mask_secrets(text: str) -> str:
    """Mask the secrets of the current run, trace or command, and anything with the format or the name of a secret."""
    if len(text) < SHORTEST_NAMED:
        return text
    redactor = _current.get()
    return _mask_formats(text) if redactor is None else redactor.mask(text)


def mask_url(url: str) -> str:
    """Mask a URL's user, password and query values, except for an API version."""
    if "@" not in url and "?" not in url:
        return mask_secrets(url)
    return mask_secrets(_URL_VALUE.sub(lambda found: found[1] + MASK, _URL_USER.sub(f"://{MASK}@", url)))


def mask_line(line: str) -> str:
    """Mask secrets in a line of a prompt file, including the values of a URL's query and of a credential's key, unless
    they are references."""
    assignment = _ASSIGNMENT.match(line)
    if assignment and is_credential_name(assignment[2]) and "${" not in assignment[3]:
        return assignment[1] + MASK
    return mask_secrets(_QUERY.sub(_mask_query, line) if "?" in line else line)


def _mask_query(query: re.Match[str]) -> str:
    return _URL_VALUE.sub(lambda found: found[0] if "${" in found[0] else found[1] + MASK, query[0])


def masked_traceback(error: BaseException, redactor: Redactor | None = None) -> str:
    """Return an error with its traceback for a log. Secrets are masked, because an error may quote anything."""
    mask = mask_secrets if redactor is None else redactor.mask
    return mask("".join(format_exception(error)).rstrip())


@lru_cache(maxsize=4096)
def is_credential_name(name: str) -> bool:
    """Return True if the words of a key's or variable's name suggest a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in _WORDS or word in ("key", "apikey") for word in words) and "".join(words) not in _HARMLESS_NAMES


def find_secret(text: str) -> re.Match[str] | None:
    """Return the first match of a known secret format."""
    return _SHAPE.search(text) if _has_shape_hint(text) else None


def leaves(value: object) -> Iterator[str]:
    """Yield the texts and numbers inside a value."""
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from leaves(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from leaves(getattr(value, field.name))
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _mask_formats(text: str) -> str:
    """Mask what has the format or the name of a secret."""
    if _has_shape_hint(text):
        text = _SHAPE.sub(MASK, text)
    return _mask_named(text) if _has_name_hint(text) else text


def _replace(values: tuple[str, ...], text: str) -> str:
    for value in values:
        if value in text:
            text = re.sub(re.escape(value), _mask_alone, text)
    return text


def _mask_alone(found: re.Match[str]) -> str:
    """Return the mask of a value, or the value if it is part of a longer word. An escape before it is not a letter."""
    text, start, end = found.string, found.start(), found.end()
    continues = _is_in_word(text[start - 1 : start + 1]) and not _ESCAPE.search(text, max(start - 24, 0), start)
    return found[0] if continues or _is_in_word(text[end - 1 : end + 1]) else MASK


def _is_in_word(pair: str) -> bool:
    """Return True if two characters belong to one word. Thai, Chinese and others have no spaces between words."""
    return len(pair) == 2 and pair.isalnum() and max(pair) < _FIRST_WITHOUT_SPACES


def _has_shape_hint(text: str) -> bool:
    for character, literals in _SHAPE_HINTS:  # noqa: SIM110  `any` takes three times as long, for every text of a trace
        if character in text and _has(text, literals):
            return True
    return False


def _has_name_hint(text: str) -> bool:
    return (":" in text or "=" in text) and _has(text.lower(), _NAME_HINTS)


def _has(text: str, hints: tuple[str, ...]) -> bool:
    for hint in hints:  # noqa: SIM110  `any` takes three times as long, for every text of a trace
        if hint in text:
            return True
    return False


def _json_forms(text: str) -> list[str]:
    """Return a text as it is, and as it appears in JSON strings, up to three levels deep."""
    if _PLAIN.fullmatch(text):
        return [text]
    forms = {text: None}
    for _ in range(_JSON_LEVELS):
        forms |= {dumps(form, ensure_ascii=ascii_only)[1:-1]: None for form in forms for ascii_only in (False, True)}
    return list(forms)


def _mask_named(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for name in _NAMED.finditer(text):
        name_quote, opening = name[1] or "", name[2]
        end = _find_value_end(text, name.end(), name_quote, opening) if name.start() >= done else 0
        if end - name.end() >= SHORTEST_NAMED:
            quote = "" if opening else name_quote  # a number in JSON becomes a string, so that it stays JSON
            pieces += text[done : name.end()], f"{quote}{MASK}{quote}"
            done = end
    return "".join([*pieces, text[done:]])


def _find_value_end(text: str, start: int, name_quote: str, opening: str | None) -> int:
    """Return the end of a value: its closing quote, or the end of the string around it. A quote inside the value has
    more backslashes than those around it."""
    if not opening:
        bare = None if name_quote and text.startswith(("{", "["), start) else _BARE_VALUE.match(text, start)
        return bare.end() if bare else start
    around = len(opening) - 1
    for quote in _QUOTE.finditer(text, start):
        escapes = len(quote[1] or "")
        if quote[2] is None or (quote[2] == '"' and escapes < around):
            return quote.start()
        if quote[2] in ('"', opening[-1]) and escapes % (2 * around + 2) == around:
            return quote.end() - len(opening)
    return len(text)
