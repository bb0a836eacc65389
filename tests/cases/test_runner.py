"""Running cases: levels, recordings, tools, repeats, judges, and that nothing reaches a real endpoint."""

import inspect
import json
import random
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from itertools import product
from math import comb
from pathlib import Path
from typing import Any, NoReturn

import pytest

from prompty.cases.answers import CallLedger
from prompty.cases.evaluators import Functions
from prompty.cases.plan import get_recording_path, parse_selection, plan_trials
from prompty.cases.results import TrialResult, decide_status
from prompty.cases.runner import Runner, RunnerOptions
from prompty.cases.trial import Mode
from prompty.cli import test as command
from prompty.errors import ModelError, RequestError
from prompty.testing import Script, call
from tests.cases.project import GREET, LIVE, RECORD, RECORD_MISSING, run_only_case, run_suites, write_suite


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Any connection is noted and refused."""
    tried: list[str] = []

    def refuse(self: socket.socket, address: object) -> None:
        tried.append(str(address))
        raise OSError("the network is cut")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    yield tried
    assert tried == []


ANSWERED = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {contains: Hello}}}]"


def test_a_case_without_a_recording_is_an_error_that_names_the_command(tmp_path: Path) -> None:
    result = run_only_case(tmp_path, ANSWERED)
    assert result.status == "error"
    assert result.reasons == [
        f"no recording matches this request: {tmp_path}/recordings/greet/a.jsonl does not exist\n"
        "    Run `prompty test --record` to write a.jsonl."
    ]


def test_a_case_without_a_recording_names_that_of_another_model(tmp_path: Path) -> None:
    with Script("Hello Ada."):
        run_only_case(tmp_path, ANSWERED.replace("name: a,", "name: a, models: ['openai:other'],"), mode=RECORD)
    [reason] = run_only_case(tmp_path, ANSWERED).reasons
    assert reason.endswith("to write a.jsonl. To replay a.openai-other.jsonl, add its --model or --variant.")


def test_a_recorded_case_passes_without_a_key_or_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Script("Hello Ada."):
        assert run_only_case(tmp_path, ANSWERED, mode=RECORD).status == "passed"
    monkeypatch.delenv("OPENAI_API_KEY")
    result = run_only_case(tmp_path, ANSWERED)
    assert (result.status, result.runs[0].answer) == ("passed", "Hello Ada.")


def test_a_changed_prompt_does_not_match_its_recording(tmp_path: Path) -> None:
    with Script("Hello Ada."):
        run_only_case(tmp_path, ANSWERED, mode=RECORD)
    result = run_only_case(tmp_path, ANSWERED, GREET.replace("You greet", "You gladly greet"))
    assert result.status == "error"
    assert "The first difference is in messages[0].content" in result.reasons[0]


def test_a_recording_that_fails_half_way_keeps_the_old_one(tmp_path: Path) -> None:
    with Script("Hello Ada."):
        run_only_case(tmp_path, ANSWERED, mode=RECORD)
    with Script():
        assert run_only_case(tmp_path, ANSWERED, mode=RECORD).status == "error"
    assert run_only_case(tmp_path, ANSWERED).status == "passed"
    assert len(list((tmp_path / "recordings" / "greet").iterdir())) == 1


def test_a_failing_level_stops_the_dearer_ones(tmp_path: Path) -> None:
    case = """\
    cases:
      - name: a
        inputs: {name: Ada}
        expect:
          render: {contains: Bob}
          wire: {path: temperature, equals: 0.3}
          replay: {contains: Hello}
    """
    result = run_only_case(tmp_path, case)
    assert result.status == "failed"
    assert [check.level for check in result.runs[0].checks] == ["render"]
    result = run_only_case(tmp_path, case.replace("Bob", "Ada"))
    assert result.reasons == ["wire: `temperature`: expected 0.3, found 0.2"]


def test_the_wire_level_shows_the_body_and_the_dropped_options(tmp_path: Path) -> None:
    case = """\
    cases:
      - name: a
        inputs: {name: Ada}
        expect:
          wire:
            - {path: "messages[1].content", equals: Greet Ada.}
            - {dropped: [topK], tokens: {min: 10, max: 100}}
    """
    assert run_only_case(tmp_path, case).status == "passed"


def test_live_checks_are_left_out_offline(tmp_path: Path) -> None:
    only = "cases: [{name: a, inputs: {name: Ada}, expect: {live: {contains: Hello}}}]"
    assert (run_only_case(tmp_path, only).status, run_only_case(tmp_path, only).note) == ("skipped", "needs --live")
    both = "cases: [{name: a, inputs: {name: Ada}, expect: {render: {contains: Ada}, live: {seconds: {max: 60}}}}]"
    result = run_only_case(tmp_path, both)
    assert (result.status, result.note) == ("passed", "skipped the checks in `live`: needs --live")
    with Script("Hello Ada."):
        live = run_only_case(tmp_path, both, mode=LIVE)
    assert (live.status, live.note, live.runs[0].level) == ("passed", "", "live")


def test_a_lower_level_leaves_the_rest_out(tmp_path: Path) -> None:
    assert run_only_case(tmp_path, ANSWERED, mode=Mode(level="render")).status == "skipped"


def test_a_case_without_expectations_must_render(tmp_path: Path) -> None:
    assert run_only_case(tmp_path, "cases: [{name: a, inputs: {name: Ada}}]").status == "passed"
    result = run_only_case(tmp_path, "cases: [{name: a, inputs: {nam: Ada}}]")
    assert result.status == "error"
    assert "nam" in result.reasons[0]


def test_a_prompt_that_cannot_be_loaded_is_the_error_of_its_cases(tmp_path: Path) -> None:
    result = run_only_case(tmp_path, "cases: [{name: a}]", "---\nmodel: {options: {temperature: hot}}\n---\nuser:\nx\n")
    assert result.status == "error"
    assert "expected a number, found `hot`" in result.reasons[0]


SHOP = """\
---
name: shop
model: {id: gpt-test, provider: openai}
inputs:
  amount: {kind: integer}
tools:
  - {name: look, kind: function, parameters: [{name: item, kind: string}]}
  - {name: pay, kind: function, approvalMode: always, parameters: [{name: amount, kind: integer}]}
---
user:
Buy for {{amount}}.
"""
BUYS = """\
cases:
  - name: pays only after looking
    inputs: {amount: 500}
    tools: {look: in stock, pay: {paid: true}}
    expect:
      replay: {tools: [look, {pay: {amount: 500}}], rounds: 3, contains: Done}
"""


def test_tools_with_results_in_the_case_are_not_called_and_need_no_approval(tmp_path: Path) -> None:
    with Script(call("look", item="book"), call("pay", amount=500), "Done.") as script:
        assert run_only_case(tmp_path, BUYS, SHOP, mode=RECORD).status == "passed"
    assert json.dumps(script.requests[2]).count("in stock") == 1
    result = run_only_case(tmp_path, BUYS, SHOP)
    assert (result.status, result.runs[0].rounds) == ("passed", 3)
    assert result.runs[0].calls[1] == {"name": "pay", "arguments": {"amount": 500}}


def test_a_wrong_order_of_tools_fails(tmp_path: Path) -> None:
    with Script(call("pay", amount=500), call("look", item="book"), "Done."):
        result = run_only_case(tmp_path, BUYS, SHOP, mode=RECORD)
    assert result.reasons == ["replay: expected the calls look, pay, found pay, look"]


def test_a_tool_without_a_result_or_a_function_is_an_error_that_says_so(tmp_path: Path) -> None:
    with Script("Done."):
        result = run_only_case(tmp_path, BUYS.replace("look: in stock, ", ""), SHOP, mode=LIVE)
    assert "declares the tool 'look', which needs a function" in result.reasons[0]
    assert "`tools: {look: …}`, or --tools FILE.py" in result.reasons[0]


def test_a_result_of_a_tool_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with Script("Done."):
        result = run_only_case(tmp_path, BUYS.replace("look: in", "lok: in"), SHOP, mode=LIVE)
    assert "declares no function 'lok'" in result.reasons[0]


def test_a_result_for_one_call_of_a_tool_replaces_the_one_for_every_call(tmp_path: Path) -> None:
    cases = """\
    cases:
      - name: looks again
        inputs: {amount: 500}
        tools: {look: in stock, look 2: sold out, pay: {paid: true}}
        expect: {replay: {tools: {contains: [look, look, look], not_contains: [pay]}}}
    """
    with Script([call("look", item="a"), call("look", item="b")], call("look", item="a"), "Done.") as asked:
        assert run_only_case(tmp_path, cases, SHOP, mode=RECORD).status == "passed"
    results = [message["content"] for message in asked.requests[2]["messages"] if message["role"] == "tool"]
    assert results == ["in stock", "sold out", "in stock"]
    result = run_only_case(tmp_path, cases.replace("look: in stock, ", ""), SHOP)
    assert "has results for some calls of 'look', but none for the others\n    Add `look: …`" in result.reasons[0]
    result = run_only_case(tmp_path, cases.replace("look 2", "look two"), SHOP)
    assert "declares no function 'look two'" in result.reasons[0]


def test_functions_of_the_caller_run_and_a_person_must_approve(tmp_path: Path) -> None:
    def look(item: str) -> str:
        return f"{item} is in stock"

    def pay(amount: int) -> str:
        raise AssertionError("nobody approved it")

    cases = BUYS.replace("    tools: {look: in stock, pay: {paid: true}}\n", "")
    with Script(call("look", item="book"), call("pay", amount=500), "Done."):
        result = run_only_case(tmp_path, cases, SHOP, mode=LIVE, tools=[look, pay])
    assert "the call of 'pay' needs approval" in result.reasons[0]


def test_tools_on_a_server_are_refused_offline(tmp_path: Path) -> None:
    prompt = "---\nmodel: m\ntools: [{name: files, kind: mcp, serverName: files}]\n---\nuser:\nx\n"
    result = run_only_case(tmp_path, "cases: [{name: a, expect: {wire: {path: model, equals: m}}}]", prompt)
    assert "are on a server (mcp), which is not called offline" in result.reasons[0]
    assert run_only_case(tmp_path, "cases: [{name: a, expect: {render: {contains: x}}}]", prompt).status == "passed"


def test_each_model_has_a_result_and_a_recording_of_its_own(tmp_path: Path) -> None:
    suite = write_suite(
        tmp_path,
        "defaults: {models: ['openai:a', 'anthropic:b']}\n"
        "cases: [{name: x y, inputs: {name: Ada}, expect: {replay: {contains: Hello}}}]",
    )
    with Script("Hello.", "Hello."):
        run_suites(suite, mode=RECORD, jobs=1)
    results = run_suites(suite)
    assert [(result.model, result.status) for result in results] == [("openai:a", "passed"), ("anthropic:b", "passed")]
    folder = tmp_path / "recordings" / "greet"
    assert sorted(file.name for file in folder.iterdir()) == ["x-y.anthropic-b.jsonl", "x-y.openai-a.jsonl"]
    assert '"provider":"anthropic"' in (folder / "x-y.anthropic-b.jsonl").read_text()


def test_models_of_the_command_replace_those_of_the_file(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, "cases: [{name: a, models: ['openai:x'], expect: {wire: {path: model, equals: z}}}]")
    [result] = run_suites(suite, models=["openai:z"])
    assert (result.model, result.status) == ("openai:z", "passed")


REPEATED = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {contains: Hello}}, repeat: 5, pass: 4}]"


def test_repeats_stop_as_soon_as_the_verdict_is_certain(tmp_path: Path) -> None:
    with Script(*["Hello."] * 5) as script:
        result = run_only_case(tmp_path, REPEATED, mode=LIVE, jobs=1)
    assert (result.status, len(script.requests), result.passes) == ("passed", 4, 4)
    with Script("Hello.", "Bye.", "Hello.", "Bye.", "Hello.") as script:
        result = run_only_case(tmp_path, REPEATED, mode=LIVE, jobs=1)
    assert (result.status, len(script.requests)) == ("failed", 4)


def test_a_recording_has_all_repeats_and_replays_them(tmp_path: Path) -> None:
    with Script("Hello.", "Bye.", "Hello.", "Hello.", "Hello."):
        assert run_only_case(tmp_path, REPEATED, mode=RECORD, jobs=1).status == "passed"
    assert len(list((tmp_path / "recordings" / "greet").iterdir())) == 5
    result = run_only_case(tmp_path, REPEATED)
    assert (result.status, [run.answer for run in result.runs]) == (
        "passed",
        ["Hello.", "Bye.", "Hello.", "Hello.", "Hello."],
    )


def test_the_early_verdict_is_that_of_all_attempts() -> None:
    chance = random.Random(4)  # noqa: S311  not for secrets
    for _ in range(2000):
        repeat = chance.randrange(1, 12)
        needed = chance.randrange(1, repeat + 1)
        outcomes = [chance.random() < 0.6 for _ in range(repeat)]
        verdict, taken = None, 0
        while verdict is None:
            taken += 1
            passes = sum(outcomes[:taken])
            verdict = decide_status(passes, taken - passes, repeat, needed)
        assert (verdict == "passed") == (sum(outcomes) >= needed)


def test_a_flaky_case_passes_as_often_as_the_binomial_says() -> None:
    """Of all sequences of ten attempts, those with eight passes or more pass: 45 + 10 + 1 of 1,024."""
    passed = asked = 0
    for outcomes in product([True, False], repeat=10):
        taken = next(n for n in range(1, 11) if decide_status(sum(outcomes[:n]), n - sum(outcomes[:n]), 10, 8))
        asked += taken
        passed += decide_status(sum(outcomes[:taken]), taken - sum(outcomes[:taken]), 10, 8) == "passed"
    assert passed == sum(comb(10, count) for count in (8, 9, 10))
    assert asked < 6 * 1024  # a verdict that is certain ends the attempts


FLAKY = {  # the answers of a model, the verdict on eight passes of ten, and how many answers that took
    "no failure": ("++++++++", "passed", 8),
    "two failures first": ("--++++++++", "passed", 10),
    "two failures last but one": ("+++++++--+", "passed", 10),
    "three failures first": ("---", "failed", 3),
    "the third failure at the end": ("+++++++---", "failed", 10),
}


@pytest.mark.parametrize(("answers", "verdict", "asked"), FLAKY.values(), ids=FLAKY)
def test_a_flaky_case_is_asked_until_its_verdict_is_certain(
    answers: str, verdict: str, asked: int, tmp_path: Path
) -> None:
    case = "  - {name: run, inputs: {name: Ada}, expect: {replay: {contains: Hello}}}"
    suite = write_suite(tmp_path, f"defaults: {{repeat: 10, pass: 8}}\ncases:\n{case}")
    with Script(*["Hello." if one == "+" else "Bye." for one in answers.ljust(10, "+")]) as script:
        [result] = run_suites(suite, mode=LIVE, jobs=1)
    assert (result.status, len(script.requests)) == (verdict, asked)


def test_checks_in_python_run_only_if_a_person_named_their_file(tmp_path: Path) -> None:
    case = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {python: 'rules:is_polite'}}}]"
    with Script("Hello Ada."):
        run_only_case(tmp_path, case, mode=RECORD)
    result = run_only_case(tmp_path, case)
    assert "runs code, which needs your permission\n    Add --checks rules.py" in result.reasons[0]
    seen: list[object] = []

    def is_polite(answer: object, inputs: object) -> object:
        seen.append((answer, inputs))
        return True if len(seen) == 1 else "it is rude"

    checks = {"rules:is_polite": is_polite}
    assert run_only_case(tmp_path, case, checks=checks).status == "passed"
    assert seen == [("Hello Ada.", {"name": "Ada"})]
    assert run_only_case(tmp_path, case, checks=checks).reasons == ["replay: rules:is_polite: it is rude"]


def test_a_check_in_python_that_breaks_is_an_error_and_an_assertion_a_failure(tmp_path: Path) -> None:
    case = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {python: 'rules:check'}}}]"
    with Script("Hello Ada."):
        run_only_case(tmp_path, case, mode=RECORD)

    def break_off(answer: object, inputs: object) -> object:
        raise KeyError("x")

    def fail(answer: object, inputs: object) -> object:
        raise AssertionError("no comma")

    assert run_only_case(tmp_path, case, checks={"rules:check": break_off}).status == "error"
    assert run_only_case(tmp_path, case, checks={"rules:check": fail}).reasons == ["replay: rules:check: no comma"]


def test_similarity_compares_vectors_of_an_embedding_prompt(tmp_path: Path) -> None:
    (tmp_path / "embed.prompty").write_text(
        "---\nmodel:\n  id: e\n  provider: scripted\n  apiType: embedding\n"
        "  script: [[1.0, 0.0]]\ninputs:\n  text: {kind: string}\n---\nuser:\n{{text}}\n"
    )
    case = (
        "cases: [{name: a, inputs: {name: Ada}, "
        "expect: {replay: {similar: {to: Hi, prompt: embed.prompty, at_least: 0.9}}}}]"
    )
    scripted = GREET.replace("provider: openai", "provider: scripted\n  script: [Hello Ada.]")
    assert run_only_case(tmp_path, case, scripted, mode=RECORD).status == "passed"
    result = run_only_case(tmp_path, case, scripted)
    assert (result.status, result.runs[0].checks[0].score) == ("passed", 1.0)


def test_a_prompt_outside_of_the_project_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "judge.prompty").write_text(GREET)
    monkeypatch.chdir(inside)
    case = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {judge: ../judge.prompty, at_least: 1}}}]"
    with Script("Hello."):
        result = run_only_case(inside, case, mode=LIVE)
    assert "neither below the test file's folder nor below the current folder" in result.reasons[0]


def test_selections_are_words_with_and_or_not_and_brackets(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, "cases: [{name: greets ada, tags: [slow]}, {name: greets bob}, {name: leaves bob}]")
    trials = list(plan_trials([suite]))

    def select(expression: str) -> list[str]:
        selection = parse_selection(expression)
        return [str(trial.case.name) for trial in trials if selection(trial)]

    assert select("greets and not slow") == ["greets bob"]
    assert select("ADA or leaves") == ["greets ada", "leaves bob"]
    assert select("not (ada or leaves)") == ["greets bob"]
    assert select("'greets bob'") == ["greets bob"]
    for broken in ("", "and", "(ada", "ada bob", "not"):
        with pytest.raises(RequestError, match="is invalid"):
            parse_selection(broken)


def test_names_of_recordings_contain_case_variant_model_and_repeat(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, "cases: [{name: 'pays & leaves', models: ['openai:gpt-4.1']}]")
    [trial] = plan_trials([suite])
    names = [get_recording_path(trial, number).name for number in (1, 2)]
    assert names[0].startswith("pays-")
    assert "openai-gpt-4-1" in names[0]
    assert names[1] == names[0].replace(".jsonl", ".2.jsonl")


def test_a_live_run_ends_before_it_costs_more_than_allowed(tmp_path: Path) -> None:
    cases = "\n".join(
        f"  - {{name: a {number}, inputs: {{name: Ada}}, expect: {{replay: {{contains: Hello}}}}}}"
        for number in range(6)
    )
    suite = write_suite(tmp_path, f"cases:\n{cases}", GREET.replace("gpt-test", "gpt-4o"))
    runner = Runner(RunnerOptions(mode=LIVE, jobs=1, max_cost=Decimal("0.0002"), ledger=tmp_path / "l"))
    with Script(*["Hello."] * 6) as script:
        results = runner.run(list(plan_trials([suite])))
    assert 0 < len(script.requests) < 6
    assert [result.status for result in results].count("error") == 6 - len(script.requests)
    assert results[-1].reasons == ["the budget of --max-cost is spent\n    To continue, raise it."]


def test_an_interrupted_live_run_continues_without_repeating_what_it_paid_for(tmp_path: Path) -> None:
    cases = "\n".join(
        f"  - {{name: a {number}, inputs: {{name: Ada {number}}}, expect: {{replay: {{contains: Hello}}}}}}"
        for number in range(6)
    )
    suite = write_suite(tmp_path, f"cases:\n{cases}")
    ledger = tmp_path / "ledger.jsonl"
    trials = list(plan_trials([suite]))
    runner = Runner(RunnerOptions(mode=LIVE, jobs=1, ledger=ledger))
    with Script(*["Hello."] * 6) as script:
        seen: list[object] = []

        def stop_after_two(result: object) -> None:
            seen.append(result)
            if len(seen) == 2:
                runner.stop()

        assert len(runner.run(trials, stop_after_two)) == 2
        assert not runner.complete
        again = Runner(RunnerOptions(mode=LIVE, jobs=1, ledger=ledger))
        results = again.run(trials)
    assert [result.status for result in results] == ["passed"] * 6
    assert (len(script.requests), sum(result.resumed for result in results)) == (6, 2)
    assert not ledger.exists()


def test_an_attempt_with_an_error_is_tried_again(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    suite = write_suite(tmp_path, ANSWERED)
    trials = list(plan_trials([suite]))
    runner = Runner(RunnerOptions(mode=LIVE, jobs=1, ledger=ledger))
    with Script():
        [result] = runner.run(trials)
    assert result.status == "error"
    with Script("Hello."):
        [result] = Runner(RunnerOptions(mode=LIVE, jobs=1, ledger=ledger)).run(trials)
    assert (result.status, result.resumed) == ("passed", 0)


def interrupt(folder: Path, cases: str, *replies: Any, prompt: str = GREET, **options: Any) -> TrialResult:
    """Run the only case of a file live, and stop before its ledger is removed."""
    runner = Runner(RunnerOptions(mode=LIVE, jobs=1, ledger=folder / "ledger.jsonl", **options))
    with Script(*replies) as script:
        [result] = runner.run(list(plan_trials([write_suite(folder, cases, prompt)])), lambda _: runner.stop())
    assert len(script.requests) == len(replies)
    return result


def test_an_edited_expectation_is_checked_again_without_another_call(tmp_path: Path) -> None:
    assert interrupt(tmp_path, ANSWERED, "Hello.").status == "passed"
    edited = interrupt(tmp_path, ANSWERED.replace("Hello", "Bye"))
    assert (edited.status, edited.resumed, edited.runs[0].answer) == ("failed", 1, "Hello.")
    assert edited.runs[0].seconds


def test_an_edited_rule_is_checked_again_without_another_call(tmp_path: Path) -> None:
    case = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {python: 'rules:check'}}}]"
    old: Functions = {"rules:check": lambda answer, inputs: "the old rule"}
    assert interrupt(tmp_path, case, "Hello.", checks=old).reasons == ["replay: rules:check: the old rule"]
    assert interrupt(tmp_path, case, checks={"rules:check": lambda answer, inputs: True}).status == "passed"


def test_an_edited_judge_is_asked_again_about_the_same_answer(tmp_path: Path) -> None:
    judge = tmp_path / "judge.prompty"
    judge.write_text(GREET.replace("name:", "answer:").replace("{{name}}", "{{answer}}"))
    case = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {judge: judge.prompty, at_least: 3}}}]"
    assert interrupt(tmp_path, case, "Hello.", "1").runs[0].checks[0].score == 1
    assert interrupt(tmp_path, case).runs[0].checks[0].score == 1
    judge.write_text(judge.read_text().replace("You greet", "You judge"))
    edited = interrupt(tmp_path, case, "5")
    assert (edited.runs[0].checks[0].score, edited.runs[0].answer) == (5, "Hello.")


def test_an_edited_tool_result_is_sent_to_the_model_that_chose_the_tool(tmp_path: Path) -> None:
    assert interrupt(tmp_path, BUYS, call("look", item="book"), call("pay", amount=500), "Done.", prompt=SHOP).passes
    edited = interrupt(tmp_path, BUYS.replace("in stock", "sold out"), "Sorry.", prompt=SHOP)
    assert edited.reasons == [
        'replay: expected text that contains "Done", found "Sorry."',
        "replay: expected the calls look, pay, found look",
        "replay: expected rounds of exactly 3, found 2",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("You greet", "You gladly greet"),
        ("gpt-test", "gpt-other"),
        ("temperature: 0.2", "temperature: 0.3"),
        (
            "provider: openai",
            "provider: openai\n  connection: {kind: key, endpoint: 'https://b.example', apiKey: k}",
        ),
    ],
)
def test_a_changed_prompt_is_asked_again(tmp_path: Path, old: str, new: str) -> None:
    interrupt(tmp_path, ANSWERED, "Hello.")
    changed = interrupt(tmp_path, ANSWERED, "Bye.", prompt=GREET.replace(old, new))
    assert (changed.runs[0].answer, changed.resumed) == ("Bye.", 0)


def test_changed_inputs_are_asked_again(tmp_path: Path) -> None:
    interrupt(tmp_path, ANSWERED, "Hello.")
    assert interrupt(tmp_path, ANSWERED.replace("Ada", "Bob"), "Bye.").runs[0].answer == "Bye."


def test_a_run_that_was_interrupted_between_two_calls_continues_with_the_second(tmp_path: Path) -> None:
    def die(_: object) -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path, BUYS, call("look", item="book"), die, prompt=SHOP)
    result = interrupt(tmp_path, BUYS, call("pay", amount=500), "Done.", prompt=SHOP)
    assert (result.status, result.runs[0].rounds) == ("passed", 3)


def read_recordings(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "recordings" / "greet").iterdir()}


def test_recording_asks_only_for_what_is_missing_or_changed(tmp_path: Path) -> None:
    defaults = "defaults: {models: ['openai:a', 'openai:b'], repeat: 2, expect: {replay: {contains: Hello}}}\n"
    cases = [f"  - {{name: a {number}, inputs: {{name: Ada {number}}}}}" for number in range(11)]
    with Script(*[f"Hello {number}." for number in range(40)]) as script:
        run_suites(write_suite(tmp_path, "\n".join([defaults, "cases:", *cases[:10]])), mode=RECORD_MISSING, jobs=1)
        assert len(script.requests) == 40
    before = read_recordings(tmp_path)
    with Script(*["Hello."] * 4) as script:
        suite = write_suite(tmp_path, "\n".join([defaults, "cases:", *cases]))
        results = run_suites(suite, mode=RECORD_MISSING, jobs=1)
    assert len(script.requests) == 4
    assert [result.status for result in results] == ["passed"] * 22
    after = read_recordings(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) == 44
    with Script(*["Hello."] * 4) as script:
        changed = "\n".join([defaults, "cases:", cases[0].replace("Ada 0", "Bob"), *cases[1:]])
        run_suites(write_suite(tmp_path, changed), mode=RECORD_MISSING, jobs=1)
    assert len(script.requests) == 4
    assert sum(content != after[name] for name, content in read_recordings(tmp_path).items()) == 4


def test_recording_live_asks_for_everything(tmp_path: Path) -> None:
    for text in ("Hello.", "Hello again."):
        with Script(text):
            run_only_case(tmp_path, ANSWERED, mode=RECORD)
    assert run_only_case(tmp_path, ANSWERED).runs[0].answer == "Hello again."


def test_recording_an_edited_judge_keeps_the_answer(tmp_path: Path) -> None:
    judge = tmp_path / "judge.prompty"
    judge.write_text(GREET.replace("name:", "answer:").replace("{{name}}", "{{answer}}"))
    case = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {judge: judge.prompty, at_least: 3}}}]"
    with Script("Hello.", "1"):
        run_only_case(tmp_path, case, mode=RECORD_MISSING)
    judge.write_text(judge.read_text().replace("You greet", "You judge"))
    with Script("5"):
        run_only_case(tmp_path, case, mode=RECORD_MISSING)
    result = run_only_case(tmp_path, case)
    assert (result.runs[0].answer, result.runs[0].checks[0].score) == ("Hello.", 5)


def test_recording_skips_cases_that_only_have_live_checks(tmp_path: Path) -> None:
    case = "cases: [{name: a, inputs: {name: Ada}, expect: {live: {contains: Hello}}}]"
    with Script() as script:
        assert run_only_case(tmp_path, case, mode=RECORD_MISSING).status == "skipped"
    assert script.requests == []


def test_an_error_in_one_repeat_does_not_decide_if_the_others_can(tmp_path: Path) -> None:
    case = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {contains: Hello}}, repeat: 4, pass: 2}]"

    def fail(_: object) -> NoReturn:
        raise ModelError("the server is down")

    def run(*replies: Any) -> tuple[str, int]:
        with Script(*replies) as script:
            return run_only_case(tmp_path, case, mode=LIVE).status, len(script.requests)

    assert run(fail, "Hello.", "Hello.") == ("passed", 3)
    assert run("Bye.", "Bye.", fail, "Bye.") == ("error", 3)
    assert run("Bye.", fail, "Hello.", "Hello.") == ("passed", 4)
    assert run("Bye.", "Bye.", "Bye.") == ("failed", 3)


def test_an_interruption_is_told_until_the_whole_run_is_complete(tmp_path: Path) -> None:
    """The process that repeats the case can be killed before anybody reads what it says."""
    suite = write_suite(
        tmp_path,
        "defaults: {inputs: {name: Ada}, expect: {replay: {contains: Hello}}}\ncases: [{name: a}, {name: b}]",
    )
    trials, ledger = list(plan_trials([suite])), tmp_path / "ledger.jsonl"

    def die(_: object) -> NoReturn:
        raise KeyboardInterrupt

    with Script(die), pytest.raises(KeyboardInterrupt):
        Runner(RunnerOptions(mode=LIVE, jobs=1, ledger=ledger)).run(trials)
    told: list[list[str]] = []
    with Script("Hello.", "Hello."):
        second = Runner(RunnerOptions(mode=LIVE, jobs=1, ledger=ledger))
        assert len(second.run(trials, lambda _: second.stop(), told.append)) == 1
        Runner(RunnerOptions(mode=LIVE, jobs=1, ledger=ledger)).run(trials, on_interrupted=told.append)
    assert told == [[f"{suite.label}::a, run 1"]] * 2
    assert list(tmp_path.glob("ledger*")) == []


SHAPED = GREET.replace("---\n", "---\noutputs: {greeting: {kind: string}}\n", 1)


def test_a_case_whose_answer_does_not_fit_the_outputs_fails_with_its_answer(tmp_path: Path) -> None:
    with Script("Hello Ada."):
        recorded = run_only_case(tmp_path, ANSWERED, prompt=SHAPED, mode=RECORD)
    replayed = run_only_case(tmp_path, ANSWERED, prompt=SHAPED)
    for result in (recorded, replayed):
        assert (result.status, result.runs[0].answer) == ("failed", "Hello Ada.")
        assert [(check.name, check.passed) for check in result.runs[0].checks] == [
            ("outputs", False),
            ("contains", True),
        ]
        assert "the answer is text" in result.reasons[0]
        assert result.runs[0].output_tokens


def test_an_answer_that_is_not_json_is_shown_where_outputs_are_declared(tmp_path: Path) -> None:
    case = "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {path: greeting, equals: Hello}}}]"
    with Script("Sorry, I cannot greet."):
        result = run_only_case(tmp_path, case, prompt=SHAPED, mode=RECORD)
    assert result.status == "failed"
    assert result.reasons == [
        'replay: the answer is text, not JSON of the declared `outputs`, found "Sorry, I cannot greet."',
        'replay: the answer is not JSON (Expecting value at line 1, column 1), found "Sorry, I cannot greet."',
    ]


def test_a_second_live_run_of_the_same_files_is_told_what_its_own_command_can_do(tmp_path: Path) -> None:
    trials, ledger = list(plan_trials([write_suite(tmp_path, ANSWERED)])), tmp_path / "ledger.jsonl"
    with closing(CallLedger(ledger)), pytest.raises(RequestError, match="another process runs these") as caught:
        Runner(RunnerOptions(mode=LIVE, jobs=1, ledger=ledger)).run(trials)
    named = set(re.findall(r"--[a-z-]+", str(caught.value)))
    assert named
    assert named <= set(re.findall(r"--[a-z-]+", inspect.getsource(command)))
