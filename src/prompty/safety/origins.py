"""Decide where a credential may go.

A prompt file may come from anyone, so it cannot decide alone where a credential from the environment is sent. The
decision depends on the credential's source, the destination's origin, and the source of that origin. It does no I/O.
"""

import re
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

TRUST_VARIABLE = "PROMPTY_TRUSTED_ENDPOINTS"
# Azure's hosts, where anyone can have a resource.
RESOURCE_HOSTS = ("*.openai.azure.com", "*.services.ai.azure.com", "*.cognitiveservices.azure.com")
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|[0-9a-f:.]+")
# A user, and a host, or an address in brackets with nothing around it but a port: of `[::1].example`, one parser reads
# the first half and another one all.
_NETLOC = re.compile(r"(?:[^\[\]@]*@)?(?:\[[^\[\]]*\](?::\d*)?|[^\[\]]*)")
_SEPARATORS = re.compile(r"[\s,]+")
_SUSPECT = re.compile(r"[#?%]|/\.")  # in an endpoint
_TRANSLATED = ip_network("64:ff9b::/96")  # IPv6 addresses that embed IPv4 ones (RFC 6052)
# Not public, although some versions of Python call them global: IPv4-compatible addresses, local
# translation, documentation, segment routing and site-local addresses.
_SPECIAL = [ip_network(text) for text in ("::/96", "64:ff9b:1::/48", "3fff::/20", "5f00::/16", "fec0::/10")]


class TextOrigin(IntEnum):
    """The source of a text. The greater of two sources is the more restricted as a credential."""

    FILE = 0
    DOTENV = 1
    ENVIRONMENT = 2
    MACHINE = 3  # tokens that the process gets from its machine, such as Entra's


class Origin(NamedTuple):
    """Scheme, host and port of an absolute HTTP URL."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.host)

    @property
    def is_address(self) -> bool:
        """True if the host is an address in place of a name."""
        return ":" in self.host or self.host.replace(".", "").isdigit()


@lru_cache(maxsize=1024)  # each call to a model asks
def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


@lru_cache(maxsize=1024)
def parse_origin(url: str) -> Origin | None:
    """Return the origin of a URL, or None if two parsers might read it differently."""
    if not url.isascii() or not url.isprintable() or set(url) & set(' \\"<>'):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").removesuffix(".")
    except ValueError:
        return None
    if parts.scheme not in _PORTS or parts.netloc.count("@") > 1 or not _HOST.fullmatch(host):
        return None
    if not _NETLOC.fullmatch(parts.netloc):
        return None
    return Origin(parts.scheme, host, port or _PORTS[parts.scheme])


def find_endpoint_fault(endpoint: str) -> str | None:
    """Return what an endpoint has beyond an origin and a path, or None.

    With a fragment, a query or `..`, it would choose the whole URL of a request: the path of the API is appended to it.
    """
    if not _SUSPECT.search(endpoint):  # each call to a model asks
        return None
    parts = urlsplit(endpoint)
    if "#" in endpoint:
        return "a fragment"
    if any(unquote(part).partition(";")[0] in (".", "..") for part in parts.path.split("/")):
        return "`.` or `..` in its path"
    if "?" in endpoint and {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)} != {"api-version"}:
        return "a query other than `api-version`"
    return None


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


def find_private(addresses: Iterable[str]) -> str | None:
    """Return the first address that is not public, or None."""
    return next((text for text in addresses if not is_public(ip_address(text.partition("%")[0]))), None)


def parse_trusted(endpoints: str | tuple[str, ...]) -> frozenset[Origin]:
    """Parse the origins in a list of endpoints, or in a text separated by commas or spaces. An entry without a scheme
    means https. Raise ValueError for an invalid entry."""
    entries = _SEPARATORS.split(endpoints) if isinstance(endpoints, str) else endpoints
    return frozenset(_parse_entry(entry) for entry in entries if entry)


def _parse_entry(entry: str) -> Origin:
    origin = parse_origin(entry if "://" in entry else f"https://{entry}")
    if origin is None:
        raise ValueError(f"{entry!r} is not an endpoint")
    return origin


def is_built_in(origin: Origin, hosts: Iterable[str]) -> bool:
    """Return True if `origin` is https on the default port of one of the hosts."""
    if (origin.scheme, origin.port) != ("https", _PORTS["https"]):
        return False
    return any(origin.host.endswith(host[1:]) if host.startswith("*.") else origin.host == host for host in hosts)
