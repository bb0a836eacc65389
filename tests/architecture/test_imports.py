"""What importing costs and brings, and which names are public."""

import subprocess
import sys

import pytest

import prompty

HEAVY = [
    "pydantic",
    "jinja2",
    "yaml",
    "typer",
    "rich",
    "openai",
    "anthropic",
    "mcp",
    "opentelemetry",
    "asyncio",
    "dotenv",
    "dbos",
    "sqlalchemy",
]


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603  our own code
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.process
def test_importing_prompty_imports_nothing_heavy() -> None:
    assert not modules_after("import prompty") & set(HEAVY)


@pytest.mark.process
def test_preparing_a_prompt_needs_no_sdk_and_no_command_line() -> None:
    loaded = modules_after("import prompty; prompty.prepare(prompty.loads('user:\\n{{ x }}'), {'x': 1})")
    assert not loaded & {"typer", "rich", "openai", "anthropic", "mcp", "opentelemetry", "dotenv"}


@pytest.mark.process
def test_mustache_does_not_need_jinja() -> None:
    loaded = modules_after("import prompty; prompty.prepare(prompty.loads('---\\ntemplate: mustache\\n---\\n{{x}}'))")
    assert "jinja2" not in loaded


def test_the_public_names_are_sorted_and_each_has_its_module() -> None:
    assert prompty.__all__ == sorted(prompty.__all__)
    assert {*prompty._MODULE_OF, "__version__"} == set(prompty.__all__)


@pytest.mark.parametrize("name", prompty.__all__)
def test_a_public_name_leads_to_something(name: str) -> None:
    assert getattr(prompty, name) is not None
    assert getattr(prompty, name) is getattr(prompty, name)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        prompty.nope  # type: ignore[attr-defined]  # noqa: B018  that it is refused is the point
