"""What a file says beyond the documents: other runtimes do not read it."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from prompty.analysis.definition_sites import CONNECTIONS, places
from prompty.errors import Problem
from prompty.model.agent import Frontmatter
from prompty.model.connection import ApiKeyConnection, FoundryConnection
from prompty.model.property import Property
from prompty.model.tool import CustomTool, FunctionTool, OpenApiTool, PromptyTool
from prompty.pipeline.source_map import KeyPath, Source

EXTENSIONS: Mapping[type[BaseModel], tuple[str, ...]] = {
    Property: ("sensitive",),
    ApiKeyConnection: ("apiVersion",),
    FoundryConnection: ("apiVersion",),
    FunctionTool: ("approvalMode",),
    PromptyTool: ("approvalMode", "parameters"),
    OpenApiTool: ("approvalMode", "operations", "tags", "methods"),
    CustomTool: ("approvalMode",),
}
METADATA = ("fallbacks", "reasoning")


def extensions(data: Mapping[str, Any], source: Source) -> Iterator[Problem]:
    """A warning for each key that only this runtime reads."""
    for keys, value, definition in places(data):
        for name in EXTENSIONS.get(definition, ()):
            if name in value:
                yield _problem((*keys, name), f"`{name}`", source)
        if definition in CONNECTIONS.values() and "kind" not in value:
            yield _problem(keys, "a connection without a `kind`", source)
        metadata = value.get("metadata") if definition is Frontmatter else None
        for name in METADATA:
            if isinstance(metadata, dict) and name in metadata:
                yield _problem(("metadata", name), f"`metadata.{name}`", source)


def _problem(keys: KeyPath, what: str, source: Source) -> Problem:
    return source.at_key(
        keys,
        "extension",
        f"{what} is read by this runtime alone",
        "Elsewhere the file behaves as if it were not there, or is refused. See docs/explanation/differences.md.",
        severity="warning",
        on_key=True,
    )
