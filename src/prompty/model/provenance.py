"""The sources of an agent's credentials and endpoints, which decide where a credential may be sent (F14)."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pydantic import SecretStr

from prompty.errors import RequestError
from prompty.model.unset import Unset
from prompty.safety.origins import TRUST_VARIABLE, Origin, TextOrigin, may_send, parse_origin, parse_trusted

_WORDS = {
    TextOrigin.FILE: "written in the file",
    TextOrigin.DOTENV: "from a .env file",
    TextOrigin.ENVIRONMENT: "from the environment",
    TextOrigin.MACHINE: "a token of this machine",
}


class Refusal(NamedTuple):
    """The reason why a credential may not be sent to an endpoint, and how to allow it."""

    cause: str
    fix: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """The sources of an agent's texts, by value. An agent that the host builds in code has none: it is not checked.

    `texts` are values from outside the file, in part or in whole. `endpoints` are URLs whose whole origin is from a
    variable, and `carriers` those that contain a credential. `exposed` is the source of credentials that ordinary
    fields send to the model, and `trusted` are the origins that the host allows for this agent. `unset` are the
    references whose variables were not set, and `env` the host's variables in place of the environment's. Ignored by
    `==`: provenance is not part of the prompt.
    """

    texts: Mapping[str, TextOrigin] = field(default_factory=dict, compare=False, repr=False)
    endpoints: Mapping[str, TextOrigin] = field(default_factory=dict, compare=False, repr=False)
    carriers: Collection[str] = field(default=(), compare=False, repr=False)
    exposed: TextOrigin | None = field(default=None, compare=False)
    trusted: frozenset[Origin] = field(default=frozenset(), compare=False)
    from_file: bool = field(default=True, compare=False)
    unset: tuple[Unset, ...] = field(default=(), compare=False)
    env: Mapping[str, str] | None = field(default=None, compare=False, repr=False)
    # Cache of allowed connections by id, with the values that the decision depended on.
    routes: dict[int, tuple[object, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def add(self, late: "Provenance", unset: tuple[Unset, ...]) -> "Provenance":
        """Return this provenance with that of values that were resolved later. `unset` are not resolved even now."""
        texts = {**self.texts, **{text: max(source, self.get_source(text)) for text, source in late.texts.items()}}
        sources = [source for source in (self.exposed, late.exposed) if source is not None]
        return replace(
            self,
            texts=texts,
            endpoints={**self.endpoints, **late.endpoints},
            carriers={*self.carriers, *late.carriers},
            exposed=max(sources, default=None),
            unset=unset,
        )

    def get_source(self, text: str) -> TextOrigin:
        """Return the source of a resolved text."""
        return self.texts.get(text, TextOrigin.FILE)

    def get_strictest(self, secret: SecretStr | None, endpoint: str | None) -> TextOrigin | None:
        """Return the more restricted source of a secret and of a credential inside an endpoint."""
        sources = [self.get_source(secret.get_secret_value())] if secret else []
        if endpoint and endpoint in self.carriers:
            sources.append(self.get_source(endpoint))
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
        if origin.scheme == "http" and credential is TextOrigin.MACHINE:
            return Refusal(
                f"{origin} is not https, and this machine's tokens are sent over https only", "Write https://…."
            )
        allow = (
            f"If you trust it, set {TRUST_VARIABLE}={origin} in the environment. In Python you can also list it in "
            "`trusted_endpoints`."
        )
        if origin.scheme == "http":
            return Refusal(f"{origin} is neither https nor on this machine", f"Write https://…. {allow}")
        namer = "a .env file" if self.endpoints.get(endpoint) is TextOrigin.DOTENV else "the file"
        held = _WORDS[credential or TextOrigin.FILE]
        return Refusal(f"the credential is {held}, but {origin} is named only by {namer}", allow)


HOST_BUILT = Provenance(from_file=False)


def read_trusted(endpoints: str | tuple[str, ...]) -> frozenset[Origin]:
    """Parse the origins that a host allows. Raise RequestError for an invalid entry."""
    try:
        return parse_trusted(endpoints)
    except ValueError as error:
        fix = f"Write origins such as https://host or http://host:8000 in trusted_endpoints= or {TRUST_VARIABLE}."
        raise RequestError(f"{error}", fix) from None
