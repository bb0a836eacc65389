"""Files that come with a repository attack `prompty test`: recordings, baselines, links, names, and answers."""

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from prompty import Usage
from prompty.cases.comparison import build_report, read_baseline, write_baseline
from prompty.cases.first_case import write_first_tests
from prompty.cases.plan import plan_trials
from prompty.cases.reading import read_suite
from prompty.cases.report import render_report
from prompty.cases.runner import Runner, RunnerOptions
from prompty.cli.console import print_problem
from prompty.cli.test_output import print_report, write_reports
from prompty.errors import Problem, RequestError
from prompty.model.message import Reply
from prompty.testing import Script
from tests.cases.project import GREET, LIVE, RECORD, RECORD_MISSING, run_only_case, run_suites, write_suite
from tests.watchdog import within

ANSWERED = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {contains: Hello}}}]"
pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes and devices")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


ENDLESS = [make_pipe, make_endless]


@pytest.mark.parametrize("mode", [RunnerOptions().mode, RECORD_MISSING], ids=["replay", "record"])
@pytest.mark.parametrize("make", ENDLESS)
def test_a_recording_without_an_end_is_an_error_of_its_case(
    tmp_path: Path, make: Callable[[Path], None], mode: Any
) -> None:
    (tmp_path / "recordings" / "greet").mkdir(parents=True)
    make(tmp_path / "recordings" / "greet" / "a.jsonl")
    with Script("Hello."):
        result = within(partial(copy_context().run, run_only_case, tmp_path, ANSWERED, mode=mode))
    assert result.status == "error"
    assert "a.jsonl cannot be " in result.reasons[0]


@pytest.mark.parametrize("make", ENDLESS)
def test_a_baseline_without_an_end_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "greet.baseline.json")
    with pytest.raises(RequestError, match="not a regular file"):
        within(partial(read_baseline, tmp_path / "greet.baseline.json"))


def write_line(**changes: object) -> str:
    request = {"provider": "openai", "path": "/v1", "stream": False, "body": {}}
    answer: dict[str, object] = {"chunks": ["{}"], "error": None, "abandoned": False}
    line = {"version": 1, "request": request, "answer": answer}
    for place, value in changes.items():
        part, _, key = place.partition("_")
        (request if part == "request" else answer)[key] = value
    return json.dumps(line)


ERROR = {"kind": "ModelError", "cause": "busy", "status": 503, "retryable": True, "retry_after": 1}


@pytest.mark.parametrize(
    "line",
    [
        '{"version": 1, "request": ' + "[" * 100_000,
        write_line(request_body=json.loads("[" * 300 + "]" * 300)),
        write_line(request_path=["x"]),
        write_line(request_stream={}),
        write_line(request_body=5),
        write_line(answer_chunks=5),
        write_line(answer_chunks=["\ud800"]),
        write_line(answer_chunks=None, answer_error={**ERROR, "retry_after": "soon"}),
        write_line(answer_chunks=None, answer_error={**ERROR, "status": "503"}),
        write_line(answer_chunks=None, answer_error={**ERROR, "kind": []}),
        write_line(answer_chunks=None, answer_error={**ERROR, "cause": {}}),
    ],
    ids=lambda line: line[-60:],
)
def test_a_recording_of_any_shape_is_an_error_of_its_case_alone(tmp_path: Path, line: str) -> None:
    (tmp_path / "recordings" / "greet").mkdir(parents=True)
    (tmp_path / "recordings" / "greet" / "a.jsonl").write_text(line)
    cases = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {contains: Hello}}}, {name: b}]"
    results = run_suites(write_suite(tmp_path, cases.replace("{name: b}", "{name: b, inputs: {name: Bo}}")))
    assert [result.status for result in results] == ["error", "passed"]
    with Script("Hello."):
        assert run_only_case(tmp_path, ANSWERED, mode=RECORD_MISSING).status == "passed"


def test_a_baseline_that_is_nested_deep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "greet.baseline.json").write_text('{"version": 1, "cases": ' + "[" * 100_000)
    with pytest.raises(RequestError, match="nested too deep"):
        read_baseline(tmp_path / "greet.baseline.json")


@pytest.mark.process  # the page names the commit, which git knows
@pytest.mark.parametrize("exists", [True, False])
def test_no_report_and_no_baseline_is_written_through_a_link(tmp_path: Path, exists: bool) -> None:
    outside, link = tmp_path / "outside", tmp_path / "link"
    if exists:
        outside.write_text("kept")
    link.symlink_to(outside)
    report = build_report(run_suites(write_suite(tmp_path, "cases: [{inputs: {name: Ada}}]")), (), None)
    writers: list[Callable[[], None]] = [
        partial(write_reports, report, junit=link, html=None, github=False),
        partial(write_reports, report, junit=None, html=link, github=False),
        partial(write_baseline, link, {"a": "passed"}),
    ]
    for write in writers:
        with pytest.raises(RequestError, match="leads through a link"):
            write()
    assert (outside.read_text() if outside.exists() else None) == ("kept" if exists else None)


def test_a_recording_is_not_written_through_a_folder_that_leads_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    outside.mkdir()
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "recordings").symlink_to(outside)
    with Script("Hello.") as script:
        result = run_only_case(project, ANSWERED, mode=RECORD)
    assert f"recordings/greet/a.jsonl cannot be written: it leads through a link to '{outside}" in result.reasons[0]
    assert script.requests == []  # nothing is paid for that cannot be kept
    assert list(outside.iterdir()) == []


def test_a_recording_is_not_written_through_a_link(tmp_path: Path) -> None:
    folder, outside = tmp_path / "recordings" / "greet", tmp_path / "outside"
    folder.mkdir(parents=True)
    outside.write_text("kept")
    (folder / "a.jsonl").symlink_to(outside)
    with Script("Hello.") as script:
        result = run_only_case(tmp_path, ANSWERED, mode=RECORD)
    assert "it leads through a link" in result.reasons[0]
    assert (outside.read_text(), script.requests) == ("kept", [])


@pytest.mark.parametrize(
    "name", ["n" * 100, "語" * 100, "𝒜" * 100, "é " * 50], ids=["ascii", "han", "plane 1", "spaces"]
)
def test_a_recording_has_a_name_that_every_file_system_takes(tmp_path: Path, name: str) -> None:
    cases = {"name": name, "inputs": {"name": "Ada"}, "expect": {"replay": {"contains": "Hello"}}}
    both = {**cases, "models": ["openai:" + "m" * 200, "openai:" + "m" * 201]}
    with Script("Hello.", "Hello.", "Hello."):
        alone = run_suites(write_suite(tmp_path, json.dumps({"cases": [cases]}, ensure_ascii=False)), mode=RECORD)
        results = run_suites(write_suite(tmp_path, json.dumps({"cases": [both]}, ensure_ascii=False)), mode=RECORD)
    assert [result.status for result in (*alone, *results)] == ["passed"] * 3
    files = list((tmp_path / "recordings" / "greet").iterdir())
    assert len(files) == 3
    assert all(len(file.name.encode()) <= 240 for file in files)


def test_the_name_of_a_prompt_is_never_part_of_its_first_tests(tmp_path: Path) -> None:
    prompt = tmp_path / "greet\ncases:\n- {name: injected}\n#.prompty"
    with suppress(OSError):  # not every file system takes the name
        prompt.write_text(GREET)
        suite = read_suite(write_first_tests(prompt))
        assert [case.name for case in suite.cases] == ["the first case"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text="Hello.", usage=Usage()),
        Reply(text="Hello.", model="a-model-that-nobody-knows", usage=Usage(input_tokens=1, output_tokens=1)),
    ],
    ids=["no usage", "unknown model"],
)
def test_a_budget_ends_a_run_whose_cost_is_unknown(tmp_path: Path, reply: Reply) -> None:
    case = "{{name: a{0}, inputs: {{name: Ada}}, expect: {{replay: {{contains: Hello}}}}}}"
    cases = ", ".join(case.format(number) for number in range(4))
    suite = write_suite(tmp_path, f"cases: [{cases}]", GREET.replace("gpt-test", "gpt-4o"))
    runner = Runner(RunnerOptions(mode=LIVE, jobs=1, max_cost=Decimal(1), ledger=tmp_path / "ledger"))
    with Script(*[reply] * 4) as script:
        results = runner.run(list(plan_trials([suite])))
    assert len(script.requests) == 1
    assert [result.status for result in results] == ["passed", "error", "error", "error"]
    assert "the cost of an answer is unknown" in results[-1].reasons[0]


@pytest.mark.parametrize("count", [10**400, 2**53, -1, 1e300, 0.5], ids=str)
def test_a_count_of_tokens_that_cannot_be_one_is_unknown(tmp_path: Path, count: float) -> None:
    usage = Usage(input_tokens=count, output_tokens=count)  # type: ignore[arg-type]  # a server sends anything
    with Script(Reply(text="Hello.", usage=usage)):
        result = run_only_case(tmp_path, ANSWERED, GREET.replace("gpt-test", "gpt-4o"), mode=LIVE)
    assert (result.status, result.cost) == ("passed", None)
    assert "Infinity" not in render_report(build_report([result], (), None))


@pytest.mark.parametrize("command", ["::add-mask::x", "  ::set-output name=a::b", "x ##[set-output name=a]b"])
def test_no_answer_and_no_name_commands_the_workflow_whose_log_it_is_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    text = f"a\n{command}"
    case = {"name": text, "inputs": {"name": "Ada"}, "models": [f"openai:{text}"], "expect": {"live": {"equals": "x"}}}
    with Script(text):
        results = run_suites(write_suite(tmp_path, json.dumps({"cases": [case]})), mode=LIVE)
    print_report(build_report(results, (), None), as_json=False)
    print_problem(Problem(code="x", message=text, fix=text, text=command), Console(markup=False))
    shown = capsys.readouterr().out
    assert shown.count(command.strip().removeprefix("x ##")) >= 4
    assert not re.search(r"^\s*::|##\[", shown, re.MULTILINE)
