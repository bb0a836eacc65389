"""Cases as tests of pytest, in projects of their own."""

import json

import pytest

pytest_plugins = ["pytester"]

PROMPT = """\
---
name: greet
model:
  id: m
  provider: scripted
  script: [Hello Ada.]
inputs:
  name: {kind: string}
---
user:
Greet {{name}}.
"""
TESTS = """\
defaults: {inputs: {name: Ada}}
cases:
  - name: says hello
    tags: [polite]
    expect: {replay: {contains: Hello}}
  - name: says bye
    expect: {replay: {contains: Bye}}
  - name: is quick
    expect: {live: {seconds: {max: 60}}}
  - name: is checked
    expect: {replay: {python: "rules:is_polite"}}
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nprompty_collect = true\nprompty_checks = rules.py\n")
    (pytester.path / "greet.prompty").write_text(PROMPT)
    (pytester.path / "greet.test.yaml").write_text(TESTS)
    (pytester.path / "rules.py").write_text("def is_polite(answer, inputs):\n    return inputs['name'] in answer\n")
    return pytester


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error", *options)


def test_cases_are_tests_if_the_project_asks_for_it(project: pytest.Pytester) -> None:
    run(project, "--prompty-live").assert_outcomes(passed=3, failed=1)
    result = run(project)
    result.assert_outcomes(passed=2, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*::says bye*", 'replay: expected text that contains "Bye", found "Hello Ada."'])
    run(project, "-n", "2").assert_outcomes(passed=2, failed=1, skipped=1)
    run(project, "-k", "polite and hello").assert_outcomes(passed=1, deselected=3)
    run(project, "greet.test.yaml::says hello").assert_outcomes(passed=1)


def test_the_summary_of_pytest_starts_with_the_reason(project: pytest.Pytester) -> None:
    run(project, "--prompty-live")
    result = run(project, "-q")
    summary = [line for line in result.outlines if line.startswith("FAILED")]
    assert len(summary) == 1
    assert summary[0].startswith('FAILED greet.test.yaml::says bye - replay: expected text that contains "')
    assert str(project.path) not in "\n".join(line for line in result.outlines if "rootdir" not in line)


def test_a_failure_that_the_baseline_accepts_is_expected(project: pytest.Pytester) -> None:
    run(project, "--prompty-live")
    baseline = {"version": 1, "cases": {"says hello": "failed", "says bye": "failed", "is checked": "passed"}}
    (project.path / "greet.baseline.json").write_text(json.dumps(baseline))
    result = run(project, "-rxX", "-o", "xfail_strict=true")
    result.assert_outcomes(xfailed=1, xpassed=1, skipped=1, passed=1)
    result.stdout.fnmatch_lines(["XFAIL greet.test.yaml::says bye - greet.baseline.json accepts this failure"])
    for recording in (project.path / "recordings" / "greet").iterdir():
        recording.unlink()
    result = run(project)
    result.assert_outcomes(failed=3, skipped=1)  # a case that cannot run is not accepted
    (project.path / "greet.baseline.json").write_text("[]")
    run(project).assert_outcomes(errors=1)


SHOP = """\
---
name: shop
model:
  id: m
  provider: scripted
  script: [{call: look}, It is here.]
tools:
  - {name: look, kind: function, description: Look., parameters: {properties: []}}
---
user:
Is it here?
"""


def test_tools_of_the_named_files_run(project: pytest.Pytester) -> None:
    (project.path / "greet.test.yaml").unlink()
    (project.path / "shop.prompty").write_text(SHOP)
    (project.path / "shop.test.yaml").write_text("cases: [{name: looks, expect: {replay: {tools: [look]}}}]")
    (project.path / "tools.py").write_text(
        "from prompty import tool\n\n@tool\ndef look() -> str:\n    'Look.'\n    return 'in stock'\n"
    )
    result = run(project, "--prompty-live")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the tool 'look', which needs a function*"])
    project.makeini("[pytest]\nprompty_collect = true\nprompty_tools = tools.py\n")
    run(project, "--prompty-live").assert_outcomes(passed=1)
    run(project).assert_outcomes(passed=1)


def test_without_the_setting_nothing_is_collected(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\n")
    run(project).assert_outcomes()


def test_a_mistake_in_a_test_file_is_an_error_of_the_collection(project: pytest.Pytester) -> None:
    (project.path / "greet.test.yaml").write_text("cases:\n  - nam: a\n")
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*greet.test.yaml:2:5: cases.0.nam: unknown key `nam`*"])


def test_the_agreement_of_a_judge_is_a_test(project: pytest.Pytester) -> None:
    labels = "".join(f"  - {{name: l{number}, inputs: {{name: a{number}}}, label: pass}}\n" for number in range(3))
    (project.path / "greet.prompty").write_text(PROMPT.replace("Hello Ada.", "fail"))
    (project.path / "greet.test.yaml").write_text(f"judge: {{min_labels: 2}}\ncases:\n{labels}")
    run(project, "--prompty-live", "-k", "not agreement").assert_outcomes(passed=3, deselected=1)
    result = run(project, "-k", "agreement", "-rs")
    result.assert_outcomes(skipped=1, deselected=3)
    result.stdout.fnmatch_lines(["*greet.prompty: agrees with 0 of 3 labels*It is uncalibrated*kappa is 0.00*"])
