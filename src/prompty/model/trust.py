"""Where the values of variables may go.

A prompt file may come from anyone, so it cannot decide alone where a value of the environment goes. The decision looks
at the field that names a variable, at the name, and at who names the server. It looks at no value and follows none.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from shlex import quote
from typing import NamedTuple

from pydantic.alias_generators import to_snake

from prompty.errors import RequestError
from prompty.model.tool import KNOWN_TOOL_KINDS
from prompty.safety.origins import (
    TRUST_VARIABLE,
    Origin,
    TextOrigin,
    find_endpoint_fault,
    find_private,
    is_built_in,
    parse_origin,
    parse_trusted,
)
from prompty.safety.redaction import is_credential_name, mask_url

FieldPath = tuple[str | int, ...]
ALLOW_VARIABLE = "PROMPTY_ENV_ALLOWED"
_MAX_TOLD = 10  # variables in one error
_SEPARATORS = re.compile(r"[\s,]+")


class FieldKind(StrEnum):
    """What a request does with a field, which decides where a variable in it may go."""

    FREE = "free"
    """Never sent, or only where it cannot do harm: to the program's functions, or to the host that it names."""
    CHOICE = "choice"
    """A model, a number or a listed word: not for the file's author, unless its name is allowed."""
    CREDENTIAL = "credential"
    """A key, for the servers that it belongs to."""
    HEADER = "header"
    """A credential, or a choice if its name is allowed and is not like that of a credential."""
    TEXT = "text"
    """Anything else that a request can have: not sent at all unless its name is allowed."""


class Use(NamedTuple):
    """A variable in a field, without its value."""

    variable: str
    source: TextOrigin
    keys: FieldPath
    """The field in the agent. The second key of a tool is its name, and a fallback is ("fallbacks", index)."""
    text: str
    """The field as it is written."""
    kind: FieldKind
    is_address: bool = False
    """The value is the whole origin or the whole host of an address."""
    place: str = ""
    """The file, the line and the column."""
    key: str = ""
    """The field as the file calls it."""

    def describe(self) -> str:
        return f"{self.place}: `{self.key}`" if self.place else f"`{self.key}`"


class Refusal(NamedTuple):
    """The reason why a value may not be sent, and how to allow it. `uses` are the fields with such values."""

    cause: str
    fix: str
    command_fix: str = ""
    uses: tuple[Use, ...] = ()

    def as_error(self) -> RequestError:
        return RequestError(self.cause, self.fix, self.command_fix)


def normalize_keys(keys: FieldPath, names: Mapping[str | int, str]) -> FieldPath:
    """Return the path of a field in the agent for its path in a file. `names` are the tools' names by index or key."""
    match keys:
        case ("metadata", "fallbacks", index, *rest) | ("fallbacks", index, *rest):
            return ("fallbacks", index, *normalize_keys(("model", *rest), names)[1:])
        case ("model",):  # a text is the id
            return ("model", "id")
        case ("model", "connection" | "options" as part, str(name), *rest):
            return ("model", part, to_snake(name), *rest)
        case ("model", str(name), *rest):
            return ("model", to_snake(name), *rest)
        case ("tools", index, "connection", str(name), *rest):
            return ("tools", names.get(index, index), "connection", to_snake(name), *rest)
        case ("tools", index, *rest):
            return ("tools", names.get(index, index), *rest)
    return keys


def is_address(keys: FieldPath) -> bool:
    """Return True for the address of a server, by its path in the agent."""
    match keys:
        case ("model", "connection", "endpoint" | "token_url"):
            return True
        case ("tools" | "fallbacks", _, "connection", "endpoint" | "token_url") | ("tools", _, "specification"):
            return True
    return False


def find_kind(keys: FieldPath, tool_kinds: Mapping[str | int, str]) -> FieldKind:
    """Return what a request does with a field, by its path in the agent."""
    match keys:
        case ("fallbacks", _, *rest):
            return find_kind(("model", *rest), tool_kinds)
        case ("model", "id" | "provider" | "api_type"):
            return FieldKind.CHOICE
        case ("model" | "tools", *_) if "connection" in keys[1:3]:
            return _find_connection_kind(keys[keys.index("connection") + 1 :])
        case ("model", "options", name) if name not in ("stop_sequences", "additional_properties"):
            return FieldKind.CHOICE
        case ("tools", name, "bindings" | "options", *_) if _runs_in_program(tool_kinds.get(name)):
            return FieldKind.FREE
        case ("model" | "inputs" | "outputs" | "tools" | "description", *_):
            return FieldKind.TEXT
    return FieldKind.FREE


def _find_connection_kind(keys: FieldPath) -> FieldKind:
    match keys:
        case ("api_key" | "client_id" | "client_secret" | "scopes", *_):
            return FieldKind.CREDENTIAL
        case ("headers", *_):
            return FieldKind.HEADER
        case ("api_version",):
            return FieldKind.CHOICE
        case ("endpoint" | "token_url",):
            return FieldKind.TEXT
    return FieldKind.FREE


def _runs_in_program(kind: str | None) -> bool:
    return kind == "function" or kind not in KNOWN_TOOL_KINDS


@dataclass(frozen=True, slots=True)
class Trust:
    """The variables of an agent, and what its program allows. Ignored by `==`: it is not part of the prompt."""

    uses: tuple[Use, ...] = field(default=(), compare=False, repr=False)
    missing: tuple[Use, ...] = field(default=(), compare=False, repr=False)
    """Variables that were not set: their fields are absent, and nothing connects."""
    env_allowed: frozenset[str] = field(default=frozenset(), compare=False)
    """Variables that may go anywhere, but for credentials."""
    trusted: frozenset[Origin] = field(default=frozenset(), compare=False)
    """Origins that may get credentials."""
    from_file: bool = field(default=True, compare=False)
    """False for an agent that the program builds in code: it is not checked."""
    secrets: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Values of variables that nothing shows."""

    def allows(self, name: str) -> bool:
        """Return True if a variable may be sent anywhere, except as a credential."""
        return name in self.env_allowed or name in _SEPARATORS.split(os.environ.get(ALLOW_VARIABLE, ""))

    def without(self, *paths: FieldPath) -> "Trust":
        """Return the trust of an agent whose fields at and below these paths the program has replaced."""
        uses, missing = _drop(self.uses, paths), _drop(self.missing, paths)
        is_same = len(uses) == len(self.uses) and len(missing) == len(self.missing)
        return self if is_same else replace(self, uses=uses, missing=missing)

    def for_fallback(self, index: int) -> "Trust":
        """Return the trust of the agent with a fallback of the file as its model."""
        own = self.without(("model",))
        return replace(own, uses=_as_model(own.uses, index), missing=_as_model(own.missing, index))

    def with_model(self, other: "Trust") -> "Trust":
        """Return the trust of the agent with the model of another one, whose own it is without."""
        uses, missing = ([use for use in found if use.keys[0] == "model"] for found in (other.uses, other.missing))
        allowed, trusted = self.env_allowed | other.env_allowed, self.trusted | other.trusted
        secrets = (*self.secrets, *other.secrets)
        return Trust((*self.uses, *uses), (*self.missing, *missing), allowed, trusted, secrets=secrets)

    def find(self, *path: str | int) -> list[Use]:
        """Return the uses at and below a path."""
        return [use for use in self.uses if use.keys[: len(path)] == path]

    def lacks(self, *path: str | int) -> bool:
        """Return True if the variable of this field is not set."""
        return any(use.keys == path for use in self.missing)

    def for_tool(self, name: str, names: Iterable[str]) -> "Trust":
        """Return the trust for one of the tools of these names. A use counts for every tool if its own is gone."""
        others = {*names} - {name}
        own = [use for use in self.uses if use.keys[0] == "tools" and use.keys[1] not in others]
        return replace(self, uses=tuple([use._replace(keys=("tools", name, *use.keys[2:])) for use in own]))

    def name_bound(self, tool: str, bindings: Iterable[str], names: Iterable[str]) -> dict[str, list[str]]:
        """Return the bound parameters of one of the tools of these names, with the variables in their values."""
        written, others = list(bindings), {*names} - {tool}
        found: dict[str, list[str]] = {name: [] for name in sorted(written)}
        for use in (*self.uses, *self.missing):
            match use.keys:
                case ("tools", owner, "bindings", key, *_) if owner not in others:
                    name = next(iter(written[key : key + 1]), "") if isinstance(key, int) else key
                    if use.variable not in found.get(name, [use.variable]):
                        found[name].append(use.variable)
        return found


HOST_BUILT = Trust(from_file=False)


def _drop(uses: tuple[Use, ...], paths: Sequence[FieldPath]) -> tuple[Use, ...]:
    return tuple([use for use in uses if not any(use.keys[: len(path)] == path for path in paths)])


def _as_model(uses: tuple[Use, ...], index: int) -> tuple[Use, ...]:
    return tuple(
        [use._replace(keys=("model", *use.keys[2:])) if use.keys[:2] == ("fallbacks", index) else use for use in uses]
    )


class Target(NamedTuple):
    """A server, and who names it. `hosts` are the provider's own, and `prefixes` begin the names of variables with the
    keys of this very server."""

    endpoint: str
    address: Use | None = None
    """The variable that is its whole origin."""
    hosts: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    trusted: frozenset[Origin] = frozenset()
    registered: tuple[str, ...] = ()

    def trusts(self, origin: Origin) -> bool:
        """Return True if the program allows an origin: for this agent, in its registry, or in the environment, which
        is read last because each call asks."""
        if origin in self.trusted or (self.registered and origin in read_trusted(self.registered)):
            return True
        listed = os.environ.get(TRUST_VARIABLE)
        return bool(listed) and origin in read_trusted(str(listed))

    @property
    def needs_public(self) -> bool:
        """Whether the server must have a public address: only the file, or a `.env` file, names it."""
        origin = parse_origin(self.endpoint)
        if origin is None or origin.is_loopback or self.prefixes or is_built_in(origin, self.hosts):
            return False
        if self.address is not None and self.address.source is TextOrigin.ENVIRONMENT:
            return False
        return not self.trusts(origin)

    @property
    def is_named_by_file(self) -> bool:
        if self.address or self.prefixes:
            return False
        origin = parse_origin(self.endpoint)
        return not (origin and (origin.is_loopback or is_built_in(origin, self.hosts) or self.trusts(origin)))


def refuse_address(target: Target) -> Refusal | None:
    """Return why no request at all may go to an address."""
    origin = parse_origin(target.endpoint)
    if origin is None:
        cause = f"the endpoint '{mask_url(target.endpoint)}' is not an absolute http(s) URL"
        return Refusal(cause, "Write it with its scheme, in ASCII, like https://host/v1 or http://localhost:8080/v1.")
    if fault := find_endpoint_fault(target.endpoint):
        cause = f"the endpoint '{mask_url(target.endpoint)}' has {fault}"
        return Refusal(cause, "Write an origin and a path, like https://host/v1.")
    if origin.is_loopback:
        return None
    if origin.scheme != "https" and not target.trusts(origin):
        return Refusal(f"{origin} is neither https nor on this machine", f"Write https://…. {_trust(origin)}")
    return refuse_private(origin, [origin.host]) if origin.is_address and target.needs_public else None


def refuse_private(origin: Origin, addresses: Iterable[str]) -> Refusal | None:
    """Return why no request may go to an origin with these addresses, if it needs public ones."""
    if private := find_private(addresses):
        return Refusal(f"{origin} has the address {private}, which is not public", f"If you trust it, {_trust(origin)}")
    return None


def refuse_credential(
    variable: str | None, source: TextOrigin, target: Target, *, is_named: bool = True
) -> Refusal | None:
    """Return why a credential may not go to a server. One of the machine has no variable, and one that the file does
    not name (`is_named`) does not go to loopback, where most servers need none."""
    origin = parse_origin(target.endpoint)
    if origin is None:
        return refuse_address(target)
    if source is TextOrigin.MACHINE and origin.scheme == "http" and not origin.is_loopback:
        return Refusal(
            f"{origin} is not https, and this machine's credentials are sent over https only", "Write https://…."
        )
    if source is TextOrigin.FILE:
        return None
    is_machine, address = source is TextOrigin.MACHINE, target.address
    hosts = [host for host in target.hosts if is_machine or not host.startswith("*")]  # anyone can have one of those
    if origin.is_loopback:
        is_allowed = is_named and not is_machine
    elif is_built_in(origin, hosts) or (variable or "").startswith(target.prefixes):
        is_allowed = True
    elif address is None or (address.source is TextOrigin.DOTENV and source is not TextOrigin.DOTENV):
        is_allowed = False
    else:
        is_allowed = address.variable in _PRINTED if is_machine else has_prefix(address.variable, variable or "")
    if is_allowed or target.trusts(origin):
        return None
    what = f"the value of {variable}" if variable else "a credential of this machine"
    fix = f"If you trust it, {_trust(origin)}"
    if address is None:
        return Refusal(f"{what} would go to {origin}, which only the file names", fix)
    if address.source is TextOrigin.DOTENV and source is not TextOrigin.DOTENV:
        cause = f"{what} would go to {origin}, an address of a .env file, and it is not from that file"
        return Refusal(cause, f"Put both into the environment, or both into .env. {fix}")
    prefix = _get_prefix(address.variable)
    wanted = f"Keys named {prefix}_… go there. " if prefix else ""
    return Refusal(f"{what} would go to {origin}, the address in {address.variable}", f"{wanted}{fix}")


def _trust(origin: Origin) -> str:
    return f"set {TRUST_VARIABLE}={origin} in the environment. In Python you can also list it in `trusted_endpoints`."


# Addresses that may get credentials of the machine, which have no name.
_PRINTED = frozenset({"OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "AZURE_OPENAI_ENDPOINT", "AZURE_AI_PROJECT_ENDPOINT"})
_ADDRESS_WORDS = re.compile(r"(?:_API)?_(?:BASE_URL|BASE|URL|URI|HOST|ENDPOINT)\Z")


def _get_prefix(address: str) -> str:
    """Return the name of an address variable without its last words: GATEWAY for GATEWAY_BASE_URL."""
    return _ADDRESS_WORDS.sub("", f"_{address}")[1:]


def has_prefix(address: str, variable: str) -> bool:
    """Return True if a variable's name begins like that of the address: GATEWAY_KEY for GATEWAY_URL."""
    prefix = _get_prefix(address)
    return bool(prefix) and variable.startswith(f"{prefix}_")


def refuse_text(trust: Trust) -> Refusal | None:
    """Return why a prompt may not be sent to anyone: it has variables whose names are not allowed."""
    refused = [use for use in trust.uses if use.kind is FieldKind.TEXT and not trust.allows(use.variable)]
    return _refuse_values(refused, "would be sent") if refused else None


def _refuse_values(uses: Sequence[Use], what: str) -> Refusal:
    names = list(dict.fromkeys(use.variable for use in uses))
    causes = [f"{use.describe()}: the value of {use.variable} {what}" for use in uses[:_MAX_TOLD]]
    flags = " ".join(f"--allow-env {quote(name)}" for name in names)
    return Refusal(
        "\n".join(causes),
        f"If it may be, allow it by name: load(path, env_allowed={names}), or {ALLOW_VARIABLE}={','.join(names)}.",
        f"If it may be, allow it by name: {flags}.",
        tuple(uses[:_MAX_TOLD]),
    )


def refuse_connection(trust: Trust, owner: FieldPath, target: Target, *, is_own: bool | None = None) -> Refusal | None:
    """Return why the credentials and choices of a model or a tool may not go to a server.

    `is_own` is True if the request has a credential of the machine or one that the file does not name, False if it has
    a key of the file, and None if the variables decide.
    """
    has_own = bool(is_own)
    for use in trust.find(*owner, "connection"):
        if use.kind is FieldKind.HEADER and trust.allows(use.variable) and not is_credential_name(use.variable):
            if target.is_named_by_file:
                return _refuse_values([use], f"would go to {parse_origin(target.endpoint)}, which only the file names")
        elif use.kind in (FieldKind.CREDENTIAL, FieldKind.HEADER):
            if refusal := refuse_credential(use.variable, use.source, target):
                return refusal._replace(cause=f"{use.describe()}: {refusal.cause}", uses=(use,))
            has_own = True
    origin = parse_origin(target.endpoint)
    if (has_own and is_own is not False) or (origin and origin.is_loopback):
        return None
    return refuse_choices(trust, owner)


def refuse_choices(trust: Trust, owner: FieldPath) -> Refusal | None:
    """Return why a request without a key of the caller's may not be sent: its account is that of the file's author."""
    choices = [one for one in trust.find(*owner) if one.kind is FieldKind.CHOICE and not trust.allows(one.variable)]
    return _refuse_values(choices, "would go to an account of the file's author") if choices else None


def explain_missing(missing: Sequence[Use]) -> tuple[str, str, str]:
    """Return the cause of an error for variables that are not set, its fix in Python, and on a command line."""
    causes = [
        f"{f'{use.place}: ' if use.place else ''}Environment variable '{use.variable}' not set, which `{use.key}` names"
        for use in missing[:_MAX_TOLD]
    ]
    *others, last = dict.fromkeys(use.variable for use in missing)
    names = f"{', '.join(others)} and {last}" if others else last
    model = [use for use in missing if use.keys[0] == "model"]
    instead = ", or use another model: model='provider:id'" if model else ""
    flag = ", or add --model provider:id" if model else ""
    fix = f"Set {names}, in load(env=…) if you pass one, and load the prompt again{instead}."
    return "\n".join(causes), fix, f"Set {names}, or add a .env file{flag}."


def read_trusted(endpoints: str | tuple[str, ...]) -> frozenset[Origin]:
    """Parse the origins that a host allows. Raise RequestError for an invalid entry."""
    try:
        return parse_trusted(endpoints)
    except ValueError as error:
        fix = f"Write origins such as https://host or http://host:8000 in trusted_endpoints= or {TRUST_VARIABLE}."
        raise RequestError(f"{error}", fix) from None
