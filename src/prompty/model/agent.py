"""A loaded .prompty file: its model with options (§2.6), its template engine and parser (§2.8), and its secrets."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import unquote, unquote_plus

from pydantic import BeforeValidator, Field, InstanceOf, model_validator
from pydantic.json_schema import SkipJsonSchema

from prompty.errors import Problem, WrongArgument
from prompty.model.connection import Connection
from prompty.model.definition import Definition
from prompty.model.property import Properties, Property
from prompty.model.request import OutputSchema
from prompty.model.tool import DeclaredTools, ToolDefinition, bind_inputs
from prompty.model.trust import HOST_BUILT, FieldPath, Trust
from prompty.registry import AGENT_PICKLER, DEFAULT, Registry, import_object
from prompty.safety.html import to_text, write_table
from prompty.safety.redaction import (
    MASK,
    SHORTEST_SECRET,
    Redactor,
    current_redactor,
    is_credential_name,
    leaves,
    mask_url,
)


class Format(Definition):
    """The template engine."""

    kind: str = "jinja2"
    strict: bool = Field(
        False,
        exclude_if=lambda strict: not strict,
        description="Refuse inputs with a line that looks like a role marker. Otherwise such a line stays text.",
    )
    options: dict[str, Any] | None = None


class TemplateParser(Definition):
    """The parser that splits rendered text into messages."""

    kind: str = "prompty"
    options: dict[str, Any] | None = None


def _from_kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


class Template(Definition):
    """The engine and the parser of a prompt. A text is the kind of either."""

    format: Annotated[Format, BeforeValidator(_from_kind, json_schema_input_type=str | Format)] = (
        Format.model_construct()
    )
    parser: Annotated[TemplateParser, BeforeValidator(_from_kind, json_schema_input_type=str | TemplateParser)] = (
        TemplateParser.model_construct()
    )


def _from_text(value: Any) -> Any:
    return {"format": {"kind": value}} if isinstance(value, str) else value


TemplateField = Annotated[Template, BeforeValidator(_from_text, json_schema_input_type=str | Template)]


ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ModelOptions(Definition):
    """Options of a model call. Options that a provider does not support are not sent."""

    temperature: float | None = Field(None, description="Sampling temperature, 0.0 to 2.0.")
    max_output_tokens: int | None = Field(None, description="Maximum number of tokens in the completion.")
    top_p: float | None = Field(None, description="Nucleus sampling threshold.")
    top_k: int | None = Field(None, description="Top-K sampling. Not every provider supports it.")
    frequency_penalty: float | None = Field(None, description="Frequency penalty, -2.0 to 2.0.")
    presence_penalty: float | None = Field(None, description="Presence penalty, -2.0 to 2.0.")
    seed: int | None = Field(None, description="Random seed for reproducible answers.")
    stop_sequences: tuple[str, ...] | None = Field(None, description="Sequences that stop the generation.")
    reasoning_effort: ReasoningEffort | None = Field(
        None, description="How much the model reasons: none, minimal, low, medium, high, xhigh or max."
    )
    allow_multiple_tool_calls: bool | None = Field(None, description="Allow several tool calls in one reply.")
    additional_properties: dict[str, Any] | None = Field(
        None, description="Options of a specific provider, passed through unchanged."
    )


SCRIPTED = "scripted"


class Model(Definition):
    """The model that answers, its provider and its API (§2.4)."""

    id: str = Field("", description="Model identifier, for example gpt-6-luna.")
    provider: str = Field("openai", description="openai, azure, foundry, anthropic, or a provider that you registered.")
    api_type: str = Field("chat", description="chat, responses, embedding or image.")
    connection: Connection | None = None
    options: ModelOptions = ModelOptions.model_construct()
    # A field of every model, so that the schema, the editor and the checks know it without a special case.
    script: tuple[Any, ...] | None = Field(
        None,
        exclude_if=lambda script: script is None,
        description="The replies of `provider: scripted`, in order: texts, calls, or lists of calls.",
    )

    @model_validator(mode="after")
    def _name_script(self) -> Self:
        """Name a scripted model without an `id`. Only a registered script needs one."""
        if self.provider == SCRIPTED and not self.id:
            self.__dict__["id"] = "script"
        return self


def _from_id(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


class Frontmatter(Definition):
    """The fields before the body of a file (§2.3)."""

    name: str | None = None
    display_name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] = Field({}, description="Authors, tags, a version, or any other data.")
    model: Annotated[Model, BeforeValidator(_from_id, json_schema_input_type=str | Model)] = Model.model_construct()
    inputs: Properties = ()
    outputs: Properties = ()
    tools: DeclaredTools = ()
    template: TemplateField = Template.model_construct()


class FileLine(NamedTuple):
    """A line of a file. `path` is None for the prompt itself, whose lines count from the start of its body."""

    path: Path | None
    line: int


@dataclass(frozen=True, slots=True)
class BodyLines:
    """The origins of a body's lines: lines from `starts[i]` on come from `places[i]`."""

    starts: tuple[int, ...]
    places: tuple[FileLine, ...]

    def locate(self, line: int) -> FileLine:
        """Return the origin of a line of the body."""
        index = bisect_right(self.starts, line) - 1
        if index < 0:
            return FileLine(None, line)
        place = self.places[index]
        return place._replace(line=place.line + line - self.starts[index])


@dataclass(frozen=True, slots=True)
class Places:
    """The places of an agent's keys and lines in its file, with the model and the body that it had there.

    All are equal: they are no part of the prompt.
    """

    locate: Callable[[FieldPath], Problem] | None = field(default=None, repr=False, compare=False)
    model: Model | None = field(default=None, repr=False, compare=False)
    body: str = field(default="", repr=False, compare=False)


class PromptAgent(Frontmatter):
    """A loaded prompt: its frontmatter, its body, and the path of its file.

    An agent is immutable, and `load` returns the same object as long as the file is unchanged. To change an agent, copy
    it: `agent.model_copy(update={"instructions": …})`. `files` has the hashes of its partials and its base by name.
    """

    kind: Literal["prompt"] = "prompt"
    instructions: str = ""
    files: SkipJsonSchema[dict[str, str]] = Field({}, exclude_if=lambda hashes: not hashes, repr=False)
    path: Path | None = Field(None, exclude=True, description="The file it was loaded from.")
    base_dir: Path | None = Field(None, exclude=True, repr=False, description="The folder of the files it names.")
    allowed_roots: tuple[Path, ...] = Field((), exclude=True, repr=False, description="Other folders of such files.")
    body_lines: SkipJsonSchema[InstanceOf[BodyLines] | None] = Field(None, exclude=True, repr=False)
    places: SkipJsonSchema[InstanceOf[Places]] = Field(Places(), exclude=True, repr=False)
    result_schema: SkipJsonSchema[InstanceOf[OutputSchema] | None] = Field(None, exclude=True, repr=False)
    registry: SkipJsonSchema[InstanceOf[Registry]] = Field(DEFAULT, exclude=True, repr=False)
    trust: SkipJsonSchema[InstanceOf[Trust]] = Field(HOST_BUILT, exclude=True, repr=False)

    @model_validator(mode="after")
    def _bind_inputs(self) -> Self:
        """Bind each plain text in `bindings` to the declared input of that name."""
        if any(tool.bindings for tool in self.tools):
            declared = {entry.name for entry in self.inputs}
            self.__dict__["tools"] = tuple([bind_inputs(tool, declared) for tool in self.tools])
        return self

    def __reduce__(self) -> Any:
        """Let other processes read an agent that was pickled: its variables have the values that they have there."""
        return import_object(AGENT_PICKLER)(self)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the fields that distinguish agents. Print `agent.model_dump()` for the rest."""
        redactor = create_redactor(self)
        if self.name:
            yield "name", redactor.mask(self.name)
        if self.model.id:
            yield "model", redactor.mask(f"{self.model.provider}:{self.model.id}")
        for group in ("inputs", "outputs", "tools"):
            if names := [entry.name for entry in getattr(self, group)]:
                yield group, names
        if self.path:
            yield "path", str(self.path)

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        endpoint = getattr(self.model.connection, "endpoint", None)
        rows = [
            ("prompt", self.display_name or self.name or ""),
            ("description", self.description or ""),
            ("model", f"{self.model.provider}:{self.model.id}" if self.model.id else ""),
            ("endpoint", mask_url(endpoint) if endpoint else ""),
            ("file", str(self.path or "")),
        ]
        declared = [*(("input", one) for one in self.inputs), *(("output", one) for one in self.outputs)]
        rows += [(f"{group} {one.name}", _describe_property(one)) for group, one in declared]
        rows += [(f"tool {tool.name}", f"{tool.kind}\n{tool.description or ''}".strip()) for tool in self.tools]
        return write_table([*rows, ("template", self.instructions)])

    if not TYPE_CHECKING:  # a type checker that saw it would accept every name

        def __getattr__(self, name: str) -> Any:
            if name in _FUNCTIONS:
                raise AttributeError(f"an agent has no method '{name}'. Call prompty.{_FUNCTIONS[name]}")
            return super().__getattr__(name)


def _describe_property(declared: Property) -> str:
    state = ", required" if declared.required else ""
    if declared.default is not None:
        state += f", default {MASK if declared.sensitive else to_text(declared.default)}"
    return f"{declared.kind}{state}\n{declared.description or ''}".strip()


# Methods that agents have in other libraries → the call.
_FUNCTIONS = {
    "run": "turn(agent, inputs).",
    "invoke": "invoke(agent, inputs).",
    "turn": "turn(agent, inputs).",
    "execute": "invoke(agent, inputs).",
    "stream": "turn(agent, inputs, stream=True).",
}


def require_agent(value: object, function: str) -> None:
    """Raise WrongArgument if the first argument of a function is not an agent."""
    if not isinstance(value, PromptAgent):
        fix = f"Pass load({value!r:.80})." if isinstance(value, str) else "Pass the result of `load` or `loads`."
        raise WrongArgument(f"{function}()", value, "a PromptAgent", fix)


_URL_USER = re.compile(r"://([^/@\s]*)@")
_URL_QUERY = re.compile(r"[?&]([^=&#]+)=([^&#]*)")


def secrets_in(agent: PromptAgent) -> Iterator[str]:
    """Return an iterator of an agent's secrets. It does not keep the agent and its registry.

    These are the credentials of its connections, defaults and options whose name looks like a credential, the values
    that its file got from such variables, and those of the `.env` file that its registry has read.
    """
    return _find_secrets(
        agent.trust.secrets, agent.registry.dotenv, agent.inputs, agent.model, agent.tools, agent.metadata
    )


def _find_secrets(
    read: Iterable[str],
    dotenv: Mapping[str, str],
    inputs: Iterable[Property],
    model: Model,
    tools: Sequence[ToolDefinition],
    metadata: Mapping[str, Any],
) -> Iterator[str]:
    yield from read
    yield from (value for name, value in dotenv.items() if is_credential_name(name))
    yield from leaves([declared.default for declared in inputs if is_credential_name(declared.name)])
    for owner in (model, *tools):
        yield from _credentials(getattr(owner, "connection", None))
    yield from _named_secrets(metadata.get("fallbacks"))
    for tool in tools:
        options = getattr(tool, "options", None) or {}
        yield from leaves([value for name, value in options.items() if is_credential_name(name)])


def list_bound_values(tools: Iterable[ToolDefinition]) -> Iterator[str]:
    """Yield the values that tools bind. They are masked in the runs of their agent, and not in those of others: a value
    may be a common word."""
    values = (binding.value for tool in tools for binding in tool.bindings.values() if binding.value)
    yield from leaves([value.get_secret_value() for value in values])


def create_redactor(agent: PromptAgent) -> Redactor:
    """Return a redactor for one use of an agent, inside the run or the command that uses it."""
    redactor = Redactor(parent=current_redactor())
    hide_values(redactor, agent)
    return redactor


def hide_values(redactor: Redactor, agent: PromptAgent) -> None:
    """Hide an agent's secrets, and the values that its tools bind."""
    redactor.hide(secrets_in(agent), shortest=SHORTEST_SECRET)
    if agent.tools:
        redactor.hide(list_bound_values(agent.tools))


def _named_secrets(value: object) -> Iterator[str]:
    """Yield the values whose key looks like a credential, for example in fallback models."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from leaves(entry) if is_credential_name(str(name)) else _named_secrets(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _named_secrets(entry)


def _credentials(connection: object) -> Iterator[str]:
    for name in ("api_key", "client_secret"):
        if secret := getattr(connection, name, None):
            yield secret.get_secret_value().strip()
    for value in (getattr(connection, "headers", None) or {}).values():
        yield from (value, value.rpartition(" ")[2])
    for url in (getattr(connection, name, None) or "" for name in ("endpoint", "token_url")):
        for user in _URL_USER.findall(url):
            yield from (*user.split(":"), *map(unquote, user.split(":")))
        for name, value in _URL_QUERY.findall(url):
            if name != "api-version":
                yield from (value, unquote_plus(value))
