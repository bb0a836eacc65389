"""Migrate the text of a file: from Prompty v1 to v2, or to another model."""

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from prompty.errors import FileMissing, LoadError, Problem
from prompty.model.agent import PromptAgent
from prompty.pipeline.definitions import build_agent
from prompty.pipeline.frontmatter import open_document
from prompty.pipeline.load import read_outdated
from prompty.pipeline.model_override import override_model
from prompty.pipeline.references import References
from prompty.pipeline.source_map import first_problems
from prompty.providers import PROVIDERS
from prompty.v1.rewrite import create_editor, rewrite_frontmatter

# Options of a file, and the fact that says whether a model takes them.
_SAMPLING = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "frequencyPenalty": "penalties",
    "presencePenalty": "penalties",
}


class Migration(NamedTuple):
    """The text of a v2 file, and the parts that could not be translated. A v2 file is not changed."""

    text: str
    notes: list[Problem]
    is_changed: bool


def migrate_text(text: str, name: str, base_dir: Path | None = None, allowed_roots: Sequence[Path] = ()) -> Migration:
    """Return the equivalent v2 file of a text, named `name` in errors. Raise LoadError if it is invalid or needs a
    missing file."""
    source, parts, frontmatter, _ = open_document(text, name)
    outdated = None
    if not frontmatter.findings:
        outdated = read_outdated(frontmatter, parts.body, References(base_dir, allowed_roots), name)
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


def change_model(
    text: str, name: str, model: str, base_dir: Path | None = None, allowed_roots: Sequence[Path] = ()
) -> Migration:
    """Return the file with another model, an id or `provider:id`, and the options that it takes.

    If the old model does not reason and the new one need not, it is asked not to: it answers as before, and takes
    the sampling options. Options that it refuses with every effort are removed.
    """
    source, parts, frontmatter, _ = open_document(text, name)
    old = build_agent(frontmatter, parts.body, References(base_dir, allowed_roots)).agent
    new = override_model(old, model)
    editor = create_editor(parts.frontmatter or "")
    tree: Any = editor.load(parts.frontmatter or "") or {}
    written = tree["model"] if isinstance(tree.get("model"), dict) else {}
    notes = list(_edit_model(written, old, new))
    tree["model"] = written["id"] if isinstance(tree.get("model"), str) and written.keys() == {"id"} else written
    stream = StringIO()
    editor.dump(tree, stream)
    yaml, before, after = stream.getvalue(), source.text[: parts.frontmatter_start], source.text
    if parts.frontmatter is None:
        before, yaml = "---\n", f"{yaml}---\n"
    else:
        after = after[parts.frontmatter_start + len(parts.frontmatter) :]
    changed = f"{before}{yaml}{after}"
    fix = "Check that this is what you want."
    found = [Problem(code="model-changed", message=note, fix=fix, path=name, severity="info") for note in notes]
    return Migration(changed, found, is_changed=changed != text)


def _edit_model(written: Any, old: PromptAgent, new: PromptAgent) -> Iterator[str]:
    """Edit the mapping under `model:`, and yield what the author should know."""
    before, after = _find_facts(old), _find_facts(new)
    written["id"] = new.model.id
    if new.model.provider != old.model.provider:
        written["provider"] = new.model.provider
        if written.pop("connection", None) is not None:
            yield f"the connection of {old.model.provider} is removed"
        if written.pop("script", None) is not None:
            yield f"the script is removed: {new.model.id} answers itself"
    options = written.setdefault("options", {}) or {}
    if before.get("thinks") == "no" and _can_stop_reasoning(after) and "reasoningEffort" not in options:
        options["reasoningEffort"] = "none"
    for option, fact in _SAMPLING.items():
        if option in options and after.get(fact) in ("refused", "default-only"):
            del options[option]
            yield f"`{option}` is removed: {new.model.id} refuses it"
    if not options:
        del written["options"]


def _find_facts(agent: PromptAgent) -> Mapping[str, Any]:
    facts = agent.registry[PROVIDERS].get(agent.model.provider).api_for(agent).facts
    return facts.known if facts else {}


def _can_stop_reasoning(facts: Mapping[str, Any]) -> bool:
    """Return True if a model that may reason takes the effort `none`, or is Anthropic's and can answer without."""
    efforts = (*facts.get("effort_chat", ()), *facts.get("effort_responses", ()))
    return "none" in efforts or (facts.get("thinks") == "default" and "disabled" in facts.get("thinking_types", ()))
