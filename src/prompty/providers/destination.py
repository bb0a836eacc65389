"""Refuse to send a credential to an endpoint that only the file names (F14). Checked at every call, before a client."""

import os

from pydantic import SecretStr

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection, FoundryConnection
from prompty.model.provenance import Refusal, read_trusted
from prompty.providers.profiles import find_key_variables
from prompty.safety.origins import TRUST_VARIABLE, TextOrigin, parse_origin

_MAX_ROUTES = 64  # of one agent, whose copies may have connections of their own


def check_destination(agent: PromptAgent, built_in: tuple[str, ...] | None) -> None:
    """Raise RequestError if the agent's connection would send a credential where it may not go. `built_in` are the
    provider's own hosts, or None if it sends nothing."""
    if not agent.provenance.from_file or built_in is None or _is_known_route(agent, built_in):
        return
    if refusal := find_refusal(agent, built_in):
        check_resolved(getattr(agent.model.connection, "endpoint", None) or "", "endpoint")
        place = f"{agent.path.name}: " if agent.path else ""
        raise RequestError(f"{place}`model.connection`: {refusal.cause}", refusal.fix)


def find_refusal(agent: PromptAgent, built_in: tuple[str, ...]) -> Refusal | None:
    """Return why a call of the agent's model is refused, or None."""
    connection, provenance = agent.model.connection, agent.provenance
    if not isinstance(connection, ApiKeyConnection | AnonymousConnection | FoundryConnection):
        return None  # what the host registered, or what the environment says
    endpoint = connection.endpoint
    if not endpoint:
        return None
    if isinstance(connection, FoundryConnection):
        credential: TextOrigin | None = TextOrigin.MACHINE
    else:
        credential = provenance.get_strictest(getattr(connection, "api_key", None), endpoint)
    if provenance.exposed is not None:
        credential = max(provenance.exposed, credential or provenance.exposed)
    allowed = read_trusted(agent.registry.trusted_endpoints)
    if all(
        provenance.may_always_send(one, endpoint, built_in, allowed) for one in (credential, TextOrigin.ENVIRONMENT)
    ):
        _keep_route(agent, built_in)
        return None
    refusal = provenance.refuse(credential, endpoint, built_in, allowed)
    if refusal and provenance.exposed is None and _is_own_key(agent, getattr(connection, "api_key", None), endpoint):
        return None
    return refusal


def _is_own_key(agent: PromptAgent, key: SecretStr | None, endpoint: str) -> bool:
    """Return True if a key is the value of the variable that holds the keys of this very server."""
    if key is None or endpoint in agent.provenance.carriers:
        return False
    value, dotenv = key.get_secret_value(), agent.registry.dotenv
    return any(value == (os.environ.get(name) or dotenv.get(name)) for name in find_key_variables(endpoint))


def check_resolved(value: str, field: str) -> None:
    """Raise RequestError if a field of the connection still names a variable: a v1 file loads without it."""
    if "${env:" in value:
        name = value.partition("${env:")[2].partition("}")[0]
        raise RequestError(
            f"Environment variable '{name}' not set, which the file names as `model.connection.{field}`", f"Set {name}."
        )


def takes_environment(agent: PromptAgent, endpoint: str, built_in: tuple[str, ...]) -> bool:
    """Return True if headers that an SDK reads from the environment may go to an endpoint."""
    if _is_known_route(agent, built_in):
        return True
    allowed = read_trusted(agent.registry.trusted_endpoints)
    return agent.provenance.may_send(TextOrigin.ENVIRONMENT, endpoint, built_in, allowed)


def _is_known_route(agent: PromptAgent, built_in: tuple[str, ...]) -> bool:
    connection = agent.model.connection
    route = agent.provenance.routes.get(id(connection))
    return (
        route is not None
        and route[0] is connection
        and route[1] is built_in
        and route[2] is agent.registry.trusted_endpoints
    )


def _keep_route(agent: PromptAgent, built_in: tuple[str, ...]) -> None:
    """Keep that a connection may get credentials of the environment. It is held, so that its id stays its own."""
    routes = agent.provenance.routes
    if len(routes) >= _MAX_ROUTES:
        routes.clear()
    connection = agent.model.connection
    routes[id(connection)] = (connection, built_in, agent.registry.trusted_endpoints)


def check_environment_url(agent: PromptAgent, url: str | None) -> None:
    """Raise RequestError if the environment names a base URL without https that the host does not list."""
    if not url or not agent.provenance.from_file:
        return
    refusal = agent.provenance.refuse(None, url, (), read_trusted(agent.registry.trusted_endpoints))
    if refusal:
        raise RequestError(refusal.cause, refusal.fix)


def check_implicit_key(agent: PromptAgent, source: TextOrigin, endpoint: str, built_in: tuple[str, ...]) -> None:
    """Raise RequestError if a key that the file does not name may not go to the endpoint that it names.

    The rule is that of other credentials, except that a server on this machine gets no key unasked: most need none.
    """
    provenance, allowed = agent.provenance, read_trusted(agent.registry.trusted_endpoints)
    refusal = provenance.refuse(source, endpoint, built_in, allowed)
    origin = parse_origin(endpoint)
    if (
        refusal is None
        and origin
        and origin.is_loopback
        and provenance.from_file
        and endpoint not in provenance.endpoints
    ):
        trusted = provenance.trusted | allowed | read_trusted(os.environ.get(TRUST_VARIABLE, ""))
        if origin not in trusted:
            cause = f"the connection has no `apiKey`, and {origin} is named only by the file"
            fix = f"Write `kind: anonymous` if it needs no key, or an `apiKey:`, or set {TRUST_VARIABLE}={origin}."
            refusal = Refusal(cause, fix)
    if refusal:
        place = f"{agent.path.name}: " if agent.path else ""
        raise RequestError(f"{place}`model.connection`: {refusal.cause}", refusal.fix)
