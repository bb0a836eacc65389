"""Signatures of AWS, version 4: requests to Bedrock in the name of the AWS credentials of this machine."""

import re
from collections.abc import Mapping
from threading import Lock
from typing import Any

from prompty.clients import Clients
from prompty.errors import RequestError
from prompty.extras import require
from prompty.safety.origins import parse_origin
from prompty.safety.redaction import hide_secrets

_HOST = re.compile(r"(bedrock-runtime|bedrock-mantle)\.([a-z0-9-]+)\.(?:amazonaws\.com|api\.aws)")
_SERVICES = {"bedrock-runtime": "bedrock", "bedrock-mantle": "bedrock-mantle"}
_NO_CREDENTIALS = "there is no key for Bedrock, and no AWS credentials on this machine"
_HOW_TO_GET_THEM = "Set AWS_BEARER_TOKEN_BEDROCK, or sign in with the AWS command line."


class AwsSignature:
    """Signs requests to one service in one region. `botocore` finds the credentials, and renews those that expire."""

    def __init__(self, service: str, region: str) -> None:
        self._service, self._region = service, region
        self._lock = Lock()
        self._credentials: Any = None

    @property
    def is_busy(self) -> bool:
        """True while the credentials are valid: finding them takes seconds on some machines."""
        return self.is_ready()

    def close(self) -> None:
        """Forget the credentials. A call under way finds them again."""
        with self._lock:
            self._credentials = None

    def is_ready(self) -> bool:
        credentials = self._credentials
        if credentials is None:
            return False
        refresh_needed = getattr(credentials, "refresh_needed", None)
        return refresh_needed is None or not refresh_needed()

    def headers(self, method: str, url: str, headers: Mapping[str, str], body: bytes, /) -> Mapping[str, str]:
        with self._lock:
            if self._credentials is None:
                self._credentials = require("botocore.session", extra="aws").get_session().get_credentials()
            if self._credentials is None:
                raise RequestError(_NO_CREDENTIALS, _HOW_TO_GET_THEM)
            frozen = self._credentials.get_frozen_credentials()
        hide_secrets(value for value in (frozen.secret_key, frozen.token) if value)
        signed = {"content-type": headers["content-type"]}
        request = require("botocore.awsrequest", extra="aws").AWSRequest(method, url, headers=signed, data=body)
        require("botocore.auth", extra="aws").SigV4Auth(frozen, self._service, self._region).add_auth(request)
        return {name.lower(): value for name, value in request.headers.items()}


def find_signature(url: str, clients: Clients) -> AwsSignature | None:
    """Return the signature for a server of AWS, or None for any other server. `clients` have one for each service in
    a region, which keeps its credentials."""
    origin = parse_origin(url)
    match = _HOST.fullmatch(origin.host) if origin else None
    if match is None:
        return None
    service, region = _SERVICES[match[1]], match[2]
    return clients.get((AwsSignature, service, region), lambda _: AwsSignature(service, region))
