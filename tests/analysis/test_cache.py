"""`prompty.analysis.cache`: what a provider can cache, and when it pays to move lines."""

from decimal import Decimal
from pathlib import Path

import pytest

import prompty
from prompty import check
from prompty.analysis.cache import CacheReport, find_move, report_cache
from prompty.model.agent import Model
from tests.v1.corpus import ENDPOINTS, ROOT, VARIABLES, get_broken, list_files, load_quietly, name_of

RULES = "\n".join(f"Rule {number}: answer the question in a friendly and precise way." for number in range(100))
HEADER = "---\nmodel: gpt-5.6\ninputs: {x: {kind: string}, y: {kind: string}}\n---\n"


def write(folder: Path, body: str, header: str = HEADER) -> Path:
    file = folder / "rules.prompty"
    file.write_text(header + body, encoding="utf-8")
    return file


def report(body: str, header: str = HEADER) -> CacheReport:
    found = report_cache(prompty.loads(header + body))
    assert found is not None
    return found


def test_a_long_prefix_is_cached_and_saves_money() -> None:
    found = report(f"system:\n{RULES}\nuser:\n{{{{ x }}}}")
    assert found.is_cached
    assert found.prefix_tokens == found.static_tokens > 1_024
    # 999 reads at a tenth of $4 for a million tokens, and one write at 1.25 times the price
    tokens = Decimal(found.prefix_tokens)
    assert found.saves == tokens * 4 / 1_000_000 * (999 * Decimal("0.9") - Decimal("0.25"))


def test_a_short_prefix_saves_nothing() -> None:
    found = report(f"system:\nFor {{{{ x }}}}:\n{RULES}")
    assert not found.is_cached
    assert found.saves is None
    assert found.prefix_tokens < 5 < 1_024 < found.static_tokens


def test_nothing_is_known_of_an_unknown_model() -> None:
    found = report(f"system:\n{RULES}", "---\nmodel: my-model\n---\n")
    assert (found.minimum, found.saves, found.is_cached) == (None, None, False)


def test_the_lines_that_would_have_to_move_are_named(tmp_path: Path) -> None:
    file = write(tmp_path, f"system:\nThe user is {{{{ x }}}}.\n{{{{ y }}}}\n\n{RULES}\nuser:\n{{{{ y }}}}")
    [problem] = [one for one in check(file, cache=True) if one.code == "early-input"]
    assert (problem.line, problem.severity) == (6, "warning")
    assert "`x` is before " in problem.message
    assert "moving lines 6–7 below that text saves up to $" in problem.fix
    assert "This changes the prompt" in problem.fix


def test_lines_are_counted_in_the_file_that_has_them(tmp_path: Path) -> None:
    (tmp_path / "_user.md").write_text("one\n{{ x }}", encoding="utf-8")
    file = write(tmp_path, f'system:\n{{% include "_user.md" %}}\n{RULES}\nuser:\n{{{{ y }}}}')
    [problem] = [one for one in check(file, cache=True) if one.code == "early-input"]
    assert (Path(problem.path).name, problem.line) == ("_user.md", 2)


QUIET = {
    "the prefix is long enough": f"system:\n{RULES}\nuser:\n{{{{ x }}}}",
    "all static text together is too short": "system:\nFor {{ x }}:\nBe nice.\nuser:\n{{ y }}",
    "nothing varies": f"system:\n{RULES}",
    "the static text is inside a loop": "system:\n{% for i in x %}\n" + RULES + "{% endfor %}",
    "the template is wrong": f"system:\n{{{{ x\n{RULES}",
}


@pytest.mark.parametrize("body", QUIET.values(), ids=QUIET)
def test_no_warning_if_moving_gains_nothing(body: str, tmp_path: Path) -> None:
    assert "early-input" not in [problem.code for problem in check(write(tmp_path, body), cache=True)]


def test_no_warning_without_the_option_or_the_minimum(tmp_path: Path) -> None:
    file = write(tmp_path, f"system:\n{{{{ x }}}}\n{RULES}")
    assert "early-input" in [problem.code for problem in check(file, cache=True)]
    assert "early-input" not in [problem.code for problem in check(file)]
    write(tmp_path, f"system:\n{{{{ x }}}}\n{RULES}", HEADER.replace("gpt-5.6", "my-model"))
    assert "early-input" not in [problem.code for problem in check(file, cache=True)]


@pytest.mark.slow
@pytest.mark.skipif(not ROOT.exists(), reason="the public files are not here")
def test_seven_public_files_are_worth_moving(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**VARIABLES, **dict.fromkeys(ENDPOINTS, "https://example.openai.azure.com")}.items():
        monkeypatch.setenv(name, value)
    worth = set()
    for file in list_files():
        if get_broken(file) is None:
            agent = load_quietly(file).model_copy(update={"model": Model(id="gpt-5.6")})
            found = report_cache(agent)
            if found and find_move(agent, found):
                worth.add(name_of(file).split("/")[-1].removesuffix(".prompty"))
    assert worth == {
        "groundedness_without_query",
        "intent_resolution",
        "relevance",
        "task_adherence",
        "task_completion",
        "tool_call_success",
        "tool_output_utilization",
    }
