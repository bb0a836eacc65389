"""Durations on the command line: 90s, 15m, 12h, 7d."""

import re
from datetime import timedelta

from typer import BadParameter

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", re.ASCII)


def parse_duration(text: str | timedelta) -> timedelta:
    """Parse a number with a unit. An option's default is passed as a duration."""
    if isinstance(text, timedelta):
        return text
    if (match := _DURATION.fullmatch(text)) is None:
        raise BadParameter(f"{text!r} is not a duration. Examples: 90s, 15m, 12h, 7d.")
    number, unit = match.groups()
    return timedelta(seconds=float(number) * _SECONDS[unit])
