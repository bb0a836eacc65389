"""The sources of an agent's values and endpoints, which decide where a value from outside the file may go (F14)."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, NamedTuple

from pydantic import SecretStr

from prompty.errors import RequestError
from prompty.model.unset import FieldPath, Unset
from prompty.safety.origins import TRUST_VARIABLE, Origin, TextOrigin, may_send, parse_origin, parse_trusted

_WORDS = {
    TextOrigin.FILE: "written in the file",
    TextOrigin.DOTENV: "from a .env file",
    TextOrigin.ENVIRONMENT: "from the environment",
    TextOrigin.MACHINE: "a token of this machine",
}


_ALLOW = (
    f"If you trust it, set {TRUST_VARIABLE}={{origin}} in the environment. In Python you can also list it in "
    "`trusted_endpoints`."
)
_MAX_TOLD = 10  # variables in one error
_UNREAD = frozenset({"model", "metadata", "fallbacks"})  # parts of a file whose values no model reads,
_INSTRUCTIONS = frozenset({"additionalProperties", "additional_properties"})  # except for these, which can be anything


class Exposure(NamedTuple):
    """A variable, and a field at `keys` that sends its value but is no credential. The name is empty for the values
    that a parent binds, and `is_set` False until the variable has a value. `place` is its position in the file, where
    its name is `key`.
    """

    variable: str
    source: TextOrigin
    keys: FieldPath
    is_set: bool = True
    place: str = ""
    key: str = ""

    @property
    def is_readable(self) -> bool:
        """Whether the model can read the value, and so pass it on to tools."""
        if self.keys[0] in _UNREAD:
            return not _INSTRUCTIONS.isdisjoint(self.keys)
        return self.keys[:1] + self.keys[2:3] != ("tools", "options")  # the host's code gets those

    def describe(self, origin: str, namer: str) -> str:
        """Return the cause of an error for a request to an endpoint."""
        value = f"the value of {self.variable}" if self.variable else "a bound value"
        where = f"{self.place}: `{self.key}`: " if self.place else ""
        return f"{where}{value} would go to {origin}, which is named only by {namer}"


class Refusal(NamedTuple):
    """The reason why a value may not be sent to an endpoint, and how to allow it.

    `exposed` are the fields with that value, unless it is a credential, and `cause` has a line for each.
    """

    cause: str
    fix: str
    exposed: tuple[Exposure, ...] = ()


@dataclass(frozen=True, slots=True)
class Provenance:
    """The sources of an agent's texts, by value. An agent that the host builds in code has none: it is not checked.

    `texts` are values from outside the file, in part or in whole. `endpoints` are URLs whose whole origin is from a
    variable, and `carriers` those that contain another one. `exposed` are the variables that other fields send, and
    `env_allowed` those that may go anywhere. `trusted` are the origins that the host allows for this agent. `unset` are
    the references whose variables were not set, and `env` the host's variables in place of the environment's. `secrets`
    are the texts with credentials, and `readers` the agents that run this one as a tool. Ignored by `==`: provenance is
    not part of the prompt.
    """

    texts: Mapping[str, TextOrigin] = field(default_factory=dict, compare=False, repr=False)
    endpoints: Mapping[str, TextOrigin] = field(default_factory=dict, compare=False, repr=False)
    carriers: Mapping[str, Exposure] = field(default_factory=dict, compare=False, repr=False)
    exposed: tuple[Exposure, ...] = field(default=(), compare=False, repr=False)
    trusted: frozenset[Origin] = field(default=frozenset(), compare=False)
    from_file: bool = field(default=True, compare=False)
    unset: tuple[Unset, ...] = field(default=(), compare=False)
    env: Mapping[str, str] | None = field(default=None, compare=False, repr=False)
    env_allowed: frozenset[str] = field(default=frozenset(), compare=False)
    secrets: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    readers: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    # Cache of allowed connections by id, with the values that the decision depended on.
    routes: dict[int, tuple[object, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def add(self, late: "Provenance", unset: tuple[Unset, ...]) -> "Provenance":
        """Return this provenance with that of values that were resolved later. `unset` are not resolved even now."""
        known = {(one.variable, one.keys): one for one in self.exposed}
        texts = {**self.texts, **{text: max(source, self.get_source(text)) for text, source in late.texts.items()}}
        return replace(
            self,
            texts=texts,
            endpoints={**self.endpoints, **late.endpoints},
            carriers={**self.carriers, **late.carriers},
            exposed=tuple({**known, **{(one.variable, one.keys): self._place(one) for one in late.exposed}}.values()),
            unset=unset,
            secrets=self.secrets | late.secrets,
        )

    def _place(self, late: Exposure) -> Exposure:
        """Return a variable that was set after the load with the position of its reference."""
        known = next((one for one in self.exposed if one.keys == late.keys), late)
        return late._replace(place=known.place, key=known.key)

    def get_source(self, text: str) -> TextOrigin:
        """Return the source of a resolved text."""
        return self.texts.get(text, TextOrigin.FILE)

    def get_strictest(self, secret: SecretStr | None, endpoint: str | None) -> TextOrigin | None:
        """Return the more restricted source of a secret and of a variable inside an endpoint."""
        sources = [self.get_source(secret.get_secret_value())] if secret else []
        if endpoint and endpoint in self.carriers:
            sources.append(self.carriers[endpoint].source)
        return max(sources, default=None)

    def may_always_send(
        self, credential: TextOrigin | None, endpoint: str, built_in: tuple[str, ...], allowed: frozenset[Origin]
    ) -> bool:
        """Return True if a request with this credential may go to an endpoint, regardless of the environment.

        `allowed` are the registry's origins.
        """
        if not self.from_file:
            return True
        origin = parse_origin(endpoint)
        if origin is None:  # no request can be sent
            return credential is None or credential is TextOrigin.FILE
        named_by = self.endpoints.get(endpoint, TextOrigin.FILE)
        return may_send(credential, origin, named_by, built_in, self.trusted | allowed if allowed else self.trusted)

    def may_send(
        self, credential: TextOrigin | None, endpoint: str, built_in: tuple[str, ...], allowed: frozenset[Origin]
    ) -> bool:
        """Return True if a request with this credential may go to an endpoint."""
        if self.may_always_send(credential, endpoint, built_in, allowed):
            return True
        listed = os.environ.get(TRUST_VARIABLE)
        return bool(listed) and self.may_always_send(credential, endpoint, built_in, read_trusted(str(listed)))

    def refuse(
        self, credential: TextOrigin | None, endpoint: str, built_in: tuple[str, ...], allowed: frozenset[Origin]
    ) -> Refusal | None:
        """Return the reason why a request may not be sent, or None."""
        if self.may_send(credential, endpoint, built_in, allowed):
            return None
        origin = parse_origin(endpoint)
        if origin is None:
            return Refusal("the endpoint is not an absolute http(s) URL", "Write it as https://host/path, in ASCII.")
        if origin.scheme == "http" and credential is TextOrigin.MACHINE and not origin.is_loopback:
            return Refusal(
                f"{origin} is not https, and this machine's tokens are sent over https only", "Write https://…."
            )
        allow = _ALLOW.format(origin=origin)
        if origin.scheme == "http" and not origin.is_loopback:
            return Refusal(f"{origin} is neither https nor on this machine", f"Write https://…. {allow}")
        held = _WORDS[credential or TextOrigin.FILE]
        if origin.is_loopback:
            return Refusal(f"the credential is {held}, and {origin} is not listed as trusted", allow)
        return Refusal(f"the credential is {held}, but {origin} is named only by {self.get_namer(endpoint)}", allow)

    def refuse_exposed(
        self, exposed: Iterable[Exposure], endpoint: str, built_in: tuple[str, ...], allowed: frozenset[Origin]
    ) -> Refusal | None:
        """Return the reason why a request with the values of these variables may not be sent, or None."""
        found, origin = [*exposed], parse_origin(endpoint)
        kept = [one for one in {one.source for one in found} if not self.may_send(one, endpoint, built_in, allowed)]
        refused = [one for one in found if one.source in kept] if kept else []
        if not refused or origin is None:
            return self.refuse(refused[0].source, endpoint, built_in, allowed) if refused else None
        shown, name = str(origin), str(origin)
        if endpoint in self.carriers:  # its host may be the value
            shown, name = "an endpoint", "ORIGIN"
        causes = [one.describe(shown, self.get_namer(endpoint)) for one in refused[:_MAX_TOLD]]
        names = list(dict.fromkeys(one.variable for one in refused if one.variable))
        fix = _ALLOW.format(origin=name)
        if names:
            flags = " ".join(f"--allow-env {quote(name)}" for name in names)
            fix += f" Or allow any endpoint to get the value: {flags}, or load(path, env_allowed={names})."
        return Refusal("\n".join(causes), fix, tuple(refused[:_MAX_TOLD]))

    def get_namer(self, endpoint: str) -> str:
        """Return who names an endpoint that is not the environment's, in words."""
        return "a .env file" if self.endpoints.get(endpoint) is TextOrigin.DOTENV else "the file"


HOST_BUILT = Provenance(from_file=False)


def read_trusted(endpoints: str | tuple[str, ...]) -> frozenset[Origin]:
    """Parse the origins that a host allows. Raise RequestError for an invalid entry."""
    try:
        return parse_trusted(endpoints)
    except ValueError as error:
        fix = f"Write origins such as https://host or http://host:8000 in trusted_endpoints= or {TRUST_VARIABLE}."
        raise RequestError(f"{error}", fix) from None
