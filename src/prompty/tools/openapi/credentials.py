"""Which credential a request carries, and where: the connection has it, the document says how it is sent."""

import base64
import re
from dataclasses import replace
from urllib.parse import quote, quote_plus

from prompty.errors import ToolError
from prompty.model.message import Json
from prompty.safety.redaction import SHORTEST_NAMED, Redactor
from prompty.tools.openapi.document import Document
from prompty.tools.openapi.operations import Operation
from prompty.tools.openapi.request import HttpRequest

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_TYPES = ("apiKey", "http", "oauth2", "openIdConnect")
BEARER: Json = {"type": "http", "scheme": "bearer"}


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


def with_credential(request: HttpRequest, scheme: Json, secret: str) -> tuple[HttpRequest, Redactor]:
    """Return the request with a credential in the place that the scheme names, and a redactor that masks it."""
    if not secret or not (secret.isascii() and secret.isprintable()):
        raise ToolError(
            "the `apiKey` of the connection cannot be sent",
            "Write apiKey: ${env:NAME} and set that variable, without line breaks and in ASCII.",
        )
    if scheme.get("type") == "apiKey":
        return _with_key(request, scheme, secret), _redactor_for(secret)
    if str(scheme.get("scheme")).lower() == "basic":
        return request.with_header("Authorization", f"Basic {_base64(secret)}"), _redactor_for(secret)
    return request.with_header("Authorization", f"Bearer {secret}"), _redactor_for(secret)


def _redactor_for(secret: str) -> Redactor:
    """Mask a secret, and the password in it, in every form in which a service may repeat them."""
    texts = (secret, secret.partition(":")[2])
    return Redactor(
        [(text, quote(text, safe=""), quote_plus(text), _base64(text)) for text in texts], shortest=SHORTEST_NAMED
    )


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
