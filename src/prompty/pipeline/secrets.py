"""The secrets that a prompt holds."""

import re
from collections.abc import Iterator
from urllib.parse import unquote, unquote_plus

from prompty.model.agent import PromptAgent
from prompty.redaction import names_a_credential
from prompty.tracing.plain import leaves

_USER_IN_URL = re.compile(r"://([^/@\s]*)@")
_QUERY_OF_URL = re.compile(r"[?&]([^=&#]+)=([^&#]*)")


def secrets_in(agent: PromptAgent) -> Iterator[str]:
    """The credentials of an agent and of its tools, what is bound to their parameters, and the values that the file
    itself has for inputs of a telling name."""
    yield from leaves([one.default for one in agent.inputs if names_a_credential(one.name)])
    for tool in (agent.model, *agent.tools):
        yield from _credentials(getattr(tool, "connection", None))
    for tool in agent.tools:
        for binding in tool.bindings.values():
            yield from leaves(binding.value.get_secret_value() if binding.value else None)
        options = getattr(tool, "options", None) or {}
        yield from leaves([value for name, value in options.items() if names_a_credential(name)])


def _credentials(connection: object) -> Iterator[str]:
    for field in ("api_key", "client_secret"):
        if secret := getattr(connection, field, None):
            yield secret.get_secret_value().strip()
    for field in ("endpoint", "token_url"):
        for user in _USER_IN_URL.findall(getattr(connection, field, None) or ""):
            yield from (*user.split(":"), *map(unquote, user.split(":")))
        for name, value in _QUERY_OF_URL.findall(getattr(connection, field, None) or ""):
            if names_a_credential(name):
                yield from (value, unquote_plus(value))
