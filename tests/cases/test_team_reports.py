"""A team changes a prompt: four prompts, forty cases, two models and two variants, recorded from a server on loopback.

The terminal, the GitHub summary, JUnit, JSON and the page name the same results that got worse, and name them first.
"""

import html
import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from prompty.cli.app import app
from tests.loopback import Reply, Request, Server, json_reply

pytestmark = pytest.mark.process  # the page names the commit, which git knows

COUNTRIES = ["France", "Italy", "Spain", "Peru", "Japan", "Kenya", "Cuba", "Chad", "Oman", "Fiji"]
LETTERS = ["complaint", "praise", "question", "complaint", "praise"] * 2
HEAD = """\
---
name: {name}
model:
  provider: openai
  id: good
  connection: {{kind: key, endpoint: "{url}/v1", apiKey: none}}
inputs:
  text: {{kind: string, required: true}}
{more}---
"""
BODY = 'system:\n{{% include "_rules.md" %}}\n{task}\n\nuser:\n{{{{ text }}}}\n'
CAPITAL, CLASSIFY = "Name the capital.", "Classify it as JSON."
MODELS = "defaults: {models: [openai:good, openai:flaky], variants: ['', short]}\n"


class Team(Server):
    """Two models. The good one always answers well. The flaky one is wrong about some things, and about others once the
    rules ask for brevity: it then no longer repeats the question, and gets some labels right that were wrong before."""

    def next_reply(self, request: Request) -> Reply:
        messages = request.body["messages"]
        system = messages[0]["content"] if messages[0]["role"] == "system" else ""
        answer = self._answer(messages[-1]["content"], system, flaky=request.body["model"] == "flaky")
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return json_reply({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]})

    def _answer(self, text: str, system: str, *, flaky: bool) -> str:
        brief, one_word = "Be brief" in system, "One word" in system
        if "capital" in system:
            loses = flaky and (text in ("Fiji", "Oman") or (brief and one_word and text in ("Peru", "Japan", "Kenya")))
            return "A city." if loses else f"The capital of {text} is known."
        if "Classify" in system:
            number = int(text.split()[-1])
            wrong = flaky and (number in (1, 2) if not brief else number == 9)
            return json.dumps({"label": "spam" if wrong else LETTERS[number]})
        return f"Hello {'you' if flaky and text == 'N3' else text}"


def write_project(folder: Path, url: str) -> None:
    files = {
        "_rules.md": "Answer politely.",
        "capital.prompty": HEAD.format(name="capital", url=url, more="") + BODY.format(task=CAPITAL),
        "classify.prompty": HEAD.format(
            name="classify", url=url, more="outputs:\n  label: {kind: string, required: true}\n"
        )
        + BODY.format(task=CLASSIFY),
        "greet.prompty": HEAD.format(name="greet", url=url, more="") + "user:\n{{ text }}\n",
        "translate.prompty": HEAD.format(name="translate", url=url, more="")
        .replace("provider: openai", "provider: scripted")
        .replace("id: good", "id: demo\n  script: [Hallo Welt]")
        + "user:\n{{ text }}\n",
        "capital.test.yaml": MODELS
        + "cases:\n"
        + "".join(
            f"  - {{name: {name}, inputs: {{text: {name}}}, expect: {{replay: {{contains: capital}}}}}}\n"
            for name in COUNTRIES
        ),
        "classify.test.yaml": MODELS + "cases: ${file:classify.csv}\n",
        "classify.csv": "case,text,expect.replay.path,expect.replay.equals\n"
        + "".join(f"letter {number},letter {number},label,{label}\n" for number, label in enumerate(LETTERS)),
        "greet.test.yaml": MODELS
        + "cases:\n"
        + "".join(
            f"  - {{name: greets N{n}, inputs: {{text: N{n}}}, expect: {{render: {{contains: N{n}}}, "
            f"replay: {{regex: ^Hello, contains: N{n}}}}}}}\n"
            for n in range(10)
        ),
        "translate.test.yaml": "defaults: {variants: ['', short]}\ncases:\n"
        + "".join(
            f"  - {{name: t{n}, inputs: {{text: hello {n}}}, expect: {{replay: {{contains: Hallo}}}}}}\n"
            for n in range(10)
        ),
    }
    files |= {
        f"{name}.short.prompty": "---\n---\n" + BODY.format(task=f"{task}\nOne word only.")
        for name, task in (("capital", CAPITAL), ("classify", CLASSIFY))
    }
    files |= {
        f"{name}.short.prompty": "---\nmodel: {options: {maxOutputTokens: 5}}\n---\n" for name in ("greet", "translate")
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


class Reports(NamedTuple):
    """The five outputs of one run."""

    terminal: str
    summary: str
    junit: ElementTree.Element
    json: dict[str, Any]
    page: dict[str, Any]


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["test", *words], env={"COLUMNS": "300"})
    assert done.exit_code == code, done.output
    return done.stdout


def read_page(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    folder = tmp_path_factory.mktemp("team")
    with pytest.MonkeyPatch.context() as patch, Team() as server:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
        write_project(folder, server.url)
        run("--record", code=1)
        run("--update")
        run("--github")  # what the baseline accepts fails no build
        assert "### " not in (folder / "summary.md").read_text()
        (folder / "summary.md").unlink()
        (folder / "_rules.md").write_text("Answer politely. Be brief.")
        run("--record", code=1)
        terminal = run("--junit", "junit.xml", "--html", "page.html", "--github", code=1)
        return Reports(
            terminal,
            (folder / "summary.md").read_text(),
            ElementTree.parse(folder / "junit.xml").getroot(),  # noqa: S314  our own file
            json.loads(run("--json", code=1)),
            read_page(folder / "page.html"),
        )


WORSE = [
    *(f"capital::{name} [short, openai:flaky]" for name in ("Peru", "Japan", "Kenya")),
    "classify::letter 9 [openai:flaky]",
    "classify::letter 9 [short, openai:flaky]",
]
BETTER = [f"classify::letter {number} [{variant}openai:flaky]" for number in (1, 2) for variant in ("", "short, ")]
ACCEPTED = [
    *(f"capital::{name} [{variant}openai:flaky]" for name in ("Oman", "Fiji") for variant in ("", "short, ")),
    *(f"greet::greets N3 [{variant}openai:flaky]" for variant in ("", "short, ")),
]


def list_in_terminal(text: str, title: str) -> list[str]:
    """Return the results below a title, up to the next line that is not indented."""
    section = re.search(rf"^{title}\n((?:  .*\n)*)", text, re.MULTILINE)
    return [line[4:] for line in section[1].splitlines()] if section else []


def list_in_summary(text: str, title: str) -> list[str]:
    section = re.search(rf"^### {title}\n\n((?:- .*\n)*)", text, re.MULTILINE)
    names = re.findall(r"^- \*\*(.*?)\*\*", section[1], re.MULTILINE) if section else []
    return [html.unescape(re.sub(r"\\(.)", r"\1", name)) for name in names]


def list_in_junit(root: ElementTree.Element, tag: str, kind: str) -> list[str]:
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in root.iter("testcase")
        if any(part.tag == tag and part.get("type") == kind for part in case)
    ]


def list_in_page(data: dict[str, Any], standing: str) -> list[str]:
    return [result["key"] for result in data["results"] if result["standing"] == standing]


def test_all_outputs_name_the_same_results_that_got_worse(reports: Reports) -> None:
    named = {
        "terminal": list_in_terminal(reports.terminal, "Worse"),
        "summary": list_in_summary(reports.summary, "Worse"),
        "junit": list_in_junit(reports.junit, "failure", "worse"),
        "json": reports.json["comparison"]["worse"],
        "page": list_in_page(reports.page, "worse"),
    }
    assert named == dict.fromkeys(named, WORSE)


def test_all_outputs_name_the_same_results_that_got_better(reports: Reports) -> None:
    assert list_in_terminal(reports.terminal, "Better") == BETTER
    assert list_in_summary(reports.summary, "Better") == BETTER
    assert reports.json["comparison"]["better"] == BETTER
    assert list_in_page(reports.page, "better") == BETTER


def test_the_page_says_when_it_was_made_and_by_which_command(reports: Reports) -> None:
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC · (commit [0-9a-f]+\+? · )?prompty", reports.page["origin"])


def test_what_got_worse_comes_first(reports: Reports) -> None:
    assert reports.terminal.index("\nWorse\n") < reports.terminal.index("\nBetter\n")
    assert re.findall(r"^### .*", reports.summary, re.MULTILINE) == ["### Worse", "### Better"]
    assert [suite.get("name") for suite in reports.junit] == ["capital", "classify", "greet", "translate"]
    assert [next(suite.iter("testcase")).get("name") for suite in reports.junit][:3] == [
        "Peru [openai:good]",
        "letter 9 [openai:good]",
        "greets N3 [openai:good]",
    ]
    assert next(iter(reports.json)) == "comparison"
    assert list(dict.fromkeys((one["suite"], one["case"]) for one in reports.page["results"]))[:3] == [
        ("capital", "Peru"),
        ("capital", "Japan"),
        ("capital", "Kenya"),
    ]


def test_failures_that_the_baseline_accepts_are_not_red(reports: Reports) -> None:
    assert list_in_junit(reports.junit, "skipped", "accepted") == ACCEPTED
    assert {name: reports.junit.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "140",
        "failures": str(len(WORSE)),
        "errors": "0",
        "skipped": str(len(ACCEPTED)),
    }
    assert reports.json["comparison"]["accepted"] == ACCEPTED
    assert reports.json["comparison"]["failing"] == WORSE
    assert [one["key"] for one in reports.json["results"] if one["accepted"]] == ACCEPTED
    assert list_in_page(reports.page, "accepted") == ACCEPTED
    counts = "129 passed, 5 failed, 6 failed as before"
    assert reports.terminal.endswith(f"{counts}\n")
    assert counts in reports.summary
    assert reports.page["summary"] == counts
    assert not any(name.split("::")[1].split(" [")[0] in reports.summary for name in ACCEPTED)


def test_all_outputs_have_totals_by_model_and_variant(reports: Reports) -> None:
    rows = {
        "openai:good": "30 of 30 passed (100%)",
        "openai:flaky": "26 of 30 passed (87%), 1 worse, 2 better",
        "short, openai:good": "30 of 30 passed (100%)",
        "short, openai:flaky": "23 of 30 passed (77%), 4 worse, 2 better",
        "demo": "10 of 10 passed (100%)",
        "short": "10 of 10 passed (100%)",
    }
    section = re.search(r"^By model and variant\n((?:  .*\n)*)", reports.terminal, re.MULTILINE)
    assert section is not None
    assert dict(re.split(r"  +", line.strip(), maxsplit=1) for line in section[1].splitlines()) == rows
    for name, text in rows.items():
        assert f"| {name} | {text} |" in reports.summary
    assert {one["name"]: one["text"] for one in reports.page["totals"]} == rows
    assert [one["passed"] for one in reports.json["totals"]] == [30, 26, 30, 23, 10, 10]


def test_several_results_of_one_case_count_as_one_case(reports: Reports) -> None:
    comparison = reports.json["comparison"]
    assert comparison["worse_cases"] == ["capital::Peru", "capital::Japan", "capital::Kenya", "classify::letter 9"]
    assert comparison["better_cases"] == ["classify::letter 1", "classify::letter 2"]
    assert (comparison["cases"], comparison["compared"]) == (40, 140)
    note = "4 worse, 2 better, of 40 cases (5 worse, 4 better, of 140 results)"
    assert note in reports.terminal
    assert note in html.unescape(reports.summary.replace("\\", ""))
