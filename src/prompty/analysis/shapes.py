"""Find declarations that load, but probably do not mean what their author intended."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from prompty.model.agent import PromptAgent
from prompty.model.property import KIND_SYNONYMS, Kind, Property
from prompty.pipeline.source_map import Finding, KeyPath, SourceMap


def find_open_outputs(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each output without a declared shape, which strict mode leaves empty."""
    yield from _find_open(agent.outputs, ("outputs",), source_map)


def _find_open(properties: Sequence[Property], keys: KeyPath, source_map: SourceMap) -> Iterator[Finding]:
    for index, declared in enumerate(properties):
        place = (*keys, index)
        if declared.kind == "object" and not declared.properties:
            message = f"`{declared.name}` is an object without `properties`, so the model can only answer with {{}}"
            yield source_map.locate(place, "open-output", message, "Declare its `properties:`.", severity="warning")
        elif declared.kind == "array" and declared.items is None:
            message = f"`{declared.name}` is an array without `items`, so the model can only answer with texts"
            fix = "Declare its `items:`, for example `items: {kind: string}`."
            yield source_map.locate(place, "open-output", message, fix, severity="warning")
        yield from _find_open(declared.properties, (*place, "properties"), source_map)


def find_kinds_as_defaults(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each input whose default is the name of a kind, as in `inputs: {question: string}`."""
    inputs = data.get("inputs")
    if not isinstance(inputs, dict) or "properties" in inputs:  # a JSON Schema, reported elsewhere
        return
    for name, value in inputs.items():
        kind = KIND_SYNONYMS.get(value, value) if isinstance(value, str) else None
        if kind in get_args(Kind):
            message = f"the default of `{name}` is the word `{value}`"
            fix = f"If you mean the kind, write `{name}: {{kind: {kind}}}`."
            yield source_map.locate(("inputs", name), "kind-as-default", message, fix, severity="warning")


def find_missing_model(agent: PromptAgent, body: str, source_map: SourceMap) -> Iterator[Finding]:
    """Yield an error for an empty file, and a warning for a file without a model."""
    if not body.strip() and not source_map.text.strip():
        yield source_map.locate((), "empty-file", "the file is empty", "Write a prompt: `user:`, and text below it.")
    elif not agent.model.id:
        message = "the file names no model"
        fix = "Write `model: <id>` in the frontmatter, or set PROMPTY_MODEL."
        yield source_map.locate(("model",), "missing-model", message, fix, severity="warning")
