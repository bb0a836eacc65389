"""What a reader returns: drafts of prompts and cases as plain data, and notes on what was left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prompty.cases.case_file import Level
from prompty.model.message import Json
from prompty.pipeline.source_map import KeyPath

BY_HAND = "Write it by hand, if you need it."


class Note(NamedTuple):
    """Something that was left out: its place in the file, why, and what to do."""

    keys: KeyPath
    message: str
    fix: str = BY_HAND


class DraftMessage(NamedTuple):
    """A message: its role, and its text as a Jinja2 template."""

    role: str
    template: str


class DraftCheck(NamedTuple):
    """A check, and the level that it belongs to."""

    level: Level
    check: Json


@dataclass(kw_only=True)
class DraftCase:
    """A case. `inputs` may have values that the prompt does not use."""

    name: str = ""
    inputs: dict[str, object] = field(default_factory=dict)
    checks: list[DraftCheck] = field(default_factory=list)
    models: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class DraftPrompt:
    """A prompt with its cases. Without `messages`, the prompt exists, and only its test file is written."""

    name: str
    messages: Sequence[DraftMessage] = ()
    description: str = ""
    model: str | None = None
    api_type: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    cases: list[DraftCase] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    repeat: int | None = None


class Import(NamedTuple):
    """The result of reading a file."""

    prompts: Sequence[DraftPrompt]
    notes: Sequence[Note]
