"""Where requests may go: to public addresses over https, and to destinations that the host allows."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from prompty.errors import ToolError
from prompty.safety.origins import Origin

_PORTS = {"http": 80, "https": 443}
_TRANSLATED = ip_network("64:ff9b::/96")  # IPv6 addresses that embed IPv4 ones (RFC 6052)
# Not public, although some versions of Python call them global: IPv4-compatible addresses, local
# translation, documentation, segment routing and site-local addresses.
_SPECIAL = [ip_network(text) for text in ("::/96", "64:ff9b:1::/48", "3fff::/20", "5f00::/16", "fec0::/10")]


class Url(NamedTuple):
    """The parts of an absolute HTTP URL."""

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


def parse_url(url: str) -> Url:
    """Split an absolute URL. Raise `ToolError` if two parsers might read it differently."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _invalid_url(url) from None
    host = (parts.hostname or "").rstrip(".")  # in lower case
    if parts.scheme not in _PORTS or not host or not url.isascii() or not url.isprintable() or set(url) & set(' \\"<>'):
        raise _invalid_url(url)
    if "@" in parts.netloc:
        raise ToolError("a URL contains a user name or a password", "Move credentials to the connection's `apiKey`.")
    return Url(parts.scheme, host, port or _PORTS[parts.scheme], parts.path, parts.query)


def resolve_url(base: str, url: str) -> str:
    """Resolve a URL against a base. Raise `ToolError` if the result is not a URL."""
    try:
        return urljoin(base, url)
    except ValueError:
        raise _invalid_url(url) from None


def _invalid_url(url: str) -> ToolError:
    return ToolError(f"{url[:200]!r} is not an absolute http(s) URL", "Write it as https://host/path, in ASCII.")


class Permissions:
    """The hosts and servers that the program allows."""

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        self._servers: set[str] = set()

    def allow(self, *, hosts: Iterable[str] = (), servers: Iterable[str] = ()) -> None:
        """Allow hosts (`name`, `name:port`, an address or a network) over http and at private addresses, and servers
        (`https://host`) that documents from another origin name."""
        for host in hosts:
            try:
                self._networks.append(ip_network(host, strict=False))
            except ValueError:
                self._hosts.add(host.lower())
        self._servers |= {parse_url(server).origin for server in servers}

    def allows_server(self, origin: str) -> bool:
        return origin in self._servers

    def find_trusted(self, url: Url) -> frozenset[Origin]:
        """Return the URL's origin if its host is allowed by name: it may receive credentials, even over http."""
        is_allowed = bool({url.host, f"{url.host}:{url.port}", url.authority} & self._hosts) or self.allows_server(
            url.origin
        )
        return frozenset([Origin(url.scheme, url.host, url.port)] if is_allowed else [])

    def check(self, url: Url, addresses: Iterable[str]) -> None:
        """Raise `ToolError` unless every address of the URL's host is public, or the host is allowed."""
        if {url.host, f"{url.host}:{url.port}", url.authority} & self._hosts:
            return
        fix = f"If this is intended, allow it in code: prompty.tools.openapi.allow(hosts=['{url.authority}'])."
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            if any(address in network for network in self._networks):
                continue
            if not is_public(address):
                raise ToolError(f"{url.authority} has the address {address}, which is not public", fix)
            if url.scheme != "https":
                raise ToolError(f"{url.origin} is not https", fix)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return True for a public address. An embedded IPv4 address decides."""
    if isinstance(address, IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _TRANSLATED:
            embedded = IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            return is_public(embedded)
        if any(address in network for network in _SPECIAL):
            return False
    return address.is_global and not address.is_multicast
