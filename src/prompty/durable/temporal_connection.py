"""Connects to a Temporal server: the address from a URL, credentials from the environment.

The variables and the file are those of Temporal's own tools: TEMPORAL_API_KEY, TEMPORAL_TLS and the like. A URL has no
credentials. Used by `durable.temporal_engine`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from logging import getLogger
from typing import Any
from urllib.parse import urlsplit

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadConverter
from temporalio.envconfig import ClientConfigProfile
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from prompty.durable.temporal_history import decode, encode
from prompty.errors import RequestError
from prompty.safety.origins import Origin
from prompty.safety.redaction import mask_secrets

PORT = 7233
NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Address:
    """A namespace on a server."""

    host: str
    port: int
    namespace: str

    @property
    def target(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return Origin("http", self.host, self.port).is_loopback


def parse_address(url: str) -> Address:
    """Parse `temporal://host:port/namespace`. The port and the namespace may be left out."""
    fix = "Use temporal://host:7233/namespace."
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise RequestError(f"unreadable address {mask_secrets(url)!r}", fix) from None
    namespace = parts.path.removeprefix("/")
    if parts.username is not None:
        raise RequestError("the address of Temporal has credentials in it", "Set TEMPORAL_API_KEY instead.")
    if not host or "/" in namespace or parts.query or parts.fragment:
        raise RequestError(f"unreadable address {url!r}", fix)
    return Address(host, port or PORT, namespace or NAMESPACE)


async def connect(address: Address, identity: str) -> Client:
    """Connect with the TLS settings and the API key of the environment."""
    profile = replace(ClientConfigProfile.load(), address=address.target, namespace=address.namespace)
    config = profile.to_client_connect_config()
    if "tls" not in config and not address.is_loopback:
        raise RequestError(
            f"the connection to Temporal at {address.target} would not be encrypted",
            "Set TEMPORAL_TLS=true, or TEMPORAL_TLS=false if you trust the network.",
        )
    converter = replace(DataConverter.default, payload_converter_class=JsonConverter)
    try:
        return await Client.connect(**config, identity=identity, data_converter=converter, runtime=_get_runtime())
    except RuntimeError as error:  # what the library raises for every failure
        raise RequestError(
            f"Temporal at {address.target} does not answer: {error}",
            "Start it, or correct the address. TEMPORAL_TLS and TEMPORAL_API_KEY must suit it.",
        ) from None


@cache
def _get_runtime() -> Runtime:
    """Return the threads of the library, with logs that go where those of Python go. By default it prints them."""
    logs = LoggingConfig(
        filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
        forwarding=LogForwardingConfig(logger=getLogger("temporalio")),
    )
    return Runtime(telemetry=TelemetryConfig(logging=logs))


class JsonConverter(PayloadConverter):
    """Values of the history as plain JSON. Temporal's own converter sorts keys, and reads more than JSON."""

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        return [encode(value) for value in values]

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        return [decode(payload) for payload in payloads]
