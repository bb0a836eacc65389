"""What a run costs: answers, judges and embeddings on a server that keeps its own books, and the budget of a run."""

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from prompty.cases.plan import plan_trials
from prompty.cases.reading import Suite
from prompty.cases.results import TrialResult
from prompty.cases.runner import Runner, RunnerOptions
from prompty.errors import RequestError
from tests.cases.project import LIVE, RECORD, run_suites, write_suite
from tests.loopback import Reply, Request, Server, json_reply

# Dollars for a million tokens: fresh input, cached input, output.
PRICES = {"gpt-5": ("1.25", "0.125", "10"), "o1": ("15", "7.5", "60"), "text-embedding-3-large": ("0.13", "0", "0")}
PROMPT = """\
---
model: {{id: {model}, provider: openai, apiType: {api}}}
inputs:
  {name}: {{kind: string}}
---
user:
{text} {{{{{name}}}}}
"""
CASE = """\
  - name: n{number}
    inputs: {{name: n{number}}}
    expect:
      replay:
        - {{similar: {{to: Hello, prompt: embed.prompty, at_least: 0.5}}}}
        - {{judge: judge.prompty, at_least: 3}}
"""


class Bookkeeper(Server):
    """Answers prompts, judges and embeddings, each with other token counts, and adds up what they cost."""

    def __init__(self, *, refused: int = 0) -> None:
        super().__init__()
        self.bill = Decimal()
        self.tokens: Counter[str] = Counter()
        self.calls: list[tuple[str, Decimal]] = []
        self.refused = refused

    def next_reply(self, request: Request) -> Reply:
        body = request.body
        self.requests.append(request)
        if len(self.requests) <= self.refused:
            return json_reply({"error": {"message": "slow down"}}, 429, {"retry-after": "0"})
        model, number = body["model"], len(self.requests)
        if request.path.endswith("/embeddings"):
            self._count(model, embedding=1000 + 7 * number)
            usage = {"prompt_tokens": 1000 + 7 * number, "total_tokens": 1000 + 7 * number}
            return json_reply({"model": model, "data": [{"embedding": [1.0, 0.5]}], "usage": usage})
        prompt, cached, output, reasoning = 100_000 + number, 30_000 + number, 50_000 + 3 * number, 20_000 + number
        self._count(model, input=prompt, cached=cached, output=output, reasoning=reasoning)
        usage_of_chat: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        message = {"role": "assistant", "content": "4" if model == "o1" else "Hello."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return json_reply({"id": "1", "model": model, "choices": [choice], "usage": usage_of_chat})

    def _count(self, model: str, *, input: int = 0, cached: int = 0, output: int = 0, **others: int) -> None:
        fresh_price, cached_price, output_price = map(Decimal, PRICES[model])
        given = others.get("embedding", 0) + input - cached
        price = (given * fresh_price + cached * cached_price + output * output_price) / 1_000_000
        self.bill += price
        self.calls.append((model, price))
        self.tokens.update(input=input, cached=cached, output=output, **others)
        self.has_changed()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bookkeeper]:
    with Bookkeeper() as bookkeeper:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{bookkeeper.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield bookkeeper


def write_project(folder: Path, cases: int = 20, case: str = CASE) -> Suite:
    for name, model, api, text in (
        ("judge", "o1", "chat", "Score this:"),
        ("embed", "text-embedding-3-large", "embedding", ""),
    ):
        prompt = PROMPT.format(model=model, api=api, name="answer", text=text)
        (folder / f"{name}.prompty").write_text(prompt, encoding="utf-8")
    rows = "".join(case.format(number=number) for number in range(cases))
    return write_suite(
        folder, f"cases:\n{rows}", PROMPT.format(model="gpt-5", api="chat", name="name", text="Greet"), "greet"
    )


def add_up(results: list[TrialResult]) -> Counter[str]:
    """Return the tokens that the runs report, by class."""
    fields = ("input", "cached", "output", "reasoning", "embedding")
    runs: list[Any] = [run.to_json() for result in results for run in result.runs]
    return Counter({name: sum(run[f"{name}_tokens"] or 0 for run in runs) for name in fields})


@pytest.mark.parametrize("jobs", [1, 8])
def test_the_reported_cost_is_the_bill_of_the_server_to_the_token(
    server: Bookkeeper, tmp_path: Path, jobs: int
) -> None:
    suite = write_project(tmp_path)
    results = run_suites(suite, mode=LIVE, jobs=jobs)
    assert [result.status for result in results] == ["passed"] * 20
    assert Counter(model for model, _ in server.calls) == {"gpt-5": 20, "o1": 20, "text-embedding-3-large": 40}
    assert server.bill > 50
    assert sum(result.paid for result in results) == pytest.approx(float(server.bill), abs=1e-9)
    assert sum(result.cost or 0 for result in results) == pytest.approx(float(server.bill), abs=1e-9)
    assert add_up(results) == server.tokens


def test_recorded_answers_have_a_cost_but_are_not_paid_again(server: Bookkeeper, tmp_path: Path) -> None:
    suite = write_project(tmp_path, cases=2)
    recorded = run_suites(suite, mode=RECORD, jobs=1)
    calls = len(server.requests)
    replayed = run_suites(suite)
    assert len(server.requests) == calls
    assert [result.cost for result in replayed] == [result.cost for result in recorded]
    assert [result.paid for result in replayed] == [0, 0]
    assert add_up(replayed) == server.tokens


def test_a_retried_call_and_a_judge_that_cannot_be_read_are_paid_for(server: Bookkeeper, tmp_path: Path) -> None:
    case = "  - {{name: n{number}, inputs: {{name: n{number}}}, expect: {{replay: {{judge: judge.prompty}}}}}}\n"
    server.refused = 2
    [result] = run_suites(write_project(tmp_path, cases=1, case=case), mode=LIVE, jobs=1)
    assert result.status == "error"
    assert "there is no `at_least`" in result.reasons[0]
    assert [model for model, _ in server.calls] == ["gpt-5", "o1"]
    assert result.paid == pytest.approx(float(server.bill), abs=1e-9)


def test_the_cost_of_a_case_includes_its_judge(server: Bookkeeper, tmp_path: Path) -> None:
    case = (
        "  - {{name: n{number}, inputs: {{name: n{number}}}, "
        "expect: {{replay: {{judge: judge.prompty, at_least: 3, cost: {{max: 1}}}}}}}}\n"
    )
    [result] = run_suites(write_project(tmp_path, cases=1, case=case), mode=LIVE, jobs=1)
    assert server.calls[0][1] < 1 < server.bill
    assert result.status == "failed"
    assert result.reasons[-1].startswith("replay: expected cost of at most 1")


@pytest.mark.parametrize("jobs", [1, 2, 8])
def test_a_budget_is_exceeded_by_at_most_one_call_for_each_job(server: Bookkeeper, tmp_path: Path, jobs: int) -> None:
    limit = Decimal(20)
    suite = write_project(tmp_path)
    runner = Runner(RunnerOptions(mode=LIVE, jobs=jobs, max_cost=limit, ledger=tmp_path / "ledger"))
    results = runner.run(list(plan_trials([suite])))
    largest = max(price for _, price in server.calls)
    assert limit <= server.bill < limit + jobs * largest
    assert len(server.calls) < 80
    paid = sum(result.paid for result in results)
    assert paid == pytest.approx(float(server.bill), abs=1e-9)
    assert "the budget of --max-cost is spent" in json.dumps([result.reasons for result in results])


def test_a_higher_budget_continues_without_paying_again(server: Bookkeeper, tmp_path: Path) -> None:
    trials = list(plan_trials([write_project(tmp_path)]))
    for limit in (20, 1000):
        runner = Runner(RunnerOptions(mode=LIVE, jobs=2, max_cost=Decimal(limit), ledger=tmp_path / "ledger"))
        results = runner.run(trials)
    assert len(server.calls) == 80
    assert [result.status for result in results] == ["passed"] * 20
    assert sum(result.paid for result in results) == pytest.approx(float(server.bill), abs=1e-9)


def test_a_budget_needs_the_price_of_the_judge(server: Bookkeeper, tmp_path: Path) -> None:
    suite = write_project(tmp_path, cases=1)
    judge = tmp_path / "judge.prompty"
    judge.write_text(judge.read_text().replace("o1", "no-such-model"))
    runner = Runner(RunnerOptions(mode=LIVE, jobs=1, max_cost=Decimal(1)))
    with pytest.raises(RequestError, match=r"'no-such-model' is unknown\n.*or omit --max-cost"):
        runner.run(list(plan_trials([suite])))
    assert server.requests == []
