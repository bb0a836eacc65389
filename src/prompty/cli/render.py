"""`prompty render` and `prompty explain`: print the messages of a prompt, and the request that it would send."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Option, echo

from prompty.analysis.check import check, check_text
from prompty.analysis.explain import Explanation, OfferedFunction, explain as explain_prompt, explain_cache
from prompty.cases.project_file import Project, find_project, override_in_project
from prompty.cli import options as shared
from prompty.cli.console import out, print_json
from prompty.cli.inputs import STDIN, read_inputs
from prompty.cli.options import read_options
from prompty.errors import Problem, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.content import ContentPart, TextPart
from prompty.model.message import Message
from prompty.pipeline.dotenv import load_env
from prompty.pipeline.load import load, loads, read_default_variant
from prompty.pipeline.packages import locate_prompt
from prompty.pipeline.prepare import prepare
from prompty.pipeline.variants import variants
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible

_STDIN = Path("-")


class Prompt:
    """A prompt on the command line. One from standard input resolves paths in the working directory."""

    def __init__(
        self,
        file: Path,
        variant: str | None = None,
        roots: Sequence[Path] | None = None,
        allow_env: Sequence[str] | None = None,
    ) -> None:
        self.file: Path = file
        self.variant: str | None = variant
        if file == _STDIN and variant:
            raise RequestError("a prompt from standard input has no variants", "Pass its file, or remove --variant.")
        self._text = STDIN.read_text("the prompt") if file == _STDIN else None
        beside = Path.cwd() / "stdin.prompty" if file == _STDIN else file
        load_env(prompt=beside)
        self.project: Project = find_project(beside)
        self._roots = (*(roots or ()), *self.project.roots)
        self._options: dict[str, Any] = {
            "allowed_roots": self._roots,
            "env_allowed": allow_env or (),
            "missing_env": "defer",
        }

    def load(self) -> PromptAgent:
        """Return the agent. Raise LoadError if the prompt has mistakes."""
        if self._text is not None:
            return loads(self._text, base_dir=os.curdir, **self._options)
        return load(locate_prompt(str(self.file)), variant=self.variant, **self._options)

    def check(self) -> list[Problem]:
        """Return the problems of the prompt, or of the chosen variant."""
        if self._text is not None:
            return check_text(self._text, "<stdin>", Path.cwd(), allowed_roots=self._roots)
        path = locate_prompt(str(self.file))
        default = read_default_variant() if self.variant is None else ""
        chosen = self.variant or (default if default in variants(path) else "")
        return check(path, variant=chosen, allowed_roots=self._roots)


_STYLES = {"system": "magenta", "developer": "magenta", "user": "cyan", "assistant": "green"}


def render_prompt(
    file: shared.FileOrStdin,
    value: shared.InputValue = None,
    variant: shared.Variant = None,
    inputs: shared.InputPairs = None,
    inputs_file: shared.InputFile = None,
    strict: Annotated[bool, Option("--strict", help="Fail if the template uses a variable without a value.")] = False,
    template: Annotated[
        bool, Option("--template", help="Print instead the body before it is rendered, with its partials in place.")
    ] = False,
    roots: shared.Roots = None,
    as_json: shared.AsJson = False,
) -> None:
    """Render FILE and print its messages, without calling a model."""
    agent = Prompt(file, variant, roots).load()
    if template:
        body = agent.instructions.removesuffix("\n")
        echo(visible(body) if out.is_terminal else body)
        return
    messages = prepare(agent, read_inputs(agent, inputs, inputs_file, value), strict=strict)
    if as_json:
        print_json([message.to_json() for message in messages])
        return
    for message in messages:
        print_message(message)


def print_message(message: Message) -> None:
    """Print the role and the text of a message; media by kind and size."""
    attributes = ", ".join(f"{name}={value}" for name, value in message.metadata.items())
    heading = visible(f"{message.role} [{attributes}]" if attributes else message.role)
    out.print(Text(f"── {heading} ──", f"bold {_STYLES.get(message.role, 'white')}"))
    out.print(Text("".join(map(_describe, message.content))), end="\n\n")


def _describe(part: ContentPart) -> str:
    if isinstance(part, TextPart):
        return visible(part.value)
    about = part.media_type or ""
    value = part.value if len(part.value) <= 80 else f"{part.value[:60]}… ({len(part.value):,} characters)"
    return visible(f"[{part.kind} {about} {value}]".replace("  ", " "))


def explain_request(
    file: shared.FileOrStdin,
    value: shared.InputValue = None,
    variant: shared.Variant = None,
    inputs: shared.InputPairs = None,
    inputs_file: shared.InputFile = None,
    stream: Annotated[bool, Option("--stream", "-s", help="Explain a streamed call.")] = False,
    cache: Annotated[
        bool, Option("--cache", help="Print instead what the provider can cache: the text before the first tag.")
    ] = False,
    connect: Annotated[bool, Option("--connect", help="Ask the servers of tools for their functions.")] = False,
    as_json: shared.AsJson = False,
    model: shared.ModelId = None,
    provider: shared.ProviderKey = None,
    api: shared.ApiType = None,
    options: shared.ModelOptionPairs = None,
    roots: shared.Roots = None,
) -> None:
    """Print the messages of FILE and the exact request, without sending it, and the functions that the model can call.
    Secrets are masked. No server is asked, unless you add --connect."""
    prompt = Prompt(file, variant, roots)
    agent = override_in_project(
        prompt.load(), prompt.project, model, read_options(options), provider=provider, api_type=api
    )
    if cache:
        _print_cache(agent, as_json=as_json)
        return
    explanation = explain_prompt(agent, read_inputs(agent, inputs, inputs_file, value), stream=stream, connect=connect)
    if as_json:
        messages = [message.to_json() for message in explanation.messages]
        functions = [function._asdict() for function in explanation.functions]
        print_json({**asdict(explanation), "messages": messages, "functions": functions})
    else:
        _print_explanation(explanation)


def _print_cache(agent: PromptAgent, *, as_json: bool) -> None:
    """Print the text that all requests begin with, its tokens, and whether the model caches that many."""
    found = explain_cache(agent)
    texts, minimum = [mask_secrets(text) for text in found.texts], found.minimum
    if as_json:
        print_json({"texts": texts, "tokens": found.tokens, "minimum": minimum, "isCached": found.is_cached})
        return
    out.print(Text(visible("\n\n".join(texts)), "green"), Text("◀ the first tag", "bold blue"))
    out.print(f"All requests begin with about {found.tokens:,} equal tokens: this text, and the tools and the schema.")
    model = visible(agent.model.id or "the model")
    if minimum is None:
        out.print(f"It is not known from how many tokens on {model} caches.")
    else:
        verdict = "can cache them" if found.is_cached else "caches nothing of this prompt"
        out.print(f"{model} caches from {minimum:,} tokens on, so it {verdict}.")


def _print_explanation(explanation: Explanation) -> None:
    for message in explanation.messages:
        print_message(message)
    _print_heading(f"POST {explanation.url}")
    for header in explanation.headers:
        out.print(Text(visible(header)))
    out.print(Text(visible(json.dumps(explanation.body, indent=2, ensure_ascii=False))), end="\n\n")
    dropped = [f"{name}: {text}" for name, text in explanation.dropped.items()]
    functions = [line for function in explanation.functions for line in _describe_function(function)]
    not_asked = [f"{name}: add --connect to ask its server" for name in explanation.not_asked]
    for heading, lines in (("omitted options", dropped), ("functions", functions), ("not asked", not_asked)):
        if lines:
            _print_heading(heading)
            out.print(Text(visible("\n".join(lines))), end="\n\n")
    for heading, note in (
        ("why this API", explanation.chosen),
        ("what the server keeps", explanation.stored),
        ("a call would be refused", explanation.refused),
    ):
        if note:
            _print_heading(heading)
            out.print(Text(visible(note)), end="\n\n")
    _print_heading("as a curl command")
    out.print(Text(visible(explanation.curl)))


def _describe_function(function: OfferedFunction) -> Iterator[str]:
    yield f"{function.name}  ({function.source}; {function.approval})"
    for name, variables in function.bound.items():
        value = f" with the variable {' and '.join(variables)}" if variables else ""
        yield f"    {name}: filled in by the host{value}, not seen by the model"


def _print_heading(text: str) -> None:
    out.print(Text(f"── {visible(text)} ──", "bold blue"))
