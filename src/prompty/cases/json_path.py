"""Paths into JSON: `messages[0].content`. A path leads to one value, without wildcards."""

import re

from prompty.safety.json import read_json

_STEP = re.compile(r"\.?([^.\[\]\"]+)|\[(-?\d{1,9})\]|\[(\"(?:[^\"\\]|\\.)*\")\]")


def parse_path(text: str) -> tuple[str | int, ...]:
    """Split a path into names and positions. Raise ValueError if it is invalid."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None or (position == 0 and text.startswith(".")):
            raise ValueError(f"the path `{text}` is invalid at character {position + 1}")
        name, index, quoted = step.groups()
        steps.append(name if name is not None else int(index) if index is not None else str(read_json(quoted)))
        position = step.end()
    return tuple(steps)


def get_value(value: object, path: str) -> object:
    """Return the value at a path. Raise LookupError, naming the first missing step."""
    passed = ""
    for step in parse_path(path):
        try:
            if isinstance(step, int) and isinstance(value, list | tuple):
                value = value[step]
            elif isinstance(value, dict):
                value = value[str(step)]
            else:
                raise LookupError
        except LookupError:
            kind = (
                "a list" if isinstance(value, list | tuple) else "a mapping" if isinstance(value, dict) else "a value"
            )
            held = f" of {len(value)}" if isinstance(value, list | tuple) else ""
            names = f" with {', '.join(list(value)[:10])}" if isinstance(value, dict) and value else ""
            raise LookupError(f"`{passed or 'it'}` is {kind}{held}{names}, without `{step}`") from None
        passed += f"[{step}]" if isinstance(step, int) else f".{step}" if passed else step
    return value
