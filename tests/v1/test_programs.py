"""Names that programs for v1, for another runtime or for another module use: the error says what to write."""

import re
from pathlib import Path

import pytest

import prompty


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("execute", r"Call prompty\.invoke\("),
        ("execute_async", r"Call await prompty\.invoke_async\("),
        ("headless", r"prompty\.invoke\(prompty\.loads\("),
        ("run", r"Call prompty\.invoke\(prompt, inputs\)\. prompty\.pipeline\.run\("),
        ("run_async", "from prompty.pipeline import run_async"),
        ("InputError", "from prompty.errors import InputError"),
        ("Script", "from prompty.testing import Script"),
        ("register_executor", "from prompty.providers import register_executor"),
        ("batchh", "Did you mean `batch`"),
    ],
)
def test_a_name_that_is_elsewhere_says_where(name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'prompty' has no attribute '{name}'. .*{advice}"):
        getattr(prompty, name)


def test_a_method_that_agents_have_elsewhere_names_the_function() -> None:
    agent = prompty.loads("user:\nHi")
    with pytest.raises(AttributeError, match=re.escape("Call prompty.turn(agent, inputs)")):
        agent.run  # type: ignore[attr-defined]  # noqa: B018  the mistake under test
    assert not hasattr(agent, "nothing")


def test_another_runtime_s_name_of_allowed_roots_works_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "rules.txt").write_text("Be kind.")
    (tmp_path / "own").mkdir()
    path = tmp_path / "own" / "a.prompty"
    path.write_text("---\nmodel: m\ndescription: ${file:../shared/rules.txt}\n---\nuser:\nHi\n")
    with pytest.warns(DeprecationWarning, match="allowed_roots"):
        agent = prompty.load(path, allowed_file_roots=[tmp_path / "shared"])
    assert agent.description == "Be kind."
