"""An agent as data without the values of its variables, to be stored or pickled: a variable is a reference again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic.alias_generators import to_camel

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.trust import FieldPath, Use, explain_missing
from prompty.pipeline.references import References, is_private
from prompty.registry import DEFAULT, Registry
from prompty.safety.redaction import is_credential_name, mask_url

_ADDRESSES = frozenset({"endpoint", "tokenUrl", "specification"})
# The key of a value that a file may write without it.
_SHORT_FORMS = ("value", "default", "id", "format", "kind")


class StoredField(NamedTuple):
    """A field of an agent's data whose value is a secret, or is from a variable. `text` is the field as written, or
    None for a secret of the file."""

    keys: FieldPath
    value: object
    text: str | None
    is_secret: bool


def dump_agent(agent: PromptAgent) -> Json:
    """Return the agent as the data of a frontmatter. Secrets are still secret values."""
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


def take_fields(agent: PromptAgent, data: Json) -> list[StoredField]:
    """Take the secrets and the values of variables out of an agent's data."""
    uses = {keys: use for use in agent.trust.uses if (keys := _find_field(data, use.keys))}
    fields = []
    for keys, value in list(_walk(data)):
        use = uses.get(keys)
        text, secret = use and use.text, _reveal(value)
        is_secret = _is_secret(value, keys) or (use is not None and _is_named(use))
        if use is not None or is_secret:
            fields.append(StoredField(keys, secret, text, is_secret))
    for found in fields:
        put_value(data, found.keys, None)
    return fields


def put_value(data: Any, keys: FieldPath, value: object) -> None:
    """Replace a value in the data of an agent."""
    for key in keys[:-1]:
        data = data[key]
    data[keys[-1]] = value


def _reveal(value: Any) -> object:
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value


def _walk(value: object, keys: FieldPath = ()) -> Iterator[tuple[FieldPath, object]]:
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _walk(entry, (*keys, key))
    else:
        yield keys, value


def _is_secret(value: object, keys: FieldPath) -> bool:
    """Return True for a credential, a bound value, an address with a credential, and a private field so named."""
    if hasattr(value, "get_secret_value"):
        return True
    if not isinstance(value, str):
        return False
    if keys[-1] in _ADDRESSES and mask_url(value) != value:
        return True
    is_hidden = is_private(keys) or keys[:2] == ("metadata", "fallbacks")
    return is_hidden and any(is_credential_name(str(key)) for key in keys)


def _is_named(use: Use) -> bool:
    return is_credential_name(use.variable) or is_private(use.keys)


def _find_field(data: Any, keys: FieldPath) -> FieldPath | None:
    """Return the path of a field in an agent's data, or None if it is gone."""
    path: FieldPath = ()
    for key in ("metadata", *keys) if keys[0] == "fallbacks" else keys:
        step = _find_step(data, key)
        if step is None:
            continue  # a form of the file that the data does not have
        data, path = data[step], (*path, step)
    while isinstance(data, dict):
        step = next((name for name in _SHORT_FORMS if name in data), None)
        if step is None:
            return None
        data, path = data[step], (*path, step)
    return path if path and not isinstance(data, list) else None


def _find_step(data: Any, key: str | int) -> str | int | None:
    if isinstance(data, list):
        named = (at for at, entry in enumerate(data) if isinstance(entry, dict) and entry.get("name") == key)
        return key if isinstance(key, int) and key < len(data) else next(named, None)
    if isinstance(data, dict):
        return key if key in data else camel if (camel := to_camel(str(key))) in data else None
    return None


# Pickles.


def reduce_agent(agent: PromptAgent) -> tuple[Callable[..., PromptAgent], tuple[object, ...]]:
    """Return how to build an agent again in another process, with the values that its variables have there."""
    if agent.registry is not DEFAULT:
        raise TypeError("An agent with its own registry cannot be pickled. Load it in the other process.")
    data = dump_agent(agent)
    references = []
    for keys, value, text, is_secret in take_fields(agent, data):
        is_key = is_secret and ("bindings" not in keys[:3] or is_credential_name(str(keys[3])))
        if text is not None and _has_value(agent, text, value):
            references.append((keys, text))
        elif value is None or not is_key:
            put_value(data, keys, value)
        else:
            raise RequestError(
                f"the agent cannot be pickled: `{'.'.join(map(str, keys))}` is a key, which would be in the bytes",
                "Write ${env:NAME} in the file, or load the prompt in the other process.",
            )
    kept = {name: getattr(agent, name) for name in ("path", "base_dir", "allowed_roots", "body_lines", "result_schema")}
    own = agent.trust
    return restore_agent, (data, references, kept, own.env_allowed, own.trusted, own.from_file)


def _has_value(agent: PromptAgent, text: str, value: object) -> bool:
    """Return False if a program has replaced the value of a field, as far as this process can know."""
    references = References(agent.base_dir, agent.allowed_roots, dotenv=DEFAULT.dotenv)
    found = references.resolve(text)
    return bool(references.failures) or str(found) == str(value)


def restore_agent(
    data: Json,
    fields: list[tuple[FieldPath, str]],
    kept: Json,
    env_allowed: frozenset[str],
    trusted: frozenset[Any],
    from_file: bool,
    registry: Registry = DEFAULT,
) -> PromptAgent:
    """Build an agent from its pickle. Raise RequestError for variables that are not set here."""
    base: Any = kept["base_dir"]
    references = References(
        base if base is None else Path(base),
        kept["allowed_roots"],  # type: ignore[arg-type]  # as `reduce_agent` wrote it
        dotenv=registry.dotenv,
        trusted=trusted,
        env_allowed=env_allowed,
    )
    for keys, text in fields:
        put_value(data, keys, references.resolve_field(text, keys))
    trust = references.build_trust(data) if from_file else PromptAgent.model_fields["trust"].default
    if trust.missing:
        raise RequestError(*explain_missing(trust.missing))
    for _, failure in references.failures:
        raise RequestError(failure.message, failure.fix)
    return PromptAgent.model_validate({**data, **kept, "trust": trust})
