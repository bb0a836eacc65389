"""What a docstring says about a function and its parameters: Google's `Args:` or Sphinx's `:param name:`."""

import re
from inspect import cleandoc

_SECTION = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_OTHER_SECTION = re.compile(r"[A-Z][A-Za-z ]{0,40}:\s*")
_ENTRY = re.compile(r"(\*{0,2}\w+)(?:\s*\([^)]*\))?:\s*(.*)")
_FIELD = re.compile(r":param\s+(?:[^:\s]+\s+)?(\w+):\s*(.*)")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The description of a function, and those of its parameters."""
    lines = cleandoc(text or "").splitlines()
    told: list[str] = []
    parameters: dict[str, str] = {}
    name = ""
    in_parameters = in_other = False
    for line in lines:
        stripped = line.strip()
        if not line.startswith(" ") and (_OTHER_SECTION.fullmatch(stripped) or stripped.startswith(":")):
            in_parameters, in_other, name = bool(_SECTION.fullmatch(stripped)), True, ""
        entry = _FIELD.match(stripped) or (in_parameters and _ENTRY.match(stripped))
        if entry:
            name = entry[1].lstrip("*")
            parameters[name] = entry[2]
        elif name and stripped:
            parameters[name] += f" {stripped}"
        elif not in_other:
            told.append(line)
    return "\n".join(told).strip(), parameters
