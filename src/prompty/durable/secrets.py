"""Secrets of a run as references: where each can be found again, never what it is.

A reference has the place of the secret in the agent (`keys`) and how to find it: by the `name` that the host gives it
in its runtimes, by the `text` that the file has there (`${env:NAME}`), or, without either, in the file itself.
References stand beside the data of a run and not in it: text that comes from elsewhere can never be taken for one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prompty.errors import PromptyError, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.pipeline.frontmatter import read_frontmatter
from prompty.pipeline.load import load, open_source, read_prompt
from prompty.pipeline.references import References

Keys = tuple[str | int, ...]
Secrets = Mapping[str, str]


def without_secrets(agent: PromptAgent, secrets: Secrets) -> tuple[Json, list[Json]]:
    """An agent as the data of a file in which secrets are missing, and the references to them."""
    data = plain(agent)
    found = list(_secrets_in(data))
    references = [_reference(secret.get_secret_value(), keys, agent, secrets) for keys, secret in found]
    for keys, _ in found:
        _followed(data, keys[:-1])[keys[-1]] = None
    return data, references


def with_secrets(data: Json, references: Sequence[Json], agent: PromptAgent, secrets: Secrets) -> Json:
    """Put secrets back into the data of an agent, where `without_secrets` took them out."""
    for reference in references:
        keys: Any = reference["keys"]
        _followed(data, keys[:-1])[keys[-1]] = _found(reference, agent, secrets)
    return data


def plain(agent: PromptAgent) -> Json:
    """An agent as the data of a file; secrets are still secrets."""
    data = agent.model_dump(by_alias=True, exclude_unset=True)
    for tool in data.get("tools", ()):
        tool["bindings"] = {name: _binding(one) for name, one in tool.get("bindings", {}).items()}
    return data


def _binding(binding: dict[str, Any]) -> object:
    """A binding as a file has it: an input, or the value itself."""
    return binding if "input" in binding else binding.get("value")


def _secrets_in(value: object, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _secrets_in(entry, (*keys, key))
    elif isinstance(value, list | tuple):
        for place, entry in enumerate(value):
            yield from _secrets_in(entry, (*keys, place))
    elif hasattr(value, "get_secret_value"):
        yield keys, value


def _followed(data: Any, keys: Sequence[str | int]) -> Any:
    for key in keys:
        data = data[key]
    return data


def _reference(value: object, keys: Keys, agent: PromptAgent, secrets: Secrets) -> Json:
    named = next((name for name, known in secrets.items() if known == value), None)
    if named is not None:
        return {"keys": list(keys), "name": named}
    written = _written(agent, keys)
    if isinstance(written, str) and "${" in written and _resolved(agent, written) == value:
        return {"keys": list(keys), "text": written}
    if written is not None and _in_file(agent, keys) == value:
        return {"keys": list(keys)}
    raise RequestError(
        f"the secret at `{'.'.join(map(str, keys))}` could not be found again by another process",
        "Write ${env:NAME} in the file, or give it a name: DurableRuntime(url, secrets={'name': value}).",
    )


def _found(reference: Json, agent: PromptAgent, secrets: Secrets) -> object:
    match reference:
        case {"name": str(name)}:
            value: object = secrets.get(name)
        case {"text": str(text)}:
            value = _resolved(agent, text)
        case _:
            value = _in_file(agent, tuple(reference["keys"]))  # type: ignore[arg-type]  # a list of keys
    if value is not None:
        return value
    raise RequestError(
        f"a secret of the run cannot be found here: {reference}",
        "Set the variable, keep the file in its place, or pass `secrets=` to DurableRuntime.",
    )


def _written(agent: PromptAgent, keys: Keys) -> object:
    """What the file says at a place, before anything is resolved; None without a file, or where it says nothing."""
    if agent.path is None:
        return None
    try:
        _, parts = open_source(read_prompt(agent.path, agent.path.name)[0], agent.path.name)
        return _followed(read_frontmatter(parts.frontmatter or "").data, keys)
    except (PromptyError, LookupError, TypeError, ValueError):
        return None


def _resolved(agent: PromptAgent, text: str) -> object:
    references = References(agent.path.parent if agent.path else None)
    value = references.resolve(text)
    return None if references.failures else value


def _in_file(agent: PromptAgent, keys: Keys) -> object:
    """The secret at a place of an agent's file as it is now."""
    try:
        return _followed(plain(load(agent.path)), keys).get_secret_value() if agent.path else None
    except (PromptyError, AttributeError, LookupError, TypeError):
        return None
