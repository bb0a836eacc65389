"""The models that a server offers: `GET /models`, which all known servers answer in the same form."""

from typing import NamedTuple

from prompty.errors import ModelError, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import ReferenceConnection
from prompty.model.message import Json
from prompty.model.request import WireRequest
from prompty.providers import PROVIDERS
from prompty.providers.endpoint import find_server_name
from prompty.providers.wiretap import get_base_url
from prompty.safety.redaction import mask_secrets, mask_url
from prompty.wire.json_bytes import as_count, as_mapping, as_object, read_bytes

TIMEOUT = 60.0  # seconds


class ListedModel(NamedTuple):
    """A model as its server describes it, as far as it does. `ends` is the date of its end."""

    id: str
    ends: str | None = None
    lifecycle: str | None = None
    max_output: int | None = None
    capabilities: tuple[str, ...] = ()


def list_models(agent: PromptAgent) -> list[ListedModel]:
    """Return the models at the server of an agent's connection, in the order of the server."""
    provider = agent.registry[PROVIDERS].get(agent.model.provider)
    if provider.models_path is None:
        raise RequestError(f"the provider '{provider.key}' has no list of models", "Look them up in its documentation.")
    if isinstance(agent.model.connection, ReferenceConnection):
        raise RequestError(
            "a client that a program registers (`kind: reference`) cannot be asked for its models",
            "Write an `endpoint:` in the connection of the file.",
        )
    provider.check_connection(agent)
    transport = provider.transport_for(agent)
    request = WireRequest(path=provider.models_path, body={}, headers={}, method="GET", timeout=TIMEOUT)
    try:
        return _read_models(transport.send(request))
    except ModelError as error:
        # A server knows the key of its caller, and may repeat it.
        cause = mask_secrets(f"{mask_url(get_base_url(transport))} did not say which models it has: {error.cause}")
        if error.status is None and error.retryable:
            fix = "Start Ollama: `ollama serve`." if find_server_name(agent) == "ollama" else "Is the server running?"
            cause += f"\n    {fix}"
        raise ModelError(cause, status=error.status, retryable=error.retryable) from None


def _read_models(content: bytes) -> list[ListedModel]:
    entries = as_object(read_bytes(content)).get("data")
    if not isinstance(entries, list):
        raise ModelError("its answer has no list of models")
    return [_read_model(entry) for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _read_model(entry: Json) -> ListedModel:
    """Read a model. OpenAI names its end `shutdown_date`, and Anthropic `retires_at`."""
    ends, lifecycle = entry.get("shutdown_date") or entry.get("retires_at"), entry.get("lifecycle")
    capabilities = as_mapping(entry.get("capabilities"))
    return ListedModel(
        id=str(entry["id"]),
        ends=str(ends)[:10] if ends else None,
        lifecycle=str(lifecycle) if lifecycle else None,
        max_output=as_count(entry.get("max_tokens")),
        capabilities=tuple(name for name, value in capabilities.items() if as_mapping(value).get("supported")),
    )
