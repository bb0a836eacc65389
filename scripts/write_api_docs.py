"""Write the reference of the Python API (`docs/reference/api/`, `events.md`, `errors.md`) from sources and docstrings.

The text above the mark of a page is written by hand. The mark names what the page describes: `turn` is a name of
`prompty`, and `events.*` stands for all names of `prompty.events`.
"""

import ast
import inspect
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_args, is_typeddict

import prompty
from prompty.pipeline import CallOptions, TurnOptions

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
MARK = re.compile(r"<!-- `make docs` writes the rest, from: (.*?) -->\n", re.DOTALL)
INDEX = FOLDER / "api" / "index.md"
OPTIONS: dict[str, type] = {"invoke": CallOptions, "turn": TurnOptions}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Entry(NamedTuple):
    """A public name: its module, its value, and the page that describes it."""

    name: str
    module: str
    value: Any
    page: Path


def list_modules() -> list[str]:
    """Return the public modules that the docstring of `prompty` names."""
    return re.findall(r"`prompty\.(\w+)`", prompty.__doc__ or "")


def list_names(module: str) -> list[str]:
    """Return the public names of a module, such as `events`: its `__all__`, or what it defines and exports as itself.
    An empty name is `prompty`."""
    imported = import_module(f"prompty.{module}".rstrip("."))
    if hasattr(imported, "__all__"):
        return list(imported.__all__)
    imports = (node for node in ast.parse(inspect.getsource(imported)).body if isinstance(node, ast.ImportFrom))
    exported = [alias.name for node in imports for alias in node.names if alias.asname == alias.name]
    own = [name for name, value in vars(imported).items() if getattr(value, "__module__", "") == imported.__name__]
    names = [name for name in (*own, *exported) if not name.startswith("_")]
    return [name for name in names if module != "errors" or isinstance(vars(imported)[name], type)]


def read_entries() -> list[Entry]:
    """Return the public names of all pages, in their order."""
    entries: list[Entry] = []
    for page in sorted({*FOLDER.rglob("*.md")} - {INDEX}, key=lambda page: (len(page.parts), page)):
        if found := MARK.search(page.read_text(encoding="utf-8")):
            for word in found[1].split():
                module, _, name = word.rpartition(".")
                imported = import_module(f"prompty.{module}".rstrip("."))
                for each in list_names(module) if name == "*" else [name]:
                    if (each, page) not in {(entry.name, entry.page) for entry in entries}:
                        entries.append(Entry(each, imported.__name__, getattr(imported, each), page))
    return sorted(entries, key=lambda entry: entry.module != "prompty")


ENTRIES = read_entries()
HOMES = {id(entry.value): entry for entry in reversed(ENTRIES)}  # a value with two names is described once
BY_NAME = {entry.name: HOMES[id(entry.value)] for entry in reversed(ENTRIES)}


def build_pages() -> dict[Path, str]:
    """Return the text of each page of the reference."""
    pages = [INDEX, *dict.fromkeys(entry.page for entry in ENTRIES)]
    return {page: build_page(page) for page in pages}


def build_page(page: Path) -> str:
    found = MARK.search(text := page.read_text(encoding="utf-8"))
    entries = [entry for entry in ENTRIES if page in (INDEX, entry.page)]
    modules = list(dict.fromkeys(entry.module for entry in entries))
    lines = [text[: found.end() if found else 0]]
    for module in modules:
        own = [entry for entry in entries if entry.module == module]
        lines += [f"## `{module}`", ""] if len(modules) > 1 else []
        if page == INDEX:
            lines += [",\n".join(link(entry.name, page) for entry in sorted(own, key=lambda one: one.name.lower())), ""]
            continue
        for entry in own:
            lines += [f"{'###' if len(modules) > 1 else '##'} `{entry.name}`", "", *describe(entry), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def link(name: str, page: Path) -> str:
    """Return a link to the description of a name, as seen from a page."""
    home = BY_NAME[name]
    path = "" if home.page == page else Path(os.path.relpath(home.page, page.parent)).as_posix()
    return f"[`{name}`]({path}#{home.name.lower()})"


def describe(entry: Entry) -> Iterator[str]:
    """Yield the lines that describe a name."""
    value = entry.value
    if (home := HOMES[id(value)]) is not entry:
        yield f"The same as {link(home.name, entry.page)}."
    elif get_args(value):
        yield "One of " + ", ".join(link(member.__name__, entry.page) for member in get_args(value)) + "."
    elif isinstance(value, type):
        yield from describe_class(entry, value)
    elif isinstance(node := find_node(value), Function):
        yield from ["```python", write_signature(entry.name, node), "```", "", write_prose(entry, value)]
        if entry.name in OPTIONS:
            defaults = {name: one.default for name, one in inspect.signature(value).parameters.items()}
            options = read_members(OPTIONS[entry.name])[0].items()
            notes = {name: f"{note} Default: `{defaults[name]!r}`." for name, (_, note) in options if defaults[name]}
            yield from ["", *write_table({name: (kind, notes.get(name, note)) for name, (kind, note) in options})]
        elif "\nOptions:\n" in (value.__doc__ or ""):
            name = "invoke" if entry.name.removesuffix("_async") == "invoke" else "turn"
            yield from ["", f"The options are those of {link(name, entry.page)}."]
    else:
        yield f"A `{type(value).__name__}`."


def describe_class(entry: Entry, cls: type) -> Iterator[str]:
    attributes, methods = read_members(cls)
    constructor = methods.pop("__init__", None)
    if constructor and not issubclass(cls, BaseException):
        yield from ["```python", write_signature(entry.name, constructor), "```", ""]
    yield write_prose(entry, cls)
    if attributes:
        yield from ["", *write_table(attributes)]
    yield ""
    for name, node in methods.items():
        signature = " ".join(write_signature(name, node).replace(",\n)", ")").split()).replace("( ", "(")
        yield f"- `{signature}`<br>{' '.join((ast.get_docstring(node) or '').split())}".removesuffix("<br>")


@cache
def read_nodes(module: str) -> dict[str, ast.AST]:
    """Return the definitions of a module by name. The last one stands after its overloads."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | Function)}


def find_node(value: Any) -> ast.AST | None:
    is_ours = getattr(value, "__module__", "").startswith("prompty")
    return read_nodes(value.__module__).get(value.__name__) if is_ours else None


def list_bases(cls: type) -> list[type]:
    """Return our own classes that a class inherits from, and the class itself last. What all errors share has its
    own entry."""
    if is_typeddict(cls) and isinstance(node := find_node(cls), ast.ClassDef):
        bases = [vars(sys.modules[cls.__module__])[ast.unparse(base)] for base in node.bases]
        return [*(each for base in bases if is_typeddict(base) for each in list_bases(base)), cls]
    return [base for base in reversed(cls.__mro__) if base is cls or base is not prompty.PromptyError]


def read_members(cls: type) -> tuple[dict[str, tuple[str, str]], dict[str, Function]]:
    """Return the public attributes of a class with their types and notes, and its methods."""
    attributes: dict[str, tuple[str, str]] = {}
    methods: dict[str, Function] = {}
    for base in list_bases(cls):
        for node in getattr(find_node(base), "body", ()):
            match node:
                case ast.AnnAssign(target=ast.Name(id=name)):
                    attributes[name] = read_annotation(node)
                case ast.Assign(targets=[ast.Name(id=name)]) if hasattr(cls, "__members__"):
                    attributes[name] = (ast.unparse(node.value), "")
                case ast.FunctionDef(name="__init__"):
                    methods["__init__"] = node
                    if issubclass(cls, BaseException):
                        attributes |= read_assignments(node)
                case ast.FunctionDef(name=name) if any("property" in ast.unparse(one) for one in node.decorator_list):
                    note = " ".join((ast.get_docstring(node) or "").split())
                    attributes[name] = (ast.unparse(node.returns) if node.returns else "", note)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("_"):
                    methods[name] = node
    return {name: found for name, found in attributes.items() if not name.startswith("_")}, methods


def read_annotation(node: ast.AnnAssign) -> tuple[str, str]:
    """Return the type of an attribute, and its documentation or its default."""
    annotation = node.annotation
    match annotation:
        case ast.Subscript(
            value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, ast.Call(func=ast.Name(id="Doc"), args=[doc])])
        ):
            return ast.unparse(kind), str(ast.literal_eval(doc))
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *_])):
            annotation = kind
    default = node.value if isinstance(node.value, ast.Constant | ast.Attribute | ast.Tuple) else None
    return ast.unparse(annotation), f"default `{ast.unparse(default)}`" if default else ""


def read_assignments(constructor: ast.FunctionDef) -> dict[str, tuple[str, str]]:
    """Return the attributes that the constructor of an error sets, with the types of its parameters."""
    arguments = [*constructor.args.args, *constructor.args.kwonlyargs]
    kinds = {each.arg: ast.unparse(each.annotation) for each in arguments if each.annotation}
    nodes = [node for node in ast.walk(constructor) if isinstance(node, ast.Attribute)]
    names = [node.attr for node in nodes if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"]
    return {name: (kinds.get(name, ""), "") for name in names}


def write_table(attributes: dict[str, tuple[str, str]]) -> list[str]:
    kinds = {name: kind.strip("'").replace(" | ", " or ") for name, (kind, _) in attributes.items()}
    rows = [f"| `{name}` | {kinds[name] and f'`{kinds[name]}`'} | {note} |" for name, (_, note) in attributes.items()]
    return ["| name | type | note |", "|---|---|---|", *rows]


def write_signature(name: str, node: Function) -> str:
    """Return the call of a function, on several lines if it is long."""

    def write_argument(argument: ast.arg, default: ast.expr | None) -> str:
        return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")

    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(given.defaults)), *given.defaults]
    pairs = [pair for pair in zip(positional, defaults, strict=True) if pair[0].arg not in ("self", "cls")]
    parts = [write_argument(*pair) for pair in pairs]
    if given.vararg or given.kwonlyargs:
        parts.append(f"*{ast.unparse(given.vararg)}" if given.vararg else "*")
    parts += map(write_argument, given.kwonlyargs, given.kw_defaults)
    parts += [f"**{ast.unparse(given.kwarg)}"] if given.kwarg else []
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    ending = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    line = f"{start}{name}({', '.join(parts)}){ending}"
    return (
        line if len(line) <= 88 else "\n".join([f"{start}{name}(", *(f"    {part}," for part in parts), f"){ending}"])
    )


def write_prose(entry: Entry, value: object) -> str:
    """Return a docstring with links to the classes that it names."""
    text = inspect.cleandoc((getattr(value, "__doc__", None) or "").partition("\nOptions:\n")[0])
    text = re.sub(r"\s*\((?:\d{3} )?§[^)]*\)|\s*\(00\d[^)]*\)", "", text)
    names = [name for name in BY_NAME if name[0].isupper() and name != entry.name]
    return re.sub(rf"(?<![`\[])`({'|'.join(names)})`(?!`)", lambda found: link(found[1], entry.page), text)


if __name__ == "__main__":
    for path, text in build_pages().items():
        path.write_text(text, encoding="utf-8")
