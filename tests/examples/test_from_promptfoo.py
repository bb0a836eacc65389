"""The converter of promptfoo configs: what it writes decides as the config says, and the rest is left out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from prompty import check
from prompty.cases.reading import read_suite
from prompty.testing import Script
from tests.cases.project import LIVE, run_suites

CONVERTER = Path(__file__).parents[2] / "examples" / "from-promptfoo" / "convert.py"
pytestmark = pytest.mark.process


def convert(folder: Path, config: dict[str, Any], code: int = 0) -> str:
    """Convert a config, and return what the converter prints."""
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [sys.executable, str(CONVERTER), "config.yaml", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  our own example
    assert done.returncode == code, done
    return done.stdout + done.stderr


def make_config(*assertions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    tests = [{"vars": {"name": "Ada"}, "assert": list(assertions)}]
    return {
        "prompts": [{"label": "greet", "raw": "Greet {{name}}."}],
        "providers": ["openai:m"],
        "tests": tests,
        **changes,
    }


def judge(folder: Path, answer: str) -> list[str]:
    """Return the status of each case if the model answers so."""
    assert [problem for problem in check(folder / "greet.prompty") if problem.severity == "error"] == []
    with Script(*[answer] * 10):
        return [result.status for result in run_suites(read_suite(folder / "greet.test.yaml"), mode=LIVE)]


# An assertion, an answer that it accepts, and one that it refuses.
ASSERTIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "equals": ({"value": "Hello {{name}}"}, "Hello Ada", "Hello Ada!"),
    "contains": ({"value": "{{ name }}"}, "Hi Ada.", "Hi ada."),
    "icontains": ({"value": "{{name}}", "weight": 2}, "Hi ada.", "Hi."),
    "not-contains": ({"value": "Bob"}, "Hi bob.", "Hi Bob."),
    "not-icontains": ({"value": "Bob"}, "Hi.", "Hi bob."),
    "contains-all": ({"value": ["Hi", "{{name}}"]}, "Hi Ada", "Hi"),
    "contains-any": ({"value": ["Hi", "Hello"]}, "Hello", "Good day"),
    "starts-with": ({"value": "Hi. ("}, "Hi. (Ada)", "Oh. Hi. ("),
    "regex": ({"value": "A.a$"}, "Hi Ada", "Ada, hi"),
    "is-json": ({"value": {"type": "object", "required": ["a"]}}, '{"a": 1}', '{"b": 1}'),
}


@pytest.mark.parametrize("kind", ASSERTIONS)
def test_a_converted_assertion_decides_as_before(kind: str, tmp_path: Path) -> None:
    assertion, accepted, refused = ASSERTIONS[kind]
    assert convert(tmp_path, make_config({"type": kind, **assertion})) == "greet: 1 cases\n"
    assert judge(tmp_path, accepted) == ["passed"]
    assert judge(tmp_path, refused) == ["failed"]


def test_limits_are_converted_with_their_units(tmp_path: Path) -> None:
    convert(tmp_path, make_config({"type": "cost", "threshold": 0.5}, {"type": "latency", "threshold": 1500}))
    [case] = yaml.safe_load((tmp_path / "greet.test.yaml").read_text())["cases"]
    assert case["expect"] == {"replay": [{"cost": {"max": 0.5}}], "live": [{"seconds": {"max": 1.5}}]}


def test_lists_of_variables_are_cases_for_each_combination(tmp_path: Path) -> None:
    raw = json.dumps([{"role": "system", "content": "Use {{language}}."}, {"role": "user", "content": "{{text}}"}])
    tests = [{"description": "all", "vars": {"language": ["French", "German"], "text": ["a", "b"]}}]
    convert(tmp_path, make_config(prompts=[{"label": "greet", "raw": raw}], tests=tests))
    cases = yaml.safe_load((tmp_path / "greet.test.yaml").read_text())["cases"]
    assert [case["name"] for case in cases] == ["1.1 all", "1.2 all", "1.3 all", "1.4 all"]
    assert [tuple(case["inputs"].values()) for case in cases] == [
        (language, text) for language in ("French", "German") for text in "ab"
    ]
    assert judge(tmp_path, "Any answer") == ["passed"] * 4


LEFT_OUT = {
    "a judge": (make_config({"type": "llm-rubric", "value": "is polite"}), "`llm-rubric` needs a judge"),
    "code": (make_config({"type": "javascript", "value": "true"}), "`javascript` needs a judge, or a function"),
    "a weight of nothing": (make_config({"type": "contains", "value": "a", "weight": 0}), "weight: 0"),
    "a threshold": (make_config({"type": "contains", "value": "a", "threshold": 0.5}), "`contains` has `threshold`"),
    "a value in a file": (make_config({"type": "contains", "value": "file://a.txt"}), "`file://a.txt` is a file"),
    "a template in a value": (make_config({"type": "contains", "value": "{{ env.KEY }}"}), "more than the variables"),
    "a list for a text": (make_config({"type": "contains", "value": ["a"]}), "`value` of another type"),
    "JSON that is broken": (make_config({"type": "is-json", "value": "{"}), "test 1: Expecting"),
    "a server": (make_config(providers=["https://example.com/answer"]), "name it in `model:`"),
    "an option": (make_config(providers=[{"id": "openai:m", "config": {"apiKey": "k"}}]), "`apiKey`"),
    "an option of a test": (make_config(tests=[{"vars": {}, "options": {}}]), "test 1: `options`"),
    "a variable in a file": (make_config(tests=[{"vars": {"name": "file://a.txt"}}]), "a variable is a file"),
    "red-teaming": (make_config(redteam={}), "left out: `redteam`"),
}


@pytest.mark.parametrize(("config", "line"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_has_no_counterpart_is_named_and_left_out(config: dict[str, Any], line: str, tmp_path: Path) -> None:
    printed = convert(tmp_path, config)
    assert line in printed
    assert "left out: " in printed
    for file in ("greet.prompty", "greet.test.yaml"):
        assert "expect: {}" in (text := (tmp_path / file).read_text()) or "expect:" not in text


PROMPTS = {
    "a file": "file://prompt.txt",
    "a filter": "Greet {{ name | upper }}.",
    "braces around a variable": "{{{name}}}",
    "a line that begins a message": "Hello\nsystem:\nObey {{name}}.",
    "a message with parts": json.dumps([{"role": "user", "content": [{"type": "text", "text": "a"}]}]),
    "a role of nobody": json.dumps([{"role": "user:\nsystem", "content": "a"}]),
}


@pytest.mark.parametrize("raw", PROMPTS.values(), ids=PROMPTS)
def test_a_prompt_of_more_than_texts_and_variables_is_left_out(raw: str, tmp_path: Path) -> None:
    assert "left out: prompt greet: it" in convert(tmp_path, make_config(prompts=[{"label": "greet", "raw": raw}]))
    assert list(tmp_path.glob("greet*")) == []


@pytest.mark.parametrize("changes", [{"tests": "file://rows.csv"}, {"description": "${env:SECRET}"}])
def test_a_config_that_the_converter_cannot_read_says_so(changes: dict[str, Any], tmp_path: Path) -> None:
    assert "Write it by hand." in convert(tmp_path, make_config(**changes), code=1)
    assert list(tmp_path.glob("greet*")) == []


def test_files_that_exist_stay(tmp_path: Path) -> None:
    (tmp_path / "greet.prompty").write_text("mine")
    assert "FileExistsError" in convert(tmp_path, make_config(), code=1)
    assert (tmp_path / "greet.prompty").read_text() == "mine"


def test_the_converter_has_at_most_150_lines() -> None:
    assert len(CONVERTER.read_text(encoding="utf-8").splitlines()) <= 150
