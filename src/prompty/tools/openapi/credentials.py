"""Which credential a request carries, and where: the connection has it, the document says how it is sent."""

import base64
import json
import re
from dataclasses import dataclass, field, replace
from urllib.parse import quote, quote_plus

from prompty.errors import ToolError
from prompty.model.message import Json
from prompty.redaction import MASK, masked_text
from prompty.tools.openapi.document import Document
from prompty.tools.openapi.operations import Operation
from prompty.tools.openapi.request import HttpRequest

SHORTEST_SECRET = 4  # what is shorter stands in other words, too
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_TYPES = ("apiKey", "http", "oauth2", "openIdConnect")
BEARER: Json = {"type": "http", "scheme": "bearer"}


@dataclass(frozen=True, slots=True)
class Secrets:
    """What must not be shown, in every form in which a service may repeat it."""

    values: tuple[str, ...] = field(default=(), repr=False)

    def masked(self, text: str) -> str:
        for value in sorted(self.values, key=len, reverse=True):
            if len(value) >= SHORTEST_SECRET:
                text = text.replace(value, MASK)
        return masked_text(text)


def scheme_of(document: Document, operation: Operation) -> Json | None:
    """How an operation wants to be authenticated; None where it says that it takes no credential. A document that
    says nothing gets a bearer token."""
    schemes = _schemes(document)
    if operation.security == []:
        return None
    required = operation.security if isinstance(operation.security, list) else []
    for one in sorted((one for one in required if isinstance(one, dict)), key=len):
        for name in one:
            if name in schemes:
                return schemes[name]
    return next(iter(schemes.values()), BEARER) if not required else BEARER


def _schemes(document: Document) -> dict[str, Json]:
    """The schemes that we can follow, by name."""
    components = document.data.get("components")
    found = components.get("securitySchemes") if isinstance(components, dict) else None
    schemes = {name: document.followed(one) for name, one in found.items()} if isinstance(found, dict) else {}
    return {name: one for name, one in schemes.items() if one.get("type") in _TYPES and _is_known(one)}


def _is_known(scheme: Json) -> bool:
    return scheme.get("type") != "http" or str(scheme.get("scheme")).lower() in ("bearer", "basic")


def with_credential(request: HttpRequest, scheme: Json, secret: str) -> tuple[HttpRequest, Secrets]:
    """The request with a credential in the place that the scheme names, and what to mask because of it."""
    if not secret or not (secret.isascii() and secret.isprintable()):
        raise ToolError(
            "the `apiKey` of the connection cannot be sent",
            "Write apiKey: ${env:NAME} and set that variable, without line breaks and in ASCII.",
        )
    if scheme.get("type") == "apiKey":
        return _with_key(request, scheme, secret), secrets_of(secret)
    if str(scheme.get("scheme")).lower() == "basic":
        return request.with_header("Authorization", f"Basic {_base64(secret)}"), secrets_of(secret)
    return request.with_header("Authorization", f"Bearer {secret}"), secrets_of(secret)


def secrets_of(secret: str) -> Secrets:
    """A secret, and the password in it, in the forms in which they travel."""
    plain = (secret, secret.partition(":")[2])
    forms = [(one, quote(one, safe=""), quote_plus(one), json.dumps(one)[1:-1], _base64(one)) for one in plain if one]
    return Secrets(tuple(dict.fromkeys(form for several in forms for form in several)))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _with_key(request: HttpRequest, scheme: Json, secret: str) -> HttpRequest:
    name, place = str(scheme.get("name", "")), scheme.get("in")
    if not _NAME.fullmatch(name):
        raise ToolError(f"the document's name of the API key, {name[:50]!r}, cannot be sent", "Correct the document.")
    pair = f"{quote(name, safe='')}={quote(secret, safe='')}"
    if place == "query":
        others = tuple(one for one in request.query if one.partition("=")[0] != quote(name, safe=""))
        return replace(request, query=(*others, pair))
    if place == "cookie":
        others = tuple(one for one in request.cookies if one.partition("=")[0] != quote(name, safe=""))
        return replace(request, cookies=(*others, pair))
    return request.with_header(name, secret)
