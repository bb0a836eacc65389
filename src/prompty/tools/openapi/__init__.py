"""HTTP services as tools (§2.9): the tool kind `openapi` offers a document's operations as functions.

`document` reads, `operations` describes, `request` builds a request, and only `client` uses the network and decides
where requests may go. The connection's credential is added here, as the document declares. Access tokens come from
OAuth 2 client credentials: they are fetched once and used until they expire.
"""

import asyncio
import base64
import re
import time
from asyncio import to_thread
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import quote_plus, unquote
from weakref import WeakKeyDictionary, WeakValueDictionary

from prompty.errors import ToolError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection, OAuthConnection
from prompty.model.message import Json
from prompty.model.tool import OpenApiTool, ToolDefinition
from prompty.registry import DEFAULT, Registry
from prompty.safety.json import check_size, read_json
from prompty.safety.origins import find_endpoint_fault
from prompty.safety.redaction import Redactor, hide_secrets
from prompty.tools.function import ToolContext
from prompty.tools.kinds import (
    TOOL_KINDS,
    KindTool,
    UnmatchedBinding,
    check_tool_target,
    check_tool_variables,
    locate_file,
)
from prompty.tools.openapi.client import (
    MAX_RESPONSE_BYTES,
    HttpResponse,
    Permissions,
    ServiceError,
    parse_url,
    resolve_url,
    send,
)
from prompty.tools.openapi.document import MAX_DOCUMENT_BYTES, ApiDocument, Documents, is_remote
from prompty.tools.openapi.operations import FORM, Operation, Selection, first_server_url, list_operations
from prompty.tools.openapi.request import TOKEN, HttpRequest, build_call, is_same_parameter, percent_encode

__all__ = ["OpenApiKind", "allow"]

_TYPES = ("apiKey", "oauth2", "openIdConnect")
BEARER: Json = {"type": "http", "scheme": "bearer"}
_EXPIRY_MARGIN = 30.0  # a token is not used in its last seconds
_DEFAULT_LIFETIME = 300.0
MAX_ERROR_LENGTH = 2_000
MAX_TOKENS = 1_000
UsableConnection = ApiKeyConnection | AnonymousConnection | OAuthConnection | None


def find_scheme(document: ApiDocument, operation: Operation) -> Json | None:
    """Return an operation's security scheme, by default a bearer token, or None if it takes no credential."""
    schemes = _supported_schemes(document)
    if operation.security == []:
        return None
    alternatives = operation.security if isinstance(operation.security, list) else []
    for alternative in sorted((entry for entry in alternatives if isinstance(entry, dict)), key=len):
        for name in alternative:
            if name in schemes:
                return schemes[name]
    return BEARER if alternatives else next(iter(schemes.values()), BEARER)


def _supported_schemes(document: ApiDocument) -> dict[str, Json]:
    components = document.data.get("components")
    declared = components.get("securitySchemes") if isinstance(components, dict) else None
    schemes = {name: document.resolve(entry) for name, entry in declared.items()} if isinstance(declared, dict) else {}
    return {
        name: scheme
        for name, scheme in schemes.items()
        if scheme.get("type") in _TYPES
        or (scheme.get("type") == "http" and str(scheme.get("scheme")).lower() in ("bearer", "basic"))
    }


def add_credential(request: HttpRequest, scheme: Json, secret: str) -> tuple[HttpRequest, Redactor]:
    """Return the request with a credential where the scheme puts it, and a redactor that masks it."""
    if not secret or not (secret.isascii() and secret.isprintable()):
        raise ToolError(
            "the connection's `apiKey` cannot be sent in a header",
            "Write apiKey: ${env:NAME} and set that variable to ASCII text without line breaks.",
        )
    if scheme.get("type") == "apiKey":
        return _add_key(request, scheme, secret), _redactor_for(secret)
    is_basic = str(scheme.get("scheme")).lower() == "basic"
    value = f"Basic {_base64(secret)}" if is_basic else f"Bearer {secret}"
    return request.with_header("Authorization", value), _redactor_for(secret)


def _redactor_for(secret: str) -> Redactor:
    """Return a redactor for a secret, and the password in it, in every form in which a service may repeat them."""
    texts = (secret, secret.partition(":")[2])
    forms = [(text, percent_encode(text), quote_plus(text), _base64(text)) for text in texts]
    hide_secrets(forms)
    return Redactor(forms)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _add_key(request: HttpRequest, scheme: Json, secret: str) -> HttpRequest:
    name, location = str(scheme.get("name", "")), scheme.get("in")
    if not TOKEN.fullmatch(name):
        raise ToolError(f"the document's API key name {name[:50]!r} is not legal in a request", "Correct the document.")
    pair = f"{percent_encode(name)}={percent_encode(secret)}"
    if location == "query":
        return replace(request, query=(*_without(request.query, name), pair))
    if location == "cookie":
        return replace(request, cookies=(*_without(request.cookies, name), pair))
    return request.with_header(name, secret)


def _without(pairs: tuple[str, ...], name: str) -> list[str]:
    return [pair for pair in pairs if not is_same_parameter(unquote(pair.partition("=")[0]), name)]


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """The client that requests a token, and the token URL."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...]


class TokenCache:
    """Access tokens by client, until they expire. Each is a text, so many are kept."""

    def __init__(self) -> None:
        self._tokens: dict[OAuthClient, tuple[str, float]] = {}
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[OAuthClient, asyncio.Lock]] = (
            WeakKeyDictionary()
        )

    async def get(self, connection: OAuthConnection, permissions: Permissions, http: Any) -> str:
        """Return a connection's token. Concurrent calls that need the same token share one request."""
        client = _read_client(connection)
        locks = self._locks.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
        async with locks.setdefault(client, asyncio.Lock()):
            token, expiry = self._tokens.get(client, ("", 0.0))
            if time.monotonic() >= expiry:
                token, lifetime = await _fetch_token(client, permissions, http)
                now = time.monotonic()
                kept = [(known, entry) for known, entry in tuple(self._tokens.items()) if entry[1] > now]
                self._tokens = dict([*kept[1 - MAX_TOKENS :], (client, (token, now + lifetime))])
        return token

    def forget(self, connection: OAuthConnection) -> None:
        """Drop a token that a service has refused."""
        self._tokens.pop(_read_client(connection), None)


def _read_client(connection: OAuthConnection) -> OAuthClient:
    secret = connection.client_secret.get_secret_value() if connection.client_secret else ""
    if not (connection.token_url and connection.client_id and secret):
        raise ToolError(
            "the connection of kind 'oauth' lacks `tokenUrl`, `clientId` or `clientSecret`",
            "Set all three. The secret is not sent to the document's own token URL.",
        )
    return OAuthClient(connection.token_url, connection.client_id, secret, connection.scopes or ())


async def _fetch_token(client: OAuthClient, permissions: Permissions, http: Any) -> tuple[str, float]:
    """Return a token and its lifetime in seconds."""
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    scope = f"&scope={quote_plus(' '.join(client.scopes))}" if client.scopes else ""
    request = HttpRequest(
        method="POST",
        headers=(("Authorization", f"Basic {_base64(pair)}"), ("Content-Type", FORM)),
        content=f"grant_type=client_credentials{scope}".encode(),
    )
    response = await send(client.token_url, request, permissions, client=http)
    if response.status != 200:
        raise ServiceError(f"no access token: the token URL answered {response.status} {response.reason}")
    try:
        check_size(response.content)
        data = read_json(response.content, strict=False)
    except ValueError:
        data = None
    token = data.get("access_token") if isinstance(data, dict) else None
    lifetime = data.get("expires_in") if isinstance(data, dict) else None
    if not isinstance(token, str) or not token:
        raise ServiceError("no access token: the token URL's response has none")
    is_number = isinstance(lifetime, int | float | str) and str(lifetime).isdecimal()
    seconds = float(str(lifetime)) if is_number else _DEFAULT_LIFETIME
    return token, max(seconds - _EXPIRY_MARGIN, 0.0)


def allow(*, hosts: Iterable[str] = (), servers: Iterable[str] = (), registry: Registry = DEFAULT) -> None:
    """Allow OpenAPI tools to send requests to hosts and servers that are refused by default.

    `hosts` are reached without https and at addresses that are not public: names, `name:port`, addresses or networks
    (`10.0.0.0/8`). `servers` are origins (`https://api.example.com`) that documents may name as their own.
    """
    kind = registry[TOOL_KINDS].get("openapi")
    if not isinstance(kind, OpenApiKind):
        raise ToolError("the tool kind 'openapi' has been replaced", "Allow hosts with the handler that replaces it.")
    kind.permissions.allow(hosts=hosts, servers=servers)


@dataclass(frozen=True, slots=True)
class OpenApiKind:
    """The tool kind `openapi`, with the permissions, tokens and documents of one registry.

    A local document describes its operations although a variable of the connection is not set. Their calls fail.
    """

    permissions: Permissions = field(default_factory=Permissions)
    tokens: TokenCache = field(default_factory=TokenCache)
    documents: Documents = field(default_factory=Documents)

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        """Return the selected operations of a tool's document as functions."""
        if not isinstance(tool, OpenApiTool):
            raise ToolError(f"the tool '{tool.name}' has no OpenAPI document", "Name one in `specification:`.")
        connection = _check_connection(tool)
        if is_remote(tool.specification):
            check_tool_target(agent, tool, None)
        http = agent.registry.connections.find_client("openapi", is_async=True)
        document = await self.documents.get(tool, agent, partial(self._fetch, http))
        service = None if agent.trust.missing else self._open_service(document, agent, tool, connection)
        selection = Selection(tool.operations, tool.tags, tool.methods)
        operations = await to_thread(list_operations, document, selection)  # slow for a large document
        return [
            KindTool(
                function=operation.function,
                call=partial(service.call, operation, bound),
                check=partial(build_call, operation, bound=bound),  # so that the model learns that no request was sent
            )
            if service
            else _refuse_calls(operation, agent, tool)
            for operation in operations
            for bound in [find_bound(operation, tool)]
        ]

    def _open_service(
        self, document: ApiDocument, agent: PromptAgent, tool: OpenApiTool, connection: UsableConnection
    ) -> "Service":
        base_url = find_base_url(document, connection, self.permissions)
        self._check_credentials(agent, tool, connection, base_url)
        return Service(
            document=document,
            base_url=base_url,
            connection=connection,
            permissions=self.permissions,
            tokens=self.tokens,
            http=agent.registry.connections.find_client("openapi", is_async=True),
        )

    def _check_credentials(
        self, agent: PromptAgent, tool: OpenApiTool, connection: UsableConnection, base_url: str
    ) -> None:
        """Raise ToolError if a tool's credential may not go to its service, or its secret to the token URL."""
        url = parse_url(base_url)
        own = is_remote(tool.specification) and parse_url(tool.specification).origin == url.origin
        field = "endpoint" if (connection and connection.endpoint) or not own else "specification"
        check_tool_target(agent, tool, base_url, field, self.permissions.find_trusted(url))
        if isinstance(connection, OAuthConnection) and connection.token_url:
            trusted = self.permissions.find_trusted(parse_url(connection.token_url))
            check_tool_target(agent, tool, connection.token_url, "token_url", trusted)

    def is_local(self, tool: ToolDefinition, _: PromptAgent, /) -> bool:
        """Return True if the document is a file."""
        return not isinstance(tool, OpenApiTool) or not is_remote(tool.specification)

    def find_parameters(self, tool: ToolDefinition, agent: PromptAgent, /) -> frozenset[str] | None:
        """Return the arguments of the operations, or None if the document is not a local file."""
        if not isinstance(tool, OpenApiTool) or is_remote(tool.specification):
            return None
        document = self.documents.read_file(locate_file(tool.specification, tool, agent))
        operations = list_operations(document, Selection(tool.operations, tool.tags, tool.methods))
        for operation in operations:
            find_bound(operation, tool)
        return frozenset(name for operation in operations for name in operation.argument_names)

    async def _fetch(self, http: Any, url: str) -> bytes:
        """Return a document from its URL. The request carries no credential."""
        try:
            response = await send(url, HttpRequest(method="GET"), self.permissions, MAX_DOCUMENT_BYTES, client=http)
            if response.status != 200:
                raise ServiceError(f"{response.status} {response.reason}")
            if response.truncated:
                raise ServiceError(f"it has more than {MAX_DOCUMENT_BYTES:,} bytes")
        except ServiceError as error:
            fix = "Correct `specification:`."
            raise ToolError(f"{url}: cannot fetch the OpenAPI document: {error}", fix) from None
        return response.content


def find_bound(operation: Operation, tool: OpenApiTool) -> frozenset[str]:
    """Return an operation's bound arguments. Raise `ToolError` for a binding to a part of a body that is one argument:
    the model could replace it."""
    bound = frozenset(tool.bindings.keys() & operation.argument_names)
    inner = tool.bindings.keys() & operation.body.properties if operation.body else set()
    for name in sorted(inner - bound):
        raise UnmatchedBinding(
            name,
            f"the binding '{name}' of the tool '{tool.name}' cannot be used: it is part of the body of "
            f"'{operation.function.name}', which is one argument",
            "Bind the whole body, or exclude the operation with `operations:`.",
        )
    return bound


def _refuse_calls(operation: Operation, agent: PromptAgent, tool: OpenApiTool) -> KindTool:
    """Return an operation that cannot be called, because its connection needs a variable that is not set."""

    async def call(_: Json, __: ToolContext) -> None:
        check_tool_variables(agent, tool)

    return KindTool(function=operation.function, call=call, check=lambda _: check_tool_variables(agent, tool))


def _check_connection(tool: OpenApiTool) -> UsableConnection:
    match tool.connection:
        case None | ApiKeyConnection() | AnonymousConnection() | OAuthConnection() as connection:
            return connection
        case other:
            raise ToolError(
                f"the tool '{tool.name}' cannot use a connection of kind '{other.kind}'",
                "Set `kind:` to key, oauth or anonymous.",
            )


def find_base_url(document: ApiDocument, connection: UsableConnection, permissions: Permissions) -> str:
    """Return the base URL of the service: the connection's endpoint, or the document's first server if it has the
    document's own origin or the host allows it. A document alone cannot choose where requests go."""
    if connection and connection.endpoint:
        parse_url(connection.endpoint)  # raises for an invalid URL
        if fault := find_endpoint_fault(connection.endpoint):
            raise ToolError(
                f"the connection's `endpoint` has {fault}", "Write an origin and a path, like https://host/v1."
            )
        return connection.endpoint
    declared = first_server_url(document.data.get("servers"))
    url = resolve_url(document.url or "", "/" if declared is None else declared)
    if "://" not in url:
        raise ToolError(
            f"{document.source}: the document has no server URL",
            "Add `endpoint: https://…` to the tool's `connection`.",
        )
    origin = parse_url(url).origin
    own = parse_url(document.url).origin if document.url else None
    if origin != own and not permissions.allows_server(origin):
        raise _foreign_server(document.source, origin, "it")
    return url


def _foreign_server(source: str, origin: str, owner: str) -> ToolError:
    return ToolError(
        f"{source}: {owner} names the server {origin}, which is not the origin of the document or its connection",
        f"Add `endpoint: {origin}/…` to the tool's `connection`, or allow it in code: "
        f"prompty.tools.openapi.allow(servers=['{origin}']).",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """The service behind one tool: its document, its base URL and the connection to it."""

    document: ApiDocument
    base_url: str
    connection: UsableConnection
    permissions: Permissions
    tokens: TokenCache
    http: Any
    """A client of the program, or None for ours."""

    async def call(self, operation: Operation, bound: frozenset[str], arguments: Json, _context: ToolContext) -> str:
        """Send a call's request, and return the text of the response."""
        base_url = self._base_url_of(operation)
        request, redactor = await self._authorize(operation, build_call(operation, arguments, bound))
        try:
            response = await send(base_url, request, self.permissions, client=self.http)
        except ServiceError as error:
            raise ServiceError(redactor.mask(str(error))) from None
        if response.status == 401 and isinstance(self.connection, OAuthConnection):
            self.tokens.forget(self.connection)
        return read_result(response, redactor)

    def _base_url_of(self, operation: Operation) -> str:
        """Return the base URL of an operation. Its own server must have the same origin or be allowed."""
        if operation.server is None:
            return self.base_url
        url = resolve_url(self.document.url or self.base_url, operation.server)
        origin = parse_url(url).origin
        if origin != parse_url(self.base_url).origin and not self.permissions.allows_server(origin):
            raise _foreign_server(self.document.source, origin, f"its operation '{operation.function.name}'")
        if self.connection and self.connection.endpoint and not self.permissions.allows_server(origin):
            self._check_path(operation, parse_url(url).path)
        return url

    def _check_path(self, operation: Operation, path: str) -> None:
        """Raise `ToolError` unless a path is below the connection's endpoint."""
        base = parse_url(self.base_url)
        folder = f"{base.path.rstrip('/')}/"
        if not f"{path.rstrip('/')}/".startswith(folder) or ".." in re.split(r"[/\\]", unquote(path)):
            raise ToolError(
                f"{self.document.source}: the server of its operation '{operation.function.name}' is not below the "
                f"endpoint {base.origin}{base.path}",
                f"Use an `endpoint` above both, or allow it in code: "
                f"prompty.tools.openapi.allow(servers=['{base.origin}']).",
            )

    async def _authorize(self, operation: Operation, request: HttpRequest) -> tuple[HttpRequest, Redactor]:
        scheme = find_scheme(self.document, operation)
        match self.connection:
            case ApiKeyConnection(api_key=key) if scheme is not None and key is not None:
                return add_credential(request, scheme, key.get_secret_value())
            case OAuthConnection() if scheme is not None:
                return add_credential(
                    request, BEARER, await self.tokens.get(self.connection, self.permissions, self.http)
                )
        return request, Redactor()


def read_result(response: HttpResponse, redactor: Redactor) -> str:
    """Return the text of a response for the model. Raise `ServiceError` for a status that is not 2xx."""
    status = f"{response.status} {response.reason}".strip()
    text = redactor.mask(_decode(response))
    if 300 <= response.status < 400:
        raise ServiceError(f"{status}: the service sent a redirect, and redirects are not followed")
    if not 200 <= response.status < 300:
        detail = text if len(text) <= MAX_ERROR_LENGTH else f"{text[:MAX_ERROR_LENGTH]}…"
        raise ServiceError(f"{redactor.mask(status)}: {detail}" if detail else status)
    if response.truncated:
        return f"{text}\n[the response was truncated after {MAX_RESPONSE_BYTES:,} bytes]"
    return text or status


def _decode(response: HttpResponse) -> str:
    """Return the text of a response with a JSON, XML or text type, or without a type."""
    name = response.media_type
    is_text = not name or name.startswith("text/") or name.endswith(("json", "xml", "yaml", "x-www-form-urlencoded"))
    if not response.content:
        return ""
    if not is_text:
        return f"[{len(response.content):,} bytes of {name[:100]}, not shown]"
    try:
        return response.content.decode(response.charset, errors="replace")
    except LookupError:
        return response.content.decode(errors="replace")
