"""OpenAPI documents: read from a file or a URL, once, and looked into by local references only."""

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
from prompty.safety.yaml import JSON, Rules, read_yaml

LARGEST_DOCUMENT = 32_000_000
MAX_DOCUMENTS = 64  # parsed ones that are kept
_YAML_RULES = Rules(JSON, max_depth=200, max_nodes=1_000_000)
_MOST_HOPS = 32

Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, eq=False, slots=True)
class Document:
    """A document, and where it came from: `url` for one that was fetched. It is equal to itself only."""

    data: Json
    source: str
    url: str | None = None

    @property
    def refers_alone(self) -> bool:
        """Whether nothing beside a `$ref` counts, as it was before 3.1."""
        return str(self.data["openapi"]).startswith("3.0")

    def at(self, reference: object) -> object:
        """What a local reference leads to."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            self.refuse(f"the reference {str(reference)[:200]!r} leads out of the document", "Put what it names inside")
        found: object = self.data
        for part in reference.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                self.refuse(f"the reference {reference[:200]!r} leads nowhere", "Correct it")
        return found

    def followed(self, value: object) -> Json:
        """An object, or the one at the end of its references."""
        hops = 0
        while isinstance(value, dict) and "$ref" in value:
            value = self.at(value["$ref"])
            hops += 1
            if hops > _MOST_HOPS:
                self.refuse("references lead in a circle", "Break it")
        if not isinstance(value, dict):
            self.refuse(f"an object is expected in place of {str(value)[:100]!r}", "Correct it")
        return value

    def refuse(self, cause: str, fix: str) -> NoReturn:
        raise ToolError(f"{self.source}: {cause}", f"{fix}, or choose other operations with `operations:` or `tags:`.")


class Documents:
    """Parsed documents by path and URL. A file that has changed is read again; the least recently used are dropped."""

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[object, Document]] = {}
        self._lock = Lock()

    async def get(self, tool: OpenApiTool, agent: PromptAgent, fetch: Fetch) -> Document:
        """Return the document of a tool."""
        url = tool.specification
        if re.match(r"https?://", url, re.IGNORECASE):
            document = self._find(url, None)
            return document or self._keep(url, None, await to_thread(parsed, await fetch(url), url, url))
        return await to_thread(self._from_file, _path_of(tool, agent))

    def _from_file(self, path: Path) -> Document:
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_DOCUMENT:
                raise ToolError(
                    f"{path}: not a file of at most {LARGEST_DOCUMENT:,} bytes", "Name an OpenAPI document."
                )
            version = (status.st_mtime_ns, status.st_size)
            document = self._find(str(path), version)
            return document or self._keep(str(path), version, parsed(path.read_bytes(), str(path)))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ToolError(
                f"{path}: cannot read the OpenAPI document: {reason}", "Correct `specification:`."
            ) from None

    def _find(self, place: str, version: object) -> Document | None:
        with self._lock:
            found = self._parsed.pop(place, None)
            if found is None or found[0] != version:
                return None
            self._parsed[place] = found
            return found[1]

    def _keep(self, place: str, version: object, document: Document) -> Document:
        with self._lock:
            self._parsed[place] = (version, document)
            if len(self._parsed) > MAX_DOCUMENTS:
                self._parsed.pop(next(iter(self._parsed)))
        return document


def _path_of(tool: OpenApiTool, agent: PromptAgent) -> Path:
    if agent.path is None:
        raise ToolError(
            f"the specification '{tool.specification}' of '{tool.name}' lies beside a file, and the prompt has none",
            "Load the prompt with load(path), or name the specification by its URL.",
        )
    folder = agent.path.parent.resolve()
    path = (folder / tool.specification).resolve()
    if not path.is_relative_to(folder):
        raise ToolError(
            f"the specification '{tool.specification}' of '{tool.name}' is not below the folder of its prompt",
            "Move it there.",
        )
    return path


def parsed(content: bytes, source: str, url: str | None = None) -> Document:
    """A document from its bytes, JSON or YAML; its version is 3.0 or 3.1."""
    try:
        text = content.decode("utf-8-sig")
        is_json = text.lstrip().startswith("{")
        data = json.loads(text, parse_constant=reject_constant) if is_json else read_yaml(text, _YAML_RULES)[0]
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)[:300]
        raise ToolError(f"{source}: not a JSON or YAML document: {reason}", "Correct the document.") from None
    version = str(data.get("openapi", "")) if isinstance(data, dict) else ""
    if not re.match(r"3\.[01]\.", f"{version}."):
        told = f"its version is '{version[:20]}'" if version else "it has no version in `openapi`"
        raise ToolError(f"{source}: not an OpenAPI 3.0 or 3.1 document: {told}", "Convert it to OpenAPI 3.0 or 3.1.")
    return Document(cast(Json, data), source, url)
