"""Optional packages, imported on first use: those of extras, and those that the host brings."""

from importlib import import_module
from types import ModuleType

from prompty.errors import MissingExtra


def require(module: str, *, extra: str = "") -> ModuleType:
    """Import `module`. Raise MissingExtra, with the command that installs it, if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name and error.name.partition(".")[0] != package:
            raise
        raise MissingExtra(package, extra) from error
