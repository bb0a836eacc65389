"""From a prompt's connection to the place it names: a base URL and a key (F11)."""

import os
from collections.abc import Collection
from typing import NamedTuple

from pydantic import SecretStr

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection
from prompty.providers.aws import AwsSignature, find_signature
from prompty.providers.destination import check_environment_url, takes_environment
from prompty.providers.http.endpoint import check_header
from prompty.providers.profiles import find_key_variables


class EnvironmentNames(NamedTuple):
    """The environment variables of a provider, the same that its SDK reads, and its own URL.

    `headers` maps variables to the headers that carry their values; `custom` holds lines of `Name: value`.
    """

    key: str
    base_url: str
    default_url: str
    headers: tuple[tuple[str, str], ...] = ()
    custom: str = ""


class Place(NamedTuple):
    """Where requests go, with which key, and with which headers of the environment. Without a key: with a signature of
    AWS, or as nobody."""

    base_url: str
    api_key: str | None
    headers: tuple[tuple[str, str], ...] = ()
    signature: AwsSignature | None = None

    @property
    def is_anonymous(self) -> bool:
        return self.api_key is None and self.signature is None


def find_place(agent: PromptAgent, names: EnvironmentNames, hosts: tuple[str, ...]) -> Place:
    """Return where a prompt's connection leads; without one, where the environment says."""
    match agent.model.connection:
        case None:
            key = os.environ.get(names.key) or agent.registry.dotenv.get(names.key)
            return Place(_get_base_url(agent, names), key and check_header(names.key, key), _read_headers(names))
        case ApiKeyConnection(endpoint=str(known), api_key=None) if variables := find_key_variables(known):
            key = _find_own_key(agent, variables)
            signature = None if key else find_signature(known)
            if key is None and signature is None:
                raise RequestError("the connection has no `apiKey`", f"Set {' or '.join(sorted(variables))}.")
            return Place(known, key, signature=signature)
        case ApiKeyConnection(endpoint=endpoint, api_key=key):
            secret = required_key(key, names.key)
            if not endpoint:
                return Place(_get_base_url(agent, names), secret, _read_headers(names))
            ambient = takes_environment(agent, endpoint, hosts)
            return Place(endpoint, secret, _read_headers(names) if ambient else ())
        case AnonymousConnection(endpoint=endpoint):
            return Place(required_endpoint(endpoint), None)
        case other:
            raise wrong_kind(other.kind, agent.model.provider, "key, anonymous or reference")


def _get_base_url(agent: PromptAgent, names: EnvironmentNames) -> str:
    named = os.environ.get(names.base_url)
    check_environment_url(agent, named)
    return named or names.default_url


def _read_headers(names: EnvironmentNames) -> tuple[tuple[str, str], ...]:
    """Return the headers that the environment asks for."""
    found = [(header, value) for variable, header in names.headers if (value := os.environ.get(variable))]
    for line in os.environ.get(names.custom, "").splitlines() if names.custom else ():
        name, colon, value = line.partition(":")
        if colon and name.strip():
            found.append((name.strip().lower(), value.strip()))
    return tuple([(name, check_header(name, value)) for name, value in found])


def _find_own_key(agent: PromptAgent, variables: Collection[str]) -> str | None:
    """Return the key of a known server, which its own variable holds."""
    for name in sorted(variables):
        if key := os.environ.get(name) or agent.registry.dotenv.get(name):
            return check_header(name, key)
    return None


def required_key(key: SecretStr | None, variable: str) -> str:
    """Return the key of a connection, which must have one (F11)."""
    secret = key.get_secret_value() if key else ""
    if not secret:
        raise RequestError("the connection has no `apiKey`", f"Write apiKey: ${{env:{variable}}}, and set {variable}.")
    return check_header("the `apiKey` of the connection", secret)


def required_endpoint(endpoint: str | None) -> str:
    """Return the endpoint of a connection, which must have one (F11)."""
    if not endpoint:
        raise RequestError("the connection has no `endpoint`", "Write endpoint: https://….")
    return endpoint


def wrong_kind(kind: str, provider: str, offered: str) -> RequestError:
    return RequestError(
        f"the provider '{provider}' cannot use a connection of kind '{kind}'", f"Write `kind:` one of {offered}."
    )
