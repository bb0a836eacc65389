"""Translate the frontmatter and the body of a v1 file.

In `model`, `api`, `configuration` and `parameters` become `apiType`, `provider`, `id`, `connection` and `options`.
"""

import re
from copy import deepcopy
from typing import Any, NamedTuple

from prompty.v1.body import BodyEdit, apply_edits, find_edits, find_untranslatable
from prompty.v1.draft import Draft, V1Data, V1Keys, V1Note, mapping_or_empty
from prompty.v1.properties import (
    add_media_inputs,
    translate_inputs,
    translate_outputs,
    translate_response_format,
    translate_tools,
)

_CONFIGURATION: V1Keys = ("model", "configuration")
_PARAMETERS: V1Keys = ("model", "parameters")
_AZURE_TYPES = ("azure_openai", "azure_open_ai", "azure")
_ID_KEYS = ("azure_deployment", "name", "model", "model_name")
_ENDPOINT_KEYS = ("azure_endpoint", "base_url", "endpoint")
_KEY_KEYS = ("api_key", "key")
_READ_KEYS = frozenset({"type", "connection", "api_version", *_ID_KEYS, *_ENDPOINT_KEYS, *_KEY_KEYS})
_OPTIONS = {
    "max_completion_tokens": "maxOutputTokens",
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
    "seed": "seed",
    "stop": "stopSequences",
}
_REFERENCE = re.compile(r"\$\{(env|file):", re.IGNORECASE)
_OWN_KEYS = ("name", "displayName", "description", "tools", "template", "metadata")


def translate_model(draft: Draft, model: Any, data: V1Data) -> None:
    """Translate `model`. Existing v2 keys take precedence."""
    if not isinstance(model, dict):
        draft.put(("model",), model, ("model",))
        return
    for key, value in model.items():
        if key not in ("api", "configuration", "parameters", "response") and not _is_name(key, value):
            draft.put(("model", key), value, ("model", key))
    draft.data.setdefault("model", {})
    for key, value in model.items():
        if key == "api":
            _translate_api(draft, value)
        elif key == "configuration":
            _translate_configuration(draft, value, model)
        elif key == "parameters":
            _translate_parameters(draft, value, data)
        elif key == "response" and value != "first":
            reason = "v2 always uses the first choice of a reply"
            draft.drop(("model", "response"), reason, "Call the model once for each answer that you need.")
        elif _is_name(key, value) and "configuration" in model:
            draft.put(("model", "connection"), {"kind": "reference", "name": value}, ("model", key))
        elif _is_name(key, value):
            _translate_configuration(draft, {"connection": value}, model, ("model",))
    if "configuration" not in model and not _is_name("connection", model.get("connection")):
        _put_id(draft, {}, model)


def _is_name(key: str, value: Any) -> bool:
    return key == "connection" and isinstance(value, str) and not value.startswith("${file:")


def _translate_api(draft: Draft, value: Any) -> None:
    """Translate `api`. There `chat` only says that it is not a completion, so the model still chooses between APIs."""
    if value is None or value == "chat":
        return
    if value == "completion":
        reason = "the API `completion` has no counterpart, so a call of this file fails"
        draft.note(("model", "api"), reason, "Write `apiType: chat` if the model can chat.")
    draft.put(("model", "apiType"), value, ("model", "api"))


def _translate_configuration(draft: Draft, value: Any, model: V1Data, place: V1Keys = _CONFIGURATION) -> None:
    if isinstance(value, str):
        draft.put(("model", "connection"), {"kind": "reference", "name": value}, place)
        value = {}
    if value is not None and not isinstance(value, dict):
        draft.drop(place, "it is not a mapping", "Write `id:`, `provider:` and `connection:` under `model:`.")
    configuration = mapping_or_empty(value)
    kind = configuration.get("type")
    is_azure = (kind.lower() in _AZURE_TYPES) if isinstance(kind, str) else _looks_azure(configuration, model)
    is_openai = isinstance(kind, str) and kind.lower() == "openai"
    endpoint = next((key for key in _ENDPOINT_KEYS if configuration.get(key) is not None), None)
    if is_azure:
        draft.put(("model", "provider"), "azure", (*place, "type"))
    elif is_openai or (kind is not None and endpoint):
        draft.put(("model", "provider"), "openai", (*place, "type"))
    elif kind is not None:
        draft.put(("model", "provider"), kind, (*place, "type"))
        message = f"no provider corresponds to the type `{kind}`, and the file has no endpoint, so a call fails"
        draft.note((*place, "type"), message, "Write `provider:` and `connection:` under `model:`.")
    _put_id(draft, configuration, model, place)
    _translate_connection(draft, configuration, endpoint, "azure" if is_azure else "openai" if is_openai else "", place)
    for key in configuration:
        if key == "organization":
            reason = "a file cannot set this header"
            draft.drop((*place, key), reason, "Set OPENAI_ORG_ID in the environment.")
        elif key not in _READ_KEYS:
            draft.drop((*place, key), "v2 has no corresponding key", "Add the provider's settings by hand.")


def _looks_azure(configuration: Any, model: V1Data) -> bool:
    """Return True if a configuration without `type` has Azure's keys."""
    parameters = mapping_or_empty(model.get("parameters"))
    names = ("azure_deployment", "azure_endpoint", "api_version")
    return any(name in configuration for name in names) or "deployment_name" in parameters


def _put_id(draft: Draft, configuration: Any, model: V1Data, place: V1Keys = _CONFIGURATION) -> None:
    named = [key for key in _ID_KEYS if configuration.get(key)]
    for key in named:
        if not draft.put(("model", "id"), configuration[key], (*place, key)):
            draft.drop((*place, key), "the model is already named", "Keep one name.")
    parameters = mapping_or_empty(model.get("parameters"))
    parameter = next((key for key in ("deployment_name", "model") if parameters.get(key)), None)
    if parameter and not draft.put(("model", "id"), parameters[parameter], (*_PARAMETERS, parameter)):
        draft.drop((*_PARAMETERS, parameter), "the model is already named", "Keep one name.")


def _translate_connection(draft: Draft, configuration: Any, endpoint: str | None, provider: str, place: V1Keys) -> None:
    name = configuration.get("connection")
    version = configuration.get("api_version")
    key = next((key for key in _KEY_KEYS if configuration.get(key) is not None), None)
    target: V1Keys = ("model", "connection")
    if isinstance(name, str) and name:
        if draft.put(target, {"kind": "reference", "name": name}, (*place, "connection")):
            draft.moves[(*target, "name")] = (*place, "connection")
        for unused in (endpoint, key, "api_version" if version is not None else None):
            if unused:
                reason = f"the program registers the connection `{name}` with its endpoint and key"
                draft.drop((*place, unused), reason, "Register it there.")
        return
    if name is not None:
        draft.drop((*place, "connection"), "it is not a name", "Write `connection:` under `model:`.")
    fields: list[tuple[str, Any, V1Keys]] = []
    if endpoint:
        fields.append(("endpoint", configuration[endpoint], (*place, endpoint)))
    if key:
        fields.append(("apiKey", configuration[key], (*place, key)))
    if provider == "azure" and version is not None:
        fields.append(("apiVersion", version, (*place, "api_version")))
    elif version is not None:
        draft.drop((*place, "api_version"), "only Azure has API versions", "Remove it.")
    if not fields or "connection" in draft.data["model"]:
        return
    # Without its own key, a connection of kind `key` uses the provider's.
    kind = "key" if key or provider == "openai" else "foundry" if provider == "azure" else "anonymous"
    draft.put((*target, "kind"), kind, place)
    for field, value, origin in fields:
        draft.put((*target, field), value, origin)


def _translate_parameters(draft: Draft, value: Any, data: V1Data) -> None:
    if value is not None and not isinstance(value, dict):
        draft.drop(_PARAMETERS, "it is not a mapping", "Write `options:` under `model:`.")
    parameters = mapping_or_empty(value)
    for key, entry in parameters.items():
        origin = (*_PARAMETERS, key)
        if entry is None or key in ("deployment_name", "model"):
            continue
        if key in _OPTIONS:
            _put_option(draft, key, entry, parameters)
        elif key == "stream":
            draft.drop(origin, "the caller chooses whether to stream", "Pass stream=True, or --stream.")
        elif key == "tools":
            translate_tools(draft, entry, origin)
        elif key == "response_format":
            translate_response_format(draft, entry, data)
        else:
            draft.put(("model", "options", "additionalProperties", key), entry, origin)


def _put_option(draft: Draft, key: str, value: Any, parameters: Any) -> None:
    if key == "max_tokens" and parameters.get("max_completion_tokens") is not None:
        draft.drop((*_PARAMETERS, key), "`max_completion_tokens` has the same meaning", "Keep one of them.")
        return
    if key == "stop" and isinstance(value, str):
        value = [value]
    draft.put(("model", "options", _OPTIONS[key]), value, (*_PARAMETERS, key))


class Translation(NamedTuple):
    """The v2 file: its data and body, notes, the v1 key path of each v2 key path, and the edits of the body."""

    data: V1Data
    body: str
    notes: list[V1Note]
    moves: dict[V1Keys, V1Keys]
    edits: list[BodyEdit]


def translate(source: V1Data, body: str) -> Translation:
    """Return the v2 file that corresponds to a v1 file. References are unchanged. Files with structure, such as
    `sample: ${file:…}`, and `base` must already be part of the data."""
    data = lower_protocols(deepcopy(source))
    draft, names = Draft(), list(data)
    edits = find_edits(body, data)
    draft.notes += find_untranslatable(body, edits)
    for key in names:
        value = data[key]
        if key == "model":
            translate_model(draft, value, data)
        elif key in ("inputs", "sample"):
            translate_inputs(draft, data, edits)
        elif key == "outputs":
            translate_outputs(draft, value, data)
        elif key == "template":
            _translate_template(draft, value)
        elif key in _OWN_KEYS:
            draft.put((key,), value, (key,))
        elif key == "base":
            draft.drop(("base",), "it does not name a file", "Copy the other file's keys here.")
        else:
            _keep_in_metadata(draft, key, value, data)
    add_media_inputs(draft, edits)
    return Translation(draft.data, apply_edits(body, edits), draft.notes, draft.moves, edits)


def lower_protocols(value: Any) -> Any:
    """Return data with `${ENV:…}` and `${File:…}` in lower case: v1 reads them in any case."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: found[0].lower(), value) if "${" in value else value
    if isinstance(value, dict):
        return {key: lower_protocols(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [lower_protocols(entry) for entry in value]
    return value


def _translate_template(draft: Draft, value: Any) -> None:
    """Translate `{type: jinja2, parser: prompty}`. A plain text is the same in both versions."""
    if not isinstance(value, dict):
        draft.put(("template",), value, ("template",))
        return
    for key, entry in value.items():
        name = "format" if key == "type" else key
        is_kind = name in ("format", "parser") and isinstance(entry, str)
        draft.put(("template", name), {"kind": entry} if is_kind else entry, ("template", key))


def _keep_in_metadata(draft: Draft, key: str, value: Any, data: V1Data) -> None:
    if isinstance(data.get("metadata", {}), dict):
        if "metadata" in data and "metadata" not in draft.data:
            draft.put(("metadata",), data["metadata"], ("metadata",))
        draft.put(("metadata", key), value, (key,))
    else:
        draft.put((key,), value, (key,))
