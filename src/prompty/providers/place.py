"""From a prompt's connection to the place it names: a base URL and a key (F11)."""

import os
from importlib import import_module
from typing import NamedTuple

from pydantic import SecretStr

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection
from prompty.providers.aws import AwsSignature, find_signature
from prompty.providers.destination import (
    check_environment_url,
    check_implicit_key,
    check_resolved,
    takes_environment,
)
from prompty.providers.http.endpoint import check_header
from prompty.providers.profiles import find_key_variables
from prompty.safety.origins import TextOrigin

_STORE = "prompty.providers.keys"  # imported when a key is in neither the file nor the environment


class EnvironmentNames(NamedTuple):
    """The environment variables of a provider, the same that its SDK reads, and its own URL.

    `headers` maps variables to the headers that carry their values; `custom` holds lines of `Name: value`. `token` may
    hold a credential in place of a key.
    """

    key: str
    base_url: str
    default_url: str
    headers: tuple[tuple[str, str], ...] = ()
    custom: str = ""
    token: str = ""


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
            url = _get_base_url(agent, names)
            key = os.environ.get(names.key) or agent.registry.dotenv.get(names.key)
            if not key and not os.environ.get(names.token):
                key = find_stored_key(_get_variable(names.key, url))
            return Place(url, key and check_header(names.key, key), _read_headers(names))
        case ApiKeyConnection(endpoint=endpoint, api_key=written):
            url = endpoint or _get_base_url(agent, names)
            if written is None and (signature := _find_signature(agent, endpoint, names.key, hosts)):
                return Place(url, None, signature=signature)
            secret = required_key(agent, written, names.key, url, hosts)
            if not endpoint:
                return Place(url, secret, _read_headers(names))
            is_own = written is not None or _get_variable(names.key, url) == names.key
            ambient = is_own and takes_environment(agent, endpoint, hosts)
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


def required_key(agent: PromptAgent, key: SecretStr | None, variable: str, url: str, hosts: tuple[str, ...]) -> str:
    """Return the key of a connection, which must have one (F11). Without `apiKey`, it is the key of the server there.

    `variable` and `hosts` are those of the provider.
    """
    if key is not None and (secret := key.get_secret_value()):
        check_resolved(secret, "apiKey")
        return check_header("the `apiKey` of the connection", secret)
    own = _get_variable(variable, url)
    if key is None and (found := _find_key(agent, own, url, hosts)):
        return check_header(f"the key for {own}", found)
    stored = import_module(_STORE).get_stored_name(own)
    fix = f"Set {own}, run `prompty keys set {stored}`, or write an `apiKey:` in the connection."
    raise RequestError("the connection has no `apiKey`", fix)


def _get_variable(variable: str, url: str) -> str:
    """Return the variable for the keys of the server at a URL: its own, or that of the provider."""
    known = find_key_variables(url)
    return variable if not known or variable in known else min(known)


def _find_key(agent: PromptAgent, variable: str, url: str, hosts: tuple[str, ...]) -> str | None:
    """Return the key of a variable, from the environment, a `.env` file or the store. Raise RequestError if it may not
    go to the endpoint of the file."""
    key, source = os.environ.get(variable), TextOrigin.ENVIRONMENT
    if not key and (key := agent.registry.dotenv.get(variable)):
        source = TextOrigin.DOTENV
    key = key or find_stored_key(variable)
    if key and url == getattr(agent.model.connection, "endpoint", None) and variable not in find_key_variables(url):
        check_implicit_key(agent, source, url, hosts)
    return key


def _find_signature(
    agent: PromptAgent, endpoint: str | None, variable: str, hosts: tuple[str, ...]
) -> AwsSignature | None:
    """Return the signature for a server of AWS whose key is not known."""
    signature = find_signature(endpoint) if endpoint and find_key_variables(endpoint) else None
    if signature is None or _find_key(agent, _get_variable(variable, str(endpoint)), str(endpoint), hosts):
        return None
    return signature


def find_stored_key(variable: str) -> str | None:
    """Return the key that `prompty keys` has stored for a variable."""
    found: str | None = import_module(_STORE).find_stored_key(variable)
    return found


def required_endpoint(endpoint: str | None) -> str:
    """Return the endpoint of a connection, which must have one (F11)."""
    if not endpoint:
        raise RequestError("the connection has no `endpoint`", "Write endpoint: https://….")
    check_resolved(endpoint, "endpoint")
    return endpoint


def wrong_kind(kind: str, provider: str, offered: str) -> RequestError:
    return RequestError(
        f"the provider '{provider}' cannot use a connection of kind '{kind}'", f"Write `kind:` one of {offered}."
    )
