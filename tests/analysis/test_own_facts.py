"""A user's own file of facts takes part in `check`, and one that cannot be used is an error."""

from pathlib import Path

import pytest

from prompty.analysis.check import check_text
from prompty.errors import RequestError

PROMPT = """---
name: a
model: {id: house-model-2, connection: {kind: anonymous, endpoint: 'https://models.example/v1'}, options: {topP: 0.5}}
---
user:
Hello
"""


def test_the_facts_of_a_file_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_text(PROMPT, env={}) == []
    file = tmp_path / "facts.yaml"
    file.write_text("- {host: compatible, match: house-model-.*, facts: {top_p: refused}}\n", encoding="utf-8")
    monkeypatch.setenv("PROMPTY_MODEL_FACTS", str(file))
    [problem] = check_text(PROMPT, env={})
    assert (problem.code, problem.key) == ("option-refused", "model.options.topP")


@pytest.mark.parametrize("text", ["- {host: compatible, match: x, facts: {top_pp: refused}}", "nothing", None])
def test_a_file_that_cannot_be_used_is_named(text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "facts.yaml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("PROMPTY_MODEL_FACTS", str(file))
    with pytest.raises(RequestError):
        check_text(PROMPT, env={})
