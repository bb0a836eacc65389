"""Load the prompt that a command names, and parse its inputs as the kinds that it declares."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from prompty.cases.project_file import find_project, override_in_project
from prompty.errors import InputError
from prompty.model.agent import PromptAgent
from prompty.model.content import AudioPart, FilePart, ImagePart, MediaPart
from prompty.model.property import Property
from prompty.pipeline.dotenv import load_env
from prompty.pipeline.load import load
from prompty.pipeline.packages import locate_prompt
from prompty.pipeline.validate import read_union
from prompty.safety.json import read_json
from prompty.safety.write_files import find_outside_target
from prompty.safety.yaml import YamlError, read_yaml

_MEDIA: dict[str, type[MediaPart]] = {"image": ImagePart, "audio": AudioPart, "file": FilePart}
_EXAMPLES = {
    "boolean": "true",
    "integer": "3",
    "float": "0.5",
    "array": "'[1, 2]'",
    "object": """'{"name": "value"}'""",
    "thread": """'[{"role": "user", "content": "Hi"}]'""",
}
_EXPECTED = {"boolean": "true or false", "integer": "an integer", "float": "a number"}
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_USAGE = (
    "Write -i name=value, -i name=@file to read a file, -i name=- to read standard input, "
    "or -i name=@@text for text that starts with @."
)


def read_inputs(
    agent: PromptAgent, pairs: Sequence[str] | None, file: Path | None = None, value: str | None = None
) -> dict[str, object]:
    """Return the inputs from `file`, `pairs` and `value`, which sets the only required input without a value."""
    values = {**(_read_input_file(file) if file else {}), **read_pairs(agent, pairs or [])}
    if value is not None:
        name = _find_only_required(agent, values)
        values |= read_pairs(agent, [f"{name}={value}"])
    return values


def _read_input_file(file: Path) -> dict[str, object]:
    """Return the inputs in a JSON or YAML file."""
    name = "standard input" if str(file) == "-" else f"'{file}'"
    fix = 'Write a mapping of names to values, for example {"question": "…"}.'
    check_argument(file)
    try:
        text = STDIN.read_text("--inputs") if str(file) == "-" else file.read_text(encoding="utf-8-sig")
        data = read_json(text) if file.suffix == ".json" else _read_yaml(text)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("", f"the inputs in {name} cannot be read: {error}", fix) from None
    if not isinstance(data, dict):
        raise InputError("", f"{name} is not a mapping of inputs", fix)
    return data


def _read_yaml(text: str) -> object:
    """Parse JSON or YAML. YAML rejects some JSON: escaped surrogate pairs."""
    with suppress(ValueError):
        return read_json(text)
    data, duplicates = read_yaml(text)
    if duplicates:
        raise YamlError(duplicates[0])
    return data


def _find_only_required(agent: PromptAgent, given: Mapping[str, object]) -> str:
    """Return the name of the required input that has no value yet. Raise InputError unless there is exactly one."""
    required = [entry.name for entry in agent.inputs if entry.required and entry.default is None]
    missing = [name for name in required if name not in given]
    if len(missing) == 1:
        return missing[0]
    names = missing or [entry.name for entry in agent.inputs]
    if not names:
        raise InputError("", "the prompt has no inputs, so there is nothing to set", "Remove the last argument.")
    listed = ", ".join(f"'{name}'" for name in names)
    cause = f"more than one required input has no value: {listed}" if missing else "no required input is left to set"
    raise InputError("", cause, f"Set the input by name: {' '.join(f'-i {name}=…' for name in names)}.")


def read_pairs(agent: PromptAgent, pairs: Sequence[str]) -> dict[str, object]:
    """Return the inputs in `pairs` of the form NAME=VALUE."""
    inputs = {declared.name: declared for declared in agent.inputs}
    values: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(name, f"`{pair}` does not have the form NAME=VALUE", _USAGE)
        values[name] = _read_value(inputs.get(name) or Property(name=name), text)
    return values


def _read_value(declared: Property, text: str) -> object:
    name, kind = declared.name, declared.kind
    if text.startswith("@@"):
        return _parse_value(declared, text[1:])
    if text == "-":
        return _parse_value(declared, _read_stdin(name, kind))
    if not text.startswith("@"):
        return _parse_value(declared, text)
    path = Path(text[1:])
    check_argument(path, name)
    try:
        media = _MEDIA.get(kind)
        return media.from_file(path) if media else _parse_value(declared, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(name, f"the file for input '{name}' cannot be read: {error}", _USAGE) from None


def check_argument(path: Path, name: str = "") -> None:
    """Raise InputError if a file that the command names leads out of the working folder through a link."""
    if target := find_outside_target(path):
        cause = f"'{path}' leads through a link to '{target}', which is outside the working folder"
        raise InputError(name, cause, "To read that file, write its whole path.")


def _read_stdin(name: str, kind: str) -> str:
    if kind in _MEDIA:
        fix = f"Write -i {name}=@FILE: the file's suffix gives the media type."
        raise InputError(name, f"input '{name}' is declared as {kind}, which cannot be read from standard input", fix)
    return STDIN.read_text(f"the input '{name}'")


def _parse_value(declared: Property, text: str) -> object:
    """Parse the text as JSON unless the kind is text."""
    name, kind = declared.name, declared.kind
    if kind == "string" or kind in _MEDIA:
        return text
    if kind == "boolean" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    try:
        return read_union(declared, text) if kind == "union" else read_json(text)
    except ValueError as error:
        shown = f"{text[:60]}…" if len(text) > 60 else text
        cause = f"input '{name}' must be {_EXPECTED.get(kind, f'JSON for a value of kind {kind}')}, not {shown!r}"
        if kind not in _EXPECTED:
            cause += f": {error}"
        raise InputError(name, cause, f"Example: -i {name}={_EXAMPLES.get(kind, '…')}") from None


def load_prompt_file(
    file: Path,
    variant: str | None,
    model: str | None = None,
    options: dict[str, object] | None = None,
    *,
    provider: str | None,
    api: str | None = None,
    roots: Sequence[Path] | None = None,
    allow_env: Sequence[str] | None = None,
) -> PromptAgent:
    """Load a prompt, with the variables of its `.env` and the roots of its project, and override its model."""
    load_env(prompt=file)
    project = find_project(file)
    folders = (*(roots or ()), *project.roots)
    path, names = locate_prompt(str(file)), allow_env or ()
    agent = load(path, variant=variant, allowed_roots=folders, env_allowed=names, missing_env="defer")
    return override_in_project(agent, project, model, options, provider=provider, api_type=api)


NO_FILE = Path("-.prompty")  # in place of a file, as if there were one in the working folder


def build_bare_agent(
    model: str | None = None,
    options: dict[str, object] | None = None,
    *,
    provider: str | None = None,
    api: str | None = None,
) -> PromptAgent:
    """Return an agent without a prompt, for the model that the command line, the project or PROMPTY_MODEL names."""
    load_env(prompt=NO_FILE)
    return override_in_project(PromptAgent(), find_project(NO_FILE), model, options, provider=provider, api_type=api)


class StandardInput:
    def __init__(self) -> None:
        self._reader: str | None = None

    def claim(self, reader: str) -> None:
        """Reserve standard input. Raise InputError if it is already reserved."""
        if self._reader is not None:
            raise InputError(
                "",
                f"standard input is used for {self._reader}, so {reader} cannot be read from it",
                "Use - only once, and name a file for the other.",
            )
        self._reader = reader

    def read_text(self, reader: str) -> str:
        self.claim(reader)
        try:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(
                "", f"{reader}, read from standard input, is not UTF-8: {error}", "Convert it to UTF-8."
            ) from None


STDIN: StandardInput = StandardInput()
