"""`.env` files: variables for prompts.

They are not set in the environment: a `.env` may come with the prompt, so it must not configure transports. For the
same reason its values are literal: with `${NAME}` it could pass off a key from the environment as its own, and have it
sent to its own endpoint.
"""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

from prompty.errors import FileMissing, LoadError, Problem, PromptyWarning, check_path
from prompty.pipeline.files import Unreadable, is_foreign, list_folders_above, read_file, warn_of_owner
from prompty.pipeline.references import StrPath
from prompty.registry import DEFAULT, Registry

_NAME = re.compile(r"\s*(?:export[ \t]+)?([A-Za-z_][\w.-]{0,255})[ \t]*(=?)[ \t]*")
_END_OF_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_COMMENT = re.compile(r"\s#")
_SINGLE_ESCAPE = re.compile(r"\\([\\'])")
_DOUBLE_ESCAPE = re.compile(r"\\([\\'\"abfnrtv])")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NO_VARIABLES: MappingProxyType[str, str] = MappingProxyType({})


def load_env(
    path: StrPath | None = None, *, prompt: StrPath | None = None, registry: Registry = DEFAULT
) -> Path | None:
    """Make the variables of a `.env` file available to prompts, as the command line does.

    `path` is the file. It defaults to the nearest `.env`, in the folder of `prompt`, or the current folder, or above.
    The search ends at the root of the repository, and at the home directory. A file of another user is ignored, with a
    warning. Return the file, or None if there is none. The variables replace those of an earlier call. The environment
    takes precedence.
    """
    for name, value in (("path", path), ("prompt", prompt)):
        if value is not None:
            check_path(value, f"load_env({name}=…)", "a path")
    file = Path(path).absolute() if path is not None else _find_nearest(prompt)
    registry.dotenv = _NO_VARIABLES if file is None else MappingProxyType(_read(file))
    return file


def _find_nearest(prompt: StrPath | None) -> Path | None:
    for folder in list_folders_above(Path.cwd() if prompt is None else Path(prompt)):
        file = folder / ".env"
        if not file.is_file():
            continue
        if not is_foreign(file.stat()):
            return file
        warn_of_owner(file, stacklevel=3)
    return None


def _read(file: Path) -> dict[str, str]:
    try:
        text, _ = read_file(file, str(file), {})
    except Unreadable as error:
        problem = Problem(code=error.code, message=error.message, fix=error.fix, path=str(file))
        raise (FileMissing if error.code == "file-missing" else LoadError)([problem]) from None
    variables: dict[str, str] = {}
    for line, name, value in parse_env(text):
        if name:
            variables[name] = value
        else:  # don't repeat the text, which may be a key
            warnings.warn(f"{file}:{line}: ignored a line that is not NAME=value", PromptyWarning, stacklevel=3)
    return variables


def parse_env(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the name and the value of each variable. An invalid line has an empty name.

    A value is plain, or in quotes, which may span lines.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    position, line = 0, 1
    while position < len(text):
        end = text.find("\n", position) % (len(text) + 1)
        start = text[position:end].lstrip()
        if not start or start.startswith("#"):
            position, line = end + 1, line + 1
            continue
        found = _NAME.match(text, position, end)
        value, after = _read_value(text, found.end(), end) if found and found[2] else ("", end)
        closing = _END_OF_LINE.match(text, after)
        if found is None or not found[2] or closing is None:
            yield line, "", ""
            position, line = end + 1, line + 1
            continue
        yield line, found[1], value
        line += text.count("\n", position, after) + 1
        position = max(closing.end(), after + 1)


def _read_value(text: str, start: int, end: int) -> tuple[str, int]:
    """Return the value that starts at `start`, in the line that ends at `end`, and the position after it."""
    quote = text[start : start + 1]
    if quote and quote in "'\"":
        close = _find_quote(text, start + 1, quote)
        if close < 0:
            return "", start  # text after the closing quote: the line is invalid
        inner = text[start + 1 : close]
        if quote == "'":
            return _SINGLE_ESCAPE.sub(r"\1", inner), close + 1
        return _DOUBLE_ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), inner), close + 1
    comment = _COMMENT.search(text, start, end)
    return text[start : comment.start() if comment else end].strip(), end


def _find_quote(text: str, position: int, quote: str) -> int:
    """Return the position of the closing quote, or -1. A backslash escapes the next character."""
    while (found := text.find(quote, position)) >= 0:
        backslashes = found - len(text[position:found].rstrip("\\")) - position
        if backslashes % 2 == 0:
            return found
        position = found + 1
    return -1
