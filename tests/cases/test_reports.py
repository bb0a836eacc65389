"""Baselines, comparisons, JUnit and the summary: pure functions on results."""

import re
from html import unescape
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped
from markdown_it import MarkdownIt

from prompty.cases.comparison import (
    EarlierResults,
    SuiteReport,
    Totals,
    build_report,
    compare,
    compute_totals,
    describe_comparison,
    get_case_key,
    read_baseline,
    write_baseline,
)
from prompty.cases.report import write_junit, write_summary
from prompty.cases.results import CaseRun, CheckResult, Status, TrialResult
from prompty.cases.statistics import compute_flip_chance
from prompty.errors import RequestError
from prompty.safety.visible import visible

STATUSES: list[Status] = ["passed", "failed", "error", "skipped"]


def make_result(case: str, status: Status, reason: str = "because", suite: str = "answer") -> TrialResult:
    checks = () if status != "failed" else (CheckResult("replay", "contains", False, reason),)
    run = CaseRun(checks=checks, error=reason if status == "error" else None, seconds=0.5)
    note = reason if status == "skipped" else ""
    return TrialResult(suite=suite, case=case, status=status, model="openai:m", runs=(run,), note=note)


def make_report(*results: TrialResult, before: dict[str, Status] | None = None) -> SuiteReport:
    return build_report(results, [], None if before is None else EarlierResults("the baseline", before, {}))


def test_a_baseline_has_a_stable_order_and_nothing_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "answer.baseline.json"
    write_baseline(path, {"b [m]": "failed", "a": "passed"})
    text = path.read_text()
    assert text == '{\n  "version": 1,\n  "cases": {\n    "a": "passed",\n    "b [m]": "failed"\n  }\n}\n'
    write_baseline(path, read_baseline(path))
    assert path.read_text() == text


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2, "cases": {}}', '{"version": 1, "cases": {"a": "ok"}}']
)
def test_a_file_that_is_no_baseline_is_an_error_with_a_fix(text: str, tmp_path: Path) -> None:
    path = tmp_path / "answer.baseline.json"
    path.write_text(text)
    with pytest.raises(RequestError, match=r"is invalid: (?s:.*)Write it again with --update"):
        read_baseline(path)


def test_every_pair_of_statuses_is_compared_as_it_should_be() -> None:
    before: dict[str, Status] = {}
    now = []
    for earlier, later in product([*STATUSES, None], STATUSES):
        result = make_result(f"{earlier} {later}", later)
        now.append(result)
        if earlier is not None:
            before[result.key] = earlier
    comparison = compare(before, now)

    def names(keys: tuple[str, ...]) -> set[str]:
        return {key.removeprefix("answer::").removesuffix(" [openai:m]") for key in keys}

    assert names(comparison.worse) == {"passed failed"}
    assert names(comparison.better) == {"failed passed"}
    assert (comparison.compared, comparison.cases, comparison.before, comparison.now) == (4, 4, 0.5, 0.5)
    assert names(comparison.added) == {f"None {later}" for later in STATUSES}
    assert names(comparison.failing) == {
        *(f"{earlier} error" for earlier in [*STATUSES, None]),
        *(f"{earlier} failed" for earlier in ("passed", "error", "skipped", None)),
    }


def test_a_comparison_says_whether_chance_explains_it_and_what_it_could_show() -> None:
    now = [make_result(str(number), "failed" if number < 8 else "passed") for number in range(60)]
    comparison = compare({result.key: "passed" for result in now}, now)
    assert describe_comparison(comparison, "main") == [
        "Compared with main: 8 worse, 0 better, of 60 cases. Passing: 100% before, 87% now (95% interval 76% to 93%).",
        "Exact sign-flip test of the cases: p = 0.00781, significant.",
        "With these cases, a change of 13 points or more can be distinguished from chance.",
    ]
    few = compare({now[0].key: "passed", now[9].key: "error"}, [now[0], now[9]])
    assert describe_comparison(few, "main")[1:] == [
        "Exact sign-flip test of the cases: p = 1, can be explained by chance. "
        "A result that passed before and fails now fails the command anyway.",
        "1 result without a verdict in one of the runs: answer::9 [openai:m].",
        "There are too few cases to distinguish a change from chance.",
    ]


def test_one_broken_case_is_one_observation_however_many_models_and_variants_it_has() -> None:
    """Six results of one case flip together, which chance explains as well as one flip."""
    now = [
        TrialResult(suite="s", case=str(case), status="failed" if case == 3 else "passed", variant=variant, model=model)
        for case, variant, model in product(range(60), (None, "short"), ("openai:a", "openai:b", "openai:c"))
    ]
    comparison = compare({result.key: "passed" for result in now}, now)
    assert (comparison.worse_cases, comparison.better_cases) == (("s::3",), ())
    assert (len(comparison.worse), comparison.cases, comparison.p) == (6, 60, 1.0)
    assert describe_comparison(comparison, "the baseline")[0] == (
        "Compared with the baseline: 1 worse, 0 better, of 60 cases (6 worse, 0 better, of 360 results). "
        "Passing: 100% before, 98% now (95% interval 91% to 100%)."
    )


def test_a_case_with_more_results_weighs_no_more_than_one_with_few() -> None:
    many = [TrialResult(suite="s", case="many", status="failed", model=f"openai:{name}") for name in "abcdef"]
    few = [TrialResult(suite="s", case=str(number), status="passed", model="openai:a") for number in range(3)]
    before: dict[str, Status] = {result.key: "passed" for result in many}
    before.update((result.key, "failed") for result in few)
    comparison = compare(before, [*many, *few])
    assert comparison.p == compute_flip_chance([1, -1, -1, -1])
    assert (comparison.before, comparison.now) == (0.25, 0.75)


def test_a_case_that_got_better_as_often_as_worse_counts_as_neither() -> None:
    now = [TrialResult(suite="s", case="a", status=status, model=status) for status in ("passed", "failed")]
    before: dict[str, Status] = {now[0].key: "failed", now[1].key: "passed"}
    comparison = compare(before, now)
    assert (comparison.worse_cases, comparison.better_cases, comparison.p) == ((), (), 1.0)
    assert (comparison.worse, comparison.better) == (("s::a [failed]",), ("s::a [passed]",))


def test_totals_count_each_model_and_variant_with_what_is_new_and_gone() -> None:
    def make(case: str, status: Status, variant: str | None, model: str) -> TrialResult:
        return TrialResult(suite="s", case=case, status=status, variant=variant, model=model)

    now = [
        make("a", "passed", None, "openai:a"),
        make("a", "failed", "short", "openai:a"),
        make("b", "passed", None, "openai:a"),
        make("b", "error", "short", "openai:a"),
        make("c", "failed", None, "openai:a"),
    ]
    before: dict[str, Status] = {result.key: "passed" for result in now[:2]}
    before[now[2].key] = "failed"
    before |= {"s::old [openai:a]": "passed", "s::old [short, openai:a]": "failed", "s::a [short, openai:b]": "passed"}
    before |= {"other::a [openai:a]": "passed"}
    comparison = compare(before, now, whole=True)
    assert comparison.gone == ("s::old [openai:a]", "s::old [short, openai:a]", "s::a [short, openai:b]")
    assert compute_totals(now, comparison) == [
        Totals(None, "openai:a", passed=2, failed=1, better=1, added=1, gone=1),
        Totals("short", "openai:a", failed=1, error=1, worse=1, added=1, gone=1),
        Totals("short", "openai:b", gone=1),
    ]
    assert compare(before, now).gone == ()
    assert compute_totals(now)[0].interval == pytest.approx((0.2077, 0.9385), abs=0.0001)


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        (None, "No result can be compared with main: all of them are new. Add them with --update."),
        (
            "error",
            "No result can be compared with main: none has a verdict in both runs. "
            "Record answers with --record. For a version without recordings, add --live.",
        ),
    ],
)
def test_nothing_to_compare_says_why_and_what_to_do(earlier: Status | None, expected: str) -> None:
    now = [make_result("a", "passed")]
    comparison = compare({now[0].key: earlier} if earlier else {}, now)
    assert describe_comparison(comparison, "main") == [expected]


def test_junit_is_read_by_a_real_parser() -> None:
    results = [
        make_result(status, status, f"why {status}", f"suite {number % 2}") for number, status in enumerate(STATUSES)
    ]
    results.sort(key=lambda result: result.suite)
    document = JUnitXml.fromstring(write_junit(make_report(*results)).encode())
    assert (document.tests, document.failures, document.errors, document.time) == (4, 1, 1, 2.0)
    cases = {case.name: case for suite in document for case in suite}
    assert set(cases) == {f"{status} [openai:m]" for status in STATUSES}
    kinds = {name.split()[0]: [type(part) for part in case.result] for name, case in cases.items()}
    assert kinds == {"passed": [], "failed": [Failure], "error": [Error], "skipped": [Skipped]}
    assert cases["failed [openai:m]"].result[0].message == "replay: why failed"


@given(st.text(max_size=60), st.text(max_size=60))
def test_junit_and_the_summary_take_any_text(case: str, reason: str) -> None:
    results = [make_result(case or "x", "failed", reason)]
    [suite] = list(JUnitXml.fromstring(write_junit(make_report(*results)).encode(errors="replace")))
    assert suite.failures == 1
    listed = [line for line in write_summary(make_report(*results)).splitlines() if line.startswith("- ")]
    assert len(listed) == 1
    assert "<script" not in write_summary(make_report(make_result("<script>", "failed", "<script>")))


def test_the_summary_lists_files_and_what_did_not_pass() -> None:
    report = make_report(make_result("a", "passed"), make_result("b|c", "failed", "*x*"))
    text = write_summary(report._replace(notes=["1 worse"]))
    assert "1 passed, 1 failed" in text
    assert "| answer | 1 passed, 1 failed |" in text
    assert "- **answer::b\\|c \\[openai:m\\]**: replay: \\*x\\*" in text
    assert "1 worse" in text


LINKS = (
    "https://evil.example/a",
    "HTTP://evil.example",
    "ftp://x.example",
    "www.evil.example",
    "a@evil.example",
    "@all",
)


@given(
    st.lists(st.sampled_from([*LINKS, "\u202e", "\u2028", "\u2066", "<b>", "*", "#1", " ", "a", "\\", "`"]), max_size=6)
)
def test_the_summary_has_no_links_and_no_hidden_characters(words: list[str]) -> None:
    text = "".join(words)
    source = write_summary(make_report(make_result("a", "failed", text)))
    assert not re.search(r"://|www\.|@\w|#\w|[\u202e\u2028\u2066]", source, re.IGNORECASE)
    [line] = [line for line in source.splitlines() if line.startswith("- ")]
    html = MarkdownIt("commonmark").render(line.partition(": ")[2])
    shown = unescape(re.sub(r"<!-- -->|</?p>", "", html)).strip()
    assert shown == f"replay: {' '.join(visible(' '.join(text.split())).split())}".strip()


def test_the_summary_names_a_regression_among_many_accepted_failures() -> None:
    results = [make_result(str(number), "failed") for number in range(107)]
    before: dict[str, Status] = {result.key: "failed" for result in results[:101]}
    before |= {result.key: "passed" for result in results[101:]}
    text = write_summary(make_report(*results, before=before))
    listed = re.findall(r"^- \*\*answer::(\d+) ", text, re.MULTILINE)
    assert listed == ["101", "102", "103", "104", "105", "106"]
    assert "6 failed, 101 failed as before" in text
    document = JUnitXml.fromstring(write_junit(make_report(*results, before=before)).encode())
    assert (document.tests, document.failures, document.skipped) == (107, 6, 101)


def test_the_summary_lists_at_most_fifty_results_and_the_worse_ones_first() -> None:
    results = [make_result(str(number), "failed") for number in range(120)]
    before: dict[str, Status] = {result.key: "passed" for result in results[100:]}
    text = write_summary(make_report(*results, before=before))
    listed = re.findall(r"^- \*\*answer::(\d+) ", text, re.MULTILINE)
    assert listed == [str(number) for number in (*range(100, 120), *range(30))]
    assert text.count("- and 70 more") == 1


def test_the_key_of_a_case_leaves_out_its_file() -> None:
    assert get_case_key(make_result("a", "passed", suite="x/y")) == "a [openai:m]"
