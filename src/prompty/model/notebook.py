"""Views of values in notebooks. Their code is above all others: it is found by name when a notebook asks for it."""

from collections.abc import Callable

from prompty.registry import DEFAULT, ExtensionPoint

VIEWS: ExtensionPoint[Callable[[object], str]] = ExtensionPoint("view")


class NotebookView:
    """Lets notebooks show an instance as HTML."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return DEFAULT[VIEWS].get("html")(self)
