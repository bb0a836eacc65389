"""What models accept, as data.

A fact belongs to a host and an exact id or a pattern, because the same id has other rules at another host. A model
without a row has no facts, and its requests are sent as the file says. `model_facts.json` is written from
`facts/models.yaml`, which has the source and the date of every fact. It is read at the first request.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from prompty.errors import RequestError
from prompty.model.agent import ModelOptions, PromptAgent
from prompty.providers.profiles import Profile

FACTS_VARIABLE = "PROMPTY_MODEL_FACTS"
ACTS_AS = "actsAs"
_FILE = Path(__file__).with_name("model_facts.json")
_TAKES = ("ok", "refused", "unknown")
_SAMPLING = (
    "ok",
    "effort-none-only",
    "default-only",
    "refused",
    "old-version-only",
    "ignored-while-thinking",
    "unknown",
)
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")
_APIS = ("chat", "responses", "messages", "embeddings", "images", "audio")
# The facts that the package reads, and their values. A list stands for any number of its entries.
VALUES: dict[str, tuple[str, ...] | list[str] | type] = {
    "status": ("current", "legacy", "deprecated", "ended", "invalid-id", "unknown"),
    "ends": date,
    "replacement": str,
    "apis": list(_APIS),
    "structured": list(_APIS),
    "tools": _TAKES,
    "tools_chat_unset": _TAKES,
    "tools_chat_none": _TAKES,
    "tools_chat_effort": _TAKES,
    "forced_tool_choice": ("ok", "refused", "refused-while-thinking", "unknown"),
    "temperature": _SAMPLING,
    "top_p": _SAMPLING,
    "top_k": _SAMPLING,
    "penalties": _SAMPLING,
    "temperature_with_top_p": _TAKES,
    "stop": _TAKES,
    "seed": _TAKES,
    "max_tokens_on_chat": _TAKES,
    "thinks": ("always", "default", "optional", "no"),
    "effort_chat": list(EFFORTS),
    "effort_responses": list(EFFORTS),
    "effort_messages": list(EFFORTS),
    "effort_default": EFFORTS,
    "thinking_types": ["adaptive", "enabled", "disabled", "between_tools"],
    "thinking_off_max_effort": EFFORTS,
    "thinking_blocks_bound": bool,
    "prefill": _TAKES,
    "max_output": int,
    "image_response_format": _TAKES,
    "cache_kind": ("implicit", "explicit", "both"),
    "cache_min": int,
    "cache_write_factor": float,
}
_DATE = re.compile(r"(-\d{4}-\d\d-\d\d|-\d{8}|@\d{8})\Z")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_BEDROCK_PREFIX = re.compile(r"\A([a-z-]+\.)*(openai|anthropic)\.")
_BEDROCK_SUFFIX = re.compile(r"((-v\d+)?:\d+|-v\d+)\Z")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ModelFacts:
    """The facts of one model. Those that are `known` may change a request. `hints` are less sure: `prompty check`
    mentions them."""

    host: str
    id: str
    known: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> tuple[Any, bool]:
        """Return the value of a fact or None, and True if it is known for sure."""
        return (self.known[name], True) if name in self.known else (self.hints.get(name), False)

    def reasons(self) -> bool:
        """Return True if the model reasons, or may be asked to."""
        return bool(self.known.get("thinks", "no") != "no")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Row:
    host: str
    pattern: str | None  # compiled only for ids at its host
    ids: frozenset[str]
    known: Mapping[str, Any]
    hints: Mapping[str, Any]


def find_model_facts(agent: PromptAgent, profile: Profile) -> ModelFacts | None:
    """Return the facts of the model that answers an agent at the server of a profile, or None if there are none.

    `metadata.actsAs` names the host and the model behind an Azure deployment or a proxy. It selects the facts, and
    nothing else.
    """
    host, id = profile.name, agent.model.id
    if agent.metadata and isinstance(named := agent.metadata.get(ACTS_AS), str):
        host, _, id = named.partition(":")
        if profile.name == "azure" and host != "azure":
            return None
    elif host == "azure":
        return None  # a deployment may have any name
    return find_facts(host, id)


def check_own_facts() -> None:
    """Raise RequestError if the user's own file of facts cannot be used."""
    _list_tables(_get_setting())


def get_effort(options: ModelOptions) -> str | None:
    """Return the effort that a file asks for: under any of its names in `additionalProperties`, or as an option."""
    if not (extra := options.additional_properties):
        return options.reasoning_effort
    nested = [extra.get(group) for group in ("reasoning", "output_config")]
    written = [extra.get("reasoning_effort"), *(group.get("effort") for group in nested if isinstance(group, dict))]
    return next((effort for effort in written if isinstance(effort, str)), options.reasoning_effort)


def find_need_of_responses(facts: ModelFacts, options: ModelOptions, *, offers_tools: bool) -> str | None:
    """Return the reason why requests with these options must go to the Responses API, or None."""
    apis = facts.known.get("apis", ("chat",))
    if "chat" not in apis and "responses" in apis:
        return f"{facts.id} answers on the Responses API only"
    if offers_tools and facts.known.get(get_tools_fact(get_effort(options))) == "refused":
        return f"{facts.id} takes these tools on the Responses API only"
    return None


def get_tools_fact(effort: str | None) -> str:
    """Return the name of the fact about function tools on chat, with this effort."""
    return {None: "tools_chat_unset", "none": "tools_chat_none"}.get(effort, "tools_chat_effort")


def find_facts(host: str, id: str) -> ModelFacts | None:
    """Return the facts of a model at a host."""
    return _find(host, id, _get_setting())


@lru_cache(maxsize=512)
def _find(host: str, id: str, setting: str) -> ModelFacts | None:
    """Return the facts of the first pattern that matches, and over them those of the exact id, fact by fact. The
    user's own facts come last."""
    plain, exact = _normalize(host, id), {id.lower(), _unwrap(host, id).lower()}
    known: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    for rows in _list_tables(setting):
        own = [row for row in rows if row.host == host]
        matching = [row for row in own if row.pattern and re.fullmatch(row.pattern, plain, re.IGNORECASE)][:1]
        for row in (*matching, *(row for row in own if row.ids & exact)):
            for name in row.known.keys() | row.hints.keys():  # one fact is either known or a hint
                known.pop(name, None)
                hints.pop(name, None)
            known |= row.known
            hints |= row.hints
    return ModelFacts(host=host, id=id, known=known, hints=hints) if known or hints else None


def _get_setting() -> str:
    return os.environ.get(FACTS_VARIABLE, "")


def _list_tables(setting: str) -> tuple[Iterable[_Row], ...]:
    if setting == "off":
        return ()
    return _read_own_rows(), _read_file(setting) if setting else (), tuple(_registered)


def _unwrap(host: str, id: str) -> str:
    """Take a fine-tune, a vendor's prefix or a platform's suffix off an id. The date stays."""
    if id.startswith("ft:"):
        id = id.split(":")[1]
    match host:
        case "gemini":
            return id.removeprefix("models/")
        case "openrouter":
            return id.lstrip("~").split("/", 1)[-1].split(":")[0]
        case "bedrock" | "bedrock-anthropic":
            return _BEDROCK_SUFFIX.sub("", _BEDROCK_PREFIX.sub("", id))
    return id


def _normalize(host: str, id: str) -> str:
    return _DATE.sub("", _unwrap(host, id)).lower()


@cache
def read_package_facts() -> Mapping[str, Any]:
    """Return the facts of this release: the date they were checked, the choices of this project, and the rows."""
    data: dict[str, Any] = json.loads(_FILE.read_bytes())
    return data


def _read_own_rows() -> tuple[_Row, ...]:
    rows = read_package_facts()["rows"]
    return tuple(
        _Row(
            host=row["host"],
            pattern=row.get("match"),
            ids=frozenset(id.lower() for id in row.get("ids", ())),
            known=row.get("facts", {}),
            hints=row.get("hints", {}),
        )
        for row in rows
    )


def _read_file(path: str) -> tuple[_Row, ...]:
    """Read a user's own file: a list of rows with `host`, `match` and `facts`."""
    from prompty.safety.yaml import read_yaml  # only a user with a file of facts needs it

    try:
        data, problems = read_yaml(Path(path).read_text(encoding="utf-8"))
        if problems:
            raise ValueError(problems[0].message)
        rows: Any = data
        return tuple(_build_row(row["host"], row["match"], row["facts"]) for row in rows)
    except (OSError, ValueError, LookupError, TypeError, re.error) as error:
        fix = "Write a list of rows: - {host: openai, match: my-model, facts: {temperature: refused}}"
        raise RequestError(f"{FACTS_VARIABLE} names {path!r}, which cannot be used: {error}", fix) from None


_registered: list[_Row] = []


def add_facts(host: str, match: str, facts: Mapping[str, object]) -> None:
    """Add facts about the models whose whole id matches a regular expression, over those of this release."""
    _registered.append(_build_row(host, match, facts))
    _find.cache_clear()


def _build_row(host: str, match: str, facts: Mapping[str, object]) -> _Row:
    for name, value in facts.items():
        if not _is_valid(name, value):
            allowed = VALUES.get(name)
            fix = f"Known facts: {', '.join(VALUES)}." if allowed is None else f"Write {_describe(allowed)}."
            raise RequestError(f"`{name}: {value!r}` is not a fact about a model", fix)
    return _Row(host=host, pattern=re.compile(match).pattern, ids=frozenset(), known=dict(facts), hints={})


def _is_valid(name: str, value: object) -> bool:
    match VALUES.get(name):
        case None:
            return False
        case type() as kind if kind is date:
            return isinstance(value, str) and _ISO_DATE.fullmatch(value) is not None
        case type() as kind:
            return type(value) is kind
        case list() as entries:
            return isinstance(value, list | tuple) and all(entry in entries for entry in value)
        case values:
            return value in values


def _describe(allowed: tuple[str, ...] | list[str] | type) -> str:
    if isinstance(allowed, type):
        return "a date like 2026-12-31" if allowed is date else f"a value of type {allowed.__name__}"
    return f"{'a list of ' if isinstance(allowed, list) else 'one of '}{', '.join(allowed)}"
