"""The language server: keeps open documents and their problems up to date, and answers requests about them."""

import gc
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from prompty.lsp.diagnostics import Workspace, build_fixes, is_root
from prompty.lsp.documents import Text, replace_surrogates
from prompty.lsp.wire import INVALID_PARAMS, JsonObject, RequestFailed, RpcConnection, serve
from prompty.safety.redaction import masked_traceback
from prompty.version import __version__

if TYPE_CHECKING:
    from prompty.lsp.names import Names

PREVIEW = "prompty.preview"
_WATCHED = "**/{*.prompty,*.test.yaml,*.test.yml,_*,.env,prompty.toml,pyproject.toml}"


class Place(NamedTuple):
    """A position in an open document."""

    uri: str
    text: Text
    offset: int


class LanguageServer:
    """Handlers of the methods of a language server."""

    def __init__(self, connection: RpcConnection) -> None:
        self._connection = connection
        self.workspace: Workspace = Workspace()
        self._versions: dict[str, int] = {}
        self._shown: dict[str, list[JsonObject]] = {}  # the diagnostics that the client has, by URI
        self._pending: dict[str, None] = {}  # roots to check, the most urgent first
        self._previews: dict[str, str] = {}  # the prompt of each preview that the client shows
        self._pulls = self._can_refresh = self._can_watch = self._has_content = False
        self.methods: Mapping[str, Callable[[JsonObject], Any]] = {
            "initialize": self.initialize,
            "initialized": self.initialized,
            "shutdown": lambda _: None,
            "textDocument/didOpen": self.open,
            "textDocument/didChange": self.change,
            "textDocument/didClose": self.close,
            "textDocument/didSave": lambda _: self._invalidate(),
            "workspace/didChangeWatchedFiles": lambda _: self._invalidate(),
            "textDocument/diagnostic": self.pull,
            "textDocument/codeAction": self.list_fixes,
            "textDocument/completion": self.complete,
            "textDocument/hover": self.hover,
            "textDocument/definition": self.define,
            "textDocument/references": self.list_references,
            "textDocument/prepareRename": self.prepare_rename,
            "textDocument/rename": self.rename,
            "textDocument/documentSymbol": self.list_symbols,
            "textDocument/codeLens": self.list_lenses,
            "workspace/executeCommand": self.execute,
            "workspace/textDocumentContent": self.read_content,
        }

    def initialize(self, params: JsonObject) -> JsonObject:
        client = _Capabilities(params.get("capabilities"))
        # A client that says `diagnostic: {}` may never ask.
        self._pulls = client.has("textDocument", "diagnostic", "dynamicRegistration")
        self._can_refresh = client.has("workspace", "diagnostics", "refreshSupport")
        self._has_content = client.has("workspace", "textDocumentContent")
        self._can_watch = client.has("workspace", "didChangeWatchedFiles", "dynamicRegistration")
        capabilities: JsonObject = {
            "positionEncoding": "utf-16",
            "textDocumentSync": {"openClose": True, "change": 2, "save": True},
            "codeActionProvider": {"codeActionKinds": ["quickfix"]},
            "completionProvider": {"triggerCharacters": ["{", " ", ":", "|", '"', "/"]},
            "hoverProvider": True,
            "definitionProvider": True,
            "referencesProvider": True,
            "renameProvider": {"prepareProvider": True},
            "documentSymbolProvider": True,
            "codeLensProvider": {},
            "executeCommandProvider": {"commands": [PREVIEW]},
        }
        if self._has_content:
            capabilities["workspace"] = {"textDocumentContent": {"schemes": ["prompty-preview"]}}
        if self._pulls:
            options = {"identifier": "prompty", "interFileDependencies": True, "workspaceDiagnostics": False}
            capabilities["diagnosticProvider"] = options
        return {"capabilities": capabilities, "serverInfo": {"name": "prompty", "version": __version__}}

    def initialized(self, _: JsonObject) -> None:
        if self._can_watch:
            options = {"watchers": [{"globPattern": _WATCHED}]}
            watch = {"id": "files", "method": "workspace/didChangeWatchedFiles", "registerOptions": options}
            self._connection.request("client/registerCapability", {"registrations": [watch]})

    def open(self, params: JsonObject) -> None:
        document = params.get("textDocument")
        text = document.get("text") if isinstance(document, dict) else None
        if not isinstance(document, dict) or not isinstance(text, str):
            raise RequestFailed(INVALID_PARAMS, "a document needs a text")
        uri = _get_uri(params)
        if self._pulls and self._shown.pop(uri, []):
            self._connection.notify("textDocument/publishDiagnostics", {"uri": uri, "diagnostics": []})
        self.workspace.open(uri, replace_surrogates(text), str(document.get("languageId")))
        self._versions[uri] = _get_version(document)
        self._invalidate(uri)

    def change(self, params: JsonObject) -> None:
        uri, text = self._get_document(params)
        self.workspace.open(uri, text.splice(params.get("contentChanges")), self.workspace.languages[uri])
        self._versions[uri] = _get_version(params["textDocument"])
        self._invalidate(uri)

    def close(self, params: JsonObject) -> None:
        uri, _ = self._get_document(params)
        self.workspace.close(uri)
        self._versions.pop(uri, None)
        self._pending.pop(uri, None)
        self._previews = {preview: source for preview, source in self._previews.items() if source != uri}
        self._invalidate()
        self._publish()
        if not self._shown.get(uri):
            self._shown.pop(uri, None)

    def _invalidate(self, uri: str = "") -> None:
        """Check the root of a document next, and then all others: they may use it."""
        first = self.workspace.get_owner(uri)
        roots = self.workspace.list_roots()
        self._pending = dict.fromkeys([first, *roots] if first in roots else roots)
        for covered in self.workspace.found.keys() - set(roots):
            del self.workspace.found[covered]  # a variant whose base is open now

    def work(self) -> bool:
        """Check one pending root."""
        if not self._pending:
            return False
        self._check(next(iter(self._pending)))
        self._publish()
        if not self._pending:
            for preview in self._previews:
                self._connection.request("workspace/textDocumentContent/refresh", {"uri": preview})
        return bool(self._pending)

    def _check(self, uri: str) -> None:
        self._pending.pop(uri, None)
        try:
            self.workspace.check(uri)
        except Exception as error:  # a mistake of ours in one file must not end the server
            print(masked_traceback(error), file=sys.stderr, flush=True)  # noqa: T201  the log of the server
        if not gc.isenabled():  # `start_server` has disabled it
            gc.freeze()  # modules live as long as the process
            gc.enable()

    def _check_now(self, uri: str) -> None:
        """Bring the problems of a document up to date, before an answer about them."""
        roots = [self.workspace.get_owner(uri)] if is_root(uri, self.workspace.languages[uri]) else [*self._pending]
        for root in roots:
            if root in self._pending:
                self._check(root)

    def _publish(self, answered: str = "") -> None:
        """Send the diagnostics that changed. A client that pulls is told to ask again about its open documents."""
        checked = self.workspace.found
        is_stale = False
        for uri in sorted({uri for found in checked.values() for uri in found} | checked.keys() | self._shown.keys()):
            current = self.workspace.build_diagnostics(uri)
            if current == self._shown.get(uri, []) and (self._pulls or uri in self._shown):
                continue  # an editor that gets them also learns that a file has none
            self._shown[uri] = current
            if self._pulls and uri in self.workspace.texts:
                is_stale |= uri != answered
                continue
            message: JsonObject = {"uri": uri, "diagnostics": current}
            if uri in self._versions:
                message["version"] = self._versions[uri]
            self._connection.notify("textDocument/publishDiagnostics", message)
            if not current and uri not in self.workspace.texts:
                del self._shown[uri]
        if is_stale and self._can_refresh:
            self._connection.request("workspace/diagnostic/refresh")

    def pull(self, params: JsonObject) -> JsonObject:
        uri, _ = self._get_document(params)
        self._check_now(uri)
        self._publish(uri)
        return {"kind": "full", "items": self.workspace.build_diagnostics(uri)}

    def list_fixes(self, params: JsonObject) -> list[JsonObject]:
        uri, text = self._get_document(params)
        place = params.get("range")
        if not isinstance(place, dict):
            raise RequestFailed(INVALID_PARAMS, "there is no range")
        start, end = text.to_offset(place.get("start")), text.to_offset(place.get("end"))
        self._check_now(uri)
        self._publish()  # what is shown must not wait for the next check
        return build_fixes(self.workspace.list_problems(uri), uri, text, start, end)

    def complete(self, params: JsonObject) -> list[JsonObject]:
        from prompty.lsp.completion import complete  # after the first diagnostics

        place = self._get_place(params)
        return complete(place.uri, place.text, place.offset, self.workspace)

    def hover(self, params: JsonObject) -> JsonObject | None:
        from prompty.lsp.hover import hover  # after the first diagnostics

        place = self._get_place(params)
        return hover(place.uri, place.text, place.offset, self.workspace)

    def _open_names(self, uri: str) -> "Names":
        from prompty.lsp.names import Names  # after the first diagnostics

        return Names(uri, self.workspace)

    def define(self, params: JsonObject) -> list[JsonObject]:
        place = self._get_place(params)
        return self._open_names(place.uri).define(place.offset)

    def list_references(self, params: JsonObject) -> list[JsonObject]:
        place, context = self._get_place(params), params.get("context")
        declared = not isinstance(context, dict) or context.get("includeDeclaration") is not False
        return self._open_names(place.uri).list_references(place.offset, include_declaration=declared)

    def prepare_rename(self, params: JsonObject) -> JsonObject:
        place = self._get_place(params)
        name = self._open_names(place.uri).check_rename(place.offset)
        return {"range": place.text.to_range(name.start, name.end), "placeholder": name.text}

    def rename(self, params: JsonObject) -> JsonObject:
        place = self._get_place(params)
        return self._open_names(place.uri).rename(place.offset, str(params.get("newName")))

    def list_symbols(self, params: JsonObject) -> list[JsonObject]:
        from prompty.lsp.names import list_symbols  # after the first diagnostics

        uri, text = self._get_document(params)
        return list_symbols(self._open_names(uri).own, text)

    def list_lenses(self, params: JsonObject) -> list[JsonObject]:
        from prompty.lsp.names import list_lenses  # after the first diagnostics

        uri, text = self._get_document(params)
        return list_lenses(uri, self._open_names(uri).own, text) if is_root(uri, self.workspace.languages[uri]) else []

    def execute(self, params: JsonObject) -> JsonObject:
        """Preview a prompt. The arguments are its URI, and perhaps `{inputs, case}`."""
        from prompty.lsp.preview import build_preview  # few sessions need it

        arguments = params.get("arguments")
        if params.get("command") != PREVIEW or not isinstance(arguments, list) or not arguments:
            raise RequestFailed(INVALID_PARAMS, f"the only command is {PREVIEW}, with the URI of a prompt")
        options: Any = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], dict) else {}
        inputs, case = options.get("inputs"), options.get("case")
        preview = build_preview(str(arguments[0]), self.workspace, inputs if isinstance(inputs, dict) else None, case)
        return {key: value for key, value in preview.items() if key != "text"}

    def read_content(self, params: JsonObject) -> JsonObject:
        """Return a preview as a document. If the prompt has a mistake, the document says so."""
        from prompty.lsp.preview import build_preview, read_source  # few sessions need it

        uri = str(params.get("uri"))
        self._previews[uri] = source = read_source(uri)
        try:
            return {"text": build_preview(source, self.workspace)["text"]}
        except RequestFailed as error:
            return {"text": f"There is no preview.\n\n{error}\n"}

    def _get_document(self, params: JsonObject) -> tuple[str, Text]:
        uri = _get_uri(params)
        if uri not in self.workspace.texts:
            raise RequestFailed(INVALID_PARAMS, "the document is not open")
        return uri, self.workspace.texts[uri]

    def _get_place(self, params: JsonObject) -> Place:
        uri, text = self._get_document(params)
        return Place(uri, text, text.to_offset(params.get("position")))


class _Capabilities:
    """What a client says it can do, which may be anything."""

    def __init__(self, data: object) -> None:
        self._data = data

    def has(self, *keys: str) -> bool:
        value: Any = self._data
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value is not None and value is not False


def _get_uri(params: JsonObject) -> str:
    document = params.get("textDocument")
    uri = document.get("uri") if isinstance(document, dict) else None
    if not isinstance(uri, str):
        raise RequestFailed(INVALID_PARAMS, "the document has no URI")
    return uri


def _get_version(document: JsonObject) -> int:
    version = document.get("version")
    return version if isinstance(version, int) else 0


def start_server() -> int:
    """Serve over standard input and output, and return the exit code. Whatever prints goes to the log instead."""
    # A copy of standard input: at the end, Python would wait for the thread that reads `sys.stdin`.
    stdin, stdout = os.fdopen(os.dup(sys.stdin.fileno()), "rb"), os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # to find them, it reads the metadata of all packages
    gc.disable()  # until the first check has imported what it needs
    return serve(stdin, stdout, LanguageServer)
