"""Variants: `answer.claude.prompty` changes its base, `answer.prompty`, for one model, language or environment.

This module chooses the file, and merges the two frontmatters. `prompty.pipeline.compose` merges the bodies.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from yaml import Node

from prompty.errors import LoadError, Problem, check_path, did_you_mean, nearest
from prompty.pipeline.definitions import find_v1_key
from prompty.pipeline.frontmatter import BaseBody, Document, ParsedFrontmatter
from prompty.pipeline.packages import locate_prompt
from prompty.pipeline.references import References, StrPath
from prompty.pipeline.source_map import Finding, KeyPath, SourceMap, SourceText

SUFFIX = ".prompty"
_NAME = re.compile(r"[^./\\\x00]+")


def variants(path: StrPath) -> list[str]:
    """Return the names of a prompt's variants: `claude` if `answer.claude.prompty` is next to `answer.prompty`."""
    check_path(path, "variants()", "the path of a .prompty file")
    return _list_variants(Path(locate_prompt(path)).absolute())


def _list_variants(file: Path) -> list[str]:
    if file.suffix != SUFFIX:
        return []
    start = f"{file.stem}."
    try:
        names = [one.name[len(start) : -len(SUFFIX)] for one in file.parent.iterdir() if one.name.startswith(start)]
    except OSError:
        return []
    return sorted(name for name in names if _NAME.fullmatch(name) and _get_overlay(file, name).is_file())


def _get_overlay(file: Path, variant: str) -> Path:
    return file.with_name(f"{file.stem}.{variant}{SUFFIX}")


def choose_variant_file(file: Path, name: str, variant: str, references: References, *, is_default: bool) -> Path:
    """Return the file of a variant of the prompt `file`, named `name` in errors. Raise LoadError if there is none.

    A default is from the environment, so it does not apply to a variant, or to a file without variants.
    """
    if find_base(file) is not None:
        if is_default:
            return file
        message = f"{file.name} is itself a variant, so it has no variant `{variant}`"
        raise _refuse(name, "variant-of-variant", message, "Load its base with that variant.")
    overlay = _get_overlay(file, variant) if _NAME.fullmatch(variant) else None
    if overlay is not None and overlay.is_file():
        return overlay
    names = _list_variants(file)
    if is_default and not names:
        references.absent.update([overlay] if overlay else ())
        return file
    asked = f"PROMPTY_VARIANT is `{variant}`, but {file.name} has no such variant" if is_default else ""
    hint = did_you_mean(nearest(variant, names))
    known = (
        f"Its variants are: {', '.join(names)}."
        if names
        else f"It has none. To add one, create {file.stem}.NAME{SUFFIX}."
    )
    raise _refuse(name, "variant-missing", asked or f"{file.name} has no variant `{variant}`", f"{hint}{known}")


def _refuse(name: str, code: str, message: str, fix: str) -> LoadError:
    return LoadError([Problem(code=code, message=message, fix=fix, path=name)])


def find_base(file: Path) -> Path | None:
    """Return the base of a variant, or None for other prompts."""
    base = get_base(file)
    return base if base is not None and base.is_file() else None


def get_base(file: Path) -> Path | None:
    """Return the path of a file's base if it were a variant."""
    stem, _, variant = file.stem.rpartition(".")
    return file.with_name(f"{stem}{SUFFIX}") if file.suffix == SUFFIX and stem and variant else None


def merge_with_base(overlay: Document, base: Document, path: Path) -> Document:
    """Return a variant merged with its base, the file `path`. Neither may be a v1 file.

    Positions count from the start of the variant. Those in the base follow, as if the two files were one.
    """
    if find_v1_key(overlay.frontmatter.data or {}):
        return overlay
    if find_v1_key(base.frontmatter.data or {}):
        message = f"{path.name} is a Prompty v1 file, which has no variants"
        raise _refuse(overlay.source.path, "variant-version-1", message, f"Run `prompty migrate {path.name} --write`.")
    source = LayeredSource(overlay.source, base.source)
    own_start = overlay.parts.frontmatter_start
    text = source.text[own_start:]
    shift = len(overlay.source.text) + 1 + base.parts.frontmatter_start - own_start
    padded = SourceMap("\n" * shift + base.frontmatter.source_map.text)
    moved = [
        Finding(
            start + shift,
            end + shift,
            problem,
            tuple(edit._replace(start=edit.start + shift, end=edit.end + shift) for edit in edits),
        )
        for start, end, problem, edits in base.frontmatter.findings
    ]
    data = None
    if overlay.frontmatter.data is not None and base.frontmatter.data is not None:
        data = merge_patch(base.frontmatter.data, overlay.frontmatter.data)
    source_map = LayeredSourceMap(text, overlay.frontmatter.source_map, padded, data or {})
    frontmatter = ParsedFrontmatter(data, source_map, [*overlay.frontmatter.findings, *moved])
    first_line = 1 + base.source.text.count("\n", 0, base.parts.body_start)
    digest = hashlib.sha256(base.source.text.encode()).hexdigest()
    return Document(source, overlay.parts, frontmatter, BaseBody(path, base.parts.body, first_line, digest))


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON Merge Patch (RFC 7396): mappings merge, lists and scalars replace, null removes."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


class LayeredSource(SourceText):
    """The concatenated texts of a variant and its base."""

    def __init__(self, overlay: SourceText, base: SourceText) -> None:
        super().__init__(overlay.path, f"{overlay.text}\n{base.text}")
        self._overlay, self._base = overlay, base

    def problems(self, findings: Iterable[Finding], offset: int) -> list[Problem]:
        """Return findings as problems of the file they are in."""
        end = len(self._overlay.text) + 1
        problems: list[Problem] = []
        for finding in findings:
            if offset + finding.start < end:
                problems += self._overlay.problems([finding], offset)
            else:
                problems += self._base.problems([finding], offset - end)
        return problems


class LayeredSourceMap(SourceMap):
    """Positions in a variant and its base, for values of the merged data."""

    def __init__(self, text: str, overlay: SourceMap, base: SourceMap, data: Mapping[str, Any]) -> None:
        super().__init__(text)
        self._overlay, self._base, self._data = overlay, base, data

    def find(self, keys: KeyPath) -> tuple[Node | None, Node | None, list[str | int]]:
        """Follow a key path in the file that has more of it, by preference the variant."""
        names = list(self._name_entries(keys))
        own, inherited = self._overlay.find(names), self._base.find(names)
        return own if len(own[2]) >= len(inherited[2]) else inherited

    def _name_entries(self, keys: KeyPath) -> Iterable[str | int]:
        """Yield a path with names instead of indices for mappings: indices differ between the files."""
        value: Any = self._data
        for key in keys:
            if isinstance(value, dict) and isinstance(key, int) and key < len(value):
                key = list(value)[key]
            yield key
            if isinstance(value, dict):
                value = value.get(key, value)
            elif isinstance(value, list) and isinstance(key, int) and key < len(value):
                value = value[key]
