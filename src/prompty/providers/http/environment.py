"""What the environment says about the network: proxies, certificates of authorities and of the client."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from prompty.errors import RequestError
from prompty.safety.redaction import remember_secrets


class Proxy(NamedTuple):
    """The URL of a proxy without its credentials, and these."""

    url: str
    credentials: tuple[str, str] | None


def find_proxy(url: str) -> Proxy | None:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY name for a URL, unless NO_PROXY names its host."""
    parts, proxies = urlsplit(url), getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    if not named or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    host = proxy.netloc.rpartition("@")[2]
    credentials = (unquote(proxy.username), unquote(proxy.password or "")) if proxy.username else None
    remember_secrets(credentials or ())
    return Proxy(urlunsplit((proxy.scheme, host, proxy.path, "", "")), credentials)


class TlsFiles(NamedTuple):
    """Files of certificates: authorities to trust in place of the system's, and the client's own with its key."""

    authorities: str | None
    folder: str | None
    client: str | None
    client_key: str | None


def find_tls_files() -> TlsFiles:
    """Return the files that the environment names."""
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR", "PROMPTY_CLIENT_CERT", "PROMPTY_CLIENT_KEY")
    return TlsFiles(*(os.environ.get(name) or None for name in names))


@contextmanager
def reading_certificates() -> Iterator[None]:
    """Raise RequestError if the files of the environment cannot be used."""
    try:
        yield
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise RequestError(
            f"the certificates that the environment names cannot be read: {error}",
            "See SSL_CERT_FILE, SSL_CERT_DIR, PROMPTY_CLIENT_CERT and PROMPTY_CLIENT_KEY.",
        ) from None
