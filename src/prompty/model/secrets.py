"""Secret values inside an agent definition."""

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, unquote_plus

from prompty.model.agent import PromptAgent
from prompty.safety.redaction import is_credential_name, leaves

_URL_USER = re.compile(r"://([^/@\s]*)@")
_URL_QUERY = re.compile(r"[?&]([^=&#]+)=([^&#]*)")


def secrets_in(agent: PromptAgent) -> Iterator[str]:
    """Yield an agent's secrets.

    These are the credentials of its connections, values bound to tool parameters, and defaults and options whose name
    looks like a credential.
    """
    yield from leaves([declared.default for declared in agent.inputs if is_credential_name(declared.name)])
    for tool in (agent.model, *agent.tools):
        yield from _credentials(getattr(tool, "connection", None))
    yield from _named_secrets(agent.metadata.get("fallbacks"))
    for tool in agent.tools:
        for binding in tool.bindings.values():
            yield from leaves(binding.value.get_secret_value() if binding.value else None)
        options = getattr(tool, "options", None) or {}
        yield from leaves([value for name, value in options.items() if is_credential_name(name)])


def _named_secrets(value: object) -> Iterator[str]:
    """Yield the values whose key looks like a credential, for example in fallback models."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from leaves(entry) if is_credential_name(str(name)) else _named_secrets(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _named_secrets(entry)


def _credentials(connection: object) -> Iterator[str]:
    for field in ("api_key", "client_secret"):
        if secret := getattr(connection, field, None):
            yield secret.get_secret_value().strip()
    for field in ("endpoint", "token_url"):
        for user in _URL_USER.findall(getattr(connection, field, None) or ""):
            yield from (*user.split(":"), *map(unquote, user.split(":")))
        for name, value in _URL_QUERY.findall(getattr(connection, field, None) or ""):
            if name != "api-version":
                yield from (value, unquote_plus(value))
