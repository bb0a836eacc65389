"""Host functions as tools: import them, derive a JSON Schema from a signature, and convert arguments to its types."""

import inspect
import json
import re
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from logging import Logger, getLogger
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints, overload
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from prompty.cancellation import CancelToken
from prompty.errors import ArgumentsError, ToolError
from prompty.model.message import Json
from prompty.model.request import Function
from prompty.safety.redaction import is_credential_name, mask_secrets

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])
MARK = "__prompty_tool__"

# Docstrings: Google's `Args:` or Sphinx's `:param name:`.
_PARAMETERS_HEADING = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_HEADING = re.compile(r"[A-Z][A-Za-z ]{0,40}:\s*")
_GOOGLE_ENTRY = re.compile(r"(\*{0,2}\w+)(?:\s*\([^)]*\))?:\s*(.*)")
_SPHINX_ENTRY = re.compile(r":param\s+(?:[^:\s]+\s+)?(\w+):\s*(.*)")
_LOGGER = getLogger("prompty.tools")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContext:
    """Passed to a tool that has a parameter of this type. The model does not see that parameter.

    `key` is unique to this call and stays the same when the call is repeated: pass it to services that take an
    idempotency key. `run` is the run itself, for tools that start other runs.
    """

    run_id: str
    call_id: str
    name: str
    key: str
    cancel: CancelToken = field(default_factory=CancelToken)
    logger: Logger = _LOGGER
    tell: Callable[[Any], object] | None = field(default=None, repr=False)
    run: Any = field(default=None, repr=False)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress to the run's listeners."""
        if self.tell:
            from prompty.model.event import ToolProgress  # its 20 classes cost more than this module

            self.tell(ToolProgress(self.name, self.call_id, done, total, message))


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolOptions:
    """The arguments of `@tool`."""

    name: str | None = None
    description: str | None = None
    sequential: bool = False
    timeout: float | None = None
    idempotent: bool = False


@overload
def tool(function: AnyFunction, /) -> AnyFunction: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    sequential: bool = ...,
    timeout: float | None = ...,
    idempotent: bool = ...,
) -> Callable[[AnyFunction], AnyFunction]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Mark a function, sync or async, as a tool. The function itself does not change.

    A `sequential` tool never runs concurrently with other calls. `timeout` is in seconds. A durable run repeats an
    `idempotent` tool after a crash without asking for approval.
    """

    def mark(function: Any) -> Any:
        setattr(function, MARK, ToolOptions(**options))
        return function

    return mark if function is None else mark(function)


class Signature:
    """A function's parameters that a model can pass."""

    def __init__(self, function: Callable[..., object]) -> None:
        call = getattr(type(function), "__call__", None)  # noqa: B004  the function itself is needed, not whether it exists
        self.is_async: bool = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        inner = function.func if isinstance(function, partial) else function
        self._hints, self._hint_error = _read_hints(inner if inspect.isroutine(inner) else call)
        self._all = dict(inspect.signature(function).parameters)
        self.description: str
        self.description, self._descriptions = parse_docstring(function.__doc__)

    @cached_property
    def context_parameter(self) -> str | None:
        """The parameter that receives the `ToolContext`."""
        return next((name for name, hint in self._hints.items() if hint is ToolContext), None)

    @cached_property
    def accepts_any_name(self) -> bool:
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in self._all.values())

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters that a model can pass by name."""
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {
            name: parameter
            for name, parameter in self._all.items()
            if parameter.kind in named and name != self.context_parameter
        }

    @cached_property
    def required(self) -> list[str]:
        return [name for name, parameter in self.parameters.items() if parameter.default is parameter.empty]

    @cached_property
    def defaults(self) -> Json:
        """The parameters' defaults as JSON, without credentials and values that JSON cannot represent."""
        defaults: Json = {}
        for name, parameter in self.parameters.items():
            if parameter.default is not parameter.empty and not is_credential_name(name):
                with suppress(ValueError):
                    defaults[name] = json.loads(json.dumps(to_jsonable_python(parameter.default), allow_nan=False))
        return defaults

    @cached_property
    def fixed_defaults(self) -> Json:
        """The immutable defaults, which the function can fill in itself. It gets copies of lists and dicts."""
        return {
            name: value
            for name, value in self.defaults.items()
            if not isinstance(self.parameters[name].default, list | dict)
        }

    @cached_property
    def model(self) -> type[BaseModel]:
        """The signature as a pydantic model. Fields are numbered, so that no name clashes with a method."""
        fields: dict[str, Any] = {}
        for position, (name, parameter) in enumerate(self.parameters.items()):
            default = ... if parameter.default is parameter.empty else parameter.default
            hint = _add_description(self._hints.get(name, Any), self._descriptions.get(name))
            fields[f"argument_{position}"] = (hint, Field(default, alias=name))
        extra: Any = "allow" if self.accepts_any_name else "forbid"
        config = ConfigDict(extra=extra, arbitrary_types_allowed=True)
        return create_model("Arguments", __config__=config, **fields)

    @cached_property
    def schema(self) -> Json:
        """The JSON Schema of the arguments. Raises `UnusableSignature` if a model cannot call the function."""
        if self._hint_error:
            raise UnusableSignature(f"its annotations cannot be read: {self._hint_error}")
        for parameter in self._all.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise UnusableSignature(f"its parameter '{parameter.name}' cannot be passed by name")
        try:
            schema: Json = _drop_titles(self.model.model_json_schema())
        except PydanticUserError as error:
            raise UnusableSignature(str(error).partition("\n")[0]) from error
        return schema

    def convert(self, arguments: Json) -> dict[str, object]:
        """Convert JSON arguments to the declared types. Missing arguments keep the function's defaults."""
        try:
            converted = self.model.model_validate(arguments)
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors())
            raise ArgumentsError("; ".join(problems)) from None
        fields = ((name, f"argument_{position}") for position, name in enumerate(self.parameters))
        values = {name: getattr(converted, field) for name, field in fields if field in converted.model_fields_set}
        return {**values, **(converted.model_extra or {})}


class UnusableSignature(ValueError):
    """A model cannot call a function with this signature."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A host function that runs the calls of a tool."""

    function: Callable[..., object]
    name: str
    options: ToolOptions
    signature: Signature

    def describe(self) -> Function:
        """Return the definition for the model if no file declares the function."""
        try:
            parameters = self.signature.schema
        except UnusableSignature as error:
            raise ToolError(f"the function '{self.name}' cannot be a tool: {error}", "Change its signature.") from error
        description = self.options.description or self.signature.description or None
        return Function(name=self.name, description=description, parameters=parameters)

    @property
    def is_async(self) -> bool:
        return self.signature.is_async

    def prepare(self, arguments: Json, context: ToolContext) -> Callable[[], object]:
        """Return the call with its arguments. Raise `ArgumentsError` if they do not match the signature."""
        values = self.signature.convert(arguments)
        if self.signature.context_parameter:
            values[self.signature.context_parameter] = context
        return partial(self.function, **values)


_signatures: WeakKeyDictionary[Any, dict[bool, Signature]] = WeakKeyDictionary()


def get_signature(function: Callable[..., object]) -> Signature:
    """Return the cached signature of a function. Instances share a method's signature."""
    owner = getattr(function, "__func__", function)
    try:
        cached = _signatures.setdefault(owner, {})
    except TypeError:  # a callable that cannot be hashed or weakly referenced
        return Signature(function)
    is_bound = owner is not function
    if is_bound not in cached:
        cached[is_bound] = Signature(function)
    return cached[is_bound]


def make_handler(function: object, name: str | None = None) -> Handler:
    """Return a handler for a function. `name` takes precedence over `@tool(name=…)` and the function's own name."""
    if isinstance(function, Handler):
        return function
    if not callable(function):
        raise ToolError(f"a tool must be a function, not {type(function).__name__}", "Pass functions as tools.")
    try:
        signature = get_signature(function)
    except ValueError:  # raised for some built-in types and functions
        raise ToolError(
            f"the parameters of {getattr(function, '__name__', 'a function')!r} cannot be read",
            "Wrap it in your own function.",
        ) from None
    options: ToolOptions = getattr(function, MARK, ToolOptions())
    own = getattr(function, "__name__", type(function).__name__)
    return Handler(function, name or options.name or own, options, signature)


def _read_hints(function: Any) -> tuple[dict[str, Any], str]:
    """Return a function's annotations, or the reason why they cannot be read, like a `TYPE_CHECKING` import."""
    try:
        return get_type_hints(function, include_extras=True), ""
    except (NameError, TypeError) as error:
        return {}, str(error)


def _add_description(hint: Any, from_docstring: str | None) -> Any:
    """Return a hint with its description from `Annotated[…, "text"]`, a `Field` or the docstring."""
    if get_origin(hint) is Annotated:
        first, *notes = get_args(hint)
        text = next((note for note in notes if isinstance(note, str)), None)
        if text is None and any(isinstance(note, FieldInfo) and note.description for note in notes):
            return hint
        description = Field(description=text or from_docstring)
        return Annotated[first, *(note for note in notes if note is not text), description]
    return Annotated[hint, Field(description=from_docstring)] if from_docstring else hint


def _drop_titles(schema: Any) -> Any:
    """Remove the titles that pydantic derives from names: they cost tokens and add nothing."""
    if isinstance(schema, list):
        return [_drop_titles(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _drop_titles(value) for name, value in schema.items() if name != "title" or not isinstance(value, str)
    }


def parse_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return a function's description, and its parameters' descriptions by name."""
    description: list[str] = []
    parameters: dict[str, str] = {}
    name = ""
    in_parameters = in_section = False
    for line in inspect.cleandoc(text or "").splitlines():
        stripped = line.strip()
        if not line.startswith(" ") and (_HEADING.fullmatch(stripped) or stripped.startswith(":")):
            in_parameters, in_section, name = bool(_PARAMETERS_HEADING.fullmatch(stripped)), True, ""
        entry = _SPHINX_ENTRY.match(stripped) or (in_parameters and _GOOGLE_ENTRY.match(stripped))
        if entry:
            name = entry[1].lstrip("*")
            parameters[name] = entry[2]
        elif name and stripped:
            parameters[name] += f" {stripped}"
        elif not in_section:
            description.append(line)
    return "\n".join(description).strip(), parameters


def import_source(source: str) -> ModuleType:
    """Import Python code that the user named: a file, or an installed module."""
    path = Path(source)
    if path.suffix != ".py":
        try:
            return import_module(source)
        except ImportError as error:
            raise ToolError(f"there is no module '{source}': {error}", "Name a Python file or a module.") from None
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ToolError(f"there is no file '{source}'", "Name a Python file or an installed module.")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ToolError(_describe_failure(error, path), "Fix the file. To see the traceback, add --debug.") from error
    return module


def load_functions(sources: Iterable[str]) -> list[object]:
    """Return the functions marked with `@tool` in these files and modules."""
    functions: list[object] = []
    for source in sources:
        found = [value for value in vars(import_source(source)).values() if callable(value) and hasattr(value, MARK)]
        if not found:
            raise ToolError(f"'{source}' has no tools", "Mark its functions with @tool from prompty.")
        functions += found
    return functions


def _describe_failure(error: Exception, path: Path) -> str:
    """Return the reason why a file cannot be imported, with its line."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.absolute()]
    line = f":{frames[-1].lineno}" if frames else ""
    cause = next(iter(mask_secrets(f"{type(error).__name__}: {error}").splitlines()), "")
    return f"{path}{line}: {cause}"
