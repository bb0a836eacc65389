"""Read OpenAPI documents from files and URLs, and follow references inside them."""

import json
import os
import re
import stat
from asyncio import to_thread
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NoReturn, cast
from urllib.parse import unquote

from prompty.errors import ToolError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.tool import OpenApiTool
from prompty.safety.json import reject_constant
from prompty.safety.surrogates import may_have_surrogates, repair_json
from prompty.safety.yaml import JSON, Rules, read_yaml
from prompty.tools.kinds import locate_file

MAX_DOCUMENT_BYTES = 32_000_000
MAX_CACHED_DOCUMENTS = 64
_MAX_REFERENCE_HOPS = 32
_YAML_RULES = Rules(JSON, max_depth=200, max_nodes=1_000_000)

Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, eq=False, slots=True)
class ApiDocument:
    """A parsed document and its source, with the URL of one that was fetched. Compared and hashed by identity."""

    data: Json
    source: str
    url: str | None = None

    @property
    def ignores_reference_siblings(self) -> bool:
        """Return True for version 3.0, which ignores keywords next to a `$ref`."""
        return str(self.data["openapi"]).startswith("3.0")

    def find(self, reference: object) -> object:
        """Return the value that a local reference points to."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            self.refuse(f"the reference {str(reference)[:200]!r} leaves the document", "Move its target inside")
        value: object = self.data
        for part in reference.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                self.refuse(f"the reference {reference[:200]!r} has no target", "Correct it")
        return value

    def resolve(self, value: object) -> Json:
        """Return an object after following its references."""
        hops = 0
        while isinstance(value, dict) and "$ref" in value:
            value = self.find(value["$ref"])
            hops += 1
            if hops > _MAX_REFERENCE_HOPS:
                self.refuse("references form a cycle", "Break it")
        if not isinstance(value, dict):
            self.refuse(f"expected an object, found {str(value)[:100]!r}", "Correct it")
        return value

    def refuse(self, cause: str, fix: str) -> NoReturn:
        """Raise `ToolError` for an unusable part of the document."""
        raise ToolError(f"{self.source}: {cause}", f"{fix}, or select other operations with `operations:` or `tags:`.")


class Documents:
    """Cache of parsed documents by path and URL.

    A file that has changed is read again. The least recently used documents are dropped.
    """

    def __init__(self) -> None:
        self._cached: dict[str, tuple[object, ApiDocument]] = {}
        self._lock = Lock()

    async def get(self, tool: OpenApiTool, agent: PromptAgent, fetch: Fetch) -> ApiDocument:
        """Return the document of a tool."""
        url = tool.specification
        if is_remote(url):
            document = self._find(url, None)
            return document or self._keep(url, None, await to_thread(parse_document, await fetch(url), url, url))
        return await to_thread(self.read_file, locate_file(tool.specification, tool, agent))

    def read_file(self, path: Path) -> ApiDocument:
        """Return the document in a file."""
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_DOCUMENT_BYTES:
                cause = f"{path}: not a regular file of at most {MAX_DOCUMENT_BYTES:,} bytes"
                raise ToolError(cause, "Name an OpenAPI document in `specification:`.")
            version = (status.st_mtime_ns, status.st_size)
            document = self._find(str(path), version)
            return document or self._keep(str(path), version, parse_document(path.read_bytes(), str(path)))
        except OSError as error:
            cause = f"{path}: cannot read the OpenAPI document: {error.strerror or type(error).__name__}"
            raise ToolError(cause, "Correct `specification:`.") from None

    def _find(self, source: str, version: object) -> ApiDocument | None:
        with self._lock:
            entry = self._cached.pop(source, None)
            if entry is None or entry[0] != version:
                return None
            self._cached[source] = entry  # mark as most recently used
            return entry[1]

    def _keep(self, source: str, version: object, document: ApiDocument) -> ApiDocument:
        with self._lock:
            self._cached[source] = (version, document)
            if len(self._cached) > MAX_CACHED_DOCUMENTS:
                self._cached.pop(next(iter(self._cached)))
        return document


def is_remote(specification: str) -> bool:
    """Return True for the URL of a document, and False for a path."""
    return re.match(r"https?://", specification, re.IGNORECASE) is not None


def parse_document(content: bytes, source: str, url: str | None = None) -> ApiDocument:
    """Parse JSON or YAML as an OpenAPI document of version 3.0 or 3.1."""
    try:
        text = content.decode("utf-8-sig")
        is_json = text.lstrip().startswith("{")
        data = json.loads(text, parse_constant=reject_constant) if is_json else read_yaml(text, _YAML_RULES)[0]
        data = repair_json(data) if may_have_surrogates(text) else data
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)[:300]
        raise ToolError(f"{source}: not a JSON or YAML document: {reason}", "Correct the document.") from None
    version = str(data.get("openapi", "")) if isinstance(data, dict) else ""
    if not re.match(r"3\.[01]\.", f"{version}."):
        reason = f"its version is '{version[:20]}'" if version else "it has no version in `openapi`"
        raise ToolError(f"{source}: not an OpenAPI 3.0 or 3.1 document: {reason}", "Convert it to OpenAPI 3.0 or 3.1.")
    return ApiDocument(cast(Json, data), source, url)
