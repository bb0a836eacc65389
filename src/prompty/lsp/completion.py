"""Completion: keys and values of YAML, names and filters in templates, files and variables in references."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from prompty.errors import PromptyError
from prompty.lsp.diagnostics import Workspace, is_root, is_test_file
from prompty.lsp.documents import Text, to_path
from prompty.lsp.models import list_model_ids
from prompty.lsp.names import Names
from prompty.lsp.outline import FileOutline
from prompty.lsp.schema import YamlPlace, find_place, list_fitting_keys, list_values
from prompty.model.marker import ROLES
from prompty.pipeline.dotenv import load_env
from prompty.providers import PROVIDERS
from prompty.providers.facts import EFFORTS
from prompty.registry import DEFAULT
from prompty.renderers import RENDERERS

_ENV = re.compile(r"\$\{env:([\w.-]*)\Z")
_FILE = re.compile(r"\$\{file:([^{}\n]*)\Z")
_INCLUDE = re.compile(r"%[-+]?\s*include\s+[\"']([^\"'\n]*)\Z|\{\{>\s*([^}\n]*)\Z")
_FILTER = re.compile(r"\{[{%][^}]*\|\s*(\w*)\Z")
_TAG = re.compile(r"\{%[-+]?\s*(\w*)\Z")
_EXPRESSION = re.compile(r"\{[{%](?:[^}]*[^\w.}])?(\w*)\Z|\{\{[#^/&]?\s*(\w*)\Z")
_MEMBER = re.compile(r"\.\w*\Z")
_TAGS = ("if", "elif", "else", "endif", "for", "endfor", "set", "include", "block", "endblock", "raw", "endraw")
_MAX_FILES = 300
KEYWORD, VARIABLE, FUNCTION, PROPERTY, VALUE, FILE, CONSTANT = 14, 6, 3, 10, 12, 17, 21


class Offer(NamedTuple):
    """An offer. `note` is shown beside it, `about` explains it, and `insert` is written if it is not the label."""

    label: str
    kind: int
    note: str = ""
    about: str = ""
    insert: str = ""


def complete(uri: str, text: Text, offset: int, workspace: Workspace) -> list[dict[str, Any]]:
    """Return what may be written at an offset. Each item replaces the part of it that is already there."""
    if not is_root(uri, workspace.languages[uri]) and not Path(to_path(uri) or "").name.startswith("_"):
        return []
    names = Names(uri, workspace)
    row = text.to_position(offset)["line"]
    before = text.text[text.starts[row] : offset]
    written, items = _find_items(names, text, row, before, offset)
    place = text.to_range(offset - len(written), offset)
    return [_build_item(item, place) for item in dict.fromkeys(items)]


def _build_item(item: Offer, place: dict[str, Any]) -> dict[str, Any]:
    edit = {"range": place, "newText": item.insert or item.label}
    built: dict[str, Any] = {"label": item.label, "kind": item.kind, "textEdit": edit, "filterText": item.label}
    if item.note:
        built["detail"] = item.note
    if item.about:
        built["documentation"] = {"kind": "markdown", "value": item.about}
    return built


def _find_items(names: Names, text: Text, row: int, before: str, offset: int) -> tuple[str, Iterable[Offer]]:
    outline, path = names.own, to_path(names.uri)
    if offset <= outline.end and (outline.is_test or offset >= outline.start):
        if (found := _ENV.search(before)) and not outline.is_test:
            return found[1], _list_variables(path)
        if found := _FILE.search(before):
            return found[1].rpartition("/")[2], _list_files(path, found[1])
        place = find_place(text.lines, row, before)
        written = place.written.lstrip("'\"")
        return written, _list_in_yaml(names, place, path)
    if found := _INCLUDE.search(before):
        name = found[1] if found[1] is not None else found[2]
        return name.rpartition("/")[2], _list_files(path, name, partials=True)
    if found := _FILTER.search(before):
        return found[1], _list_filters(outline)
    if _MEMBER.search(before):
        return "", []
    if found := _TAG.search(before):
        return found[1], [Offer(tag, KEYWORD) for tag in _TAGS]
    if found := _EXPRESSION.search(before):
        return found[1] or found[2] or "", _list_inputs(names)
    if re.fullmatch(r"[ \t]*\w*", before):
        return before.strip(), [Offer(f"{role}:", KEYWORD, "message") for role in ROLES]
    return "", []


def _list_variables(path: Path | None) -> Iterator[Offer]:
    """Yield the names of variables, without their values."""
    try:
        if path:
            load_env(prompt=path)
    except PromptyError:
        DEFAULT.dotenv = {}
    yield from (Offer(name, CONSTANT, ".env") for name in sorted(DEFAULT.dotenv))
    yield from (Offer(name, CONSTANT, "environment") for name in sorted(os.environ) if name not in DEFAULT.dotenv)


def _list_files(path: Path | None, written: str, *, partials: bool = False, suffix: str = "") -> Iterator[Offer]:
    """Yield the files and folders next to a document, in the folder that is already written."""
    folder = written.rpartition("/")[0]
    if path is None or ".." in folder.split("/") or folder.startswith("/"):
        return
    try:
        entries = sorted(os.scandir(path.parent / folder), key=lambda entry: entry.name)[:_MAX_FILES]
    except (OSError, ValueError):
        return
    for entry in entries:
        if entry.is_dir() and not entry.name.startswith((".", "__")):
            yield Offer(f"{entry.name}/", FILE)
            continue
        fits = entry.name.startswith("_") if partials else entry.name.endswith(suffix) and entry.name != path.name
        if fits and entry.is_file() and not entry.name.startswith("."):
            yield Offer(entry.name, FILE)


def _list_filters(outline: FileOutline) -> Iterator[Offer]:
    yield from (Offer(name, FUNCTION, "filter") for name in getattr(outline.engine, "filters", list)())


def _list_inputs(names: Names) -> Iterator[Offer]:
    for uri in [names.uri, *names.list_prompts()]:
        for name, declared in names.read(uri).list_inputs().items():
            yield Offer(name, VARIABLE, *describe_input(declared))


def describe_input(declared: object) -> tuple[str, str]:
    """Return the kind and default of an input, and its description."""
    if not isinstance(declared, dict):
        return ("input", "") if declared is None else (f"default: {declared}", "")
    parts = [str(declared.get("kind", "string")), "required" if declared.get("required") else ""]
    if declared.get("default") is not None:
        parts.append(f"default: {declared['default']}")
    return ", ".join(filter(None, parts)), str(declared.get("description") or "")


def _list_in_yaml(names: Names, place: YamlPlace, path: Path | None) -> Iterator[Offer]:
    is_test = names.own.is_test
    if place.key is not None:
        yield from _list_yaml_values(names, (*place.keys, place.key), path, place.written)
        return
    if is_test and place.keys[-1:] == ("inputs",):
        yield from (item._replace(insert=f"{item.label}: ") for item in _list_inputs(names))
    elif is_test and place.keys[-1:] == ("tools",) and "expect" not in place.keys:
        tools = {tool for uri in names.list_prompts() for tool in names.read(uri).list_tools()}
        yield from (Offer(tool, FUNCTION, "tool", insert=f"{tool}: ") for tool in sorted(tools))
    known = list_fitting_keys(place.keys, is_test=is_test, kind=_find_kind(names.own, place.keys))
    yield from (Offer(key, PROPERTY, about=about, insert=f"{key}: ") for key, about in known.items())


def _find_kind(outline: FileOutline, keys: tuple[str, ...]) -> str:
    """Return the kind of connection that a file has, so that only its keys are offered."""
    value: Any = outline.data
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return str(value.get("kind", "")) if isinstance(value, dict) else ""


def _list_yaml_values(names: Names, keys: tuple[str, ...], path: Path | None, written: str) -> Iterator[Offer]:
    outline, key = names.own, keys[-1]
    if keys in (("model",), ("model", "id")) or key == "models":
        model = outline.data.get("model")
        provider = model.get("provider", "openai") if isinstance(model, dict) else "openai"
        hosts = list_model_ids()
        for host in [provider] if provider in hosts and key != "models" else hosts:
            prefix = "" if host == provider and key != "models" else f"{host}:"
            yield from (Offer(prefix + id, VALUE, note) for id, note in hosts[host].items())
    elif key == "provider":
        yield from (Offer(name, VALUE) for name in DEFAULT[PROVIDERS].names())
    elif keys in (("template",), ("template", "format"), ("template", "format", "kind")):
        yield from (Offer(name, VALUE) for name in DEFAULT[RENDERERS].names())
    elif key == "apiType":
        yield from (Offer(name, VALUE) for name in ("chat", "responses", "embedding", "image"))
    elif key == "reasoningEffort":
        yield from (Offer(name, VALUE) for name in EFFORTS)
    elif key == "input" and "bindings" in keys:
        yield from _list_inputs(names)
    elif key in ("prompt", "judge", "path"):
        yield from _list_files(path, written, suffix=".prompty")
    elif outline.is_test and "expect" in keys and key in ("tools", "equals", "contains", "not_contains"):
        tools = {tool for uri in names.list_prompts() for tool in names.read(uri).list_tools()}
        yield from (Offer(tool, FUNCTION, "tool") for tool in sorted(tools))
    else:
        yield from (Offer(word, VALUE) for word in list_values(keys, is_test=is_test_file(names.uri)))
