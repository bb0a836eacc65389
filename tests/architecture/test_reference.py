"""The reference is complete: every public name, command, option, event, error, key and variable has an entry."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

import prompty
from prompty import errors, events
from prompty.model.agent import Frontmatter
from prompty.model.definition import Definition
from prompty.pipeline import TurnOptions
from scripts import write_api_docs, write_command_docs
from scripts.write_api_docs import list_modules, list_names
from scripts.write_command_docs import list_commands, list_subcommands

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
HEADING = re.compile(r"^##+ `?([^`\n]+)`?$", re.MULTILINE)


def read(path: str) -> str:
    return (REFERENCE / path).read_text(encoding="utf-8")


def headings(path: str) -> set[str]:
    return set(HEADING.findall(read(path)))


GENERATED = {**write_api_docs.build_pages(), **write_command_docs.pages()}


@pytest.mark.parametrize(("path", "text"), GENERATED.items(), ids=lambda value: getattr(value, "name", ""))
def test_a_generated_page_is_current(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "run: make docs"


def test_every_page_of_the_api_and_of_the_commands_is_generated() -> None:
    written = {*(REFERENCE / "api").glob("*.md"), *(REFERENCE / "commands").glob("*.md")}
    assert written - GENERATED.keys() == set()


def test_every_public_name_has_an_entry_on_a_page_that_its_index_links_to() -> None:
    described = {name for path in GENERATED for name in HEADING.findall(path.read_text(encoding="utf-8"))}
    public = {name for module in ["", *list_modules()] for name in list_names(module)}
    assert len(public) > 130
    assert public - described == set()
    index = read("api/index.md")
    assert {name for name in public if f"[`{name}`]" not in index} == set()


def test_every_public_module_is_listed_with_names() -> None:
    assert set(list_modules()) >= {"events", "errors", "messages", "providers", "tools", "testing", "durable"}
    assert all(list_names(module) for module in list_modules())


def test_no_entry_is_without_a_description() -> None:
    bare = [
        f"{module}.{name}"
        for module in ["", *list_modules()]
        for name in list_names(module)
        if callable(value := getattr(import_module(f"prompty.{module}".rstrip(".")), name))
        and not get_args(value)
        and not inspect.getdoc(value)
    ]
    assert bare == []


def test_every_option_of_a_turn_is_in_the_table_of_turn() -> None:
    entry = read("api/run.md").partition("## `turn`\n")[2].partition("\n## ")[0]
    assert [name for name in get_type_hints(TurnOptions) if f"| `{name}` |" not in entry] == []


def test_every_event_has_an_entry_with_its_attributes() -> None:
    assert {event.__name__ for event in get_args(events.Event)} <= headings("events.md")
    for event in get_args(events.Event):
        entry = read("events.md").partition(f"## `{event.__name__}`\n")[2].partition("\n## ")[0]
        assert [name for name in event.__dataclass_fields__ if f"| `{name}` |" not in entry] == []


ERRORS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, prompty.PromptyError | errors.PromptyWarning)
    if not value.__name__.startswith("_")
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_has_an_entry_with_its_attributes_and_a_line_in_the_tree(error: type) -> None:
    page = read("errors.md")
    entry = page.partition(f"### `{error.__name__}`\n")[2].partition("\n### ")[0]
    assert entry
    assert [name for name in set_by_constructor(error) if f"| `{name}` |" not in entry] == []
    assert error.__name__ in page.partition("```text")[2].partition("```")[0]


def set_by_constructor(error: type) -> list[str]:
    constructor = vars(error).get("__init__")
    return (
        re.findall(r"^ +self\.([a-z]\w*)\b[^=]*=", inspect.getsource(constructor), re.MULTILINE) if constructor else []
    )


COMMANDS = [
    (name, inner, command)
    for name, group in list_commands().items()
    for inner, command in [("", group), *list_subcommands(group).items()]
]


@pytest.mark.parametrize(("name", "inner", "command"), COMMANDS, ids=[f"{name} {inner}" for name, inner, _ in COMMANDS])
def test_every_command_has_an_entry_with_its_options_and_arguments(name: str, inner: str, command: Any) -> None:
    page = read(f"commands/{name}.md")
    entry = (
        page.partition(f"## prompty {name} {inner}\n")[2].partition("\n## ")[0] if inner else page.partition("\n## ")[0]
    )
    shown = [param for param in command.params if not param.hidden]
    options = [option for param in shown if param.param_type_name == "option" for option in param.opts]
    assert [option for option in options if not re.search(rf"`{re.escape(option)}[ `]", entry)] == []
    arguments = [param.metavar for param in shown if param.param_type_name == "argument"]
    assert [argument for argument in arguments if f"| `{argument}` |" not in entry] == []
    assert f"](commands/{name}.md)" in read("command-line.md")


def test_every_key_of_a_file_is_on_the_page_about_the_format() -> None:
    page = read("file-format.md")
    keys = {key for definition in walk_definitions(Frontmatter) for key in definition}
    assert len(keys) > 40
    keys -= {"isPlain"}  # how a binding was written: no key of a file
    assert [key for key in sorted(keys) if f"`{key}`" not in page and f"`{key}:" not in page] == []


def walk_definitions(definition: type[BaseModel], seen: set[type] | None = None) -> Iterator[list[str]]:
    """Yield the keys of a definition and of those inside it, as a file writes them."""
    seen = set() if seen is None else seen
    if definition not in seen:
        seen.add(definition)
        yield [field.alias or name for name, field in definition.model_fields.items()]
        for hint in get_type_hints(definition).values():
            for inner in find_definitions(hint):
                yield from walk_definitions(inner, seen)


def find_definitions(hint: object) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, Definition):
        yield hint
    for argument in get_args(hint):
        yield from find_definitions(argument)


_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
NOT_VARIABLES = {
    *("EVENT_ONLY", "SPAN_ONLY", "SPAN_AND_EVENT"),  # values of a variable
    *("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"),  # flags of `os.open`
    *("INVALID_ARGUMENT", "NOT_FOUND", "INVALID_JSON", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"),  # words of a protocol
    *("GIT_ALLOW_PROTOCOL", "GIT_NO_LAZY_FETCH", "GIT_NO_REPLACE_OBJECTS", "GIT_OPTIONAL_LOCKS", "GIT_PAGER"),
    *("GIT_TERMINAL_PROMPT", "GIT_CEILING_DIRECTORIES", "LC_ALL"),  # what git gets
    "API_KEY",  # how such names end
    "PROCESSOR_ARCHITECTURE",  # passed on to MCP servers, like PATH
}


def test_every_environment_variable_has_an_entry() -> None:
    used = {text for source in sorted((ROOT / "src").rglob("*.py")) for text in read_constants(source)}
    used = {text for text in used if _VARIABLE.fullmatch(text)} - NOT_VARIABLES
    assert len(used) > 25
    pages = read("environment.md") + read("providers/profiles.md")
    assert [name for name in sorted(used) if f"`{name}`" not in pages] == []


def read_constants(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


_DECISION = re.compile(r"\(([FRWKPLTXMS]\d{1,2}(?:, [FRWKPLTXMS]\d{1,2})*)\)")


def test_every_decision_that_is_mentioned_leads_somewhere() -> None:
    page = (ROOT / "docs" / "explanation" / "decisions.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    mentioned = {
        number
        for source in sources
        for numbers in _DECISION.findall(source.read_text(encoding="utf-8"))
        for number in numbers.split(", ")
    }
    assert {"W11", "F14"} <= mentioned
    assert mentioned - described == set()
