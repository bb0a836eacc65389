"""Judges: their scores, their agreement with people, and that only a trusted one fails a case."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from prompty.cases.case_file import Check, JudgeRules
from prompty.cases.evaluators import build_judge_inputs, describe_report, parse_score, passes, report_judge
from prompty.cases.plan import plan_trials
from prompty.cases.results import CaseRun, TrialResult
from prompty.cases.runner import Runner, RunnerOptions, report_suite
from prompty.errors import RequestError
from prompty.testing import Script
from tests.cases.project import GREET, RECORD, run_suites, write_suite

SCORES: dict[str, tuple[object, object]] = {
    "a number": (4, 4),
    "a number in text": ("4.5", 4.5),
    "a key": ({"reason": "x", "score": 3}, 3),
    "a key in JSON text": ('{"rating": "2"}', 2.0),
    "fenced JSON": ('```json\n{"score": 5}\n```', 5),
    "pass": ("Pass.", True),
    "no": ("NO", False),
    "a tag of azure-ai-evaluation": ("<S0>thoughts: 7</S0><S1>because</S1><S2>4</S2>", 4.0),
    "a word of its own": ("mostly", "mostly"),
}


@pytest.mark.parametrize(("answer", "score"), SCORES.values(), ids=SCORES)
def test_a_score_is_found_in_the_usual_forms(answer: object, score: object) -> None:
    assert parse_score(answer) == score


@pytest.mark.parametrize("answer", [None, {}, "", "I think it is good.\nOr not.", {"reason": "x"}, "[1, 2]" * 20])
def test_an_answer_without_a_score_is_an_error(answer: object) -> None:
    with pytest.raises(ValueError, match="score"):
        parse_score(answer)


@given(st.text(max_size=60) | st.integers() | st.booleans() | st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_any_answer_has_a_score_or_a_reason_why_not(answer: object) -> None:
    try:
        score = parse_score(answer)
    except ValueError as error:
        assert "judge" in str(error)
    else:
        assert isinstance(score, bool | int | float | str)


def test_a_number_needs_a_limit_and_words_stay_words() -> None:
    assert passes(4, 4) is True
    assert passes(3.9, 4) is False
    assert passes(True, None) is True
    assert passes("mostly", None) == "mostly"
    with pytest.raises(ValueError, match="there is no `at_least` for the scores that pass"):
        passes(4, None)


def test_inputs_of_a_judge_are_those_of_the_case_the_answer_and_its_own() -> None:
    check = Check(judge="j.prompty", judge_inputs={"query": "${inputs.question}", "context": "none"})
    assert build_judge_inputs(check, {"question": "Why?"}, "Because.") == {
        "question": "Why?",
        "answer": "Because.",
        "response": "Because.",
        "query": "Why?",
        "context": "none",
    }
    with pytest.raises(RequestError, match="which the case lacks"):
        build_judge_inputs(check, {}, "Because.")


def make_results(answers: Sequence[object]) -> tuple[list[TrialResult], dict[str, str]]:
    results = [
        TrialResult(suite="j", case=str(number), status="passed", runs=(CaseRun(answer=answer),))
        for number, answer in enumerate(answers)
    ]
    return results, {result.key: "pass" if number % 2 else "fail" for number, result in enumerate(results)}


def test_a_report_has_agreement_kappa_and_base_rate() -> None:
    results, labels = make_results([1, 5] * 9 + [5, 1])
    report = report_judge(Path("j.prompty"), JudgeRules(at_least=4), results, labels)
    assert report.trusted
    assert describe_report(report) == (
        "j.prompty: agrees with 18 of 20 labels (90%), kappa 0.80, base rate 50%. It may fail cases."
    )


def test_a_judge_with_few_labels_or_little_agreement_only_reports() -> None:
    results, labels = make_results([1, 5] * 5)
    few = report_judge(Path("j.prompty"), JudgeRules(at_least=4), results, labels)
    assert few.problem == "it has 10 labelled cases, but needs 20"
    results, labels = make_results([5] * 20)
    always = report_judge(Path("j.prompty"), JudgeRules(at_least=4), results, labels)
    assert always.problem == "kappa is 0.00, but must be at least 0.6"
    same = report_judge(Path("j.prompty"), JudgeRules(at_least=4), results, dict.fromkeys(labels, "pass"))
    assert same.problem == "all labels are the same, so agreement means nothing"


JUDGE = """\
---
name: relevance
model: {id: judge-model, provider: openai}
inputs:
  answer: {kind: string}
---
user:
Score from 1 to 5: {{answer}}
"""
JUDGED = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {judge: judges/relevance.prompty, at_least: 4}}}]"


def write_judge(folder: Path, labels: int, *, wrong: int = 0) -> None:
    """Write a judge with labelled cases, and record its answers: `wrong` of them differ from the label."""
    judges = folder / "judges"
    judges.mkdir()
    cases = "\n".join(
        f"  - {{name: l{number}, inputs: {{answer: text {number}}}, label: {5 if number % 2 else 1}}}"
        for number in range(labels)
    )
    suite = write_suite(judges, f"judge: {{at_least: 4}}\ncases:\n{cases}", JUDGE, "relevance")
    scores = [5 if (number % 2) != (number < wrong) else 1 for number in range(labels)]
    with Script(*map(str, scores)):
        run_suites(suite, mode=RECORD, jobs=1)


def judge_answer(folder: Path, score: str) -> TrialResult:
    suite = write_suite(folder, JUDGED, GREET)
    with Script("Hello.", score):
        run_suites(suite, mode=RECORD, jobs=1)
    [result] = run_suites(suite)
    return result


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")


def test_a_trusted_judge_fails_a_case(tmp_path: Path) -> None:
    write_judge(tmp_path, labels=20)
    result = judge_answer(tmp_path, "2")
    assert (result.status, result.reasons) == ("failed", ["replay: relevance.prompty says 2 is below 4"])
    assert judge_answer(tmp_path, "5").status == "passed"


def test_a_judge_that_disagrees_with_people_only_reports(tmp_path: Path) -> None:
    write_judge(tmp_path, labels=20, wrong=10)
    result = judge_answer(tmp_path, "2")
    assert result.status == "passed"
    assert result.reasons == [
        "replay: relevance.prompty says 2 is below 4 (advisory: kappa is 0.00, but must be at least 0.6)"
    ]


def test_a_judge_without_tests_only_reports(tmp_path: Path) -> None:
    (tmp_path / "judges").mkdir()
    (tmp_path / "judges" / "relevance.prompty").write_text(JUDGE)
    result = judge_answer(tmp_path, "2")
    assert result.status == "passed"
    assert "advisory: it has no test file relevance.test.yaml" in result.reasons[0]


def test_the_tests_of_a_judge_report_its_agreement_and_differences(tmp_path: Path) -> None:
    write_judge(tmp_path, labels=20, wrong=2)
    suite = write_suite(
        tmp_path / "judges", (tmp_path / "judges" / "relevance.test.yaml").read_text(), JUDGE, "relevance"
    )
    results = Runner(RunnerOptions()).run(list(plan_trials([suite])))
    report = report_suite(suite, results)
    assert (report.agreement.agreed, report.agreement.total, report.trusted) == (18, 20, True)
    assert [result.reasons for result in results[:3]] == [
        ["replay: the judge says pass, but the label is fail"],
        ["replay: the judge says fail, but the label is pass"],
        [],
    ]


def test_a_judge_of_version_1_works(tmp_path: Path) -> None:
    (tmp_path / "judges").mkdir()
    (tmp_path / "judges" / "relevance.prompty").write_text(
        "---\nname: Relevance\nmodel:\n  api: chat\n  parameters: {temperature: 0}\n  configuration:\n"
        "    type: openai\n    model: gpt-4o\ninputs:\n  query: {type: string}\n  response: {type: string}\n---\n"
        "system:\nJudge.\nuser:\n{{query}} {{response}}\n"
    )
    case = (
        "cases: [{name: a, inputs: {name: Ada}, expect: {replay: "
        "{judge: judges/relevance.prompty, at_least: 4, judge_inputs: {query: '${inputs.name}'}}}}]"
    )
    suite = write_suite(tmp_path, case, GREET)
    with Script("Hello.", "<S0>thinking</S0><S1>why</S1><S2>5</S2>") as script, pytest.warns(match="Prompty v1"):
        [result] = run_suites(suite, mode=RECORD, jobs=1)
    assert result.status == "passed"
    assert script.requests[1]["messages"][1]["content"] == "Ada Hello."
