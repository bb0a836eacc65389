"""Write the reference of the Python API (`reference/api/`, `events.md`, `errors.md`) from signatures and docstrings.

The docstring of `prompty` lists the public modules. A module's `__all__`, or what it defines or exports
(`import X as X`), are its public names. A name without a place in `PAGES` goes to the page of its module, so that no
name can be missing.
"""

import ast
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import EnumType
from functools import cached_property
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args, get_type_hints, is_typeddict

from pydantic import BaseModel
from typing_extensions import Format, get_annotations as read_annotations

import prompty
from prompty.pipeline import CallOptions, TurnOptions
from scripts.signatures import format_default, format_signature, format_type

FOLDER = Path(__file__).parent.parent / "docs" / "reference"


@dataclass(frozen=True)
class Page:
    """A page: its path, its title, its opening, its names of `prompty` in order, and its other modules."""

    path: str
    title: str
    opening: str
    names: str = ""
    modules: tuple[str, ...] = ()


PAGES = [
    Page(
        "events.md",
        "Events",
        "A run reports these events to `on_event`, and a stream yields them from `events()`.",
        "",
        ("events",),
    ),
    Page(
        "errors.md",
        "Errors",
        "Every error that prompty raises is a `PromptyError`. Import the others from `prompty.errors`. Most are also "
        "an error of Python, which the list names in parentheses. An error that ends a turn has the conversation so "
        "far in `messages`.",
        "PromptyError ModelError",
        ("errors",),
    ),
    Page(
        "api/run.md",
        "Run prompts",
        "Call a model with a prompt: `invoke` calls it once, `turn` runs the tools that it asks for. Each function has "
        "a form for async code, whose name ends with `_async`.",
        "invoke turn resume Result PromptyStream AsyncPromptyStream",
    ),
    Page(
        "api/load.md",
        "Load, check and render",
        "Load a prompt file, find its mistakes, and see the messages that it makes, without calling a model.",
        "load loads PromptAgent variants load_env check prepare render",
    ),
    Page(
        "api/control.md",
        "Control a turn",
        "Limit what a turn may use, decide about its tool calls, pause it, steer it and stop it.",
        "GatedCall Verdict deny later rewrite Paused Guardrails Budget Context Tokens Stop Steering CancelToken",
    ),
    Page(
        "api/messages.md",
        "Messages and media",
        "Build, store and send messages yourself. [Messages and raw answers](../messages.md) has examples.",
        "Message user assistant system tool_result ToolCall Usage Image Audio File",
        ("messages",),
    ),
    Page(
        "api/tools.md",
        "Tools",
        "Offer Python functions, MCP servers and OpenAPI services to a model.",
        "tool bind_tools ToolContext",
        ("tools", "mcp", "openapi"),
    ),
    Page(
        "api/results.md",
        "Parts of a call",
        "For frameworks: send messages that you built, read answers that you received yourself, convert results to "
        "your own types, and look up what sends and reads them.",
        "",
        ("pipeline",),
    ),
    Page("api/batches.md", "Batches", "Run a prompt once for each row of inputs.", "batch", ("batches",)),
    Page("api/memory.md", "Memory", "Store conversations between turns.", "", ("memory",)),
    Page(
        "api/durable.md",
        "Durable turns",
        "Options, and verdicts as JSON, for turns in workflows of [DBOS](../../how-to/dbos.md) and "
        "[Temporal](../../how-to/temporal.md).",
        "",
        ("durable",),
    ),
    Page(
        "api/tracing.md",
        "Tracing",
        "Record what a run does, and read the records.",
        "trace_to trace",
        ("tracing", "viewer"),
    ),
    Page("api/testing.md", "Testing", "Run prompts without a key or a network, in tests.", "", ("testing",)),
    Page(
        "api/providers.md",
        "Providers and registries",
        "Add your own provider, client or executor. "
        "[Add a provider](../../how-to/your-own-provider.md) has an example.",
        "Registry",
        ("providers",),
    ),
]
OTHER = Page("api/other.md", "Other names", "Names of `prompty` that no other page has.", "__version__")

# The arguments that the functions share which run a prompt.
ARGUMENTS = {
    "agent_or_path": "The path of a prompt file, or an agent from `load`.",
    "inputs": "The values of the prompt's inputs, by name.",
    "messages": "The conversation to send: `Message` objects, or dictionaries in the form of chat completions.",
    "paused": "The value that `turn` returned, or `Paused.from_json(value)`.",
    "verdicts": "A verdict for each pending call, in order, or a mapping from keys to verdicts.",
    "rows": "The inputs of each row.",
    "output_type": "The type of the result. Its JSON Schema goes to the model if the file has no `outputs:`.",
    "stream": "Return a stream: iterate it for text as it arrives.",
    "details": "Return a `Result`, with the value, usage, cost and messages.",
}

# The functions whose entries have the tables of options.
OPTIONS: dict[str, type] = {"invoke": CallOptions, "turn": TurnOptions}

# The options of `turn` by task, the most used first, with an example of each task.
TURN_TASKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Tools": (
        'turn("shop.prompty", inputs, tools=[find_order], tool_timeout=10)',
        ("tools", "tool_timeout", "max_parallel", "tool_execution", "provider_tools"),
    ),
    "Conversation": (
        'turn("shop.prompty", inputs, memory=SqliteMemory("sessions.db"), session_id="ada")',
        ("memory", "session_id", "messages", "context_budget", "steering"),
    ),
    "Approval": (
        'turn("shop.prompty", inputs, tools=[refund], approval={"refund": "always"})',
        ("approval", "gate", "guardrails", "paused_key"),
    ),
    "Limits": (
        'turn("shop.prompty", inputs, max_iterations=5, timeout=20, budget=Budget(seconds=60))',
        ("max_iterations", "timeout", "budget", "max_retries", "stop", "cancel"),
    ),
    "Model": (
        'turn("shop.prompty", inputs, model="ollama:llama3.2", options={"temperature": 0.2})',
        ("model", "options", "fallbacks"),
    ),
    "Inputs, results and events": (
        'turn("shop.prompty", inputs, outputs_mode="lenient", on_event=print)',
        ("on_event", "outputs_mode", "extra_inputs", "registry"),
    ),
}

# Classes whose values you get, and don't make.
RECEIVED = {
    "AsyncPromptyStream",
    "DurableRun",
    "GatedCall",
    "Paused",
    "PromptyStream",
    "RecordedTrace",
    "Result",
    "RowResult",
    "RunEvent",
    "RunSummary",
    "Span",
    "ToolContext",
    "Tracer",
}

# Names that look like public ones in backticks, and are parameters or words.
_NO_LINK = {"assistant", "system", "tool", "trace", "user", "run", "check", "batch", "process", "cast", "render"}
_SECTION = re.compile(r"\s*\((?:\d{3} )?§[^)]*\)|\s*\(00\d[^)]*\)")


@dataclass(frozen=True)
class Entry:
    """A public name: its module, its value, and the page that describes it."""

    name: str
    module: str
    value: Any
    page: Page

    @property
    def anchor(self) -> str:
        return self.name.lower()

    @property
    def full_name(self) -> str:
        return f"{self.module}.{self.name}"


def list_modules() -> list[str]:
    """Return the public modules that the docstring of `prompty` names."""
    return re.findall(r"`prompty\.(\w+)`", prompty.__doc__ or "")


def list_names(module: str) -> list[str]:
    """Return the public names of a module, such as `events`. An empty name is `prompty` itself."""
    imported = import_module(f"prompty.{module}".rstrip("."))
    if hasattr(imported, "__all__"):
        return list(imported.__all__)
    own = [name for name, value in vars(imported).items() if getattr(value, "__module__", "") == imported.__name__]
    names = [name for name in (*own, *_list_exports(imported)) if not name.startswith("_")]
    return [name for name in names if isinstance(vars(imported)[name], type)] if module == "errors" else names


def _list_exports(module: types.ModuleType) -> Iterator[str]:
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.asname == alias.name)


class Reference:
    """All public names, each with its page."""

    @cached_property
    def entries(self) -> list[Entry]:
        """Every public name in the order of the pages. A value with several names has several entries."""
        return [entry for page in [*PAGES, OTHER] for entry in self._list_page(page)]

    @cached_property
    def homes(self) -> dict[int, Entry]:
        """The entry that describes a value, by the identity of the value: the first one."""
        homes: dict[int, Entry] = {}
        for entry in self.entries:
            homes.setdefault(id(entry.value), entry)
        return homes

    @cached_property
    def by_name(self) -> dict[str, Entry]:
        return {entry.name: self.homes[id(entry.value)] for entry in reversed(self.entries)}

    @cached_property
    def _placed(self) -> set[str]:
        return {name for page in PAGES for name in page.names.split()}

    def _list_page(self, page: Page) -> Iterator[Entry]:
        root = list_names("")
        wanted = page.names.split()
        if page is OTHER:
            wanted += [name for name in root if name.removesuffix("_async") not in self._placed and name not in wanted]
            others = set(list_modules()) - {module for each in PAGES for module in each.modules}
            modules: tuple[str, ...] = tuple(sorted(others))
        else:
            wanted = [form for name in wanted for form in (name, f"{name}_async") if form in root]
            modules = page.modules
        for name in wanted:
            yield Entry(name, "prompty", getattr(prompty, name), page)
        for module in modules:
            imported = import_module(f"prompty.{module}")
            for name in list_names(module):
                if (page.path, name) != ("errors.md", "PromptyError") and name not in wanted:
                    yield Entry(name, f"prompty.{module}", getattr(imported, name), page)


def build_pages() -> dict[Path, str]:
    """Return the text of each page of the reference."""
    reference = Reference()
    built = {FOLDER / page.path: build_page(page, reference) for page in [*PAGES, OTHER]}
    return {FOLDER / "api" / "index.md": build_index(reference), **built}


def build_index(reference: Reference) -> str:
    lines = [
        "# Python API",
        "",
        "Every public name, with the page that describes it. Most programs need only the names of `prompty`. The "
        "others are in their own modules.",
    ]
    lines += ["", "| page | task |", "|---|---|"]
    for page in [*PAGES, OTHER]:
        address = page.path.removeprefix("api/") if page.path.startswith("api/") else f"../{page.path}"
        lines.append(f"| [{page.title}]({address}) | {page.opening} |")
    modules = ["prompty", *(f"prompty.{module}" for module in list_modules())]
    for module in modules:
        own = [entry for entry in reference.entries if entry.module == module]
        links = [
            reference_link(entry, "api/index.md", reference) for entry in sorted(own, key=lambda e: e.name.lower())
        ]
        if links:
            lines += ["", f"## `{module}`", "", ",\n".join(links)]
    return "\n".join(lines) + "\n"


def reference_link(entry: Entry, page: str, reference: Reference) -> str:
    """Return a link to the description of a name, as seen from a page."""
    home = reference.homes[id(entry.value)]
    return f"[`{entry.name}`]({find_address(home, page)})"


def find_address(entry: Entry, page: str) -> str:
    here, there = Path(page), Path(entry.page.path)
    if here == there:
        return f"#{entry.anchor}"
    path = there.name if here.parent == there.parent else there.as_posix()
    if here.parent.name == "api" and there.parent.name != "api":
        path = f"../{there.as_posix()}"
    return f"{path}#{entry.anchor}"


def build_page(page: Page, reference: Reference) -> str:
    entries = [entry for entry in reference.entries if entry.page is page]
    grouped = len({entry.module for entry in entries}) > 1
    lines = [f"# {page.title}", "", page.opening, ""]
    if not grouped and page.modules:
        lines += [f"Import these names from `{entries[0].module}`.", ""]
    if page.path == "errors.md":
        lines += ["```text", read_error_tree(), "```", ""]
    module = ""
    for entry in entries:
        if grouped and entry.module != module:
            module = entry.module
            lines += [f"## `{module}`", ""]
        lines += [f"{'###' if grouped else '##'} `{entry.name}`", "", *describe(entry, reference), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def read_error_tree() -> str:
    """Return the tree of errors in the docstring of `prompty.errors`."""
    return (import_module("prompty.errors").__doc__ or "").partition("\n\n")[2].strip()


def describe(entry: Entry, reference: Reference) -> list[str]:
    """Return the lines that describe a name."""
    home = reference.homes[id(entry.value)]
    if home is not entry:
        link = f"[`{home.full_name}`]({find_address(home, entry.page.path)})"
        return [f"The same as {link}."]
    value = entry.value
    if isinstance(value, types.UnionType) or get_args(value):
        members = (reference.by_name.get(member.__name__) for member in get_args(value))
        return [
            "One of " + ", ".join(reference_link(each, entry.page.path, reference) for each in members if each) + "."
        ]
    if isinstance(value, EnumType):
        values: list[Any] = list(value)
        rows = [f"| `{each.name}` | `{each.value!r}` |" for each in values]
        return [*prose(entry, value, reference), "", "| member | value |", "|---|---|", *rows]
    if value in OPTIONS.values():
        homes = [reference.by_name[name] for name, options in OPTIONS.items() if options is value]
        links = [reference_link(home, entry.page.path, reference) for home in homes]
        return [f"The options of {links[0]}, as a TypedDict for your own type annotations."]
    if is_typeddict(value):
        return [*prose(entry, value, reference), "", *describe_options(entry, value, reference)]
    if isinstance(value, type):
        return describe_class(entry, value, reference)
    if callable(value):
        return describe_function(entry, value, reference)
    return [f"A `{type(value).__name__}`: the version of the package."]


def prose(entry: Entry, value: object, reference: Reference, own: frozenset[str] = frozenset()) -> list[str]:
    """Return a docstring with links to the names it mentions. Names in `own` are parameters, not public names."""
    text = inspect.cleandoc((getattr(value, "__doc__", None) or "").partition("\nOptions:\n")[0])
    return [link_names(_SECTION.sub("", text), entry, reference, own)]


def link_names(text: str, entry: Entry, reference: Reference, own: frozenset[str] = frozenset()) -> str:
    def link(found: re.Match[str]) -> str:
        name = found[1]
        target = reference.by_name.get(name)
        if target is None or target is entry or name in own | _NO_LINK:
            return found[0]
        if not name[0].isupper() and target.module != "prompty":
            return found[0]
        return f"[`{name}`]({find_address(target, entry.page.path)})"

    return re.sub(r"(?<![`\[])`(\w+)`(?!`)", link, text)


def describe_function(entry: Entry, function: Callable[..., Any], reference: Reference) -> list[str]:
    parameters = inspect.signature(function).parameters
    options = find_options(function)
    own = frozenset(parameters)
    sync = reference.by_name.get(entry.name.removesuffix("_async"))
    lines = ["```python", format_signature(entry.name, function, frozenset(options)), "```", ""]
    lines += prose(entry, function, reference, own)
    if not options:
        return lines
    home = reference.by_name["invoke" if options <= set(get_type_hints(CallOptions)) else "turn"]
    if sync is None or sync is entry:
        arguments = [f"| `{name}` | {ARGUMENTS[name]} |" for name in parameters if name in set(ARGUMENTS) - options]
        lines += [
            "",
            "| argument | meaning |",
            "|---|---|",
            *(link_names(row, entry, reference, own) for row in arguments),
        ]
    if home is not entry:
        return [*lines, "", f"The options are those of [`{home.name}`]({find_address(home, entry.page.path)})."]
    tables = describe_tasks if entry.name == "turn" else describe_options
    return [*lines, "", "Options:", "", *tables(entry, OPTIONS[entry.name], reference)]


def find_options(function: Callable[..., Any]) -> set[str]:
    """Return the options of a function that takes those of a call or of a turn. Their docstring ends with a list."""
    listed = re.findall(r"^    (\w+): ", (function.__doc__ or "").partition("Options:\n")[2], re.MULTILINE)
    return set(listed) & set(get_type_hints(TurnOptions)) & set(inspect.signature(function).parameters)


def describe_options(entry: Entry, options: type, reference: Reference) -> list[str]:
    """Return a table of options with their documentation."""
    parameters = inspect.signature(prompty.turn).parameters
    rows = []
    for name, hint in get_type_hints(options, include_extras=True).items():
        kind = format_type(get_args(hint)[0] if hasattr(hint, "__metadata__") else hint, " or ")
        documented = hint.__metadata__[0].documentation if hasattr(hint, "__metadata__") else ""
        default = parameters[name].default if name in parameters else None
        shown = f"`{kind}`" if default is None else f"`{kind}`, default `{format_default(default)}`"
        rows.append(f"| `{name}` | {shown} | {link_names(documented, entry, reference, frozenset(parameters))} |")
    return ["| option | type | effect |", "|---|---|---|", *rows]


def describe_tasks(entry: Entry, options: type, reference: Reference) -> list[str]:
    """Return a table of options for each task of a turn, with an example."""
    head, line, *rows = describe_options(entry, options, reference)
    by_name = {row.split("`")[1]: row for row in rows}
    listed = [name for _, names in TURN_TASKS.values() for name in names]
    if sorted(listed) != sorted(by_name):
        raise ValueError(f"an option is in no task, or in two: {sorted({*listed} ^ by_name.keys())}")
    lines: list[str] = []
    for title, (example, names) in TURN_TASKS.items():
        lines += [f"**{title}**", "", "```python", example, "```", ""]
        lines += [head, line, *(by_name[name] for name in names), ""]
    return lines[:-1]


def describe_class(entry: Entry, cls: type, reference: Reference) -> list[str]:
    attributes = dict(list_attributes(cls))
    lines: list[str] = []
    if entry.page.path != "events.md" and entry.name not in RECEIVED and has_constructor(cls):
        parameters = inspect.signature(cls).parameters
        lines += ["```python", format_signature(entry.name, cls).removesuffix(" -> None"), "```", ""]
        attributes = {name: found for name, found in attributes.items() if name not in parameters}
    lines += prose(entry, cls, reference, frozenset(attributes))
    if attributes:
        lines += ["", *build_attribute_table(attributes)]
    methods = list(list_methods(entry, cls, reference))
    return [*lines, "", *methods] if methods else lines


def build_attribute_table(attributes: Mapping[str, tuple[str, str]]) -> list[str]:
    if any(note for _, note in attributes.values()):
        rows = [f"| `{name}` | {kind} | {note} |" for name, (kind, note) in attributes.items()]
        return ["| attribute | type | note |", "|---|---|---|", *rows]
    return ["| attribute | type |", "|---|---|", *(f"| `{name}` | {kind} |" for name, (kind, _) in attributes.items())]


def has_constructor(cls: type) -> bool:
    """Return True if people make values of a class themselves, and its signature says how."""
    if issubclass(cls, BaseModel | BaseException) or getattr(cls, "_is_protocol", False) or inspect.isabstract(cls):
        return False
    return bool(inspect.signature(cls).parameters)


def list_attributes(cls: type) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the public attributes of a class: a name, its type, and its default or the docstring of its property."""
    if issubclass(cls, BaseModel):
        shown = {name: info for name, info in cls.model_fields.items() if info.repr is not False}
        for name, info in shown.items():
            note = f"`{info.alias}` in a file" if info.alias not in (None, name) else ""
            yield name, (f"`{format_type(info.annotation, ' or ')}`", note)
    elif is_dataclass(cls):
        hints = safe_hints(cls)
        for each in fields(cls):
            if not each.name.startswith("_"):
                default = "" if each.default is MISSING else f"default `{format_default(each.default)}`"
                yield each.name, (f"`{format_type(hints[each.name], ' or ')}`", default)
    elif hasattr(cls, "_fields"):
        for name, hint in safe_hints(cls).items():
            yield name, (f"`{format_type(hint, ' or ')}`", "")
    elif issubclass(cls, BaseException):
        yield from list_error_attributes(cls)
    for name, value in list_members(cls):
        if isinstance(value, property):
            returned = inspect.signature(value.fget).return_annotation if value.fget else ""
            yield name, (f"`{format_type(returned, ' or ')}`", flatten(value.__doc__))


def list_error_attributes(cls: type) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the attributes that the constructors of an error set, and those that its classes declare."""
    found: dict[str, str] = {}
    for base in list_bases(cls):
        for name, hint in get_annotations(base).items():
            found[name] = format_type(hint, " or ")
        found |= read_assignments(base)
    for name, kind in found.items():
        if not name.startswith("_"):
            yield name, (f"`{kind}`" if kind else "", "")


def read_assignments(cls: type) -> dict[str, str]:
    """Return the attributes that the constructor of a class sets, with their types as far as the code says them."""
    constructor = vars(cls).get("__init__")
    if constructor is None:
        return {}
    [function] = ast.parse(dedent(inspect.getsource(constructor))).body
    assert isinstance(function, ast.FunctionDef)  # noqa: S101  for the type checker
    arguments = [*function.args.args, *function.args.kwonlyargs]
    kinds = {each.arg: ast.unparse(each.annotation) for each in arguments if each.annotation}
    found = {}
    for node in ast.walk(function):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                said = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
                value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
                kind = said or (kinds.get(value.id, "") if isinstance(value, ast.Name) else "")
                found[target.attr] = kind.replace(" | ", " or ")
    return found


def safe_hints(cls: type) -> Mapping[str, Any]:
    """Return the types of a class, as written where a name in them is only known to type checkers."""
    try:
        return get_type_hints(cls)
    except NameError:
        return {name: hint for base in reversed(cls.__mro__) for name, hint in get_annotations(base).items()}


def get_annotations(cls: type) -> dict[str, Any]:
    """Return the types that a class itself declares. A name that only type checkers know stays a text."""
    found = read_annotations(cls, format=Format.FORWARDREF)
    return {name: getattr(hint, "__forward_arg__", hint) for name, hint in found.items()}


def list_bases(cls: type) -> list[type]:
    """Return our own classes that a class inherits from, and the class itself last. The entry of `PromptyError` alone
    has what all errors share."""
    own = [base for base in reversed(cls.__mro__) if base.__module__.startswith("prompty")]
    return [base for base in own if base is cls or base is not prompty.PromptyError]


def list_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public members that our own classes define, those of a base first."""
    members: dict[str, Any] = {}
    for base in list_bases(cls):
        members |= vars(base)
    yield from ((name, value) for name, value in members.items() if not name.startswith("_"))


def list_methods(entry: Entry, cls: type, reference: Reference) -> Iterator[str]:
    """Yield a line for each public method of a class."""
    attributes = {name for name, _ in list_attributes(cls)}
    for name, member in list_members(cls):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not inspect.isfunction(function) or name in attributes:
            continue
        shown = f"{entry.name}.{name}" if isinstance(member, classmethod | staticmethod) else name
        signature = " ".join(format_signature(shown, function).replace(",\n)", ")").split()).replace("( ", "(")
        own = frozenset(inspect.signature(function).parameters) | attributes
        text = link_names(_SECTION.sub("", flatten(inspect.getdoc(getattr(cls, name)))), entry, reference, own)
        yield f"- `{signature}`" + (f"<br>{text}" if text else "")


def flatten(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    (FOLDER / "api").mkdir(exist_ok=True, parents=True)
    for path, text in build_pages().items():
        path.write_text(text, encoding="utf-8")
