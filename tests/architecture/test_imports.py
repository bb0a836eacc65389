"""What importing costs and brings, and which names are public."""

import inspect
import itertools
import pydoc
import re
import rlcompleter
import subprocess
import sys
from importlib import import_module
from typing import Any, get_type_hints

import pytest

import prompty
from prompty import pipeline
from prompty.batches import RowResult
from prompty.loop.options import Settings
from prompty.pipeline import CallOptions, TurnOptions

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
    "temporalio",
]


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603  our own code
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.process
def test_importing_prompty_imports_nothing_heavy() -> None:
    assert not modules_after("import prompty") & set(HEAVY)


@pytest.mark.process
def test_preparing_a_prompt_needs_no_sdk_no_network_and_no_command_line() -> None:
    loaded = modules_after("import prompty; prompty.prepare(prompty.loads('user:\\n{{ x }}'), {'x': 1})")
    assert not loaded & {"typer", "rich", "openai", "anthropic", "mcp", "opentelemetry", "dotenv", "asyncio", "ssl"}


@pytest.mark.process
def test_mustache_does_not_need_jinja() -> None:
    loaded = modules_after("import prompty; prompty.prepare(prompty.loads('---\\ntemplate: mustache\\n---\\n{{x}}'))")
    assert "jinja2" not in loaded


NAMES = dir(prompty)


@pytest.mark.process
def test_the_public_names_are_sorted_and_those_that_dir_and_a_star_import_give() -> None:
    assert sorted(NAMES) == NAMES
    assert len([name for name in NAMES if not name.startswith("__")]) <= 50
    code = "from prompty import *; print(*sorted(name for name in globals() if name[:2] != '__'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  our own code
    assert done.stdout.split() == [name for name in NAMES if not name.startswith("__")]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_leads_to_something(name: str) -> None:
    assert getattr(prompty, name) is not None
    assert getattr(prompty, name) is getattr(prompty, name)


@pytest.mark.parametrize(
    "module",
    [
        "batches",
        "events",
        "errors",
        "messages",
        "viewer",
        "providers",
        "tools",
        "mcp",
        "openapi",
        "memory",
        "durable",
        "tracing",
        "testing",
        "pipeline",
    ],
)
def test_the_other_public_names_are_in_plain_submodules(module: str) -> None:
    imported = import_module(f"prompty.{module}")
    assert all(hasattr(imported, name) for name in getattr(imported, "__all__", ()))


def test_every_option_is_in_the_signature_and_the_help_of_each_function() -> None:
    functions: list[tuple[Any, type]] = [
        (pipeline.run, CallOptions),
        (prompty.invoke_async, CallOptions),
        (prompty.turn, TurnOptions),
        (prompty.resume_async, TurnOptions),
    ]
    for function, options in functions:
        parameters = inspect.signature(function).parameters
        defaults = Settings()
        for name, hint in get_type_hints(options, include_extras=True).items():
            assert parameters[name].default == getattr(defaults, name)
            assert f"{name}: {hint.__metadata__[0].documentation}" in (function.__doc__ or "")


def test_settings_has_every_option_and_no_other() -> None:
    assert set(Settings.__dataclass_fields__) == set(get_type_hints(TurnOptions))


def test_an_option_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    agent = prompty.loads("user:\nHi")
    with pytest.raises(
        TypeError, match=r"turn\(\) got an unexpected option 'max_iteration'\. Did you mean `max_iterations`"
    ):
        prompty.turn(agent, max_iteration=3)  # type: ignore[call-overload]  # that it is refused is the point
    with pytest.raises(TypeError, match="unexpected option 'tools'"):
        prompty.invoke(agent, tools=[])  # type: ignore[call-overload]  # that it is refused is the point


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        prompty.nope  # type: ignore[attr-defined]  # noqa: B018  that it is refused is the point


CONVENIENCES = {
    "invoke": ("model", "options", "details", "stream", "output_type"),
    "invoke_async": ("model", "options", "details"),
    "turn": ("model", "options", "details", "messages"),
    "turn_async": ("model", "options", "details"),
    "resume": ("model", "options", "details"),
    "batch": ("concurrency", "model", "options", "tools"),
    "batch_async": ("concurrency", "output_type"),
    "prepare": ("agent_or_path",),
    "render": ("agent_or_path",),
}


@pytest.mark.parametrize("name", CONVENIENCES)
def test_help_and_completion_find_every_convenience(name: str) -> None:
    function = getattr(prompty, name)
    text = pydoc.plain(pydoc.render_doc(function))
    for parameter in CONVENIENCES[name]:
        assert re.search(rf"\b{parameter}\b", text)
        assert parameter in inspect.signature(function).parameters
    assert f"prompty.{name}(" in _complete(f"prompty.{name[:-1]}")


def _complete(text: str) -> list[str]:
    """Return what a plain Python prompt offers for Tab."""
    completer = rlcompleter.Completer({"prompty": prompty})
    return list(itertools.takewhile(bool, (completer.complete(text, state) or "" for state in range(100))))


def test_a_notebook_completes_functions_and_their_options() -> None:
    jedi: Any = import_module("jedi")  # it completes in IPython; it has no types
    for text, expected in (("prompty.ba", "batch"), ("prompty.inv", "invoke"), ("prompty.invoke(agent, mod", "model=")):
        assert expected in [found.name for found in jedi.Interpreter(text, [{"prompty": prompty}]).complete()]


def test_completion_knows_the_fields_of_a_result_and_of_a_row() -> None:
    for made, fields in ((prompty.Result, "value usage cost finish_reason model messages"), (RowResult, "value error")):
        assert set(fields.split()) <= set(dir(made))
