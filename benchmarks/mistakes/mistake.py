"""A mistake as data: what a person does, how to do it again, what it says today, and what it should say."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import yaml

HERE = Path(__file__).parent
GRADES = HERE / "grades.yaml"
SERVERS = HERE / "servers.yaml"
GROUPS = sorted(set(HERE.glob("*.yaml")) - {GRADES, SERVERS})


Grade = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One mistake. Exactly one of `command` and `python` is given."""

    id: str
    does: str
    """What the person does, in one sentence."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Name → text. `SERVER` in a text is the address of the server."""
    server: str = ""
    """The name of its answers in `servers.yaml`. OpenAI's and Anthropic's variables then point at it."""
    env: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()
    """Packages that are not installed."""
    stdin: str = ""
    before: Sequence[str] = ()
    """Commands that run first, whose output does not count."""
    command: str = ""
    python: str = ""
    says: str = ""
    """All that is printed, normalised; after the output of a command, its exit code."""
    should: Mapping[str, str]
    """The `place`, `cause` and `fix` that the message should name."""

    KEYS: ClassVar = ("place", "cause", "fix")


def load_mistakes() -> list[Mistake]:
    """Return all mistakes, group by group."""
    return [Mistake(**entry) for file in GROUPS for entry in read_yaml(file)]


def load_grades() -> dict[str, Grade]:
    """Return the grade of each mistake by id: `grade`, `reason`, and the `fingerprint` of the message it is for."""
    return read_yaml(GRADES) or {}


def get_fingerprint(says: str) -> str:
    """Return what tells one message from another in `grades.yaml`."""
    return sha256(says.encode()).hexdigest()[:12]


def store(messages: Mapping[str, str]) -> None:
    """Write messages, by id, into the files of the groups; new grades are for the messages that were there."""
    grades, says = load_grades(), {mistake.id: mistake.says for mistake in load_mistakes()}
    for name, grade in grades.items():
        grade.setdefault("fingerprint", get_fingerprint(says[name]))
    _write_yaml(GRADES, grades)
    for file in GROUPS:
        entries = [asdict(Mistake(**entry)) for entry in read_yaml(file)]
        for entry in entries:
            entry["says"] = messages.get(entry["id"], entry["says"])
        _write_yaml(file, [{key: value for key, value in entry.items() if value or key == "says"} for entry in entries])


def read_yaml(file: Path) -> Any:
    """Read a YAML file."""
    return yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def _write_yaml(file: Path, data: object) -> None:
    comment = "".join(line for line in file.read_text("utf-8").splitlines(True) if line.startswith("#"))
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110) if data else ""
    file.write_text(comment + text.replace("\n- id:", "\n\n- id:"), encoding="utf-8")


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, as a person would."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _write_text)
_Dumper.add_representer(tuple, yaml.SafeDumper.represent_list)
