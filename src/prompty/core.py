"""Prompty v1's types, for programs that still import them from here."""

from prompty.old_names import find_core_name


def __getattr__(name: str) -> object:
    return find_core_name(name)
