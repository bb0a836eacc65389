"""Read a promptfoo config: prompts, providers with tools and shapes, tests, and their assertions."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from io import StringIO
from itertools import islice, product
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

from prompty.cases.imports.assertions import convert_assertions, parse_expected
from prompty.cases.imports.models import build_model, convert_model, convert_option, convert_shape, convert_tools
from prompty.cases.imports.templates import enumerate_entries, parse_prompt, shorten, substitute, to_list, to_mapping
from prompty.cases.imports.writing import BY_HAND, DraftCase, DraftPrompt, Keys, Note
from prompty.cases.reading import RULES
from prompty.model.message import Json
from prompty.pipeline.files import Unreadable, find_matches
from prompty.pipeline.references import References
from prompty.safety.json import read_json
from prompty.safety.yaml import YamlError, read_yaml

_FILE = "file://"
_PATH = re.compile(r"\S+\.(txt|md|j2|njk|json|ya?ml|[cm]?[jt]s|py|rb|sh|exe|go)(:\w+)?", re.IGNORECASE)
_TEXT = (".txt", ".md", ".j2", ".njk")
_DATA = (".json", ".yaml", ".yml")
_MAX_COMBINATIONS, _MAX_FILES = 1000, 200
_TOP = {"prompts", "providers", "targets", "tests", "defaultTest", "description", "evaluateOptions", "$schema"}
_TEST = {"description", "vars", "assert", "prompts"}
_COLUMN = re.compile(r"__expected\d*")


class PromptfooReader:
    """The reader of one config. It reads data below the config's folder, runs nothing, and notes what it leaves out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[Note] = []

    def read(self, data: Mapping[str, Any], name: str) -> list[DraftPrompt]:
        """Return the prompts of a config with their cases. `name` is that of prompts without one."""
        self._note_unknown(data, _TOP, (), "")
        providers = list(self._read_providers(data))
        head: dict[str, Any] = providers[0][1] if providers else {}
        if isinstance(data.get("description"), str) and "${" not in data["description"]:
            head = {"description": data["description"], **head}
        options = to_mapping(data.get("evaluateOptions"))
        self._note_unknown(options, {"repeat"}, ("evaluateOptions",), ", an option of the command,")
        repeat = options.get("repeat")
        models = list(dict.fromkeys(model for model, _ in providers)) if len(providers) > 1 else []
        defaults = {"models": models, "repeat": repeat if type(repeat) is int and 1 < repeat <= 1000 else None}
        prompts = [
            DraftPrompt(name=label, messages=messages, head=head, defaults=defaults)
            for label, messages in self._read_prompts(data.get("prompts", "{{prompt}}"), name)
        ]
        default = next((test for _, test in self._read_tests(data.get("defaultTest"), ("defaultTest",))), {})
        for keys, test in self._read_tests(data.get("tests"), ("tests",)):
            cases = list(self.read_cases(test, keys, default))
            wanted = [str(entry) for entry in to_list(test.get("prompts"))] or ["*"]
            chosen = [prompt for prompt in prompts if any(fnmatch(prompt.name, entry) for entry in wanted)]
            if prompts and not chosen:
                self._note(keys, "the test, with its checks, is for prompts that are not imported")
            for prompt in chosen:
                prompt.cases += [DraftCase(**vars(case)) for case in cases]
        return prompts

    def _note(self, keys: Keys, message: str, fix: str = BY_HAND) -> None:
        self.notes.append(Note(keys, message, fix))

    def _note_unknown(self, data: Mapping[str, Any], known: set[str], keys: Keys, of: str) -> None:
        for name in sorted(map(str, data.keys() - known)):
            self._note((*keys, name), f"`{name}`{of} has no counterpart")

    def _read_providers(self, data: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the model and the frontmatter of each provider that is a model."""
        key = "providers" if "providers" in data else "targets"
        first: dict[str, Any] | None = None
        for keys, entry in enumerate_entries(data.get(key), (key,)):
            settings: dict[str, Any] = entry if isinstance(entry, dict) else {"id": entry}
            for id, rest in settings.items() if len(settings) == 1 else ():
                settings = {"id": id, **rest} if isinstance(rest, dict) else settings  # `openai:x: {config: …}`
            model = convert_model(settings.get("id"))
            if model is None:
                fix = "Name a model as `provider:id` under `models:`. Code and URLs that a config names are not used."
                self._note(keys, f"the provider `{shorten(settings.get('id'))}` is not one that prompty knows", fix)
                continue
            self._note_unknown(settings, {"id", "config", "label"}, keys, " of a provider")
            config = to_mapping(settings.get("config"))
            head: dict[str, Any] = {"model": build_model(*model, config.get("apiHost"))}
            if first is None:
                first = config
                for name, value in config.items():
                    self._read_setting(head, str(name), value, (*keys, "config", name))
            elif config != first:
                message = f"the options of {model[0]} differ from those of the first provider, which are kept"
                self._note(keys, message, "Write a variant of the prompt for it.")
            yield model[0], head

    def _read_setting(self, head: dict[str, Any], name: str, value: Any, keys: Keys) -> None:
        if isinstance(value, str) and value.startswith(_FILE):
            value = next((data for _, data in self._read_files(value, keys, _DATA)), None)
        if option := convert_option(name, value):
            head["model"].setdefault("options", {})[option[0]] = option[1]
        elif name == "tools" and (tools := convert_tools(value)) is not None:
            head["tools"] = tools
        elif name == "response_format" and (outputs := convert_shape(value)):
            head["outputs"] = outputs
        elif not (name == "apiHost" and "connection" in head["model"]):
            fix = "Write it under `tools:`, `outputs:` or `model.options.additionalProperties:`. A key is a variable."
            self._note(keys, f"the option `{name}` has no counterpart that expresses all of it", fix)

    def _read_prompts(self, entries: object, name: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        for keys, entry in enumerate_entries(entries, ("prompts",)):
            settings = to_mapping(entry)
            self._note_unknown(settings, {"label", "raw", "id"}, keys, " of a prompt")
            label, raw = settings.get("label"), settings.get("raw", settings.get("id")) if settings else entry
            found = [(str(label or name), raw)]
            if isinstance(raw, str) and (raw.startswith(_FILE) or _PATH.fullmatch(raw.strip())):
                found = []
                for path, data in self._read_files(raw, keys, (*_TEXT, *_DATA)):
                    texts = [part.strip("\n") for part in f"\n{data}\n".split("\n---\n")]
                    parts = texts if isinstance(data, str) else [data]
                    found += [(str(label or PurePosixPath(path).stem), part) for part in parts if part]
            for title, text in found:
                messages, reasons = parse_prompt(text)
                self.notes += [Note(keys, reason, "Write it as a .prompty file, in Jinja2.") for reason in reasons]
                if messages:
                    yield title, messages

    def _read_files(self, path: str, keys: Keys, suffixes: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield the paths and contents of the files that a path or a pattern stands for. Note why one is not read."""
        plain = path.removeprefix(_FILE).partition("#")[0]
        paths = [plain]
        if any(sign in plain for sign in "*?[") and not plain.startswith("/") and ".." not in plain:
            paths = sorted(islice(find_matches(self.folder, plain), _MAX_FILES + 1))
        if not 1 <= len(paths) <= _MAX_FILES:
            self._note(keys, f"{'too many files match' if paths else 'no file matches'} {plain}", "Name the files.")
            return
        for found in paths:
            suffix = PurePosixPath(found).suffix.lower()
            try:
                if suffix in suffixes:
                    yield found, _parse(References(self.folder).read_text(found)[1], suffix)
                else:
                    self._note(keys, f"{found} is not read: it is code, or of a kind that is not imported")
            except Unreadable as error:
                self._note(keys, error.message, error.fix)
            except (ValueError, YamlError, csv.Error) as error:
                self._note(keys, f"{found} cannot be read: {error}", "Correct the file, and import again.")

    def _read_tests(self, entries: object, parent: Keys) -> Iterator[tuple[Keys, Json]]:
        for keys, entry in enumerate_entries(entries, parent):
            rows = [entry]
            if isinstance(entry, str):
                files = self._read_files(entry, keys, (*_DATA, ".csv", ".jsonl"))
                rows = [row for _, data in files for row in to_list(data)]
            for row in rows:
                if isinstance(row, dict):
                    self._note_unknown(row, _TEST, keys, " of a test")
                    yield keys, row
                else:
                    self._note(keys, "the test is not a mapping")

    def read_cases(self, test: Json, keys: Keys, default: Json) -> Iterator[DraftCase]:
        """Yield the cases of a test: one for each combination of the values of its variables."""
        given = {**to_mapping(default.get("vars")), **to_mapping(test.get("vars"))}
        lists = [value if isinstance(value, list) else [value] for value in given.values()]
        count = prod(map(len, lists))
        if not isinstance(test.get("vars") or {}, dict) or not 1 <= count <= _MAX_COMBINATIONS:
            message = f"the test, with its checks, is left out: `vars` is no mapping, or has {count:,} combinations"
            self._note((*keys, "vars"), message, "Write the cases that you need.")
            return
        name = str(test.get("description") or "")
        for number, values in enumerate(product(*lists), 1):
            case = DraftCase(name=f"{name} {number}" if name and count > 1 else name)
            case.inputs = self._resolve(dict(zip(given, values, strict=True)), (*keys, "vars"))
            for source, place in ((default, ("defaultTest", "assert")), (test, (*keys, "assert"))):
                checks, lost = convert_assertions(source.get("assert"), place, case.inputs)
                case.checks, case.lost = case.checks + checks, case.lost + lost
            yield case

    def _resolve(self, values: Json, keys: Keys) -> dict[str, object]:
        """Return variables with the files and the other variables in them. A file that is not read leaves its name."""
        resolved: dict[str, object] = {}
        for name, value in values.items():
            if isinstance(value, str) and value.startswith(_FILE):
                value = next((data.strip() for _, data in self._read_files(value, keys, _TEXT)), value)
            elif isinstance(value, str) and "{{" in value:
                value = substitute(value, {key: other for key, other in values.items() if key != name}) or value
            if value is not None:
                resolved[str(name)] = value
        return resolved


def read_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the test of a row: columns `__expected` are assertions, `__description` is its name, others are values."""
    cells = {str(name): cell for name, cell in row.items()}
    test: dict[str, Any] = {"vars": {name: cell for name, cell in cells.items() if not name.startswith("__")}}
    test["assert"] = [parse_expected(str(cell)) for name, cell in cells.items() if _COLUMN.fullmatch(name) and cell]
    test["description"] = cells.pop("__description", None)
    return {**{name: cell for name, cell in cells.items() if name[:2] == "__" and not _COLUMN.fullmatch(name)}, **test}


def _parse(text: str, suffix: str) -> Any:
    """Return the text or the data of a file. Raise ValueError, YamlError or csv.Error."""
    if suffix == ".csv":
        return [read_row(row) for row in csv.DictReader(StringIO(text), strict=True)]
    if suffix == ".jsonl":
        return [read_json(line) for line in text.splitlines() if line.strip()]
    if suffix in _DATA:
        return read_json(text) if suffix == ".json" else read_yaml(text, RULES)[0]
    return text
