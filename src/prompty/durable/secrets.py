"""Store the secrets of a run as references to where a worker finds them, never as values.

A reference has the path of the secret in the agent (`keys`) and its source: the `name` that the host gave it in
`secrets=`, the `text` of the file at that path (`${env:NAME}`), or, without either, the file itself.
References are stored beside the data of a run and not inside it, so no text can be mistaken for one.

Secrets are the credentials of connections, addresses that contain one, bound values, texts with a variable that is
named like a credential, and in `additionalProperties`, in headers and in the options of tools whatever is from outside
the file or has a credential's name.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, cast
from urllib.parse import parse_qsl

from prompty.errors import PromptyError, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.definition import UnsetReference
from prompty.model.message import Json
from prompty.model.provenance import Exposure, Provenance, read_trusted
from prompty.model.unset import Unset, get_text, replace_text
from prompty.pipeline.load import load, read_document, read_outdated
from prompty.pipeline.references import References, is_private, walk_texts
from prompty.safety.origins import TextOrigin
from prompty.safety.redaction import SHORTEST_SECRET, find_secret, is_credential_name

Keys = tuple[str | int, ...]
Secrets = Mapping[str, str]
_FALLBACKS = ("metadata", "fallbacks")
_ADDRESSES = frozenset({"endpoint", "tokenUrl", "token_url", "specification"})


def extract_secrets(agent: PromptAgent, secrets: Secrets) -> tuple[Json, list[Json]]:
    """Return the agent as frontmatter data without its secrets, and the references to them."""
    data = _to_frontmatter(agent)
    unset = {entry.text for entry in agent.provenance.unset}  # the text of a reference is no secret
    values = []
    for keys, secret in list(_find_secrets(data, agent.provenance)):
        if isinstance(secret, str) and secret in unset:
            _get_at(data, keys[:-1])[keys[-1]] = secret
        else:
            values.append((keys, secret))
    references = [_build_reference(secret, keys, agent, secrets) for keys, secret in values]
    for keys, _ in values:
        _get_at(data, keys[:-1])[keys[-1]] = None
    return data, references


def restore_secrets(data: Json, references: Sequence[Json], agent: PromptAgent, secrets: Secrets) -> Json:
    """Put the secrets back into the data that `extract_secrets` returned."""
    for reference in references:
        keys: Any = reference["keys"]
        _get_at(data, keys[:-1])[keys[-1]] = _resolve_reference(reference, agent, secrets)
    return data


def store_origins(agent: PromptAgent) -> Json:
    """Return where the endpoints of an agent come from, and those that the host trusts.

    It has no secrets: an endpoint, which may contain one, is there by its hash.
    """
    provenance = agent.provenance
    return {
        "from_file": provenance.from_file,
        "endpoints": {_hash(endpoint): int(source) for endpoint, source in provenance.endpoints.items()},
        "carriers": {_hash(endpoint): one._asdict() for endpoint, one in provenance.carriers.items()},
        "exposed": [one._asdict() for one in provenance.exposed],
        "env_allowed": sorted(provenance.env_allowed),
        "trusted": sorted(map(str, provenance.trusted)),
        "unset": [entry._asdict() for entry in provenance.unset],
    }


def restore_origins(stored: Any, data: Json, references: Sequence[Json]) -> Provenance:
    """Return the provenance of a stored agent. A worker looks up variables that were not set in its own environment.

    Secrets that a worker finds outside the file count as its environment's, and so do the keys of fallbacks, of which
    nothing more is known.
    """
    values = [_get_at(data, reference["keys"]) for reference in references if reference.keys() != {"keys"}]  # type: ignore[arg-type]  # a list of keys
    urls = {_hash(text): text for _, text in walk_texts(data) if "://" in text}
    carriers = {urls[one]: _read_exposure(found) for one, found in stored["carriers"].items() if one in urls}
    outside = [*values, *_find_fallback_keys(data), *carriers]
    return Provenance(
        texts=dict.fromkeys(map(str, outside), TextOrigin.ENVIRONMENT),
        endpoints={urls[one]: TextOrigin(source) for one, source in stored["endpoints"].items() if one in urls},
        carriers=carriers,
        exposed=tuple(map(_read_exposure, stored["exposed"])),
        env_allowed=frozenset(stored["env_allowed"]),
        secrets=frozenset(map(str, values)),
        trusted=read_trusted(tuple(stored["trusted"])),
        from_file=stored["from_file"],
        unset=tuple([_read_unset(entry) for entry in stored.get("unset", ())]),
    )


def mark_unset(stored: Any, data: Json) -> None:
    """Mark the references in the data of a stored agent whose variables were not set."""
    for entry in map(_read_unset, stored.get("unset", ())):
        keys = ("metadata", *entry.keys) if entry.keys[0] == "fallbacks" else entry.keys
        with suppress(LookupError, TypeError):  # another model has replaced it
            if get_text(data, keys) == entry.text:
                replace_text(data, keys, UnsetReference(entry.text))


def _read_unset(stored: Any) -> Unset:
    return Unset(**{**stored, "keys": tuple(stored["keys"]), "path": tuple(stored["path"])})


def _read_exposure(stored: Any) -> Exposure:
    return Exposure(**{**stored, "source": TextOrigin(stored["source"]), "keys": tuple(stored["keys"])})


def _find_fallback_keys(data: Any) -> Iterator[object]:
    fallbacks = (data.get("metadata") or {}).get("fallbacks")
    for entry in fallbacks if isinstance(fallbacks, list) else ():
        connection = entry.get("connection") if isinstance(entry, dict) else None
        yield from (connection or {}).values() if isinstance(connection, dict) else ()


def _to_frontmatter(agent: PromptAgent) -> Json:
    """Return the agent as frontmatter data. Secrets are still secret values."""
    data: Json = _to_lists(agent.model_dump(by_alias=True, exclude_unset=True))
    tools: Any = data.get("tools", ())
    for tool, stored in zip(agent.tools, tools, strict=False):
        bindings = stored.get("bindings", {})
        for name, binding in tool.bindings.items():
            if binding.is_plain:
                bindings[name] = binding.value
    return data


def _to_lists(value: Any) -> Any:
    """Return data with lists in place of tuples, so that a secret inside one can be taken out."""
    if isinstance(value, dict):
        return {key: _to_lists(entry) for key, entry in value.items()}
    return [_to_lists(entry) for entry in value] if isinstance(value, list | tuple) else value


def _find_secrets(value: object, provenance: Provenance, keys: Keys = ()) -> Iterator[tuple[Keys, object]]:
    """Yield the secret values with their paths."""
    if isinstance(value, dict | list | tuple):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _find_secrets(entry, provenance, (*keys, key))
    elif hasattr(value, "get_secret_value"):
        yield keys, value.get_secret_value()
    elif isinstance(value, str) and _is_secret(value, keys, provenance):
        yield keys, value


def _is_secret(text: str, keys: Keys, provenance: Provenance) -> bool:
    if len(text) >= SHORTEST_SECRET and text in provenance.secrets:
        return True
    if keys[-1] in _ADDRESSES and (find_secret(text) or _has_named_credential(text)):
        return True
    is_hidden = is_private(keys)
    if is_hidden and text in provenance.texts:
        return True
    return (is_hidden or keys[:2] == _FALLBACKS) and any(is_credential_name(str(key)) for key in keys)


def _has_named_credential(url: str) -> bool:
    return any(is_credential_name(name) for name, _ in parse_qsl(url.partition("?")[2]))


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _get_at(data: Any, keys: Sequence[str | int]) -> Any:
    for key in keys:
        data = data[key]
    return data


def _find_written(data: Any, keys: Keys) -> Any:
    """Return what a file has at a path. Tools may be a mapping and bindings a list, and `value` may be left out."""
    for position, key in enumerate(keys):
        if isinstance(key, int) and isinstance(data, dict):
            data = list(data.values())[key]
        elif isinstance(key, str) and isinstance(data, list):
            entry = next(entry for entry in data if entry["name"] == key)
            data = {name: value for name, value in entry.items() if name != "name"}
        elif position != 4 or keys[2] != "bindings" or (isinstance(data, dict) and data.keys() == {"value"}):
            data = data[key]
    return data


def _build_reference(value: object, keys: Keys, agent: PromptAgent, secrets: Secrets) -> Json:
    name = next((name for name, known in secrets.items() if known == value), None)
    if name is not None:
        return {"keys": list(keys), "name": name}
    text = _read_text(agent, keys)
    if isinstance(text, str) and "${" in text and _resolve(agent, text) == value:
        return {"keys": list(keys), "text": text}
    if _read_secret(agent, keys) == value:
        return {"keys": list(keys)}
    raise RequestError(
        f"the secret at `{'.'.join(map(str, keys))}` could not be found by another process",
        "Write ${env:NAME} in the file, or name it: secrets={'name': value}.",
        "Write ${env:NAME} in the file, or name it: --secret NAME=VARIABLE.",
    )


def _resolve_reference(reference: Json, agent: PromptAgent, secrets: Secrets) -> object:
    match reference:
        case {"name": str(name)}:
            label, value = f"'{name}'", cast(object, secrets.get(name))
        case {"text": str(text)}:
            label, value = text, _resolve(agent, text)
        case _:
            keys: Any = reference["keys"]
            label, value = f"`{'.'.join(map(str, keys))}` of '{agent.path}'", _read_secret(agent, tuple(keys))
    if value is not None:
        return value
    raise RequestError(
        f"this process cannot find the secret {label} of the run",
        "Set the environment variable, keep the file at its path, or pass `secrets=`.",
        "Set the environment variable, keep the file at its path, or start the worker with --secret NAME=VARIABLE.",
    )


def _read_text(agent: PromptAgent, keys: Keys) -> object:
    """Return what the file has at `keys`, unresolved, or None."""
    if agent.path is None:
        return None
    try:
        name = agent.path.name
        references = References(agent.path.parent, agent.allowed_roots)
        _, parts, frontmatter, _ = read_document(agent.path, name, references)
        outdated = read_outdated(frontmatter, parts.body, references, name)
        return _find_written((outdated.frontmatter if outdated else frontmatter).data, keys)
    except (PromptyError, LookupError, StopIteration, TypeError, ValueError):
        return None


def _resolve(agent: PromptAgent, text: str) -> object:
    references = References(agent.path.parent if agent.path else None)
    value = references.resolve(text)
    return None if references.failures else value


def _read_secret(agent: PromptAgent, keys: Keys) -> object:
    """Return the secret that the file now has at `keys`, or None."""
    text = _read_text(agent, keys)
    if isinstance(text, str) and "${" not in text:
        return text
    try:
        value = _get_at(_to_frontmatter(load(agent.path, variant="")), keys) if agent.path else None
        return value if isinstance(value, str | None) else value.get_secret_value()
    except (PromptyError, AttributeError, LookupError, TypeError):
        return None
