"""HTML for notebooks: tables whose texts are masked, made visible and escaped.

Styles are inline and use the notebook's own colors, so that they suit light and dark themes. A table loads no external
resource and runs no script.
"""

from collections.abc import Iterable
from html import escape

from pydantic_core import to_json

from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible

LONGEST_TEXT = 4000
_CELL = "text-align:left;vertical-align:top;padding:.2em 1em .2em 0;white-space:pre-wrap;overflow-wrap:anywhere"
Row = tuple[str, str]


def write_table(rows: Iterable[Row]) -> str:
    """Return a table of names and texts. A row without a text is left out."""
    cells = ((_write_text(name), _write_text(text)) for name, text in rows if text)
    lines = (f"<tr><th style='{_CELL}'>{name}</th><td style='{_CELL}'>{text}</td></tr>" for name, text in cells)
    return f"<table style='color:inherit;max-width:60em'>{''.join(lines)}</table>"


def to_text(value: object) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else to_json(value, fallback=repr, inf_nan_mode="constants").decode()


def _write_text(text: str) -> str:
    shown = visible(mask_secrets(text))
    if len(shown) > LONGEST_TEXT:
        shown = f"{shown[:LONGEST_TEXT]}… ({len(shown) - LONGEST_TEXT:,} more characters)"
    return escape(shown)
