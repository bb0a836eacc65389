"""Implementations that files refer to by name: providers, template formats, tools, connections.

A `Registry` is one configuration. `load(path, registry=…)` ties an agent to it, and every later lookup goes through
`agent.registry`, so that several configurations can live in one process. Without that argument, and for the
`register_…` functions, it is `DEFAULT`. Caches (loaded files, HTTP clients, signatures) are no configuration and are
shared by all registries.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from prompty.errors import RequestError, UnknownName, WrongArgument

if TYPE_CHECKING:
    from prompty.parsers import Parser
    from prompty.providers import ExecutorProtocol, ProcessorProtocol, Provider
    from prompty.renderers import Renderer
    from prompty.tools.kinds import ToolKind

T = TypeVar("T")

# Strings, because built-ins are imported at first use. The layer contract does not see these edges. They point down
# from the layers that look names up, but for two: the turns of child prompts (`prompty.drivers`) and the scripted
# provider (`prompty.testing`), which must work in a file without an import in the program.
_PROVIDERS = {
    "openai": "prompty.providers.openai:PROVIDER",
    "azure": "prompty.providers.foundry:AZURE",
    "foundry": "prompty.providers.foundry:PROVIDER",
    "anthropic": "prompty.providers.anthropic:PROVIDER",
    "scripted": "prompty.testing:PROVIDER",
}
_RENDERERS = {"jinja2": "prompty.renderers.jinja2:renderer", "mustache": "prompty.renderers.mustache:renderer"}
_PARSERS = {"prompty": "prompty.parsers.prompty:parse"}
_TOOL_KINDS = {
    "prompty": "prompty.drivers.children:ChildKind",
    "mcp": "prompty.tools.mcp:McpKind",
    "openapi": "prompty.tools.openapi:OpenApiKind",
}


class Implementations(Generic[T]):
    """Implementations of one kind by name: registered, built in, or an entry point of an installed package.

    Nothing is imported before its name is looked up. With `create`, built-ins are classes, of which each registry has
    its own instance. Every change is a single dict operation, so threads need no lock.
    """

    def __init__(self, kind: str, built_in: Mapping[str, str] | None = None, *, create: bool = False) -> None:
        self.kind = kind
        self.group: str = f"prompty.{kind}s"
        self.built_in: dict[str, str] = dict(built_in or {})
        self._create = create
        self._loaded: dict[str, T] = {}
        self._registered: set[str] = set()

    def register(self, name: str, implementation: T) -> None:
        """Register `implementation` under `name`, replacing any other of that name."""
        _check_name(self.kind, name)
        self._registered.add(name)
        self._loaded[name] = implementation

    def unregister(self, name: str) -> None:
        """Remove the registration of `name`. A built-in of that name is found again."""
        self._registered.discard(name)
        self._loaded.pop(name, None)

    def is_registered(self, name: str) -> bool:
        """Return True if `name` was registered from code."""
        return name in self._registered

    def get(self, name: str) -> T:
        """Return the implementation called `name`, or raise `UnknownName`."""
        if name.__class__ is not str:
            _check_name(self.kind, name)
        implementation = self._loaded.get(name)
        if implementation is None:
            implementation = self._loaded.setdefault(name, self._load(name))
        return implementation

    def has(self, name: str) -> bool:
        """Return True if `get` would succeed, without importing anything."""
        return name in self._loaded or name in self.built_in or bool(entry_points(group=self.group, name=name))

    def names(self) -> list[str]:
        """Return all names, sorted."""
        installed = {point.name for point in entry_points(group=self.group)}
        return sorted({*self.built_in, *self._loaded, *installed})

    def _load(self, name: str) -> T:
        target = self.built_in.get(name)
        if target is not None:
            module, _, attribute = target.partition(":")
            built_in = getattr(import_module(module), attribute)
            return cast(T, built_in() if self._create else built_in)
        for point in entry_points(group=self.group, name=name):
            loaded = point.load()
            is_class = isinstance(loaded, type) and self.kind != "tool"  # any callable can be a tool
            return cast(T, loaded() if is_class else loaded)
        raise UnknownName(self.kind, name, self.names())


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str):
        raise WrongArgument(f"the name of a {kind.replace('_', ' ')}", name, "text", "Pass a str.")


class Connections:
    """SDK clients that the host has built, for connections of kind `reference`."""

    def __init__(self) -> None:
        self._clients: dict[str, tuple[Any, ...]] = {}

    def register(self, name: str, *clients: Any) -> None:
        """Register clients under `name`, replacing any others of that name."""
        _check_name("connection", name)
        self._clients[name] = clients

    def find_address(self, name: str | None) -> str:
        """Return the base URL of the clients of this name, or an empty text if it is not known."""
        known = (getattr(client, "base_url", None) for client in self._clients.get(name or "", ()))
        return next((str(url) for url in known if url), "")

    def find(self, name: str | None, client_class: type) -> Any:
        """Return the client of this name that is an instance of `client_class`."""
        if name not in self._clients:
            known = ", ".join(self._clients) or "none"
            raise RequestError(
                f"no connection is registered as '{name}' (registered: {known})",
                f"Call prompty.providers.register_connection('{name}', client) before running the prompt.",
            )
        for client in self._clients[name]:
            if isinstance(client, client_class):
                return client
        raise RequestError(
            f"the connection '{name}' has no client that this call can use: it needs one of {client_class.__name__}",
            f"Register one more: prompty.providers.register_connection('{name}', client, {client_class.__name__}(…)).",
        )


class Registry:
    """One configuration: all that is registered by name, and the endpoints that the host trusts with credentials.

    `dotenv` are variables of a `.env` file, for the prompts that name them.
    """

    def __init__(self, *, trusted_endpoints: Iterable[str] = ()) -> None:
        if isinstance(trusted_endpoints, str) or not isinstance(trusted_endpoints, Iterable):
            raise WrongArgument("trusted_endpoints", trusted_endpoints, "a list of URLs", "Write ['https://host'].")
        self.trusted_endpoints: tuple[str, ...] = tuple(trusted_endpoints)
        self.dotenv: Mapping[str, str] = {}
        self.providers: Implementations[Provider] = Implementations("provider", _PROVIDERS)
        self.executors: Implementations[ExecutorProtocol] = Implementations("executor")
        self.processors: Implementations[ProcessorProtocol] = Implementations("processor")
        self.renderers: Implementations[Renderer] = Implementations("renderer", _RENDERERS)
        self.parsers: Implementations[Parser] = Implementations("parser", _PARSERS)
        self.tool_kinds: Implementations[ToolKind] = Implementations("tool_kind", _TOOL_KINDS, create=True)
        self.tools: Implementations[Callable[..., object]] = Implementations("tool")
        self.connections: Connections = Connections()

    def __deepcopy__(self, _memo: object) -> "Registry":
        return self  # a copy of an agent uses the same configuration

    def __reduce__(self) -> str:
        if self is not DEFAULT:
            raise TypeError("An agent with a registry of its own cannot be pickled. Load it in the other process.")
        return "DEFAULT"


DEFAULT = Registry()
