"""`prompty batch --estimate`: tokens and prices before anything is run, with the providers' counts over HTTP."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from prompty import PromptAgent, Usage, load, prepare
from prompty.batches.estimate import COUNTED_ROWS, BatchEstimate, estimate_batch, extrapolate
from prompty.batches.rows import count_rows, get_input_kinds, read_rows, select_rows
from prompty.certificates import load_certificates
from prompty.cli.app import app
from prompty.model.message import Reply
from prompty.pipeline.request import build_request
from prompty.pricing import get_pricer
from prompty.providers.fitting import fit_request
from prompty.providers.token_counts import find_count_endpoint
from tests.drivers.clients import close_clients
from tests.internet import Arrival, Internet, Response

ROWS = 600
MODELS = {
    "chat": "{id: gpt-4.1-mini, provider: openai, apiType: chat}",
    "responses": "{id: gpt-5.6, provider: openai, apiType: responses}",
    "anthropic": "{id: claude-sonnet-5, provider: anthropic}",
}
RULES = "Answer politely, and cite the section of the handbook that your answer relies on. " * 120
TEXT = "we received your order but it was damaged in transit please send another because Gewährleistung été naïve"
WORDS = TEXT.split()


class Counts:
    """The providers, which count pieces of up to five letters, and what they were asked."""

    def __init__(self, internet: Internet, monkeypatch: pytest.MonkeyPatch) -> None:
        self.internet, self.monkeypatch = internet, monkeypatch

    @property
    def paths(self) -> list[str]:
        return [arrival.path for arrival in self.internet.arrivals]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(arrival.body) for arrival in self.internet.arrivals]


def count(body: object) -> int:
    """Count the tokens of a body as this test's providers do: unlike `estimate_tokens`, and four for each object."""
    match body:
        case str():
            return len(re.findall(r"\w{1,5}|[^\w\s]", body))
        case dict():
            return 4 + sum(map(count, body.values()))
        case list():
            return sum(map(count, body))
    return 0


@contextmanager
def providers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Arrival], Response] | None = None
) -> Iterator[Counts]:
    def count_tokens(arrival: Arrival) -> Response:
        tokens = count(json.loads(arrival.body))
        return Response(200, {"Content-Type": "application/json"}, json.dumps({"input_tokens": tokens}).encode())

    with Internet(folder, ("api.openai.com", "api.anthropic.com"), answer or count_tokens) as internet:
        internet.use(monkeypatch.setenv)
        monkeypatch.setenv("NO_PROXY", "")
        for name in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{name}_API_KEY", "sk-of-a-test")
            monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
        load_certificates.cache_clear()
        try:
            yield Counts(internet, monkeypatch)
        finally:
            close_clients()
            load_certificates.cache_clear()


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    with providers(tmp_path, monkeypatch) as found:
        yield found


def write(folder: Path, body: str, inputs: Iterable[Mapping[str, object]], api: str = "chat") -> Path:
    prompt = folder / "ask.prompty"
    names = "{q: {kind: string}, items: {kind: array}, note: {kind: string}}"
    prompt.write_text(f"---\nmodel: {MODELS[api]}\ninputs: {names}\n---\n{body}\n")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in inputs))
    return prompt


def say(random: Random, words: int) -> str:
    return " ".join(random.choices(WORDS, k=words))


def questions() -> Iterator[dict[str, object]]:
    random = Random(7)  # noqa: S311  not for secrets
    return ({"q": say(random, random.randint(3, 60))} for _ in range(ROWS))


def lists() -> Iterator[dict[str, object]]:
    random = Random(8)  # noqa: S311  not for secrets
    return ({"items": [say(random, 9) for _ in range(random.randint(0, 30))]} for _ in range(ROWS))


def notes() -> Iterator[dict[str, object]]:
    random = Random(9)  # noqa: S311  not for secrets
    for number in range(ROWS):
        yield {"q": say(random, 12), **({"note": say(random, 300)} if number % 7 == 0 else {})}


def letters() -> Iterator[dict[str, object]]:
    random = Random(10)  # noqa: S311  not for secrets
    return ({"q": say(random, min(int(random.lognormvariate(4, 1.2)), 5_000) + 1)} for _ in range(ROWS))


def records() -> Iterator[dict[str, object]]:
    random = Random(11)  # noqa: S311  not for secrets
    for number in range(ROWS):
        order = {"id": f"ord-{number:06}", "total": random.randint(1, 10**6), "lines": random.randint(1, 40)}
        yield {"q": json.dumps([order] * random.randint(1, 12), indent=2)}


FILES: dict[str, tuple[str, Callable[[], Iterator[dict[str, object]]]]] = {
    "short questions": ("user:\nTranslate: {{q}}", questions),
    "long instructions": (f"system:\n{RULES}\nuser:\n{{{{q}}}}", questions),
    "a loop": ("user:\nSort these:\n{% for item in items %}- {{item}}\n{% endfor %}", lists),
    "a condition": (f"user:\n{{{{q}}}}\n{{% if note %}}{RULES}\nNote: {{{{note}}}}{{% endif %}}", notes),
    "letters of any length": ("system:\nSummarize the letter.\nuser:\n{{q}}", letters),
    "records": ("system:\nFind the dearest order.\nuser:\n{{q}}", records),
}


def estimate(prompt: Path, *recorded: Path, shard: Any = None, connect: bool = True) -> BatchEstimate:
    rows = prompt.with_name("rows.jsonl")
    numbers = select_rows(count_rows(rows), shard=shard)
    return estimate_batch(load(prompt), rows, numbers, recorded, connect=connect)


def count_all(prompt: Path, counter: Callable[[object], int] = count) -> int:
    """Count every row as the provider would."""
    agent = load(prompt)
    endpoint = find_count_endpoint(agent)
    assert endpoint is not None
    total = 0
    for row in read_rows(prompt.with_name("rows.jsonl"), get_input_kinds(agent)):
        body = build_request(agent, prepare(agent, row.inputs), fit_request(agent, endpoint.api)).body
        total += counter({name: value for name, value in body.items() if name in endpoint.fields})
    return total


@pytest.mark.parametrize("name", FILES)
def test_the_tokens_of_all_rows_are_known_from_200_within_5_percent(name: str, counts: Counts, tmp_path: Path) -> None:
    body, make_rows = FILES[name]
    prompt = write(tmp_path, body, make_rows())
    found = estimate(prompt)
    exact = count_all(prompt)
    assert found.mean_input * found.rows == pytest.approx(exact, rel=0.05)
    low, high = found.input
    assert high is not None
    assert low * ROWS <= exact <= high * ROWS
    assert (found.source, found.counted, len(counts.paths)) == ("counted by OpenAI", COUNTED_ROWS, COUNTED_ROWS)


@pytest.mark.parametrize(
    ("api", "path", "fields"),
    [
        ("chat", "/v1/responses/input_tokens", {"model", "input", "instructions"}),
        ("responses", "/v1/responses/input_tokens", {"model", "input", "instructions"}),
        ("anthropic", "/v1/messages/count_tokens", {"model", "messages", "system"}),
    ],
)
def test_each_provider_counts_what_its_endpoint_takes(
    api: str, path: str, fields: set[str], counts: Counts, tmp_path: Path
) -> None:
    rows = [{"q": "one"}, {"q": "two"}]
    prompt = write(tmp_path, "system:\nBe brief.\nuser:\n{{q}}", rows, api)
    found = estimate(prompt)
    assert {path.partition(":443")[2] or path for path in counts.paths} == {path}
    assert all(set(body) == fields for body in counts.bodies)
    assert found.mean_input * 2 == found.input.low * 2 == found.input.high * 2 == count_all(prompt)  # type: ignore[operator]  # no row is left uncounted


def test_without_a_key_tokens_are_estimated_and_the_error_is_stated(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    prompt = write(tmp_path, "user:\n{{q}}", [{"q": "Where is my parcel?"}] * 3)
    found = estimate(prompt)
    assert (counts.paths, found.source) == ([], "estimated from characters, within 30%")
    assert found.notes == ["OpenAI did not count the tokens: there is no key for OpenAI"]
    assert found.input == pytest.approx((found.mean_input / 1.3, found.mean_input / 0.7))
    write(tmp_path, "user:\n{{q}}", [{"q": "Where is my parcel?"}, {"q": "पार्सल कहाँ है?"}])
    found = estimate(prompt)
    assert "within a factor of 3" in found.source
    assert found.input == pytest.approx((found.mean_input / 3, found.mean_input * 3))


@pytest.mark.parametrize(
    ("status", "content", "cause"),
    [
        (404, b'{"error": {"message": "Unknown path"}}', "Unknown path"),
        (401, b'{"error": {"message": "Bad key"}}', "Bad key"),
        (200, b'{"object": "response.input_tokens"}', "has no count"),
        (200, b'{"input_tokens": "many"}', "has no count"),
    ],
)
def test_a_provider_that_does_not_count_is_asked_once(
    status: int, content: bytes, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = write(tmp_path, "user:\n{{q}}", questions())
    refused = Response(status, {"Content-Type": "application/json"}, content)
    with providers(tmp_path, monkeypatch, lambda _: refused) as counts:
        found = estimate(prompt)
    assert len(counts.paths) == 1
    assert cause in found.notes[0]
    assert found.source.startswith("estimated from characters")


def test_a_count_is_asked_for_again_if_the_provider_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.providers.token_counts._WAITS", (0.01, 0.01))
    prompt = write(tmp_path, "user:\n{{q}}", [{"q": "one"}])
    answers = iter([429, 503, 200])
    content = {"Content-Type": "application/json"}
    with providers(tmp_path, monkeypatch, lambda _: Response(next(answers), content, b'{"input_tokens": 7}')) as counts:
        assert estimate(prompt).mean_input == 7
    assert len(counts.paths) == 3


def test_prices_are_those_of_the_list_for_each_way(counts: Counts, tmp_path: Path) -> None:
    prompt = write(tmp_path, f"system:\n{RULES}\nuser:\n{{{{q}}}}", [{"q": "one"}] * 100, "responses")
    prompt.write_text(prompt.read_text().replace("apiType: responses", "options: {maxOutputTokens: 50}"))
    found = estimate(prompt)
    live, batch = (found.prices[name] for name in ("live", "batch"))
    assert live.low is not None
    assert live.high is not None
    price = get_pricer(load(prompt), required=True)
    low, high = (price(Reply(usage=Usage(input_tokens=round(found.mean_input), output_tokens=n))) for n in (0, 50))
    assert low is not None
    assert high is not None
    assert (live.low, live.high) == (low * 100, high * 100)
    assert (batch.low, batch.high) == (live.low / 2, live.high / 2)


def test_an_unknown_price_is_unknown_and_not_0(counts: Counts, tmp_path: Path) -> None:
    prompt = write(tmp_path, "user:\n{{q}}", [{"q": "one"}])
    prompt.write_text(prompt.read_text().replace("gpt-4.1-mini", "house-model-1"))
    found = estimate(prompt)
    assert found.prices == dict.fromkeys(found.prices, (None, None))
    said = CliRunner().invoke(app, ["batch", str(prompt), str(tmp_path / "rows.jsonl"), "--estimate"])
    assert said.output.count("unknown") >= 4
    assert "$" not in said.output


def test_output_is_as_in_finished_rows_and_they_are_not_estimated_again(counts: Counts, tmp_path: Path) -> None:
    prompt, out = write(tmp_path, "user:\n{{q}}", questions()), tmp_path / "out.jsonl"
    prompt.write_text(prompt.read_text().replace("gpt-4.1-mini", "gpt-5.2"))  # whose limit is not known
    assert estimate(prompt, out).output_source == "without a limit, because the file has no maxOutputTokens"
    assert estimate(prompt, out).prices["live"].high is None
    done = _finish(load(prompt), tmp_path / "rows.jsonl", 40)
    out.write_text("".join(json.dumps(record) + "\n" for record in done) + '{"id": "cut in the mid')
    found = estimate(prompt, out)
    assert estimate(prompt, out) == found  # with the same sample
    assert (found.rows, found.output_source) == (ROWS - 40, "as in 40 finished rows")
    low, high = found.output
    assert high is not None
    assert 95 < low < 100 < high < 105


def _finish(agent: PromptAgent, rows: Path, count: int) -> Iterator[dict[str, object]]:
    from prompty.batches.row_index import hash_prompt, hash_row  # only this test pretends to be a batch

    for row in list(read_rows(rows, get_input_kinds(agent)))[:count]:
        usage = {"output_tokens": 90 + 20 * (row.number % 2)}
        yield {"id": hash_row(hash_prompt(agent), row.inputs), "row": row.number, "result": "", "usage": usage}


def test_rows_that_cannot_be_rendered_cost_nothing(counts: Counts, tmp_path: Path) -> None:
    prompt = write(tmp_path, "user:\n{{q}}", [{"q": "one"}] * 6)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"q": 5}\nnot JSON\n')
    found = estimate(prompt)
    assert (found.rows, found.failing, len(counts.paths)) == (6, 2, 6)


def test_the_command_shows_the_table_and_runs_nothing(counts: Counts, tmp_path: Path) -> None:
    prompt = write(tmp_path, "user:\n{{q}}", questions())
    rows = str(tmp_path / "rows.jsonl")
    before = sorted(tmp_path.iterdir())
    said = CliRunner().invoke(
        app, ["batch", str(prompt), rows, "--estimate", "--connect", "--shard", "1/2"], env={"COLUMNS": "200"}
    )
    assert said.exit_code == 0, said.output
    assert said.output.startswith(f"{ROWS // 2} rows\ninput ")
    assert "200 rows counted by OpenAI" in said.output
    assert re.search(r"^live +\$[\d.]+ +\$[\d.]+", said.output, re.MULTILINE)
    assert re.search(r"^provider batch +\$[\d.]+ +\$[\d.]+", said.output, re.MULTILINE)
    assert {path.rpartition("/")[2] for path in counts.paths} == {"input_tokens"}
    assert sorted(tmp_path.iterdir()) == before
    data = json.loads(CliRunner().invoke(app, ["batch", str(prompt), rows, "--estimate", "--connect", "--json"]).output)
    assert (data["rows"], data["counted"], data["prices"].keys()) == (ROWS, COUNTED_ROWS, {"live", "batch"})
    assert data["input_tokens"]["low"] <= data["input_tokens"]["estimate"] <= data["input_tokens"]["high"]


def test_the_provider_is_asked_to_count_only_with_connect(counts: Counts, tmp_path: Path) -> None:
    prompt = write(tmp_path, "user:\n{{q}}", [{"q": "Where is my parcel?"}] * 3)
    words = ["batch", str(prompt), str(tmp_path / "rows.jsonl"), "--estimate"]
    said = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert (said.exit_code, counts.paths) == (0, [])
    assert "3 rows estimated from characters" in said.output
    assert "OpenAI is not asked to count the tokens. To ask it, add --connect." in said.output
    assert estimate(prompt, connect=False).source == "estimated from characters, within 30%"
    assert not counts.paths
    CliRunner().invoke(app, [*words, "--connect"])
    assert len(counts.paths) == 3
    said = CliRunner().invoke(app, [*words[:-1], "-o", str(tmp_path / "out.jsonl"), "--connect"])
    assert (said.exit_code, "Add --estimate, or remove it." in said.output) == (1, True)


def test_a_batch_without_an_output_is_refused(tmp_path: Path) -> None:
    prompt = write(tmp_path, "user:\n{{q}}", [{"q": "one"}])
    said = CliRunner().invoke(app, ["batch", str(prompt), str(tmp_path / "rows.jsonl")])
    assert (said.exit_code, "--output" in said.output) == (2, True)


def test_the_tokens_of_a_character_in_the_counted_rows_give_the_others() -> None:
    lengths = [100 * number for number in range(1, 11)]
    mean, spread = extrapolate(lengths, [length / 4 for length in lengths], [*lengths, 5_000, 6_000], 12)
    assert mean == pytest.approx(sum([*lengths, 5_000, 6_000]) / 12 / 4)
    assert spread == pytest.approx(0, abs=1e-6)
    assert extrapolate([5, 5], [3, 5], [5, 5], 2) == (4, 0)
    assert extrapolate([9], [4], [9], 1) == (4, 0)
    assert extrapolate([0], [0], [0], 1) == (0, 0)
    _, spread = extrapolate(lengths, [7.0, 40.0] * 5, lengths, 10_000)
    assert spread > 5
