"""Store the secrets of a run as references to where a worker finds them, never as values.

A reference has the path of the secret in the agent (`keys`) and its source: the `name` that the host gave it in
`secrets=`, the `text` of the file at that path (`${env:NAME}`), or, without either, the file itself.
References are stored beside the data of a run and not inside it, so no text can be mistaken for one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import TypeAdapter

from prompty.errors import PromptyError, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.trust import Trust
from prompty.pipeline.load import load
from prompty.pipeline.references import References
from prompty.pipeline.stored import StoredField, dump_agent, put_value, take_fields

Secrets = Mapping[str, str]
TRUST: TypeAdapter[Trust] = TypeAdapter(Trust)
"""The variables of an agent, without their values, and what its program allows, as JSON."""
SECRET_FIELDS = {"secrets"}  # of a `Trust`, which no database gets


def extract_secrets(agent: PromptAgent, secrets: Secrets) -> tuple[Json, list[Json]]:
    """Return the agent as frontmatter data without its secrets, and the references to them."""
    data = dump_agent(agent)
    references = []
    for found in take_fields(agent, data):
        if found.is_secret and found.value is not None:
            references.append(_build_reference(found, agent, secrets))
        else:
            put_value(data, found.keys, found.value)
    return data, references


def restore_secrets(data: Json, references: Sequence[Json], agent: PromptAgent, secrets: Secrets) -> list[object]:
    """Put the secrets back into the data that `extract_secrets` returned, and return them."""
    values = [_resolve_reference(reference, agent, secrets) for reference in references]
    for reference, value in zip(references, values, strict=True):
        keys: Any = reference["keys"]
        put_value(data, keys, value)
    return values


def _build_reference(found: StoredField, agent: PromptAgent, secrets: Secrets) -> Json:
    keys, value = list(found.keys), found.value
    name = next((name for name, known in secrets.items() if known == value), None)
    if name is not None:
        return {"keys": keys, "name": name}
    if found.text is not None and _resolve(agent, found.text) == value:
        return {"keys": keys, "text": found.text}
    if _read_secret(agent, keys) == value:
        return {"keys": keys}
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
            label, value = f"`{'.'.join(map(str, keys))}` of '{agent.path}'", _read_secret(agent, keys)
    if value is not None:
        return value
    raise RequestError(
        f"this process cannot find the secret {label} of the run",
        "Set the environment variable, keep the file at its path, or pass `secrets=`.",
        "Set the environment variable, keep the file at its path, or start the worker with --secret NAME=VARIABLE.",
    )


def _resolve(agent: PromptAgent, text: str) -> object:
    references = References(agent.path.parent if agent.path else None)
    value = references.resolve(text)
    return None if references.failures else value


def _read_secret(agent: PromptAgent, keys: Sequence[str | int]) -> object:
    """Return the secret that the file now has at `keys`, or None."""
    if agent.path is None:
        return None
    try:
        value: Any = dump_agent(load(agent.path, variant="", missing_env="defer"))
        for key in keys:
            value = value[key]
        return value.get_secret_value() if hasattr(value, "get_secret_value") else value
    except (PromptyError, LookupError, TypeError):
        return None
