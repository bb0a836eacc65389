"""The arguments of a tool call: JSON text, as the model wrote it, into a dict."""

from typing import cast

from prompty.errors import ArgumentsError
from prompty.wire.strict_json import read_json

_FENCE = "```"


def parse_arguments(text: str) -> dict[str, object]:
    """Read a call's arguments: a JSON object, bare or inside one code fence. Anything else is an error."""
    body = _without_fence(text.strip())
    if not body:
        return {}
    try:
        arguments = read_json(body)
    except ValueError as error:
        raise ArgumentsError(f"the arguments are not valid JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise ArgumentsError("the arguments are not a JSON object; write them as {'name': value}")
    return cast(dict[str, object], arguments)


def _without_fence(text: str) -> str:
    """Remove one surrounding code fence with its language word; scans the text once."""
    if not text.startswith(_FENCE) or not text.endswith(_FENCE) or len(text) < 2 * len(_FENCE):
        return text
    first_line, newline, rest = text[: -len(_FENCE)].partition("\n")
    word = first_line.removeprefix(_FENCE).strip()
    return rest.strip() if newline and (not word or word.isalnum()) else text
