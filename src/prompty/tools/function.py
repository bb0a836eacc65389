"""Functions of the host as tools: a signature becomes a schema, JSON arguments become the values it asks for."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints, overload
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo

from prompty.errors import ArgumentsError, ToolError
from prompty.model.message import Json
from prompty.model.request import Function
from prompty.tools.context import ToolContext
from prompty.tools.docstring import read_docstring

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])
MARK = "__prompty_tool__"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolOptions:
    """What `@tool` says about a function beside its signature."""

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
    """Mark a function, sync or async, as one that models may call. It stays the function it was.

    `sequential` lets nothing of the same batch run beside it, `timeout` is in seconds. An `idempotent` one may run
    twice and do no more than once: a durable run repeats it after a crash without asking.
    """

    def marked(function: Any) -> Any:
        setattr(function, MARK, ToolOptions(**options))
        return function

    return marked if function is None else marked(function)


class Signature:
    """What a function takes, read once."""

    def __init__(self, function: Callable[..., object]) -> None:
        call = getattr(type(function), "__call__", None)  # noqa: B004  its function is looked at, not whether it is there
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        inner = function.func if isinstance(function, partial) else function
        self._hints, self._unreadable = _hints(inner if inspect.isroutine(inner) else call)
        self._all = dict(inspect.signature(function).parameters)
        self.description, self._told = read_docstring(function.__doc__)

    @cached_property
    def context_parameter(self) -> str | None:
        """The parameter that takes the `ToolContext`."""
        return next((name for name, hint in self._hints.items() if hint is ToolContext), None)

    @cached_property
    def takes_anything(self) -> bool:
        return any(one.kind is one.VAR_KEYWORD for one in self._all.values())

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """What has a name by which a model can give it."""
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        found = {name: one for name, one in self._all.items() if one.kind in named}
        return {name: one for name, one in found.items() if name != self.context_parameter}

    @cached_property
    def required(self) -> list[str]:
        return [name for name, one in self.parameters.items() if one.default is inspect.Parameter.empty]

    @cached_property
    def model(self) -> type[BaseModel]:
        """The signature as a model; its fields are numbered, so that no parameter's name can clash with a method."""
        fields: dict[str, Any] = {}
        for position, (name, one) in enumerate(self.parameters.items()):
            default = ... if one.default is inspect.Parameter.empty else one.default
            hint = _described(self._hints.get(name, Any), self._told.get(name))
            fields[f"argument_{position}"] = (hint, Field(default, alias=name))
        extra: Any = "allow" if self.takes_anything else "forbid"
        config = ConfigDict(extra=extra, arbitrary_types_allowed=True)
        return create_model("Arguments", __config__=config, **fields)

    @cached_property
    def schema(self) -> Json:
        """The JSON Schema of what a model gives."""
        if self._unreadable:
            raise Unusable(f"its annotations cannot be read: {self._unreadable}")
        for one in self._all.values():
            if one.kind in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY):
                raise Unusable(f"a model cannot give its parameter '{one.name}' by name")
        try:
            found: Json = _without_titles(self.model.model_json_schema())
        except PydanticUserError as error:
            raise Unusable(str(error).partition("\n")[0]) from error
        return found

    def values(self, arguments: Json) -> dict[str, object]:
        """JSON arguments as the values that the function asks for; what is missing keeps its default."""
        try:
            read = self.model.model_validate(arguments)
        except ValidationError as error:
            raise ArgumentsError(_told(error)) from None
        fields = ((name, f"argument_{position}") for position, name in enumerate(self.parameters))
        values = {name: getattr(read, field) for name, field in fields if field in read.model_fields_set}
        return {**values, **(read.model_extra or {})}


class Unusable(ValueError):
    """A signature that no model can call."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A function of the host that runs calls of a tool."""

    function: Callable[..., object]
    name: str
    options: ToolOptions
    signature: Signature

    def described(self) -> Function:
        """The function as a model sees it, when no file declares it."""
        try:
            parameters = self.signature.schema
        except Unusable as error:
            raise ToolError(f"the function '{self.name}' cannot be a tool: {error}", "Change its signature.") from error
        description = self.options.description or self.signature.description or None
        return Function(name=self.name, description=description, parameters=parameters)

    @property
    def is_async(self) -> bool:
        return self.signature.is_async

    def prepared(self, arguments: Json, context: ToolContext) -> Callable[[], object]:
        """The call with everything it takes. Raises for arguments that the function cannot take."""
        values = self.signature.values(arguments)
        if self.signature.context_parameter:
            values[self.signature.context_parameter] = context
        return partial(self.function, **values)


_signatures: WeakKeyDictionary[Any, dict[bool, Signature]] = WeakKeyDictionary()


def signature_of(function: Callable[..., object]) -> Signature:
    """The signature of a function; the instance that a method is bound to has no part in it."""
    owner = getattr(function, "__func__", function)
    try:
        known = _signatures.setdefault(owner, {})
    except TypeError:  # an object that can be called, but neither hashed nor referred to weakly
        return Signature(function)
    bound = owner is not function
    if bound not in known:
        known[bound] = Signature(function)
    return known[bound]


def handler_of(function: object, name: str | None = None) -> Handler:
    """What runs the calls of a function; its name is the one given here, or by `@tool`, or its own."""
    if isinstance(function, Handler):
        return function
    if not callable(function):
        raise ToolError(f"a {type(function).__name__} is not a function", "Pass functions as tools.")
    options: ToolOptions = getattr(function, MARK, ToolOptions())
    own = getattr(function, "__name__", type(function).__name__)
    return Handler(function, name or options.name or own, options, signature_of(function))


def _hints(function: Any) -> tuple[dict[str, Any], str]:
    """The annotations of a function, or why they cannot be read: some name things that exist only for checkers."""
    try:
        return get_type_hints(function, include_extras=True), ""
    except (NameError, TypeError) as error:
        return {}, str(error)


def _described(hint: Any, told: str | None) -> Any:
    """A hint with its description: that of `Annotated[…, "text"]` or of a `Field`, else that of the docstring."""
    if get_origin(hint) is Annotated:
        first, *notes = get_args(hint)
        text = next((note for note in notes if isinstance(note, str)), None)
        if text is None and any(isinstance(note, FieldInfo) and note.description for note in notes):
            return hint
        described = Field(description=text or told)
        return Annotated[first, *(note for note in notes if note is not text), described]
    return Annotated[hint, Field(description=told)] if told else hint


def _without_titles(schema: Any) -> Any:
    """The schema without the titles that pydantic makes of names: a model pays for them and learns nothing."""
    if isinstance(schema, list):
        return [_without_titles(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "title" or not isinstance(value, str)}
    return {name: _without_titles(value) for name, value in kept.items()}


def _told(error: ValidationError) -> str:
    problems = (f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors())
    return "; ".join(problems)
