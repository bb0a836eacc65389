"""Credentials: find the key for a prompt's connection (F11), and refuse to send it where it may not go (F14).

A key comes from the file, the environment, a `.env` file or the key store. An endpoint that only a file names gets no
credential and no other value of the environment or the machine, unless the host allows it. This is checked for every
call, before a client exists.
"""

import os
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import NamedTuple, Protocol

from pydantic import SecretStr

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection, FoundryConnection
from prompty.model.provenance import Exposure, Refusal, read_trusted
from prompty.model.unset import MODEL, explain_unset, list_unset
from prompty.providers.aws import AwsSignature, find_signature
from prompty.providers.profiles import find_key_variables
from prompty.safety.origins import TRUST_VARIABLE, TextOrigin, parse_origin

_MAX_ROUTES = 64  # of one agent, whose copies may have connections of their own


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
                key = load_key_store().find_stored_key(_get_variable(variables.key, url))
            return Access(url, key and check_header(variables.key, key), _read_headers(variables))
        case ApiKeyConnection(endpoint=endpoint, api_key=written):
            url = endpoint or _get_base_url(agent, variables)
            if written is None and (signature := _find_signature(agent, endpoint, variables.key, hosts)):
                return Access(url, None, signature=signature)
            secret = get_required_key(agent, written, variables.key, url, hosts)
            if not endpoint:
                return Access(url, secret, _read_headers(variables))
            is_own = written is not None or _get_variable(variables.key, url) == variables.key
            takes_headers = is_own and _takes_environment(agent, endpoint, hosts)
            return Access(endpoint, secret, _read_headers(variables) if takes_headers else ())
        case AnonymousConnection(endpoint=endpoint):
            return Access(get_required_endpoint(endpoint), None)
        case other:
            raise unusable_connection(other.kind, agent.model.provider, ("key", "anonymous", "reference"))


def _get_base_url(agent: PromptAgent, variables: Variables) -> str:
    named = os.environ.get(variables.base_url)
    check_environment_url(agent, named)
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

    `variable` and `hosts` are the provider's. Raise RequestError if there is none (F11).
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
    """Return the key from the environment, a `.env` file or the store. Raise RequestError if it may not go to the
    endpoint in the file."""
    key, source = os.environ.get(variable), TextOrigin.ENVIRONMENT
    if not key and (key := agent.registry.dotenv.get(variable)):
        source = TextOrigin.DOTENV
    key = key or load_key_store().find_stored_key(variable)
    is_unasked = url == getattr(agent.model.connection, "endpoint", None) and variable not in find_key_variables(url)
    if key and is_unasked and (refusal := find_implicit_refusal(agent, source, url, hosts)):
        _refuse(agent, refusal)
    return key


def _find_signature(
    agent: PromptAgent, endpoint: str | None, variable: str, hosts: tuple[str, ...]
) -> AwsSignature | None:
    """Return the signature for an AWS server for which there is no key."""
    signature = find_signature(endpoint) if endpoint and find_key_variables(endpoint) else None
    if signature is None or _find_key(agent, _get_variable(variable, str(endpoint)), str(endpoint), hosts):
        return None
    return signature


def load_key_store() -> ModuleType:
    from prompty.providers import keys  # only if a key is in neither the file nor the environment

    return keys


def get_required_endpoint(endpoint: str | None) -> str:
    """Return the endpoint of a connection. Raise RequestError if it has none (F11)."""
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
    )


# Refuse a call without its variables (F15), and an endpoint (F14).


def check_variables(agent: PromptAgent, hosts: tuple[str, ...] | None) -> None:
    """Raise RequestError if a call of the agent's model needs a variable that is not set. `hosts` are as below."""
    unset = agent.provenance.unset
    if unset and hosts is not None and (needed := list_unset(unset, MODEL, agent.model)):
        raise RequestError(*explain_unset(needed))


def check_endpoint(agent: PromptAgent, hosts: tuple[str, ...] | None) -> None:
    """Raise RequestError if a call would send a credential, or another value of a variable, where it may not go.

    `hosts` are the provider's own, or None if it sends nothing.
    """
    if not agent.provenance.from_file or hosts is None or _is_known_route(agent, hosts):
        return
    if refusal := find_endpoint_refusal(agent, hosts, [one for one in agent.provenance.exposed if one.is_set]):
        _refuse(agent, refusal)


def find_endpoint_refusal(
    agent: PromptAgent, hosts: tuple[str, ...], exposed: Iterable[Exposure] | None = None
) -> Refusal | None:
    """Return why a call of the agent's model is refused, or None. It would send the variables in `exposed`, by default
    all that the agent names."""
    connection, provenance = agent.model.connection, agent.provenance
    if not isinstance(connection, ApiKeyConnection | AnonymousConnection | FoundryConnection):
        return None  # the host registered it, or the environment names it
    endpoint = connection.endpoint
    if not endpoint:
        return None
    key: SecretStr | None = getattr(connection, "api_key", None)
    credential = provenance.get_source(key.get_secret_value()) if key else None
    if isinstance(connection, FoundryConnection):
        credential = TextOrigin.MACHINE
    allowed = read_trusted(agent.registry.trusted_endpoints)
    if all(provenance.may_always_send(one, endpoint, hosts, allowed) for one in (credential, TextOrigin.ENVIRONMENT)):
        _keep_route(agent, hosts)
        return None
    refusal = provenance.refuse(credential, endpoint, hosts, allowed)
    if refusal is None:
        carried = provenance.carriers.get(endpoint)
        sent = [*(provenance.exposed if exposed is None else exposed), *([carried] if carried else ())]
        refusal = provenance.refuse_exposed(sent, endpoint, hosts, allowed)
    return None if refusal and _uses_own_key(agent, connection, endpoint) else refusal


def _uses_own_key(agent: PromptAgent, connection: object, endpoint: str) -> bool:
    """Return True if the key is the value of the variable that holds the keys of this very server, or will be.

    It then belongs to the caller's account at a known server.
    """
    if not isinstance(connection, ApiKeyConnection) or not (names := find_key_variables(endpoint)):
        return False
    if connection.api_key is None:
        return True
    value, dotenv = connection.api_key.get_secret_value(), agent.registry.dotenv
    return any(value == (os.environ.get(name) or dotenv.get(name)) for name in names)


def check_readers(agent: PromptAgent, hosts: tuple[str, ...] | None, exposed: Iterable[Exposure]) -> None:
    """Raise RequestError if the agent's model may not get variables of a prompt whose answers it reads."""
    if hosts is not None and agent.provenance.from_file and (refusal := find_endpoint_refusal(agent, hosts, exposed)):
        _refuse(agent, refusal)


def _takes_environment(agent: PromptAgent, endpoint: str, hosts: tuple[str, ...]) -> bool:
    """Return True if headers that an SDK reads from the environment may go to an endpoint."""
    if _is_known_route(agent, hosts):
        return True
    allowed = read_trusted(agent.registry.trusted_endpoints)
    return agent.provenance.may_send(TextOrigin.ENVIRONMENT, endpoint, hosts, allowed)


def _is_known_route(agent: PromptAgent, hosts: tuple[str, ...]) -> bool:
    connection = agent.model.connection
    route = agent.provenance.routes.get(id(connection))
    return (
        route is not None
        and route[0] is connection
        and route[1] is hosts
        and route[2] is agent.registry.trusted_endpoints
    )


def _keep_route(agent: PromptAgent, hosts: tuple[str, ...]) -> None:
    """Remember that a connection may get credentials of the environment. It is held, so that its id stays its own."""
    routes = agent.provenance.routes
    if len(routes) >= _MAX_ROUTES:
        routes.clear()
    connection = agent.model.connection
    routes[id(connection)] = (connection, hosts, agent.registry.trusted_endpoints)


def check_environment_url(agent: PromptAgent, url: str | None) -> None:
    """Raise RequestError if the environment names a base URL without https that the host does not list."""
    if not url or not agent.provenance.from_file:
        return
    refusal = agent.provenance.refuse(None, url, (), read_trusted(agent.registry.trusted_endpoints))
    if refusal:
        raise RequestError(refusal.cause, refusal.fix)


def find_implicit_refusal(
    agent: PromptAgent, source: TextOrigin, endpoint: str, hosts: tuple[str, ...]
) -> Refusal | None:
    """Return why a key that the file does not name may not go to the endpoint that it names, or None.

    The rule is that of other credentials, except that a server on this machine gets no key unasked: most need none.
    """
    provenance, allowed = agent.provenance, read_trusted(agent.registry.trusted_endpoints)
    refusal = provenance.refuse(source, endpoint, hosts, allowed)
    origin = parse_origin(endpoint)
    if origin is None or not provenance.from_file or (refusal and origin.scheme == "http"):
        return refusal
    if refusal is None:
        trusted = provenance.trusted | allowed | read_trusted(os.environ.get(TRUST_VARIABLE, ""))
        if not origin.is_loopback or endpoint in provenance.endpoints or origin in trusted:
            return None
    cause = f"the connection has no `apiKey`, and {origin} is named only by {provenance.get_namer(endpoint)}"
    fix = f"Write `kind: anonymous` if it needs no key, or an `apiKey:`, or set {TRUST_VARIABLE}={origin}."
    return Refusal(cause, fix)


def _refuse(agent: PromptAgent, refusal: Refusal) -> None:
    file = f"{agent.path.name}: " if agent.path else ""
    where = "" if refusal.exposed else f"{file}`model.connection`: "
    raise RequestError(f"{where}{refusal.cause}", refusal.fix)
