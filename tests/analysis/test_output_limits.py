"""`check` warns of a limit that leaves a model that reasons no room for its answer."""

import pytest

from prompty.analysis.check import check_text


def list_codes(model: str, options: str) -> list[str]:
    text = f"---\nname: a\nmodel: {{{model}, options: {{maxOutputTokens: 500{options}}}}}\n---\nuser:\nHello\n"
    return [problem.code for problem in check_text(text, env={})]


CLAUDE = "provider: anthropic, id: claude-haiku-5-5"


@pytest.mark.parametrize("model", ["id: gpt-6-luna", CLAUDE])
def test_a_small_limit_is_a_problem_of_a_model_that_reasons(model: str) -> None:
    assert list_codes(model, "") == ["small-output"]
    assert list_codes(model, ", reasoningEffort: low") == ["small-output"]


@pytest.mark.parametrize("model", ["id: gpt-6-luna", CLAUDE])
def test_a_small_limit_is_fine_without_reasoning(model: str) -> None:
    assert list_codes(model, ", reasoningEffort: none") == []


def test_a_small_limit_is_fine_if_thinking_is_off_by_the_name_of_the_request() -> None:
    assert list_codes(CLAUDE, ", additionalProperties: {thinking: {type: disabled}}") == []
