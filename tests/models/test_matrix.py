"""The facts against the rules: two tables, each written by hand, that must agree on every prompt that we ship."""

import asyncio
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from prompty.errors import PromptyWarning
from prompty.providers import PROVIDERS, facts
from prompty.providers.fitting import fit_request
from scripts.write_model_facts import load as load_facts
from tests.models.matrix import Case, Matrix, iterate_cases, list_models, load_shipped

TODAY = load_facts()["checked"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PromptyWarning)
        yield


def run(cases: Iterator[Case], *, undecided: bool, is_async: bool) -> Matrix:
    matrix = Matrix(undecided=undecided, today=TODAY)
    if is_async:
        asyncio.run(matrix.run_async(cases))
    else:
        matrix.run(cases)
    return matrix


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_async", "undecided"),
    [
        pytest.param(False, False, id="sync, undecided passes"),
        pytest.param(True, True, id="async, undecided is refused"),
        pytest.param(False, True, id="sync, undecided is refused", marks=pytest.mark.nightly),
        pytest.param(True, False, id="async, undecided passes", marks=pytest.mark.nightly),
    ],
)
def test_no_refusal_of_a_shipped_prompt_is_a_surprise_and_no_error_of_check_is_wrong(
    is_async: bool, undecided: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = run(iterate_cases(TODAY), undecided=undecided, is_async=is_async)
    with capsys.disabled():
        sys.stdout.write(f"\n{len(load_shipped())} prompts × {len(list_models())} models: {dict(matrix.counts)}\n")
    assert matrix.counts["requests"] > 12_000
    assert matrix.unpredicted == []
    assert matrix.accepted == []


def iterate_some(model: str) -> Iterator[Case]:
    return (case for case in iterate_cases(TODAY) if case.model == model)


@pytest.fixture
def _fresh_facts() -> Iterator[None]:
    """Forget what was read of the facts, before and after."""

    def forget() -> None:
        facts._find.cache_clear()

    forget()
    yield
    forget()


def change_row(monkeypatch: pytest.MonkeyPatch, match: str, **changes: Any) -> None:
    """Change facts of one row of the package; None removes one."""
    data = {**facts.read_package_facts()}
    data["rows"] = [dict(row) for row in data["rows"]]
    row = next(row for row in data["rows"] if row.get("match") == match)
    row["facts"] = {name: value for name, value in {**row["facts"], **changes}.items() if value is not None}
    monkeypatch.setattr(facts, "read_package_facts", lambda: data)


@pytest.mark.usefixtures("_fresh_facts")
def test_a_row_that_claims_too_little_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    change_row(monkeypatch, "^claude-opus-5$", temperature=None)
    assert run(iterate_some("anthropic:claude-opus-5"), undecided=False, is_async=False).unpredicted


@pytest.mark.usefixtures("_fresh_facts")
def test_a_row_that_claims_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    change_row(monkeypatch, r"^gpt-6-luna$", structured=["messages"])
    assert run(iterate_some("openai:gpt-6-luna"), undecided=False, is_async=False).accepted


def test_the_facts_agree_with_the_rules_without_those_changes() -> None:
    for model in ("anthropic:claude-opus-5", "openai:gpt-6-luna"):
        matrix = run(iterate_some(model), undecided=False, is_async=False)
        assert (matrix.unpredicted, matrix.accepted) == ([], [])


def without_effort(case: Case) -> Case:
    options = case.agent.model.options.model_copy(update={"reasoning_effort": None})
    model = case.agent.model.model_copy(update={"options": options})
    return case._replace(agent=case.agent.model_copy(update={"model": model}), findings=[])


def has_omissions(case: Case) -> bool:
    """Return True if an option is not sent, because the facts say that the model refuses it."""
    provider = case.agent.registry[PROVIDERS].get(case.agent.model.provider)
    is_there = case.agent.model.api_type in provider.apis
    return is_there and bool(fit_request(case.agent, provider.api_for(case.agent)).omitted)


@pytest.mark.usefixtures("_fresh_facts")
def test_an_option_is_left_out_only_if_the_server_would_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case for case in map(without_effort, iterate_cases(TODAY)) if has_omissions(case)]
    assert len(cases) > 100
    monkeypatch.setattr(facts, "_list_tables", lambda _: ())
    facts._find.cache_clear()
    matrix = Matrix(undecided=True, today=TODAY)
    matrix.run(iter(cases))
    assert matrix.counts["first refused"] == matrix.counts["requests"] == len(cases)
