"""Implementations that files refer to by name: providers, template formats, tools, connections.

A `Registry` is one configuration. `load(path, registry=…)` ties an agent to it, and every later lookup goes through
`agent.registry`, so that several configurations can live in one process. Without that argument, and for the
`register_…` functions, it is `DEFAULT`. A registry also owns the prompts that were loaded for it, and its `clients`:
what its calls keep open.
"""

import sys
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, cast

from prompty.clients import Clients
from prompty.errors import RequestError, UnknownName, WrongArgument

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

# Strings, because built-ins are imported at first use. The layer contract does not see these edges. They point down
# from the layers that look names up, but for three, which must work without an import in the program: the turns of
# child prompts (`prompty.drivers`), skills (`prompty.pipeline`, which reads files) and the scripted provider
# (`prompty.testing`).
BUILT_IN: dict[str, dict[str, str]] = {
    "provider": {
        "openai": "prompty.providers.openai:PROVIDER",
        "azure": "prompty.providers.foundry:AZURE",
        "foundry": "prompty.providers.foundry:PROVIDER",
        "anthropic": "prompty.providers.anthropic:PROVIDER",
        "scripted": "prompty.testing.provider:PROVIDER",
    },
    "renderer": {
        "jinja2": "prompty.renderers.jinja2:jinja2_renderer",
        "mustache": "prompty.renderers.mustache:mustache_renderer",
    },
    "parser": {"prompty": "prompty.parsers:parse_roles"},
    "tool_kind": {
        "prompty": "prompty.drivers.children:ChildKind",
        "mcp": "prompty.tools.mcp:McpKind",
        "openapi": "prompty.tools.openapi:OpenApiKind",
        "skills": "prompty.pipeline.skills:SkillsKind",
    },
}
AGENT_PICKLER = "prompty.pipeline.stored:reduce_agent"  # it reads the references of a file again


class ExtensionPoint(NamedTuple, Generic[T]):
    """A kind of implementation, and the key of its table in a registry. It is declared beside the type `T`, so that
    the registry knows none of the layers above it: `PROVIDERS: Kind[Provider] = Kind("provider")`.
    """

    name: str


class Implementations(Generic[T]):
    """Implementations of one kind by name: registered, built in, or an entry point of an installed package.

    Nothing is imported before its name is looked up. Of a class, each registry has its own instance. Every change is a
    single dict operation, so threads need no lock.
    """

    def __init__(self, kind: str, built_in: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.group: str = f"prompty.{kind}s"
        self.built_in: dict[str, str] = dict(built_in or {})
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
        return name in self._loaded or name in self.built_in or name in _find_installed(self.group, tuple(sys.path))

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted({*self.built_in, *self._loaded, *_find_installed(self.group, tuple(sys.path))})

    def _load(self, name: str) -> T:
        if target := self.built_in.get(name):
            loaded = import_object(target)
        elif point := _find_installed(self.group, tuple(sys.path)).get(name):
            loaded = point.load()
        else:
            raise UnknownName(self.kind, name, self.names())
        is_class = isinstance(loaded, type) and self.kind != "tool"  # any callable can be a tool
        return cast(T, loaded() if is_class else loaded)


@lru_cache(maxsize=32)
def _find_installed(group: str, _: tuple[str, ...]) -> dict[str, "EntryPoint"]:
    """Return the entry points of a group by name, for a search path. Reading the metadata of all packages is slow."""
    from importlib.metadata import entry_points  # it imports the email package

    return {point.name: point for point in reversed([*entry_points(group=group)])}


def import_object(reference: str) -> Any:
    """Import `module:name`."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str):
        raise WrongArgument(f"the name of a {kind.replace('_', ' ')}", name, "text", "Pass a str.")


class Connections:
    """Clients that the host has built: those of SDKs, for connections of kind `reference`, and HTTP clients for all
    requests of a provider or to a kind of tools."""

    def __init__(self) -> None:
        self._clients: dict[str, tuple[Any, ...]] = {}
        self._http: dict[tuple[str, bool], Any] = {}

    def register(self, name: str, *clients: Any) -> None:
        """Register clients under `name`, replacing any others of that name."""
        _check_name("connection", name)
        self._clients[name] = clients

    def use(self, name: str, client: object) -> None:
        """Send the requests of a provider, or to a kind of tools, over an HTTP client of the host."""
        _check_name("provider", name)
        self._http[name, hasattr(client, "aclose")] = client

    def find_client(self, name: str, *, is_async: bool) -> Any:
        """Return the HTTP client for a provider or a kind of tools, or None. Raise RequestError if it is only for the
        other kind of code: a request must not go around the program's proxy."""
        client = self._http.get((name, is_async))
        if client is None and (name, not is_async) in self._http:
            kind = "httpx2.AsyncClient" if is_async else "httpx2.Client"
            cause = f"the client for '{name}' cannot be used in {'async' if is_async else 'sync'} code"
            raise RequestError(cause, f"Pass an {kind} as well: use_client(client, for_='{name}').")
        return client

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


class PromptCache:
    """Loaded prompts. When they have more than `limit` bytes in all, the least recently used leave."""

    def __init__(self, limit: int = 64_000_000) -> None:
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Any:
        """Return a prompt and mark it as used, or return None."""
        with self._lock:
            if (entry := self._entries.get(key)) is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def add(self, key: Hashable, prompt: Any, size: int) -> None:
        """Keep a prompt of `size` bytes, which are mostly those of its files."""
        with self._lock:
            self._bytes += size - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = prompt, size
            while self._bytes > self._limit:
                self._bytes -= self._entries.popitem(last=False)[1][1]


class Registry:
    """One configuration: all that is registered by name, and the endpoints that the host trusts with credentials.

    As a context manager, it closes its clients at the end.

    `dotenv` are variables of a `.env` file, for the prompts that name them. `prompts` are the files that `load` has
    read, and `warned` the options of prompts and models that a warning has named.
    """

    def __init__(self, *, trusted_endpoints: Iterable[str] = ()) -> None:
        if isinstance(trusted_endpoints, str) or not isinstance(trusted_endpoints, Iterable):
            raise WrongArgument("trusted_endpoints", trusted_endpoints, "a list of URLs", "Write ['https://host'].")
        self.trusted_endpoints: tuple[str, ...] = tuple(trusted_endpoints)
        self.dotenv: Mapping[str, str] = {}
        self.connections: Connections = Connections()
        self.prompts: PromptCache = PromptCache()
        self.clients: Clients = Clients()
        self.warned: set[tuple[str, str, str]] = set()
        self._tables: dict[str, Implementations[Any]] = {}

    def __getitem__(self, kind: ExtensionPoint[T]) -> Implementations[T]:
        """Return the implementations of one kind: `registry[PROVIDERS].get("openai")`."""
        if (table := self._tables.get(kind.name)) is None:
            table = self._tables.setdefault(kind.name, Implementations(kind.name, BUILT_IN.get(kind.name)))
        return table

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clients.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.clients.aclose()

    def __deepcopy__(self, _memo: object) -> "Registry":
        return self  # a copy of an agent uses the same configuration

    def __reduce__(self) -> str:
        if self is not DEFAULT:
            raise TypeError("An agent with its own registry cannot be pickled. Load it in the other process.")
        return "DEFAULT"


DEFAULT = Registry()


def close() -> None:
    """Close what calls keep open: connections to models, sessions with MCP servers and their processes, and threads.

    Calls to models that are under way end first; those to MCP servers become errors. The next call opens what it needs
    again. An event loop that runs in another thread closes its own connections. One that does not run keeps them until
    it ends, so call `aclose` in it.
    """
    from prompty.concurrency import PORTAL  # with asyncio, which `import prompty` leaves out

    DEFAULT.clients.close()
    PORTAL.close(idle_only=True)


async def aclose() -> None:
    """Like `close`, from async code. It also closes the connections of the running event loop."""
    from asyncio import to_thread  # as above

    from prompty.concurrency import PORTAL  # as above

    await DEFAULT.clients.aclose()
    await to_thread(PORTAL.close, idle_only=True)
