"""Where requests may go: https and public addresses, and what the host of the program has allowed beside them."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

from prompty.errors import ToolError

_PORTS = {"http": 80, "https": 443}
_TRANSLATED = ip_network("64:ff9b::/96")  # IPv6 addresses that stand for IPv4 ones (RFC 6052)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Place(NamedTuple):
    """Where a URL leads."""

    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"


def place_of(url: str) -> Place:
    """An absolute URL in its parts. Whatever two readers of it might understand differently is refused."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _not_a_url(url) from None
    host = (parts.hostname or "").rstrip(".")  # in lower case
    if parts.scheme not in _PORTS or not host or not url.isascii() or not url.isprintable() or set(url) & set(' \\"<>'):
        raise _not_a_url(url)
    if "@" in parts.netloc:
        raise ToolError("a URL holds a name or a password", "Write credentials into the connection's `apiKey`.")
    return Place(parts.scheme, host, port or _PORTS[parts.scheme], parts.path, parts.query)


def _not_a_url(url: str) -> ToolError:
    return ToolError(f"{url[:200]!r} is not an absolute http(s) URL", "Write it as https://host/path, in ASCII.")


class Permissions:
    """What the host of the program allows."""

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._networks: list[Network] = []
        self._servers: set[str] = set()

    def allow(self, *, hosts: Iterable[str] = (), servers: Iterable[str] = ()) -> None:
        """Allow hosts (`name`, `name:port`, an address or a network) to be reached without https and at addresses
        that are not public, and documents to name servers (`https://host`) that are not of their own origin."""
        for host in hosts:
            try:
                self._networks.append(ip_network(host, strict=False))
            except ValueError:
                self._hosts.add(host.lower())
        self._servers |= {place_of(server).origin for server in servers}

    def allows_server(self, origin: str) -> bool:
        return origin in self._servers

    def check(self, place: Place, addresses: Iterable[str]) -> None:
        """Refuse a place that is not public, unless it is allowed. Every address that its name has must pass."""
        if {place.host, f"{place.host}:{place.port}", place.authority} & self._hosts:
            return
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            if any(address in network for network in self._networks):
                continue
            if not is_public(address):
                raise ToolError(f"{place.authority} has the address {address}, which is not public", _fix(place))
            if place.scheme != "https":
                raise ToolError(f"{place.origin} is not https", _fix(place))


def _fix(place: Place) -> str:
    return f"If it is meant, allow it in code: prompty.tools.openapi.allow(hosts=['{place.authority}'])."


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet at large, also when it is written inside another."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _TRANSLATED:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast
