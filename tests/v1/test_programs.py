"""Programs that were written for Prompty v1: each line works with a warning, or says what to write."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import prompty
import prompty.core
from prompty.errors import PromptyWarning
from prompty.testing import Script
from scripts.pages import DOCS, read_blocks

FILE = """---
name: basic
model:
  api: chat
  configuration: {type: openai, name: gpt-4o-mini}
  parameters: {max_tokens: 50}
inputs:
  question: {type: string}
---
system:
You are helpful.
user:
{{question}}
"""
[PROGRAM] = [block.text for block in read_blocks(DOCS / "how-to/migrate-from-v1.md") if block.title == "program.py"]
# The program of the how-to page, and three in the style of public tutorials.
PROGRAMS = {
    "the how-to page": PROGRAM,
    "an article about products": """
        import json
        import prompty
        import prompty.openai
        from prompty.tracer import trace

        @trace
        def get_response(question, products):
            result = prompty.execute(
                "basic.prompty",
                inputs={"question": question + json.dumps(products)},
                parameters={"max_tokens": 20, "temperature": 0.5},
            )
            return {"question": question, "answer": result}

        print(get_response("Which tent?", [{"name": "Alpine"}])["answer"])
    """,
    "load, prepare and run": """
        import prompty
        import prompty.serverless

        agent = prompty.load("basic.prompty")
        messages = prompty.prepare(agent, {"question": "Why?"})
        print(prompty.run(agent, messages))
    """,
    "asynchronous": """
        import asyncio
        import prompty
        import prompty.azure_beta
        from prompty.core import PromptyStream

        async def main():
            assert PromptyStream is prompty.PromptyStream
            print(await prompty.execute_async("basic.prompty", inputs={"question": "Why?"}))

        asyncio.run(main())
    """,
}
HARNESS = "from prompty.testing import Script\nwith Script('forty-two'):\n    import program\n"


@pytest.mark.process
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_v1_runs(name: str, tmp_path: Path) -> None:
    for file in ("answer.prompty", "basic.prompty"):
        (tmp_path / file).write_text(FILE)
    (tmp_path / "program.py").write_text(dedent(PROGRAMS[name]))
    (tmp_path / "harness.py").write_text(HARNESS)
    done = subprocess.run([sys.executable, "harness.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("forty-two\n", 0), done.stderr
    if name == "the how-to page":
        assert "[prompty] ▶ answer" in done.stderr
        assert list((tmp_path / "runs").glob("*.tracy"))


def test_execute_maps_the_parameters_of_v1(tmp_path: Path) -> None:
    (tmp_path / "basic.prompty").write_text(FILE)
    with pytest.warns(PromptyWarning, match="v1 file"):
        agent = prompty.load(tmp_path / "basic.prompty")
    with Script("yes") as script, pytest.warns(DeprecationWarning, match=r"Write prompty\.invoke\("):
        result = prompty.execute(  # type: ignore[attr-defined]  # type checkers do not see v1's names
            agent, inputs={"question": "Why?"}, parameters={"max_tokens": 7, "logprobs": True}
        )
    assert result == "yes"
    assert (script.requests[0]["max_completion_tokens"], script.requests[0]["logprobs"]) == (7, True)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"configuration": {"api_key": "x"}}, "Write a connection in the file"),
        ({"config_name": "other"}, "kind `reference`"),
        ({"raw": True}, r"details=True"),
    ],
)
def test_what_execute_cannot_do_says_what_to_write(arguments: dict[str, object], advice: str) -> None:
    with pytest.raises(TypeError, match=advice):
        prompty.execute(prompty.loads("user:\nHi"), **arguments)  # type: ignore[attr-defined]  # as above
    with pytest.raises(TypeError, match=advice):
        asyncio.run(prompty.execute_async(prompty.loads("user:\nHi"), **arguments))  # type: ignore[attr-defined]  # as above


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("headless", r"prompty.loads\("),
        ("Prompty", "prompty.PromptAgent"),
        ("InputError", "from prompty.errors import InputError"),
        ("Script", "from prompty.testing import Script"),
        ("register_executor", "from prompty.providers import register_executor"),
        ("batchh", "Did you mean 'batch'"),
    ],
)
def test_a_name_that_is_elsewhere_says_where(name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'prompty' has no attribute '{name}'. .*{advice}"):
        getattr(prompty, name)


@pytest.mark.parametrize("name", ["Prompty", "InvokerFactory", "SimpleModel"])
def test_a_type_of_v1_s_core_says_what_to_write(name: str) -> None:
    with pytest.raises(ImportError, match=rf"'{name}' is gone\. \w"):
        getattr(prompty.core, name)


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
