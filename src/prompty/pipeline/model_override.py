"""Read the name of a model, and override the file's: `model=`, `options=`, `--model` and PROMPTY_MODEL."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from prompty.errors import RequestError, did_you_mean, nearest
from prompty.model.agent import ModelOptions, PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection
from prompty.model.trust import FieldPath
from prompty.pipeline.request import MODEL_VARIABLE
from prompty.providers import EXECUTORS, PROVIDERS
from prompty.providers.facts import ACTS_AS
from prompty.providers.families import LOCAL_TAG, find_misspelt
from prompty.providers.profiles import Profile, get_profile
from prompty.registry import Registry
from prompty.safety.origins import parse_origin

# The fields of model options by their names in a file.
_FIELDS = {field.alias or name: name for name, field in ModelOptions.model_fields.items()}


def override_model(
    agent: PromptAgent,
    model: str | None = None,
    options: Mapping[str, object] | None = None,
    *,
    provider: str | None = None,
    api_type: str | None = None,
) -> PromptAgent:
    """Return the agent with the caller's model and model options (see `find_model_changes`)."""
    changes = find_model_changes(agent, agent.registry, model, options, provider=provider, api_type=api_type)
    return agent.model_copy(update=changes) if changes else agent


def find_model_changes(
    agent: PromptAgent,
    registry: Registry,
    model: str | None = None,
    options: Mapping[str, object] | None = None,
    *,
    provider: str | None = None,
    api_type: str | None = None,
) -> dict[str, Any]:
    """Return the fields of an agent that the caller's model and model options change.

    `model` is an id, or `provider:id` if the text before the first colon is a provider or a known server. If neither
    the caller nor the file names a model, it is PROMPTY_MODEL. The file's connection is not used for another provider,
    nor are `additionalProperties` if its request format differs. A known server is called at its own URL, with its own
    key.
    """
    if model is None and provider is None and needs_model(agent, registry):
        model = find_default_model(registry)
    if model is not None and provider is None:
        provider, model = split_model(model, registry)
    changes: dict[str, Any] = {"id": model, "api_type": api_type}
    changes = {name: value for name, value in changes.items() if value is not None}
    if provider is not None:
        profile = None if _is_provider(provider, registry) else get_profile(provider)
        changes["provider"] = profile.provider if profile else provider
        if profile:
            changes["connection"] = _connect_to(profile)
        elif provider != agent.model.provider:
            changes["connection"] = None
        if not _has_same_format(agent, changes["provider"], registry):
            changes["options"] = agent.model.options.model_copy(update={"additional_properties": None})
    replaced: list[FieldPath] = [("model", name) for name in changes if name != "options"]
    if "options" in changes:
        replaced.append(("model", "options", "additional_properties"))
    if options:
        changes["options"] = override_options(changes.get("options", agent.model.options), options)
        written = {_FIELDS.get(name, name) for name in options} - {"additional_properties"}
        replaced += [("model", "options", name) for name in written]
    if not changes:
        return {}
    chosen = agent.model.model_copy(update=changes)
    updates: dict[str, Any] = {"model": chosen, "trust": agent.trust.without(*replaced)}
    if ("id" in changes or "provider" in changes) and ACTS_AS in agent.metadata:  # it was about the file's model
        updates["metadata"] = {name: value for name, value in agent.metadata.items() if name != ACTS_AS}
    return updates


def _has_same_format(agent: PromptAgent, provider: str, registry: Registry) -> bool:
    """Return True if a provider has the request format of the agent's own, as Azure has OpenAI's."""
    own, providers = agent.model.provider, registry[PROVIDERS]
    if own == provider or not (providers.has(own) and providers.has(provider)):
        return own == provider
    api = providers.get(own).apis.get(agent.model.api_type)
    return api is not None and api == providers.get(provider).apis.get(agent.model.api_type)


def needs_model(agent: PromptAgent, registry: Registry) -> bool:
    """Return True if the file names no model and its provider needs one. A host's executor may choose its own."""
    if agent.model.id or agent.trust.lacks("model", "id"):
        return False
    return not registry[EXECUTORS].is_registered(agent.model.provider)


def find_default_model(registry: Registry) -> str | None:
    """Return PROMPTY_MODEL from the environment or a .env file."""
    return os.environ.get(MODEL_VARIABLE) or registry.dotenv.get(MODEL_VARIABLE) or None


def split_model(model: str, registry: Registry) -> tuple[str | None, str]:
    """Split `provider:id` at the first colon, wherever a model is named by one text: in a file, a project file, a test,
    a fallback, a call or an option. A model whose prefix is neither a provider nor a known server is an id, and so is
    one with the tag of a local model, such as `llama3:8b` or `mistral:7b`."""
    prefix, colon, id = model.partition(":")
    is_local = bool(LOCAL_TAG.fullmatch(id))
    if colon and not is_local and (_is_provider(prefix, registry) or get_profile(prefix)):
        return prefix, id
    if colon and not is_local and (near := find_misspelt(prefix, registry)):
        raise RequestError(
            f"no provider is called '{prefix}', in the model '{model}'",
            f"Did you mean '{near}:{id}'? If '{model}' is the id itself, write its provider first: '{near}:{model}'.",
            f"Did you mean {near}:{id}? If {model} is the id itself, add --provider.",
        )
    return None, model


def name_server(agent: PromptAgent, registry: Registry, *, is_text: bool) -> PromptAgent:
    """Return an agent with the provider and the server that its file names: `model: groq:…`, or `provider: groq` in a
    mapping. A provider that is misspelt is a part of the id, and the call an error."""
    model = agent.model
    provider, id = None, model.id
    if is_text:
        with suppress(RequestError):
            provider, id = split_model(model.id, registry)
    name = provider or model.provider
    profile = None if _is_provider(name, registry) else get_profile(name)
    if provider is None and profile is None:
        return agent
    changes: dict[str, Any] = {"id": id, "provider": profile.provider if profile else name}
    if profile and model.connection is None:
        changes["connection"] = _connect_to(profile)
    elif profile and not getattr(model.connection, "endpoint", True):
        changes["connection"] = model.connection and model.connection.model_copy(update={"endpoint": profile.base_url})
    return agent.model_copy(update={"model": model.model_copy(update=changes)})


def _is_provider(name: str, registry: Registry) -> bool:
    return registry[PROVIDERS].has(name) or registry[EXECUTORS].has(name)


def _connect_to(profile: Profile) -> ApiKeyConnection | AnonymousConnection:
    """Return the connection to a known server. Its key is looked up for each call, so that it is not stored.

    `kind` is set explicitly, because a durable record only stores explicit values.
    """
    origin = parse_origin(profile.base_url)
    if profile.key is None or (origin and origin.is_loopback):
        return AnonymousConnection(kind="anonymous", endpoint=profile.base_url)
    return ApiKeyConnection(kind="key", endpoint=profile.base_url)


def override_options(file_options: ModelOptions, options: Mapping[str, object]) -> ModelOptions:
    """Return model options with the caller's, by their names in a file or in Python. None removes an option."""
    by_name = {_FIELDS.get(name, name): value for name, value in options.items()}
    known = _FIELDS.values()
    for name in by_name:
        if name not in known:
            hint = did_you_mean(nearest(str(name), _FIELDS))
            raise RequestError(
                f"unknown model option `{name}`", f"{hint}Provider-specific options go under `additionalProperties`."
            )
    try:
        valid = ModelOptions.model_validate(by_name)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        cause = f"the model option `{first['loc'][0]}` is invalid: {first['msg']}"
        raise RequestError(cause, "Write it as under `model.options:` in a file.") from None
    if not file_options.model_fields_set:
        return valid
    changes = {name: getattr(valid, name) for name in by_name}
    if changes.get("additional_properties") and file_options.additional_properties:
        changes["additional_properties"] = {**file_options.additional_properties, **changes["additional_properties"]}
    return file_options.model_copy(update=changes)
