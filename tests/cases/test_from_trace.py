"""`prompty test --from-trace`: a run that was traced becomes a case that passes offline."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from prompty import load, prepare, tool, turn
from prompty.cases.from_trace import TracedRun, add_case, append_case, build_case
from prompty.cases.plan import plan_trials
from prompty.cases.reading import RULES, read_suite
from prompty.cases.results import TrialResult
from prompty.cases.runner import Runner, RunnerOptions
from prompty.errors import PromptyError, RequestError
from prompty.safety.yaml import read_yaml
from prompty.testing import Script, call
from prompty.tracing.files import FileSink
from prompty.tracing.spans import SINKS
from prompty.viewer.trace import find_traces, read_trace
from tests.cases.test_checks import json_values

PROMPT = """\
---
name: pay
model: {id: gpt-test, provider: openai}
inputs:
  order: {kind: integer}
  note: {kind: string, default: none}
tools:
  - name: look
    kind: function
    parameters:
      order: {kind: integer}
---
user:
Pay order {{order}}. {{note}}
"""
RUN = TracedRun("run of today", {"order": 7}, (), [], {}, [], "Paid.")


@tool
def look(order: int) -> dict[str, Any]:
    """Return an order."""
    return {"order": order, "price": 5.0}


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    path = tmp_path / "pay.prompty"
    path.write_text(PROMPT)
    return path


def trace_turn(prompt: Path, *script: Any, **inputs: object) -> Path:
    """Run a turn with a script, and return its trace."""
    folder = prompt.parent / "traces"
    SINKS.set("file", FileSink(folder))
    try:
        with Script(*script):
            turn(prompt, inputs, tools=[look])
    finally:
        SINKS.set("file", None)
    return find_traces(folder)[0]


def run_offline(test_file: Path) -> list[TrialResult]:
    return Runner(RunnerOptions()).run(list(plan_trials([read_suite(test_file)])))


@pytest.mark.parametrize("content", [None, "cases: []\n"])
def test_a_case_is_not_written_through_a_link(prompt: Path, content: str | None) -> None:
    trace = trace_turn(prompt, "Paid.", order=7)
    outside = prompt.with_name("outside")
    if content is not None:
        outside.write_text(content)
    prompt.with_name("pay.test.yaml").symlink_to(outside)
    with pytest.raises(RequestError, match="it leads through a link"):
        add_case(read_trace(trace), prompt)
    assert (outside.read_text() if outside.exists() else None) == content


def test_a_traced_turn_becomes_a_case_that_passes_offline(prompt: Path) -> None:
    trace = trace_turn(prompt, call("look", order=7), "Paid.", order=7, note="yes: {{x}} # no\n- a")
    added = add_case(read_trace(trace), prompt)
    assert added.path == prompt.with_name("pay.test.yaml")
    [case] = read_suite(added.path).cases
    assert case.inputs == {"order": 7, "note": "yes: {{x}} # no\n- a"}
    assert case.tools == {"look": {"order": 7, "price": 5.0}}
    [result] = run_offline(added.path)
    assert result.status == "passed", result.reasons
    assert result.runs[0].answer == "Paid."
    assert result.runs[0].calls == ({"name": "look", "arguments": {"order": 7}},)


def test_the_case_is_added_after_the_others_which_stay_as_they_are_written(prompt: Path) -> None:
    file = prompt.with_name("pay.test.yaml")
    text = "# Ours.\ncases:\n- name: first   # kept\n  inputs: {order: 1}\n  expect: {render: {contains: '1'}}\n"
    file.write_text(text)
    add_case(read_trace(trace_turn(prompt, "Paid.", order=7)), prompt)
    assert file.read_text().startswith(text)
    assert [result.status for result in run_offline(file)] == ["passed", "passed"]


def test_each_model_of_the_file_gets_a_recording(prompt: Path) -> None:
    file = prompt.with_name("pay.test.yaml")
    file.write_text(
        textwrap.dedent("""\
            defaults: {models: [openai:a, anthropic:b], repeat: 2}
            cases:
              - name: renders
                inputs: {order: 1}
                expect: {render: {contains: order 1}}
            """)
    )
    add_case(read_trace(trace_turn(prompt, call("look", order=7), "Paid.", order=7)), prompt)
    results = run_offline(file)
    assert [(result.model, result.status) for result in results] == [
        (model, "passed") for model in ("openai:a", "anthropic:b") * 2
    ]
    assert all(len(result.runs) == 2 for result in results)


def test_a_tool_with_different_results_is_told(prompt: Path) -> None:
    trace = trace_turn(prompt, call("look", order=7), call("look", order=8), "Paid.", order=7)
    assert add_case(read_trace(trace), prompt).changing == ["look"]
    [result] = run_offline(prompt.with_name("pay.test.yaml"))
    assert result.status == "passed", result.reasons


def test_a_prompt_that_changed_since_leaves_no_trace_of_the_attempt(prompt: Path) -> None:
    trace = read_trace(trace_turn(prompt, "Paid.", order=7))
    prompt.write_text(
        PROMPT.replace("order: {kind: integer}\n  note", "number: {kind: integer, required: true}\n  note")
    )
    with pytest.raises(RequestError, match="does not pass as a case"):
        add_case(trace, prompt)
    assert sorted(path.name for path in prompt.parent.iterdir()) == ["pay.prompty", "traces"]


def test_the_same_run_is_added_once(prompt: Path) -> None:
    trace = read_trace(trace_turn(prompt, "Paid.", order=7))
    add_case(trace, prompt)
    text = prompt.with_name("pay.test.yaml").read_text()
    with pytest.raises(RequestError, match=r"pay\.test\.yaml already has a case"):
        add_case(trace, prompt)
    assert prompt.with_name("pay.test.yaml").read_text() == text


def test_a_file_that_does_not_end_with_its_cases_is_left_to_the_person() -> None:
    text = "cases:\n  - name: a\n    inputs: {order: 1}\ndefaults: {repeat: 1}\n"
    with pytest.raises(RequestError, match="not a list at the end") as caught:
        append_case(text, build_case(RUN, ()), Path("pay.test.yaml"))
    assert "- name: run of today" in caught.value.fix


def test_a_failed_run_is_no_case(prompt: Path) -> None:
    with pytest.raises(PromptyError):
        trace_turn(prompt, order=7)
    trace = read_trace(find_traces(prompt.parent / "traces")[0])
    with pytest.raises(RequestError, match="is failed"):
        add_case(trace, prompt)


def test_the_trace_of_something_else_is_no_case(prompt: Path) -> None:
    folder = prompt.parent / "traces"
    SINKS.set("file", FileSink(folder))
    try:
        prepare(load(prompt), {"order": 7})
    finally:
        SINKS.set("file", None)
    with pytest.raises(RequestError, match="is not the trace of a prompt"):
        add_case(read_trace(find_traces(folder)[0]), prompt)


def test_a_text_that_looks_like_a_file_is_not_read_as_one() -> None:
    run = RUN._replace(inputs={"order": ["${file:secrets.txt}"]})
    with pytest.raises(RequestError, match="would read as a file reference"):
        build_case(run, ())


@example("\xa0", None, "")
@given(json_values, json_values, st.text())
def test_any_run_is_read_back_as_it_was(inputs: object, answer: object, result: str) -> None:
    run = RUN._replace(
        inputs={"value": inputs}, answer=answer, results={"look": result}, calls=[("look", {"a": inputs})]
    )
    case = build_case(run, ("look",))
    first = append_case(None, case, Path("a.test.yaml"))
    second = append_case(first, {**case, "name": "again"}, Path("a.test.yaml"))
    assert second.startswith(first.rstrip("\n"))
    assert read_yaml(second, RULES) == ({"cases": [case, {**case, "name": "again"}]}, [])
