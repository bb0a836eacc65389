"""Measure how a package is laid out: lines of code, doors between rooms, levels, caches and states.

- A line of code is one that is not blank, not only a comment, and not part of a docstring.
- A room is a folder at the top of the package or a file there, or what a map says.
- A door of a room is a name of it that files of other rooms use, wherever they import it: at the top, in a function or
  for types. An attribute of an imported module is such a name; a module that is used as a whole is one, too. A name
  that a file only imports from its own room is the same door as in the file that defines it.
- A level is a line of an order of rooms that has a room in use. Rooms that reach each other form a circle, which counts
  once in the longest chain of imports.
- A cache is a function under `lru_cache` or `cache`. A state is a name of a module that begins as an empty container, a
  lock, a context variable or a weak collection.
"""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

Order = Sequence[Sequence[str]]
STATES = re.compile(
    "OrderedDict|defaultdict|deque|Counter|ChainMap|WeakKeyDictionary|WeakValueDictionary|WeakSet|ContextVar|local|"
    "Lock|RLock|Condition|Semaphore|BoundedSemaphore|Event"
)
ANYWHERE = ("__init__", "version")  # the names of the package: they may import every room


class Door(NamedTuple):
    """A name of a module, or the whole module if the name is empty."""

    module: str
    name: str


class File(NamedTuple):
    """A parsed file of the package."""

    module: str
    path: str
    is_face: bool
    source: str
    tree: ast.Module


class Package:
    """The modules of a package, by dotted name. Folders without `__init__.py` hold data."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.files: dict[str, File] = {}
        self.imported: dict[str, dict[str, Door]] = defaultdict(dict)
        """What the imports of each module bind, outside its functions."""
        for file in sorted(folder.rglob("*.py")):
            if not (file.parent / "__init__.py").exists():
                continue
            path = file.relative_to(folder)
            is_face = path.name == "__init__.py"
            module = ".".join([folder.name, *(path.parent if is_face else path.with_suffix("")).parts])
            source = file.read_text(encoding="utf-8")
            self.files[module] = File(module, path.as_posix(), is_face, source, ast.parse(source))
        for one in self.files.values():
            for node in _walk_outside_functions(one.tree):
                self.imported[one.module].update(self.bind(one, node))

    def bind(self, file: File, node: ast.AST) -> Iterator[tuple[str, Door]]:
        """Yield the names that an import binds to parts of this package."""
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.split(".")[0] == self.name:
                        yield alias.asname or self.name, Door(alias.name if alias.asname else self.name, "")
            case ast.ImportFrom(module=module, level=level, names=names):
                above = file.module.split(".")[: -level + file.is_face or None] if level else []
                base = ".".join([*above, *([module] if module else [])])
                if base.split(".")[0] == self.name:
                    yield from ((alias.asname or alias.name, self.enter(base, alias.name)) for alias in names)

    def enter(self, module: str, name: str) -> Door:
        """Return an attribute of a module: a module below it, unless it binds another object to that name."""
        below = Door(f"{module}.{name}", "")
        is_bound = self.imported[module].get(name, below) != below
        return below if below.module in self.files and not is_bound else Door(module, name)

    def follow(self, door: Door, room: Callable[[str], str | None]) -> Door:
        """Return the place that defines a name, as long as only its own room, or the package's face, passes it on."""
        further = self.imported[door.module].get(door.name)
        if not door.name or further is None or door.name in self.defined(door.module):
            return door
        if door.module != self.name and room(door.module) not in (None, room(further.module)):
            return door
        return self.follow(further, room)

    @cache  # noqa: B019  packages are few and small
    def defined(self, module: str) -> set[str]:
        """Return the names that a module defines itself."""
        tree = self.files[module].tree
        return {name for node in _walk_outside_functions(tree, into_classes=False) for name in _find_stored(node)}


def _walk_outside_functions(tree: ast.AST, *, into_classes: bool = True) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        is_scope = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if not is_scope and (into_classes or not isinstance(node, ast.ClassDef)):
            yield from _walk_outside_functions(node, into_classes=into_classes)


def _find_stored(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name


class _Reader(ast.NodeVisitor):
    """Collects the doors that a file uses. A name that a function binds itself hides an imported one."""

    def __init__(self, package: Package, file: File) -> None:
        self.package, self.file = package, file
        self.scopes: list[dict[str, Door | None]] = [dict(package.imported[file.module])]
        self.used: set[str] = set()
        self.doors: set[Door] = set()
        self.in_annotation = False

    def read(self) -> set[Door]:
        """Return the doors. An imported name counts even if it is not used, because others may import it from here."""
        self.visit(self.file.tree)
        unused = {door for name, door in self.scopes[0].items() if door and name not in self.used}
        return self.doors | unused

    def find(self, node: ast.AST) -> Door | None:
        match node:
            case ast.Name(id=name):
                scope = next((scope for scope in reversed(self.scopes) if name in scope), {})
                if scope is self.scopes[0]:
                    self.used.add(name)
                return scope.get(name)
            case ast.Attribute(value=value, attr=name):
                door = self.find(value)
                return door if door is None or door.name else self.package.enter(door.module, name)
        return None

    def visit_Name(self, node: ast.Name | ast.Attribute) -> None:
        if door := self.find(node):
            self.doors.add(door)
        else:
            self.generic_visit(node)

    visit_Attribute = visit_Name  # noqa: N815  ast's name

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        if len(self.scopes) > 1:
            for name, door in self.package.bind(self.file, node):
                self.scopes[-1][name] = door
                self.doors |= {door} if door.name else set()

    visit_ImportFrom = visit_Import  # noqa: N815  ast's name

    def visit_Lambda(self, node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        body: list[ast.stmt] = [ast.Expr(node.body)] if isinstance(node, ast.Lambda) else node.body
        self.visit(node.args)
        if not isinstance(node, ast.Lambda):
            for decorator in node.decorator_list:
                self.visit(decorator)
            self.annotate(node.returns)
        scope: dict[str, Door | None] = {one.arg: None for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        for inner in _walk_outside_functions(ast.Module(body, []), into_classes=False):
            scope |= dict.fromkeys(_find_stored(inner))
        self.scopes.append(scope)
        for statement in body:
            self.visit(statement)
        self.scopes.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda  # noqa: N815  ast's name

    def visit_arg(self, node: ast.arg) -> None:
        self.annotate(node.annotation)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.annotate(node.annotation)
        if node.value:
            self.visit(node.value)

    def annotate(self, node: ast.AST | None) -> None:
        if node:
            outer, self.in_annotation = self.in_annotation, True
            self.visit(node)
            self.in_annotation = outer

    def visit_Constant(self, node: ast.Constant) -> None:
        if self.in_annotation and isinstance(node.value, str):
            try:
                self.visit(ast.parse(node.value, mode="eval"))
            except SyntaxError:
                return  # a text of `Literal` or `Annotated`, not a type


def find_doors(package: Package, rooms: Mapping[str, str]) -> dict[str, dict[Door, set[str]]]:
    """Return the doors of each room, with the rooms that use them. `rooms` gives each path its room; a file without one
    has no doors and uses none."""
    by_module = {file.module: rooms[file.path] for file in package.files.values() if file.path in rooms}
    found: dict[str, dict[Door, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module, user in by_module.items():
        for used in _Reader(package, package.files[module]).read():
            door = package.follow(used, by_module.get)
            if (room := by_module.get(door.module)) not in (None, user) and user not in ANYWHERE:
                found[str(room)][door].add(user)
    return found


def measure_levels(doors: Mapping[str, Mapping[Door, set[str]]], order: Order) -> dict[str, int]:
    """Return how many levels are in use, how long the longest chain of imports is, and what the order forbids."""
    edges = {(user, room) for room, names in doors.items() for users in names.values() for user in users}
    edges = {edge for edge in edges if not {*edge} & {*ANYWHERE}}
    nodes = {room for edge in edges for room in edge}
    reached = {node: {b for a, b in edges if a == node} for node in nodes}
    for via in nodes:
        for node in nodes:
            reached[node] |= reached[via] if via in reached[node] else set()
    circles = {node: frozenset({node, *(b for b in reached[node] if node in reached[b])}) for node in nodes}

    @cache
    def measure_chain(circle: frozenset[str]) -> int:
        below = {circles[b] for a, b in edges if a in circle} - {circle}
        return 1 + max(map(measure_chain, below), default=0)

    level = {room: number for number, names in enumerate(order) for room in names}
    return {
        "in use": sum(bool(nodes & {*names}) for names in order),
        "longest chain": max(map(measure_chain, circles.values()), default=0),
        "rooms in circles": sum(len(circle) > 1 for circle in circles.values()),
        "arrows up or sideways": sum(level[a] >= level[b] for a, b in edges if a in level and b in level),
        "rooms without a level": len(nodes - level.keys()),
    }


def count_code(source: str, tree: ast.AST) -> int:
    """Return how many lines of a file are code."""
    lines = source.splitlines()
    code = {number for number, line in enumerate(lines, start=1) if line.strip()}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            code.discard(token.start[0])
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int(last)):
                code -= {*range(first, last + 1)}
    return len(code)


def find_caches(tree: ast.AST) -> list[int]:
    """Return the lines of functions whose results are cached."""
    return [
        getattr(node, "lineno", 0)
        for node in ast.walk(tree)
        for decorator in getattr(node, "decorator_list", ())
        if _name_last(decorator) in ("lru_cache", "cache")
    ]


def find_states(tree: ast.Module) -> list[int]:
    """Return the lines on which a module makes an object that changes later."""
    return [node.lineno for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and _is_state(node.value)]


def _is_state(value: ast.expr | None) -> bool:
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]):
            return True
        case ast.Call(args=[], keywords=[]) if _name_last(value) in ("dict", "list", "set"):
            return True
    return isinstance(value, ast.Call) and bool(STATES.fullmatch(_name_last(value)))


def _name_last(node: ast.expr) -> str:
    """Return the last name of a function, whether it is called, subscribed or neither."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return re.split(r"\W", ast.unparse(node))[-1]


Figures = dict[str, dict[str, int]]


def measure_house(package: Package, layouts: Mapping[str, tuple[Mapping[str, str], Order]]) -> Figures:
    """Return tables of figures, each with a number for each room. A layout has the room of each path, and the order of
    its rooms. Caches and states are counted for the first."""
    figures: Figures = {}
    code = {file.path: count_code(file.source, file.tree) for file in package.files.values()}
    for name, (rooms, order) in layouts.items():
        doors = find_doors(package, rooms)
        figures[f"code lines by {name}"] = sum_rooms(
            (rooms[path], lines) for path, lines in code.items() if path in rooms
        )
        figures[f"doors by {name}"] = sum_rooms((room, len(names)) for room, names in doors.items())
        figures[f"levels by {name}"] = measure_levels(doors, order)
    rooms, _ = next(iter(layouts.values()))
    files = package.files.values()
    figures["caches"] = sum_rooms((rooms[file.path], len(find_caches(file.tree))) for file in files)
    figures["states"] = sum_rooms((rooms[file.path], len(find_states(file.tree))) for file in files)
    return figures


def sum_rooms(numbers: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the sum of each room, without those of 0, and the total."""
    sums: Counter[str] = Counter()
    for room, number in numbers:
        sums[room] += number
    return {**{room: sums[room] for room in sorted(sums) if sums[room]}, "total": sums.total()}
