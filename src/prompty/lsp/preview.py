"""Preview a prompt that may not be saved: its messages, the exact request, and an estimate of what it costs.

No variable is read, so that no value of one can appear: `${env:NAME}` stays as it is written, or is its default. No
server is asked.
"""

import json
import warnings
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from prompty.analysis.explain import Explanation, explain
from prompty.analysis.sample_inputs import choose_inputs
from prompty.cases.file_names import find_test_file
from prompty.cases.project_file import find_project, override_in_project
from prompty.cases.reading import read_suite
from prompty.errors import LoadError, PromptyError, PromptyWarning
from prompty.loop.context import CHARACTERS_PER_TOKEN
from prompty.lsp.diagnostics import Workspace
from prompty.lsp.documents import to_path
from prompty.lsp.wire import INVALID_PARAMS, REFUSED, RequestFailed
from prompty.model.agent import PromptAgent
from prompty.model.message import Reply, Usage
from prompty.model.property import Property
from prompty.pipeline.load import load_unsaved
from prompty.pipeline.references import References
from prompty.pricing import get_pricer
from prompty.registry import DEFAULT

PREVIEW_SCHEME = "prompty-preview"


def build_preview(
    uri: str, workspace: Workspace, inputs: Mapping[str, Any] | None = None, case: str | None = None
) -> dict[str, Any]:
    """Return the messages, the request, its estimated cost, the inputs that were used, and the fields to change them.

    The inputs are those of the first case in the prompt's test file, or of the one named `case`. `inputs`, which may
    come from a form for an earlier text, replace those that are still there. Others get their example, their default,
    or a value of their kind.
    """
    path = to_path(uri)
    if path is None:
        raise RequestFailed(INVALID_PARAMS, "only a file can be previewed: save the document first")
    DEFAULT.dotenv = {}  # variables are not read; the next check reads the file's own `.env` again
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PromptyWarning)
            project = find_project(path)
            agent = override_in_project(_load(path, workspace, project.roots), project)
            values = {**dict(choose_inputs(agent)), **_read_case(path, workspace, case)}
            known = values.keys() | {entry.name for entry in agent.inputs}
            values |= {name: value for name, value in (inputs or {}).items() if name in known}
            explanation = explain(agent, values)
    except PromptyError as error:
        raise RequestFailed(REFUSED, str(error)) from None
    tokens = round(len(json.dumps(explanation.body, ensure_ascii=False)) / CHARACTERS_PER_TOKEN)
    return {
        "messages": [message.to_json() for message in explanation.messages],
        "request": {
            "url": explanation.url,
            "headers": list(explanation.headers),
            "body": explanation.body,
            "dropped": explanation.dropped,
            "refused": explanation.refused,
            "notAsked": list(explanation.not_asked),
        },
        "cost": _estimate_cost(agent, tokens),
        "inputs": values,
        "fields": _list_fields(agent, values),
        "text": _write(explanation),
    }


def _load(path: Path, workspace: Workspace, roots: tuple[Path, ...]) -> PromptAgent:
    """Load a file without the environment."""
    references = References(path.parent, roots, {}, workspace.buffers, defer=True)
    return load_unsaved(path, references)


def _read_case(path: Path, workspace: Workspace, name: str | None) -> Mapping[str, Any]:
    """Return the inputs of a case, or nothing without a test file. Problems of that file are shown in it."""
    tests = find_test_file(path)
    try:
        cases = read_suite(tests, workspace.buffers).cases if tests else ()
    except LoadError:
        return {}
    return next((case.inputs for case in cases if name in (None, case.name)), {})


def _list_fields(agent: PromptAgent, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a form needs for each input, and for each variable without one."""
    declared = {entry.name: entry for entry in agent.inputs}
    undeclared = [Property(name=name) for name in values if name not in declared]
    return [
        {
            "name": entry.name,
            "kind": entry.kind,
            "description": entry.description,
            "choices": entry.enum_values,
            "value": values.get(entry.name),
        }
        for entry in (*agent.inputs, *undeclared)
    ]


def _estimate_cost(agent: PromptAgent, tokens: int) -> dict[str, Any]:
    dollars: Decimal | None = get_pricer(agent, required=False)(
        Reply(usage=Usage(input_tokens=tokens, output_tokens=0))
    )
    return {"inputTokens": tokens, "dollars": None if dollars is None else float(dollars)}


def _write(explanation: Explanation) -> str:
    """Return a preview as Markdown."""
    messages = [f"## {message.role}\n\n{message.text}\n" for message in explanation.messages]
    body = json.dumps(explanation.body, indent=2, ensure_ascii=False)
    notes = [f"- `{name}` is left out: {reason}\n" for name, reason in explanation.dropped.items()]
    notes += [f"- `{name}` is not asked for its functions\n" for name in explanation.not_asked]
    if explanation.refused:
        notes.append(f"- A call would be refused: {explanation.refused}\n")
    request = f"## Request\n\nPOST {explanation.url}\n\n```json\n{body}\n```\n"
    return "\n".join([*messages, request, *notes])


def read_source(uri: str) -> str:
    """Return the URI of the prompt that a preview is about: the query of `prompty-preview:/name.md?URI`."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = None
    if parts is None or parts.scheme != PREVIEW_SCHEME or not parts.query:
        raise RequestFailed(INVALID_PARAMS, f"a preview is `{PREVIEW_SCHEME}:/preview.md?` and the URI of a prompt")
    return unquote(parts.query)
