"""From a name in a file to what implements it: registered, built in, or an entry point of an installed package."""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar, cast

from prompty.errors import UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """Implementations of one kind. Nothing is imported before its name is asked for.

    A single dict assignment is all that registering does, so threads need no lock.
    """

    def __init__(self, kind: str, built_in: Mapping[str, str]) -> None:
        self.kind = kind
        self.group = f"prompty.{kind}s"
        self._built_in = dict(built_in)
        self._found: dict[str, T] = {}
        self._registered: set[str] = set()

    def register(self, name: str, implementation: T) -> None:
        """Put `implementation` under `name`, in place of whatever was there."""
        self._registered.add(name)
        self._found[name] = implementation

    def unregister(self, name: str) -> None:
        """Forget what was registered under `name`; a built-in of that name is found again."""
        self._registered.discard(name)
        self._found.pop(name, None)

    def registered(self, name: str) -> bool:
        """Whether something was put under `name` from code."""
        return name in self._registered

    def get(self, name: str) -> T:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._discover(name)
        return found

    def has(self, name: str) -> bool:
        """Whether `get` would find something."""
        return name in self._found or name in self._built_in or bool(entry_points(group=self.group, name=name))

    def names(self) -> list[str]:
        offered = {point.name for point in entry_points(group=self.group)}
        return sorted({*self._built_in, *self._found, *offered})

    def _discover(self, name: str) -> T:
        target = self._built_in.get(name)
        if target is not None:
            module, _, attribute = target.partition(":")
            return cast(T, getattr(import_module(module), attribute))
        for point in entry_points(group=self.group, name=name):
            return cast(T, point.load())
        raise UnknownName(self.kind, name, self.names())
