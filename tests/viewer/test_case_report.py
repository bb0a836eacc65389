"""The page of `prompty test` in a real browser."""

from pathlib import Path

import pytest

from prompty.cases.comparison import EarlierResults, build_report
from prompty.cases.report import render_report
from prompty.cases.results import CaseRun, CheckResult, Status, TrialResult
from tests.machine import time_factor
from tests.viewer.browser import Browser
from tests.viewer.test_injection import ATTACKS, ELEMENTS

RESULTS = 5000


def make_result(number: int, text: str = "", model: str = "openai:m", status: Status = "passed") -> TrialResult:
    check = CheckResult("replay", "contains", status == "passed", "" if status == "passed" else f"expected Ada {text}")
    run = CaseRun(
        checks=(check,),
        messages=({"role": f"user{text}", "content": f"Greet {text}"},),
        answer=f"Hello {number}\n{text}",
        calls=({"name": f"look{text}", "arguments": {text: text}},),
        rounds=1,
        cost=0.01,
        seconds=1.0,
    )
    return TrialResult(
        suite=f"answer{text}", case=f"case {number} {text}", status=status, model=f"{model}{text}", runs=(run,)
    )


@pytest.mark.parametrize(("width", "dark"), [(1300, False), (1300, True), (480, False)])
def test_the_matrix_shows_flips_and_the_chosen_result_its_differences(
    browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    before = [make_result(1), make_result(2), make_result(1, model="openai:n")]
    now = [make_result(1, status="failed"), make_result(2), make_result(1, model="openai:n")]
    now[0] = now[0]._replace(runs=(now[0].runs[0]._replace(answer="Hello 1\nBye"),))
    earlier = EarlierResults("main", {one.key: one.status for one in before}, {one.key: one for one in before})
    file = tmp_path / "report.html"
    file.write_text(render_report(build_report(now, [], earlier)))
    page = browser.open(file, width=width, dark=dark)
    assert page.evaluate("[...document.querySelectorAll('th')].map((cell) => cell.innerText.trim())") == [
        "answer\n1 worse",
        "openai:m\n1 of 2 passed · $0.0200 · 2.0 s",
        "openai:n\n1 of 1 passed · $0.0100 · 1.0 s",
    ]
    assert page.evaluate("document.querySelectorAll('.cell').length") == 3
    assert "expected Ada" in page.text("#details")
    assert page.text("#details .minus") == "- "
    assert page.text("#details .plus") == "+ Bye"
    assert page.text(".flip") == "worse"
    page.evaluate("document.getElementById('show').value = 'bad'")
    page.evaluate("document.getElementById('show').dispatchEvent(new Event('change'))")
    assert page.evaluate("document.querySelectorAll('.cell').length") == 1
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(14, 18, 25)" if dark else "rgb(244, 246, 249)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints() == []
    assert page.requests() == [file.resolve().as_uri()]


def test_whatever_stands_in_a_result_is_shown_and_none_of_it_runs(browser: Browser, tmp_path: Path) -> None:
    results = [make_result(number, attack, status="failed") for number, attack in enumerate(ATTACKS)]
    file = tmp_path / "report.html"
    earlier = EarlierResults(ATTACKS[0], {one.key: "passed" for one in results[::2]}, {one.key: one for one in results})
    report = build_report(results, [], earlier)._replace(notes=ATTACKS)
    file.write_text(render_report(report), encoding="utf-8")
    page = browser.open(file)
    page.evaluate("document.getElementById('answers').click()")
    page.evaluate("document.querySelectorAll('.case, .cell').forEach((cell) => cell.click())")
    page.evaluate("document.querySelectorAll('.case').forEach((cell) => cell.click())")
    assert page.evaluate("window.canary") is None
    allowed = {*ELEMENTS.split(), "ul", "li", "select", "option", "label"}
    assert len(page.evaluate("[...document.querySelectorAll('.answer')].map((one) => one.textContent)")) == len(results)
    assert set(page.evaluate("[...document.querySelectorAll('*')].map((one) => one.localName)")) <= allowed
    assert page.complaints() == []
    assert page.requests() == [file.resolve().as_uri()]


def test_the_page_starts_with_what_got_worse_and_has_no_empty_columns(browser: Browser, tmp_path: Path) -> None:
    first = [make_result(number, model=model) for number in (1, 2) for model in ("openai:m", "openai:n")]
    second = [make_result(number, model="openai:o")._replace(suite="other") for number in (1, 2, 3)]
    before: dict[str, Status] = {one.key: "passed" for one in [*first, *second]}
    failed = make_result(2, model="openai:o", status="failed")._replace(suite="other")
    first[0] = make_result(1, model="openai:m", status="failed")
    before[first[0].key] = "failed"
    now = [*first, second[0], failed, second[2]]
    file = tmp_path / "report.html"
    file.write_text(render_report(build_report(now, [], EarlierResults("the baseline", before, {}))))
    page = browser.open(file)
    heads = page.evaluate("[...document.querySelectorAll('table')].map((one) => one.tHead.rows[0].cells.length)")
    assert heads == [2, 3]  # each file has its own columns
    assert page.evaluate("document.querySelector('.cell').getAttribute('aria-label')") == "case 2 : worse"
    assert page.evaluate("document.querySelector('.cell').getAttribute('aria-pressed')") == "true"
    assert page.text("#details h2") == "other: case 2"
    names = "[...document.querySelectorAll('th:first-child')].map((one) => one.innerText.trim())"
    assert page.evaluate(names) == ["other\n1 worse", "answer\n1 failed as before"]
    assert page.text("#summary") == "5 passed, 1 failed, 1 failed as before"
    assert page.evaluate("document.querySelectorAll('#totals dt').length") == 5  # three models, cost and time
    page.evaluate("document.getElementById('show').value = 'bad'")
    page.evaluate("document.getElementById('show').dispatchEvent(new Event('change'))")
    assert page.evaluate("document.querySelectorAll('.cell').length") == 1


def test_answers_of_several_models_are_side_by_side(browser: Browser, tmp_path: Path) -> None:
    results = [make_result(1, model=f"openai:{name}") for name in "abc"]
    runs = tuple(results[1].runs[0]._replace(number=number, answer=f"Bye {number % 2}") for number in (1, 2, 3))
    bad = runs[0]._replace(checks=(CheckResult("replay", "contains", False, "expected Ada"),))
    results[1] = results[1]._replace(runs=(bad, *runs[1:]), needed=2)
    file = tmp_path / "report.html"
    file.write_text(render_report(build_report(results, [], None)))
    page = browser.open(file)
    assert page.evaluate("[...document.querySelectorAll('.cell')].map((one) => one.innerText)") == ["✓", "✓2 of 3", "✓"]
    page.evaluate("document.querySelector('.case').click()")
    answers = page.evaluate("[...document.querySelectorAll('.answers pre')].map((one) => one.textContent)")
    assert answers == ["Hello 1\n", "Bye 1", "Bye 0", "Hello 1\n"]
    tops = page.evaluate("[...document.querySelectorAll('.answers section')].map((one) => one.offsetTop)")
    assert len(set(tops)) < len(tops)  # side by side
    page.evaluate("document.getElementById('answers').click()")
    shown = page.evaluate("[...document.querySelectorAll('.cell .answer')].map((one) => one.textContent)")
    assert shown == ["Hello 1\n", "Bye 1", "Hello 1\n"]
    page.evaluate("document.getElementById('show').value = 'flaky'")
    page.evaluate("document.getElementById('show').dispatchEvent(new Event('change'))")
    assert page.evaluate("document.querySelectorAll('.cell').length") == 1
    assert page.complaints() == []


def test_a_run_leads_to_its_trace(browser: Browser, tmp_path: Path) -> None:
    [run] = make_result(1, status="failed").runs
    linked = make_result(1, status="failed")._replace(runs=(run._replace(trace="a%20b.html"),))
    file = tmp_path / "report.html"
    file.write_text(render_report(build_report([linked], [], None)))
    page = browser.open(file)
    assert page.text("#details a") == "trace"
    assert page.evaluate("document.querySelector('#details a').href") == (tmp_path / "a b.html").as_uri()


@pytest.mark.timing
def test_five_thousand_results_stay_usable(browser: Browser, tmp_path: Path) -> None:
    results = [make_result(number, status="failed" if number % 10 == 0 else "passed") for number in range(RESULTS)]
    file = tmp_path / "report.html"
    file.write_text(render_report(build_report(results, [], None)))
    page = browser.open(file)
    assert page.evaluate("document.querySelectorAll('.cell').length") == RESULTS
    page.evaluate("document.getElementById('query').value = 'case 4999'")
    taken = page.evaluate(
        "(() => { const start = performance.now(); showMatrix(); document.body.offsetHeight; "
        "return performance.now() - start })()"
    )
    assert page.evaluate("document.querySelectorAll('.cell').length") == 1
    assert taken < 2000 * time_factor()
    assert page.complaints() == []
