"""Which facts apply to which model: by host, by pattern, by exact id, and over all of it what the user says."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st
from pydantic import ValidationError

from prompty import PromptAgent, loads, providers
from prompty.errors import RequestError
from prompty.providers import PROVIDERS, facts
from prompty.providers.facts import VALUES, find_facts, read_package_facts
from prompty.registry import DEFAULT
from scripts import write_model_facts
from scripts.write_model_facts import FILE

DATA = write_model_facts.load()


@pytest.fixture(autouse=True)
def _own_facts() -> Iterator[None]:
    """Forget what a test has registered or set."""
    yield
    facts._registered.clear()
    facts._find.cache_clear()


def known(agent: PromptAgent, provider: str | None = None) -> dict[str, object]:
    found = DEFAULT[PROVIDERS].get(provider or agent.model.provider).api_for(agent).facts
    return dict(found.known) if found else {}


def load_model(model: str, metadata: str = "") -> PromptAgent:
    return loads(f"---\nmodel: {model}\n{metadata}\n---\nuser:\nHi")


def test_the_facts_are_complete_and_sourced() -> None:
    assert write_model_facts.check(FILE) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("'^gpt-6-luna$'", "'gpt-6-luna'", "match"),
        ("confidence: official", "confidence: sure", "confidence"),
        ("checked: 2026", "checkd: 2026", "checkd"),
    ],
)
def test_a_row_of_another_shape_is_reported(old: str, new: str, problem: str, tmp_path: Path) -> None:
    text = FILE.read_text(encoding="utf-8")
    assert old in text
    (broken := tmp_path / "models.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValidationError, match=problem):
        write_model_facts.check(broken)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"source": ["nowhere"]}, "no source nowhere"),
        ({"date": DATA["checked"]}, "date is not that of its first source"),
        ({"value": "sometimes"}, "value 'sometimes' is not allowed"),
        ({"value": "unknown"}, "value and confidence must both be unknown, or neither"),
    ],
)
def test_a_fact_that_its_source_does_not_carry_is_reported(
    changed: dict[str, object], problem: str, tmp_path: Path
) -> None:
    data = write_model_facts.load()
    next(row for row in data["models"] if "temperature" in row["facts"])["facts"]["temperature"] |= changed
    (broken := tmp_path / "models.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    assert [found for found in write_model_facts.check(broken) if found.endswith(f".temperature: {problem}")]


def test_the_file_of_the_package_is_made_from_them() -> None:
    assert write_model_facts.TARGET.read_text(encoding="utf-8") == write_model_facts.write()


def test_a_fact_that_is_unsure_or_old_changes_no_request() -> None:
    rows = {(row["host"], row.get("match") or tuple(row["ids"])): row for row in read_package_facts()["rows"]}
    oldest = DATA["checked"] - timedelta(days=366)
    for row in DATA["models"]:
        written = rows.get((row["host"], row.get("match") or tuple(row.get("ids", ()))), {}).get("facts", {})
        for name in written:
            assert row["facts"][name]["confidence"] in ("official", "measured")
            assert row["facts"][name]["date"] > oldest


@pytest.mark.parametrize("row", DATA["models"], ids=lambda row: f"{row['host']}:{row['examples'][0]}")
def test_each_row_is_found_by_its_examples(row: dict[str, object]) -> None:
    exact = {id for other in DATA["models"] if other["host"] == row["host"] for id in other.get("ids", ())}
    for example in row["examples"]:  # type: ignore[attr-defined]  # a list of ids
        found = find_facts(str(row["host"]), example)
        values = {**found.known, **found.hints} if found else {}
        for name, fact in row["facts"].items() if "ids" in row or example not in exact else ():  # type: ignore[attr-defined]  # a mapping
            if name in VALUES:
                assert values[name] == (fact["value"].isoformat() if name == "ends" else fact["value"])


@pytest.mark.parametrize(
    ("host", "id", "same"),
    [
        ("openai", "gpt-6-luna-2026-09-22", "gpt-6-luna"),
        ("openai", "GPT-6-Luna", "gpt-6-luna"),
        ("openai", "ft:gpt-4o-mini:acme::abc", "gpt-4o-mini"),
        ("anthropic", "claude-haiku-5-5-20261007", "claude-haiku-5-5"),
        ("gemini", "models/gemini-3.8-flash", "gemini-3.8-flash"),
        ("bedrock", "us.openai.gpt-6.1-terra-v1:0", "gpt-6.1-terra"),
    ],
)
def test_an_id_is_found_without_its_wrapping(host: str, id: str, same: str) -> None:
    found, plain = find_facts(host, id), find_facts(host, same)
    assert found
    assert plain
    assert found.known == plain.known


def test_an_exact_id_lies_over_the_pattern_fact_by_fact() -> None:
    dated, plain = find_facts("openai", "gpt-4o-2024-05-13"), find_facts("openai", "gpt-4o")
    assert dated
    assert plain
    assert dated.known["ends"] == "2026-10-23"
    assert plain.known["ends"] == "2027-01-14"
    assert dated.known["temperature"] == plain.known["temperature"] == "ok"


@pytest.mark.parametrize("id", ["gpt-6.2-x", "gpt-6-luna-preview", "my-gpt-6-luna", "house-model", ""])
def test_a_model_without_a_row_has_no_facts(id: str) -> None:
    assert find_facts("openai", id) is None


@given(st.text(max_size=40), st.sampled_from([*{row["host"] for row in DATA["models"]}, "compatible"]))
def test_any_text_can_be_an_id(id: str, host: str) -> None:
    found = find_facts(host, id)
    assert found is None or found.id == id


@pytest.mark.parametrize(
    "model",
    [
        "{id: gpt-6-luna, connection: {kind: key, endpoint: 'http://localhost:9/v1', apiKey: k}}",
        "{id: gpt-6-luna, connection: {kind: key, endpoint: 'https://gateway.example/v1', apiKey: k}}",
        "{id: gpt-6-luna, provider: azure, connection: {kind: key, endpoint: 'https://r.openai.azure.com', apiKey: k}}",
        "{id: claude-opus-5-5, provider: anthropic, connection: {kind: key, endpoint: 'https://g.example', apiKey: k}}",
    ],
)
def test_a_name_says_nothing_at_another_host(model: str) -> None:
    assert known(load_model(model)) == {}


def test_the_environment_decides_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert known(load_model("gpt-6-luna"))
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1")
    assert known(load_model("gpt-6-luna")) == {}


def test_acts_as_selects_the_row_of_a_deployment_and_of_a_proxy() -> None:
    azure = "{id: d, provider: azure, connection: {kind: key, endpoint: 'https://r.openai.azure.com', apiKey: k}}"
    deployed = load_model(azure, "metadata: {actsAs: 'azure:gpt-5.6-luna'}")
    assert known(deployed)["temperature"] == "effort-none-only"
    assert known(load_model(azure, "metadata: {actsAs: 'openai:gpt-6-luna'}")) == {}
    proxy = "{id: d, connection: {kind: key, endpoint: 'https://gateway.example/v1', apiKey: k}}"
    behind = load_model(proxy, "metadata: {actsAs: 'openai:gpt-6-luna'}")
    assert known(behind)["tools_chat_unset"] == "refused"
    api = DEFAULT[PROVIDERS].get("openai").api_for(behind, offers_tools=True)
    assert (api.name, api.chosen) == ("chat", None)  # nothing but the row


def test_facts_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(facts.FACTS_VARIABLE, "off")
    assert known(load_model("gpt-6-luna")) == {}


def test_a_user_can_register_facts_over_ours() -> None:
    agent = load_model("gpt-6-luna")
    assert known(agent)["temperature"] == "effort-none-only"
    providers.register_model_facts("openai", "gpt-6-.*", temperature="ok")
    assert known(agent)["temperature"] == "ok"
    assert known(agent)["tools_chat_unset"] == "refused"
    providers.register_model_facts("compatible", "house-.*", temperature="refused")
    house = "{id: house-1, connection: {kind: key, endpoint: 'https://gateway.example/v1', apiKey: k}}"
    assert known(load_model(house)) == {"temperature": "refused"}


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [
        ({"warmth": "ok"}, "Known facts"),
        ({"temperature": "sometimes"}, "Write one of ok"),
        ({"effort_chat": ["loud"]}, "Write a list of none"),
        ({"ends": "soon"}, "2026-12-31"),
        ({"max_output": "many"}, "int"),
    ],
)
def test_a_fact_that_nobody_reads_is_refused(wrong: dict[str, object], fix: str) -> None:
    with pytest.raises(RequestError, match=fix):
        providers.register_model_facts("openai", "x", **wrong)


def test_a_file_of_the_user_adds_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "facts.yaml"
    rows.write_text("- {host: openai, match: gpt-6-luna, facts: {temperature: ok}}\n", encoding="utf-8")
    monkeypatch.setenv(facts.FACTS_VARIABLE, str(rows))
    assert known(load_model("gpt-6-luna"))["temperature"] == "ok"


@pytest.mark.parametrize("text", ["- {host: openai}", "nonsense: [", "- {host: openai, match: '(', facts: {}}", "7"])
def test_a_broken_file_of_the_user_is_an_error_that_names_it(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rows := tmp_path / "facts.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv(facts.FACTS_VARIABLE, str(rows))
    with pytest.raises(RequestError, match=r"facts\.yaml"):
        known(load_model("gpt-6-luna"))
