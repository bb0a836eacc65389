"""The page of `prompty test` in a real browser."""

from pathlib import Path

import pytest

from prompty.cases.comparison import compare
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
    comparison = compare({result.key: result.status for result in before}, now)
    file = tmp_path / "report.html"
    file.write_text(render_report(now, ["1 worse"], comparison, {one.key: one for one in before}, "main"))
    page = browser.open(file, width=width, dark=dark)
    assert page.evaluate("[...document.querySelectorAll('th')].map((cell) => cell.textContent)") == [
        "case",
        "openai:m",
        "openai:n",
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
    file.write_text(render_report(results, ATTACKS, None, {}, ATTACKS[0]), encoding="utf-8")
    page = browser.open(file)
    page.evaluate("document.querySelectorAll('.cell').forEach((cell) => cell.click())")
    assert page.evaluate("window.canary") is None
    allowed = {*ELEMENTS.split(), "ul", "li", "select", "option"}
    assert set(page.evaluate("[...document.querySelectorAll('*')].map((one) => one.localName)")) <= allowed
    assert page.complaints() == []
    assert page.requests() == [file.resolve().as_uri()]


def test_a_run_leads_to_its_trace(browser: Browser, tmp_path: Path) -> None:
    [run] = make_result(1, status="failed").runs
    file = tmp_path / "report.html"
    file.write_text(render_report([make_result(1, status="failed")._replace(runs=(run._replace(trace="a%20b.html"),))]))
    page = browser.open(file)
    assert page.text("#details a") == "trace"
    assert page.evaluate("document.querySelector('#details a').href") == (tmp_path / "a b.html").as_uri()


@pytest.mark.timing
def test_five_thousand_results_stay_usable(browser: Browser, tmp_path: Path) -> None:
    results = [make_result(number, status="failed" if number % 10 == 0 else "passed") for number in range(RESULTS)]
    file = tmp_path / "report.html"
    file.write_text(render_report(results))
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
