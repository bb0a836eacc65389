"""Public names, wherever the version at hand keeps them.

A name that moves to one of `MODULES` needs no change here. One that is renamed gets a line in `NAMES`: the name that
the scenes use, and the places to look at.
"""

from importlib import import_module
from typing import Any

MODULES = (
    "prompty",
    "prompty.testing",
    "prompty.events",
    "prompty.errors",
    "prompty.messages",
    "prompty.providers",
    "prompty.tools",
    "prompty.memory",
    "prompty.tracing",
    "prompty.renderers",
    "prompty.parsers",
    "prompty.durable",
    "prompty.mcp",
)
NAMES: dict[str, tuple[str, ...]] = {
    "ImagePart": ("prompty:Image",),
    "AudioPart": ("prompty:Audio",),
    "FilePart": ("prompty:File",),
    "Reply": ("prompty.model.reply:Reply",),
    "Rewrite": ("prompty.loop.effects:Rewrite",),
    "Progress": ("prompty.loop.stop:Progress",),
}


class Names:
    """The public names of the installed version, as attributes."""

    def __getattr__(self, name: str) -> Any:
        for place in NAMES.get(name, tuple(f"{module}:{name}" for module in MODULES)):
            module, _, attribute = place.partition(":")
            try:
                return getattr(import_module(module), attribute)
            except (ImportError, AttributeError):
                continue
        raise AttributeError(f"this version has no public name '{name}'; see NAMES")


p = Names()
