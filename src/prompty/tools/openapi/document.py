"""Read OpenAPI documents from files and URLs, follow references inside them, and convert their schemas to JSON Schema.

OpenAPI 3.0 has its own dialect (`nullable`, `exclusiveMinimum: true`, references without siblings); 3.1 is JSON Schema.
Both give the same result, without keywords that do not constrain a value. Names and descriptions get forms that model
APIs accept.
"""

import json
import os
import re
import stat
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn, cast
from urllib.parse import unquote

from prompty.errors import ToolError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.tool import OpenApiTool
from prompty.safety.json import TooManyValues, check_size, may_have_surrogates, reject_constant, repair_json
from prompty.safety.schemas import is_pattern
from prompty.safety.visible import visible
from prompty.safety.yaml import JSON, Rules, read_yaml
from prompty.tools.kinds import locate_file

MAX_DOCUMENT_BYTES = 32_000_000
MAX_CACHED_DOCUMENTS = 64
_MAX_REFERENCE_HOPS = 32
_YAML_RULES = Rules(JSON, max_depth=200, max_nodes=1_000_000)

Fetch = Callable[[str], Awaitable[bytes]]
MAX_DESCRIPTION_LENGTH = 1_000
MAX_FUNCTION_NAME = 64
_NOT_IN_FUNCTIONS = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_IN_ARGUMENTS = re.compile(r"[^A-Za-z0-9_.-]+")
_SCHEMA_KEYWORDS = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_LIST_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPPING_KEYWORDS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_COPIED_KEYWORDS = frozenset(
    {"type", "enum", "const", "default", "format", "deprecated", "contentEncoding", "contentMediaType"}
    | {"multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength"}
    | {"maxItems", "minItems", "uniqueItems", "maxContains", "minContains"}
    | {"maxProperties", "minProperties", "dependentRequired"}
)
_BESIDE_REFERENCES = frozenset({"$ref", "description", "nullable"})
_DROPPED = object()


@dataclass(frozen=True, eq=False, slots=True)
class ApiDocument:
    """A parsed document and its source, with the URL of one that was fetched. Compared and hashed by identity."""

    data: Json
    source: str
    url: str | None = None
    operations: dict[Any, Any] = field(default_factory=dict, repr=False)
    """The operations of a selection, once they were listed."""

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
        if is_json:  # YAML has its own limits
            check_size(content)
        data = json.loads(text, parse_constant=reject_constant) if is_json else read_yaml(text, _YAML_RULES)[0]
        data = repair_json(data) if may_have_surrogates(text) else data
    except TooManyValues as error:
        raise ToolError(f"{source}: the document has {error}", "Keep only the operations that you need.") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)[:300]
        raise ToolError(f"{source}: not a JSON or YAML document: {reason}", "Correct the document.") from None
    version = str(data.get("openapi", "")) if isinstance(data, dict) else ""
    if not re.match(r"3\.[01]\.", f"{version}."):
        reason = f"its version is '{version[:20]}'" if version else "it has no version in `openapi`"
        raise ToolError(f"{source}: not an OpenAPI 3.0 or 3.1 document: {reason}", "Convert it to OpenAPI 3.0 or 3.1.")
    return ApiDocument(cast(Json, data), source, url)


def clean_description(text: object) -> str:
    """Escape hidden characters in a description, and truncate it. Return "" if it is not text."""
    if not isinstance(text, str):
        return ""
    cleaned = visible(text[: MAX_DESCRIPTION_LENGTH + 1].replace("\r\n", "\n").strip())
    return cleaned if len(cleaned) <= MAX_DESCRIPTION_LENGTH else f"{cleaned[: MAX_DESCRIPTION_LENGTH - 1]}…"


def function_name(text: str) -> str:
    """Return a name that every API accepts for a function."""
    return _NOT_IN_FUNCTIONS.sub("_", text).strip("_")[:MAX_FUNCTION_NAME] or "operation"


def argument_name(text: str) -> str:
    """Return a name that every API accepts for an argument: `page[size]` becomes `page_size`."""
    if text and len(text) <= MAX_FUNCTION_NAME and not _NOT_IN_ARGUMENTS.search(text):
        return text
    return _NOT_IN_ARGUMENTS.sub("_", text).strip("_")[:MAX_FUNCTION_NAME] or "value"


def make_unique(name: str, taken: set[str]) -> str:
    """Return the name, with a number if it is taken, and add it to `taken`."""
    unique, number = name, 1
    while unique in taken:
        number += 1
        suffix = f"_{number}"
        unique = name[: MAX_FUNCTION_NAME - len(suffix)] + suffix
    taken.add(unique)
    return unique


class Schemas:
    """The schemas of one document. A shared definition is converted once."""

    def __init__(self, document: ApiDocument) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._definitions: dict[str, Any] = {}
        self._references: dict[str, set[str]] = {}
        self._enclosing: str | None = None

    def convert(self, schema: object, references: set[str]) -> Any:
        """Return a schema as JSON Schema, and add the references in it to `references`."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            self._document.refuse(f"expected a schema, found {str(schema)[:100]!r}", "Correct it")
        if schema.get("$recursiveRef") == "#" and self._enclosing:  # OpenAI's own document has some
            schema = {**schema, "$ref": self._enclosing}
        elif keyword := next((name for name in ("$dynamicRef", "$recursiveRef") if name in schema), None):
            schema_name = f"the schema {self._enclosing}" if self._enclosing else "a schema"
            self._document.refuse(
                f"{schema_name} has `{keyword}`, which prompty does not follow", "Write a plain `$ref`"
            )
        if "$ref" in schema and self._document.ignores_reference_siblings:
            schema = {keyword: value for keyword, value in schema.items() if keyword in _BESIDE_REFERENCES}
        values = {keyword: self._convert_value(keyword, value, references) for keyword, value in schema.items()}
        converted = {keyword: value for keyword, value in values.items() if value is not _DROPPED}
        if required := required_properties(schema):
            converted["required"] = required
        converted = _convert_bounds(converted)
        return _add_null(converted) if schema.get("nullable") is True else converted

    def collect_definitions(self, references: Iterable[str]) -> Json:
        """Return the definitions that references reach, transitively."""
        definitions: Json = {}
        pending = list(references)
        while pending:
            reference = pending.pop()
            if self._names[reference] not in definitions:
                definitions[self._names[reference]] = self._define(reference)
                pending.extend(self._references[reference])
        return dict(sorted(definitions.items()))

    def _define(self, reference: str) -> Any:
        if reference not in self._definitions:
            self._references[reference] = set()
            self._enclosing = reference
            self._definitions[reference] = self.convert(self._document.find(reference), self._references[reference])
            self._enclosing = None
        return self._definitions[reference]

    def _convert_reference(self, reference: object, references: set[str]) -> str:
        self._document.find(reference)  # raises if it has no target
        text = str(reference)
        if text not in self._names:
            plain = text.removeprefix("#/components/schemas/").removeprefix("#/")
            self._names[text] = make_unique(argument_name(plain.replace("~1", "_")), self._taken)
        references.add(text)
        return f"#/$defs/{self._names[text]}"

    def _convert_value(self, keyword: str, value: Any, references: set[str]) -> Any:
        if keyword in _COPIED_KEYWORDS:
            return value
        if keyword in _SCHEMA_KEYWORDS:
            return self.convert(value, references)
        if keyword in _LIST_KEYWORDS and isinstance(value, list):
            return [self.convert(entry, references) for entry in value]
        if keyword in _MAPPING_KEYWORDS and isinstance(value, dict):
            return {name: self.convert(entry, references) for name, entry in value.items() if not is_read_only(entry)}
        match keyword:
            case "$ref":
                return self._convert_reference(value, references)
            case "description":
                return clean_description(value) or _DROPPED
            case "pattern" if isinstance(value, str) and is_pattern(value):
                return value
        return _DROPPED


def is_read_only(schema: object) -> bool:
    """Return True for a property that is only in responses."""
    return isinstance(schema, dict) and schema.get("readOnly") is True


def required_properties(schema: Json) -> list[str]:
    """Return the properties that a request must have."""
    required, properties = schema.get("required"), schema.get("properties")
    declared = properties if isinstance(properties, dict) else {}
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return [name for name in dict.fromkeys(names) if not is_read_only(declared.get(name))]


def _convert_bounds(schema: Json) -> Json:
    """Convert `exclusiveMinimum: true` with `minimum: 1` to `exclusiveMinimum: 1`, and the same for maxima."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    return schema


def _add_null(schema: Json) -> Json:
    """Return a schema that also accepts null."""
    values = schema.get("enum")
    if isinstance(values, list) and None not in values:
        schema = {**schema, "enum": [*values, None]}
    match schema.get("type"):
        case str(name):
            return {**schema, "type": [name, "null"]} if name != "null" else schema
        case list(names):
            return {**schema, "type": [*names, *(["null"] if "null" not in names else [])]}
    combined = schema.keys() & {"$ref", "allOf", "anyOf", "oneOf", "not"}
    return {"anyOf": [schema, {"type": "null"}]} if combined else schema
