"""The kind `openapi`: every operation of a document is a function, and a call of it a request to the service."""

from asyncio import to_thread
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urljoin

from prompty.errors import ToolError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection, OAuthConnection
from prompty.model.message import Json
from prompty.model.tool import OpenApiTool, ToolDefinition
from prompty.safety.redaction import Redactor
from prompty.tools.context import ToolContext
from prompty.tools.kinds import KindTool
from prompty.tools.openapi.client import LARGEST_ANSWER, Answer, ServiceError, exchange
from prompty.tools.openapi.credentials import BEARER, scheme_of, with_credential
from prompty.tools.openapi.document import LARGEST_DOCUMENT, Document, Documents
from prompty.tools.openapi.operations import Operation, Selection, operations_of, server_url
from prompty.tools.openapi.permissions import Permissions, place_of
from prompty.tools.openapi.request import HttpRequest, request_of
from prompty.tools.openapi.tokens import Tokens

LONGEST_ERROR = 2_000
Usable = ApiKeyConnection | AnonymousConnection | OAuthConnection | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """Where the operations of one tool are called, and as whom."""

    document: Document
    base: str
    connection: Usable
    permissions: Permissions
    tokens: Tokens

    async def call(self, operation: Operation, arguments: Json, _context: ToolContext) -> str:
        """Make a request of a call's arguments, and text of its answer."""
        base = self._base_of(operation)
        request, redactor = await self._authorised(operation, request_of(operation, arguments))
        try:
            answer = await exchange(base, request, self.permissions)
        except ServiceError as error:
            raise ServiceError(redactor.mask(str(error))) from None
        if answer.status == 401 and isinstance(self.connection, OAuthConnection):
            self.tokens.forget(self.connection)
        return result_of(answer, redactor)

    def _base_of(self, operation: Operation) -> str:
        """The base URL of an operation: one with a server of its own may have it on the same origin only."""
        if operation.server is None:
            return self.base
        own = urljoin(self.document.url or self.base, operation.server)
        origin = place_of(own).origin
        if origin != place_of(self.base).origin and not self.permissions.allows_server(origin):
            raise _foreign(self.document.source, origin, f"its operation '{operation.function.name}'")
        return own

    async def _authorised(self, operation: Operation, request: HttpRequest) -> tuple[HttpRequest, Redactor]:
        scheme = scheme_of(self.document, operation)
        match self.connection:
            case ApiKeyConnection(api_key=key) if scheme is not None and key is not None:
                return with_credential(request, scheme, key.get_secret_value())
            case OAuthConnection() if scheme is not None:
                return with_credential(request, BEARER, await self.tokens.token(self.connection, self.permissions))
        return request, Redactor()


@dataclass(frozen=True, slots=True)
class OpenApiKind:
    """Describes the operations of OpenAPI documents. `permissions` are the host's."""

    permissions: Permissions = field(default_factory=Permissions)
    tokens: Tokens = field(default_factory=Tokens)
    documents: Documents = field(default_factory=Documents)

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        if not isinstance(tool, OpenApiTool):
            raise ToolError(f"the tool '{tool.name}' has no OpenAPI document", "Write `specification:` for it.")
        connection = _usable(tool)
        document = await self.documents.get(tool, agent, self._fetched)
        base = base_url(document, connection, self.permissions)
        service = Service(
            document=document, base=base, connection=connection, permissions=self.permissions, tokens=self.tokens
        )
        selection = Selection(tool.operations, tool.tags, tool.methods)
        operations = await to_thread(operations_of, document, selection)  # a large document takes a moment
        return [KindTool(function=one.function, call=partial(service.call, one)) for one in operations]

    async def _fetched(self, url: str) -> bytes:
        """A document from its URL. No credential goes with it."""
        try:
            answer = await exchange(url, HttpRequest(method="GET"), self.permissions, LARGEST_DOCUMENT)
        except ServiceError as error:
            raise _not_fetched(url, str(error)) from None
        if answer.status != 200:
            raise _not_fetched(url, f"{answer.status} {answer.reason}")
        if answer.cut:
            raise _not_fetched(url, f"it has more than {LARGEST_DOCUMENT:,} bytes")
        return answer.content


def _not_fetched(url: str, reason: str) -> ToolError:
    return ToolError(f"{url}: the OpenAPI document cannot be fetched: {reason}", "Correct `specification:`.")


def _usable(tool: OpenApiTool) -> Usable:
    match tool.connection:
        case None | ApiKeyConnection() | AnonymousConnection() | OAuthConnection() as found:
            return found
        case other:
            raise ToolError(
                f"the tool '{tool.name}' cannot use a connection of the kind '{other.kind}'",
                "Write `kind:` one of key, oauth or anonymous.",
            )


def base_url(document: Document, connection: Usable, permissions: Permissions) -> str:
    """Where the service is: at the connection's endpoint, else at the document's first server, if that is of the
    document's own origin or the host has allowed it. A document alone sends nobody anywhere."""
    if connection and connection.endpoint:
        return _absolute(connection.endpoint)
    servers = document.data.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    named = server_url(first) if isinstance(first, dict) else "/"
    url = urljoin(document.url or "", named)
    if "://" not in url:
        raise ToolError(
            f"{document.source}: the document does not say where its service is",
            "Write `endpoint: https://…` into the tool's `connection`.",
        )
    origin = place_of(url).origin
    own = place_of(document.url).origin if document.url else None
    if origin != own and not permissions.allows_server(origin):
        raise _foreign(document.source, origin, "it")
    return _absolute(url)


def _absolute(url: str) -> str:
    place_of(url)  # says what is wrong with it
    return url


def _foreign(source: str, origin: str, who: str) -> ToolError:
    return ToolError(
        f"{source}: {who} names the server {origin}, which is not the origin of the document or its connection",
        f"Write `endpoint: {origin}/…` into the tool's `connection`, or allow it in code: "
        f"prompty.tools.openapi.allow(servers=['{origin}']).",
    )


def result_of(answer: Answer, redactor: Redactor) -> str:
    """What the model reads of an answer; one that says no is an error."""
    status = f"{answer.status} {answer.reason}".strip()
    text = redactor.mask(_text(answer))
    if 300 <= answer.status < 400:
        raise ServiceError(f"{status}: the service sends elsewhere, and redirects are not followed")
    if not 200 <= answer.status < 300:
        shown = text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]}…"
        raise ServiceError(f"{redactor.mask(status)}: {shown}" if shown else status)
    if answer.cut:
        return f"{text}\n[the answer was cut off after {LARGEST_ANSWER:,} bytes]"
    return text or status


def _text(answer: Answer) -> str:
    """The text of an answer: of JSON, XML and text types, and of none."""
    name = answer.media_type
    textual = not name or name.startswith("text/") or name.endswith(("json", "xml", "yaml", "x-www-form-urlencoded"))
    if not answer.content:
        return ""
    if not textual:
        return f"[{len(answer.content):,} bytes of {name[:100]}, which are not shown]"
    try:
        return answer.content.decode(answer.charset, errors="replace")
    except LookupError:
        return answer.content.decode(errors="replace")
