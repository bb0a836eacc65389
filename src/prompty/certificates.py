"""Certificates: those that connections trust, and the one that they show."""

import os
from functools import cache
from ssl import SSLContext
from typing import NamedTuple

from prompty.errors import RequestError


class TlsFiles(NamedTuple):
    """Certificate files: authorities to trust in place of the system's, and the client's own certificate and key."""

    authorities: str | None
    folder: str | None
    client: str | None
    client_key: str | None


def find_tls_files() -> TlsFiles:
    """Return the files that the environment names."""
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR", "PROMPTY_CLIENT_CERT", "PROMPTY_CLIENT_KEY")
    return TlsFiles(*(os.environ.get(name) or None for name in names))


@cache
def load_certificates(files: TlsFiles) -> SSLContext:
    """Return the certificates to trust and to show. All clients share them: reading them takes nearly all of the time
    that it takes to build a client."""
    import httpcore2  # slow, and a script needs no HTTP

    try:
        context = httpcore2.default_ssl_context()  # it reads SSL_CERT_FILE and SSL_CERT_DIR
        if files.client:
            context.load_cert_chain(files.client, files.client_key)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise RequestError(
            f"the certificates that the environment names cannot be read: {error}",
            "See SSL_CERT_FILE, SSL_CERT_DIR, PROMPTY_CLIENT_CERT and PROMPTY_CLIENT_KEY.",
        ) from None
    return context
