"""A model that has ended is a problem, and an editor offers its successor where the file names the model itself."""

from prompty.analysis.check import check_text
from prompty.errors import Problem


def find_end(model: str, metadata: str = "{}") -> Problem:
    text = f"---\nname: a\nmodel: {model}\nmetadata: {metadata}\n---\nuser:\nHello\n"
    [problem] = check_text(text, env={})
    assert (problem.code, problem.severity) == ("model-ends", "error")
    return problem


def test_a_model_that_has_ended_is_replaced_by_its_successor() -> None:
    problem = find_end("gpt-4")
    assert [edit.text for edit in problem.edits] == ["gpt-5.6-sol"]
    assert problem.fix == "Use `gpt-5.6-sol`."


def test_a_tuned_model_is_not_replaced() -> None:
    problem = find_end("ft:gpt-4:acme")
    assert problem.edits == ()
    assert problem.fix == "Tune another model, such as `gpt-5.6-sol`."


def test_the_name_of_a_model_at_a_proxy_is_not_replaced() -> None:
    problem = find_end("house-model", "{actsAs: 'openai:gpt-4'}")
    assert problem.message.startswith("gpt-4 ended on")
    assert problem.edits == ()
