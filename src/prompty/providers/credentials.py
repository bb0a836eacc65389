"""Credentials: find the key for a prompt's connection, and refuse to send it to a server to which it does not belong.

A key comes from the file, the environment, a `.env` file or the key store. `model.trust` has the rule, which is asked
for every call, before a client exists.
"""

import os
from collections.abc import Mapping
from types import ModuleType
from typing import NamedTuple, Protocol

from pydantic import SecretStr

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection, FoundryConnection, ReferenceConnection
from prompty.model.trust import (
    FieldKind,
    Refusal,
    Target,
    Use,
    explain_missing,
    refuse_address,
    refuse_choices,
    refuse_connection,
    refuse_credential,
    refuse_text,
)
from prompty.providers.aws import AwsSignature, find_signature
from prompty.providers.profiles import find_key_variables, find_own_prefixes
from prompty.safety.origins import TRUST_VARIABLE, TextOrigin, parse_origin


class Credential(Protocol):
    """Computes headers for a request: a token that expires, or a signature."""

    def is_ready(self) -> bool:
        """Return True if `headers` returns at once. Otherwise async code runs it in a thread."""

    def headers(self, method: str, url: str, headers: Mapping[str, str], body: bytes, /) -> Mapping[str, str]:
        """Return the headers that authenticate this request."""


class Variables(NamedTuple):
    """A provider's environment variables, which are those of its SDK, and its own URL.

    `headers` maps variables to the headers that carry their values. `custom` holds lines of `Name: value`. `token` may
    hold a credential in place of a key.
    """

    key: str
    base_url: str
    default_url: str
    headers: tuple[tuple[str, str], ...] = ()
    custom: str = ""
    token: str = ""


class Access(NamedTuple):
    """A base URL, the credential for it, and headers from the environment. If `api_key` is None, requests carry an AWS
    signature or no credential."""

    base_url: str
    api_key: str | None
    headers: tuple[tuple[str, str], ...] = ()
    signature: AwsSignature | None = None

    @property
    def is_anonymous(self) -> bool:
        return self.api_key is None and self.signature is None


# Find a key.


def find_access(agent: PromptAgent, variables: Variables, hosts: tuple[str, ...]) -> Access:
    """Return the URL and credential of a prompt's connection, or those in the environment if it has none.

    `variables` and `hosts` are the provider's.
    """
    match agent.model.connection:
        case None:
            url = _get_base_url(agent, variables)
            key = os.environ.get(variables.key) or agent.registry.dotenv.get(variables.key)
            if not key and not os.environ.get(variables.token):
                key = load_key_store().find_stored_key(_get_variable(variables.key, url), agent.registry.clients)
            return Access(url, key and check_header(variables.key, key), _read_headers(variables))
        case ApiKeyConnection(endpoint=endpoint, api_key=written):
            url = endpoint or _get_base_url(agent, variables)
            if written is None and (signature := _find_signature(agent, endpoint, variables.key, hosts)):
                return Access(url, None, signature=signature)
            secret = get_required_key(agent, written, variables.key, url, hosts)
            if not endpoint:
                return Access(url, secret, _read_headers(variables))
            headers = _read_headers(variables)
            if headers and not _may_add_headers(agent, variables.key, written, hosts):
                headers = ()
            return Access(endpoint, secret, headers)
        case AnonymousConnection(endpoint=endpoint):
            return Access(get_required_endpoint(endpoint), None)
        case other:
            raise unusable_connection(other.kind, agent.model.provider, ("key", "anonymous", "reference"))


def find_url(agent: PromptAgent, variables: Variables) -> str:
    """Return the base URL of an agent's requests, or an empty text for the provider's own."""
    connection = agent.model.connection
    if isinstance(connection, ReferenceConnection):
        return agent.registry.connections.find_address(connection.name)
    return getattr(connection, "endpoint", None) or os.environ.get(variables.base_url) or ""


def _may_add_headers(agent: PromptAgent, variable: str, written: SecretStr | None, hosts: tuple[str, ...]) -> bool:
    """Return True if headers from the environment may go to the endpoint in the file, as the provider's key may."""
    target = find_target(agent, hosts)
    if written is None and _get_variable(variable, target.endpoint) != variable:
        return False
    return refuse_credential(variable, TextOrigin.ENVIRONMENT, target, is_named=False) is None


def _get_base_url(agent: PromptAgent, variables: Variables) -> str:
    named = os.environ.get(variables.base_url)
    if named:
        check_environment_url(agent, variables.base_url, named)
    return named or variables.default_url


def _read_headers(variables: Variables) -> tuple[tuple[str, str], ...]:
    """Return the headers that environment variables ask for."""
    found = [(header, value) for variable, header in variables.headers if (value := os.environ.get(variable))]
    for line in os.environ.get(variables.custom, "").splitlines() if variables.custom else ():
        name, colon, value = line.partition(":")
        if colon and name.strip():
            found.append((name.strip().lower(), value.strip()))
    return tuple([(name, check_header(name, value)) for name, value in found])


def get_required_key(agent: PromptAgent, key: SecretStr | None, variable: str, url: str, hosts: tuple[str, ...]) -> str:
    """Return the key of a connection. Without an `apiKey`, it is the key for the server at `url`.

    `variable` and `hosts` are the provider's. Raise RequestError if there is none: no request leaves without its key.
    """
    if key is not None and (secret := key.get_secret_value()).strip():
        return check_header("the `apiKey` of the connection", secret)
    own = _get_variable(variable, url)
    if key is None and (found := _find_key(agent, own, url, hosts)):
        return check_header(f"the key for {own}", found)
    stored = load_key_store().get_stored_name(own)
    fix = f"Set {own}, run `prompty keys set {stored}`, or write an `apiKey:` in the connection."
    cause = "the connection has no `apiKey`" if key is None else "the `apiKey` of the connection is blank"
    raise RequestError(cause, fix)


def _get_variable(variable: str, url: str) -> str:
    """Return the variable that holds the key for the server at a URL: its own, or the provider's."""
    known = find_key_variables(url)
    return variable if not known or variable in known else min(known)


def _find_key(agent: PromptAgent, variable: str, url: str, hosts: tuple[str, ...]) -> str | None:
    """Return the key from the environment, a `.env` file or the store. Raise RequestError if it does not belong to
    the endpoint in the file."""
    key, source = os.environ.get(variable), TextOrigin.ENVIRONMENT
    if not key and (key := agent.registry.dotenv.get(variable)):
        source = TextOrigin.DOTENV
    if not key and (key := load_key_store().find_stored_key(variable, agent.registry.clients)):
        source = TextOrigin.MACHINE
    is_unasked = url == getattr(agent.model.connection, "endpoint", None) and variable not in find_key_variables(url)
    if key and is_unasked and (refusal := find_implicit_refusal(agent, variable, source, hosts)):
        _refuse(agent, refusal)
    return key


def _find_signature(
    agent: PromptAgent, endpoint: str | None, variable: str, hosts: tuple[str, ...]
) -> AwsSignature | None:
    """Return the signature for an AWS server for which there is no key."""
    signature = find_signature(endpoint, agent.registry.clients) if endpoint and find_key_variables(endpoint) else None
    if signature is None or _find_key(agent, _get_variable(variable, str(endpoint)), str(endpoint), hosts):
        return None
    return signature


def load_key_store() -> ModuleType:
    from prompty.providers import keys  # only if a key is in neither the file nor the environment

    return keys


def get_required_endpoint(endpoint: str | None) -> str:
    """Return the endpoint of a connection. Raise RequestError if it has none."""
    if not endpoint:
        raise RequestError("the connection has no `endpoint`", "Write endpoint: https://….")
    return endpoint


def check_header(name: str, value: str) -> str:
    """Return a value that a header can carry. Raise RequestError for any other."""
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    fix = "Remove its line break, the spaces around it, or whatever in it is not ASCII."
    raise RequestError(f"{name} cannot be sent in a header", fix)


def unusable_connection(kind: str, provider: str, kinds: tuple[str, ...]) -> RequestError:
    *others, last = kinds
    return RequestError(
        f"the provider '{provider}' cannot use a connection of kind '{kind}'",
        f"Write `kind:` one of {', '.join(others)} or {last}.",
        keys=("model", "connection", "kind"),
    )


# Refuse a call from a test, a call without its variables, and values where they may not go.

OFFLINE_VARIABLE = "PROMPTY_OFFLINE"


def check_online(agent: PromptAgent) -> None:
    """Raise RequestError if no model may be asked in this process: a test has forgotten its script or recording."""
    if os.environ.get(OFFLINE_VARIABLE, "0") != "0":
        raise RequestError(
            f"the model '{agent.model.id}' would be called, and {OFFLINE_VARIABLE} forbids it",
            "Call it within `Script(…)` or `Player(…)`, or use the fixture `prompty_script` or `prompty_recording`. "
            "`pytest --prompty-live` calls the models.",
            f"Unset {OFFLINE_VARIABLE} to call the model.",
        )


def check_trust(agent: PromptAgent, hosts: tuple[str, ...] | None) -> None:
    """Raise RequestError if a call of the agent's model lacks a variable, or would send one that is not allowed there.

    `hosts` are the provider's own, or None if it sends nothing.
    """
    if not agent.trust.from_file or hosts is None:
        return
    check_missing(agent)
    if refusal := find_refusal(agent, hosts):
        _refuse(agent, refusal)


def check_missing(agent: PromptAgent) -> None:
    """Raise RequestError if a variable of the agent is not set."""
    if agent.trust.missing:
        raise RequestError(*explain_missing(agent.trust.missing))


_ADDRESSED = (ApiKeyConnection, AnonymousConnection, FoundryConnection)


def find_refusal(agent: PromptAgent, hosts: tuple[str, ...]) -> Refusal | None:
    """Return why a call of the agent's model is refused, or None."""
    trust, connection = agent.trust, agent.model.connection
    if refusal := refuse_text(trust):
        return refusal
    if not isinstance(connection, _ADDRESSED):
        return None  # the program registered it, or the environment names it
    written = getattr(connection, "api_key", None) is not None and not trust.find("model", "connection", "api_key")
    is_own = isinstance(connection, ApiKeyConnection) and connection.api_key is None
    if not connection.endpoint:
        return refuse_choices(trust, ("model",)) if written else None
    target = find_target(agent, hosts)
    if refusal := refuse_address(target):
        return refusal._replace(cause=f"`model.connection`: {refusal.cause}")
    if not trust.uses and not isinstance(connection, FoundryConnection):
        return None  # no variable is sent
    if isinstance(connection, FoundryConnection):
        is_own = True
        if refusal := refuse_credential(None, TextOrigin.MACHINE, target):
            return refusal._replace(cause=f"`model.connection`: {refusal.cause}")
    return refuse_connection(trust, ("model",), target, is_own=False if written else is_own or None)


def find_target(agent: PromptAgent, hosts: tuple[str, ...]) -> Target:
    """Return the server of an agent's connection, and who names it."""
    endpoint = str(getattr(agent.model.connection, "endpoint", None) or "")
    address = next((use for use in agent.trust.find("model", "connection", "endpoint") if use.is_address), None)
    trusted, registered = agent.trust.trusted, agent.registry.trusted_endpoints
    return Target(endpoint, address, hosts, find_own_prefixes(endpoint), trusted, registered)


def needs_public_address(agent: PromptAgent, hosts: tuple[str, ...]) -> bool:
    """Return True if requests of the agent may go to public addresses only: its file alone names the server."""
    endpoint = getattr(agent.model.connection, "endpoint", None)
    if not endpoint or not agent.trust.from_file:
        return False
    origin = parse_origin(endpoint)
    return bool(origin and not origin.is_loopback) and find_target(agent, hosts).needs_public


def check_environment_url(agent: PromptAgent, variable: str, url: str) -> None:
    """Raise RequestError if the environment names a base URL without https that the host does not list, or if the keys
    of the connection do not belong to it."""
    if not agent.trust.from_file:
        return
    address = Use(variable, TextOrigin.ENVIRONMENT, (), "", FieldKind.FREE, is_address=True)
    target = Target(url, address, trusted=agent.trust.trusted, registered=agent.registry.trusted_endpoints)
    refusal = refuse_address(target) or refuse_connection(agent.trust, ("model",), target, is_own=None)
    if refusal:
        raise RequestError(refusal.cause, refusal.fix, refusal.command_fix)


def find_implicit_refusal(
    agent: PromptAgent, variable: str, source: TextOrigin, hosts: tuple[str, ...]
) -> Refusal | None:
    """Return why a key that the file does not name may not go to the endpoint that it names, or None."""
    target = find_target(agent, hosts)
    if not agent.trust.from_file or not (refusal := refuse_credential(variable, source, target, is_named=False)):
        return None
    origin = parse_origin(target.endpoint)
    if origin is None or (origin.scheme == "http" and not origin.is_loopback):
        return refusal
    cause = f"`model.connection`: the connection has no `apiKey`, and {refusal.cause}"
    fix = f"Write `kind: anonymous` if it needs no key, or an `apiKey:`, or set {TRUST_VARIABLE}={origin}."
    return Refusal(cause, fix)


def _refuse(agent: PromptAgent, refusal: Refusal) -> None:
    file = f"{agent.path.name}: " if agent.path and not any(use.place for use in refusal.uses) else ""
    raise RequestError(f"{file}{refusal.cause}", refusal.fix, refusal.command_fix)
