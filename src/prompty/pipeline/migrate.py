"""Migrate the text of a Prompty v1 file to v2."""

from pathlib import Path
from typing import NamedTuple

from prompty.errors import FileMissing, LoadError, Problem
from prompty.pipeline.frontmatter import open_document
from prompty.pipeline.load import read_outdated
from prompty.pipeline.references import References
from prompty.pipeline.source_map import first_problems
from prompty.v1.rewrite import rewrite_frontmatter


class Migration(NamedTuple):
    """The text of a v2 file, and the parts that could not be translated. A v2 file is not changed."""

    text: str
    notes: list[Problem]
    is_changed: bool


def migrate_text(text: str, name: str, base_dir: Path | None = None) -> Migration:
    """Return the equivalent v2 file of a text, named `name` in errors. Raise LoadError if it is invalid or needs a
    missing file."""
    source, parts, frontmatter, _ = open_document(text, name)
    outdated = None
    if not frontmatter.findings:
        outdated = read_outdated(frontmatter, parts.body, References(base_dir), name)
    findings = outdated.frontmatter.findings if outdated else frontmatter.findings
    if findings:
        problems = first_problems(source.problems(findings, parts.frontmatter_start))
        is_missing = any(finding.problem.code == "file-missing" for finding in findings)
        raise (FileMissing if is_missing else LoadError)(problems)
    if outdated is None:
        return Migration(text, [], is_changed=False)
    old, before = parts.frontmatter or "", parts.frontmatter_start
    new = rewrite_frontmatter(old, dict(frontmatter.data or {}), dict(outdated.frontmatter.data or {}), outdated.moves)
    between = source.text[before + len(old) : parts.body_start]
    after = source.text[parts.body_start + len(parts.body) :]
    migrated = "".join([source.text[:before], new, between, outdated.body, after])
    if "\r\n" in text:
        migrated = migrated.replace("\n", "\r\n")
    notes = [
        *source.problems(outdated.notes[1:], before),
        *source.problems(outdated.body_notes, parts.body_start),
    ]
    return Migration(migrated, first_problems(notes), is_changed=True)
