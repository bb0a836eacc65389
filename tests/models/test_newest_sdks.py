"""The facts know the models that the installed SDKs name, and the days on which those end.

After `make pin`, whatever fails here is new: add it to facts/models.yaml.
"""

import ast
import re
from datetime import date, datetime
from importlib.metadata import distribution
from pathlib import Path

import pytest

from prompty.providers.facts import EFFORTS, find_facts

SITE = Path(str(distribution("openai").locate_file("")))
CHAT_MODEL = SITE / "openai" / "types" / "shared" / "chat_model.py"
_SHUTDOWN = re.compile(r'- ((?:"[^"]+",?\s*)+):\s+Announced\s+shutdown\s+date:\s+(\d{4}-\d\d-\d\d)')
_ORDINAL = re.compile(r"(\d)(st|nd|rd|th)")


def read_literals(file: Path) -> list[str]:
    """Return the texts in the first `Literal` of a module, without importing it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            return [str(entry.value) for entry in ast.walk(node.slice) if isinstance(entry, ast.Constant)]
    return []


def read_openai_ends() -> dict[str, date]:
    found = _SHUTDOWN.findall(CHAT_MODEL.read_text(encoding="utf-8"))
    return {id: date.fromisoformat(day) for names, day in found for id in re.findall(r'"([^"]+)"', names)}


def read_anthropic_ends() -> dict[str, date]:
    for node in ast.parse((SITE / "anthropic/resources/messages/messages.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DEPRECATED_MODELS":
            days: dict[str, str] = ast.literal_eval(node.value)
            return {id: datetime.strptime(_ORDINAL.sub(r"\1", day), "%B %d, %Y").date() for id, day in days.items()}
    return {}


IDS = {
    "openai": read_literals(CHAT_MODEL),
    "anthropic": read_literals(SITE / "anthropic/types/model_param.py"),
}
ENDS = {"openai": read_openai_ends(), "anthropic": read_anthropic_ends()}


@pytest.mark.parametrize("host", IDS)
def test_every_model_of_an_sdk_has_a_row(host: str) -> None:
    assert len(IDS[host]) > 5
    assert [id for id in IDS[host] if find_facts(host, id) is None] == []


@pytest.mark.parametrize("host", ENDS)
def test_a_model_ends_on_the_day_that_its_sdk_names(host: str) -> None:
    assert ENDS[host]
    ends = {id: found.find("ends")[0] if (found := find_facts(host, id)) else None for id in ENDS[host]}
    assert ends == {id: day.isoformat() for id, day in ENDS[host].items()}


def test_every_effort_of_the_sdk_is_known() -> None:
    efforts = read_literals(SITE / "openai/types/shared/reasoning_effort.py")
    assert efforts
    assert set(efforts) <= {*EFFORTS}
