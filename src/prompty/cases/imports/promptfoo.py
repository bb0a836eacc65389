"""Read a promptfoo config: prompts, providers, tests, and the assertions that have a counterpart."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import product
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from prompty.cases.imports.assertions import Unsupported, convert_assertion, parse_expected
from prompty.cases.imports.draft import BY_HAND, DraftCase, DraftCheck, DraftMessage, DraftPrompt, Import, Note
from prompty.cases.imports.messages import convert_messages, parse_prompt, split_prompts
from prompty.cases.imports.models import ImportedModel, convert_option, convert_promptfoo_model
from prompty.cases.imports.templates import substitute
from prompty.cases.reading import RULES
from prompty.model.message import Json
from prompty.pipeline.files import Unreadable
from prompty.safety.json import read_json
from prompty.safety.yaml import YamlError, read_yaml

ReadFile = Callable[[str], str]
Keys = tuple[str | int, ...]
_FILE = "file://"
_CODE = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".py", ".rb", ".sh", ".exe", ".go")
_TEXT = (".txt", ".md", ".j2", ".njk")
_DATA = (".json", ".yaml", ".yml")
_NO_CODE = "A file of code is never run. Write the text that it makes."
_MAX_COMBINATIONS = 1000
_DEFAULT_PROMPT = "{{prompt}}"  # of a config without prompts
_TOP = frozenset(
    {"prompts", "providers", "targets", "tests", "defaultTest", "description", "evaluateOptions", "$schema"}
)
_TEST = frozenset({"description", "vars", "assert", "prompts", "providers"})
_COLUMN = re.compile(r"__expected\d*")


class _Provider(NamedTuple):
    model: ImportedModel
    label: str
    options: Mapping[str, object]


class _Test(NamedTuple):
    """A test, and its place in the config."""

    data: Json
    keys: Keys


def read_promptfoo(data: Mapping[str, Any], name: str, read_file: ReadFile) -> Import:
    """Read a config. `name` is that of prompts without one, and `read_file` reads a file below the config's folder."""
    return _Reader(name, read_file).read(data)


class _Reader:
    def __init__(self, name: str, read_file: ReadFile) -> None:
        self.name, self.read_file = name, read_file
        self.notes: list[Note] = []

    def note(self, keys: Keys, message: str, fix: str = BY_HAND) -> None:
        self.notes.append(Note(keys, message, fix))

    def read(self, data: Mapping[str, Any]) -> Import:
        for key in data.keys() - _TOP:
            self.note((key,), f"`{key}` has no counterpart")
        providers = list(self._read_providers(data))
        prompts = [
            DraftPrompt(name=name, messages=messages)
            for name, messages in self._read_prompts(data.get("prompts", _DEFAULT_PROMPT))
        ]
        self._set_models(prompts, providers, data.get("description"))
        repeat = self._read_repeat(data.get("evaluateOptions"))
        default = self._read_default(data.get("defaultTest"))
        tests = list(self._read_tests(data.get("tests"), ("tests",)))
        cases = [(test, list(self._read_cases(test, default, providers))) for test in tests]
        for prompt in prompts:
            prompt.repeat = repeat
            for test, found in cases:
                if self._is_for(test.data.get("prompts"), prompt.name):
                    prompt.cases += [DraftCase(**vars(case)) for case in found]
        return Import(prompts, self.notes)

    # Providers

    def _read_providers(self, data: Mapping[str, Any]) -> Iterator[_Provider]:
        key = "providers" if "providers" in data else "targets"
        for keys, entry in _enumerate(data.get(key), (key,)):
            id: Any = entry
            config: Any = {}
            label, unknown = "", set[str]()
            if isinstance(entry, dict) and len(entry) == 1 and isinstance(next(iter(entry.values())), dict):
                [(id, rest)] = entry.items()  # `openai:gpt-6-luna: {config: …}`
                config, label = rest.get("config") or {}, str(rest.get("label") or "")
                unknown = rest.keys() - {"config", "label"}
            elif isinstance(entry, dict):
                id, config, label = entry.get("id"), entry.get("config") or {}, str(entry.get("label") or "")
                unknown = entry.keys() - {"id", "config", "label"}
            for name in sorted(map(str, unknown)):
                self.note((*keys, name), f"`{name}` of a provider has no counterpart")
            model = convert_promptfoo_model(id) if isinstance(id, str) else None
            if model is None:
                fix = "Name a model as `provider:id` under `models:`. Code and URLs that a config names are not used."
                self.note(keys, f"the provider {_show(id)} is not one that prompty knows", fix)
                continue
            yield _Provider(model, label or str(id), dict(self._read_options(config, (*keys, "config"))))

    def _read_options(self, config: object, keys: Keys) -> Iterator[tuple[str, object]]:
        for name, value in config.items() if isinstance(config, dict) else ():
            option = convert_option(name, value)
            if option:
                yield option
            elif "key" in name.lower() or "token" in name.lower():
                self.note((*keys, name), f"`{name}` is left out: a key does not belong in a file", _KEY_FIX)
            else:
                fix = "Write it under `model.options.additionalProperties:`, if the model needs it."
                self.note((*keys, name), f"the option `{name}` has no counterpart", fix)

    def _set_models(self, prompts: Sequence[DraftPrompt], providers: list[_Provider], description: object) -> None:
        if not providers:
            return
        first = providers[0]
        for other in providers[1:]:
            if other.options != first.options or other.model.api_type != first.model.api_type:
                message = f"{other.label} has other options than {first.label}, whose options the prompts have"
                self.note(("providers",), message, "Write a variant of the prompt for it.")
        for prompt in prompts:
            prompt.description = description if isinstance(description, str) else ""
            prompt.model, prompt.api_type, prompt.options = first.model.name, first.model.api_type, first.options
            if len(providers) > 1:
                prompt.models = list(dict.fromkeys(provider.model.name for provider in providers))

    # Prompts

    def _read_prompts(self, entries: object) -> Iterator[tuple[str, list[DraftMessage]]]:
        for keys, entry in _enumerate(entries, ("prompts",)):
            label, raw = "", entry
            if isinstance(entry, dict):
                label, raw = str(entry.get("label") or ""), entry.get("raw", entry.get("id"))
                for name in sorted(map(str, entry.keys() - {"label", "raw", "id"})):
                    self.note((*keys, name), f"`{name}` of a prompt has no counterpart")
            if not isinstance(raw, str):
                self.note(keys, "the prompt is not text")
            elif raw.startswith(_FILE) or _is_path(raw):
                yield from self._read_prompt_file(raw.removeprefix(_FILE), label, keys)
            else:
                messages = parse_prompt(raw, self._reporter(keys))
                if messages:
                    yield label or self.name, messages

    def _read_prompt_file(self, path: str, label: str, keys: Keys) -> Iterator[tuple[str, list[DraftMessage]]]:
        text = self._read_text(path, keys)
        if text is None:
            return
        name, report = label or PurePosixPath(path).stem, self._reporter(keys)
        if path.lower().endswith(_DATA):
            data = self._parse(text, path, keys)
            messages = convert_messages(data, report) if data is not None else None
            if messages:
                yield name, messages
            return
        for part in split_prompts(text):
            messages = parse_prompt(part, report)
            if messages:
                yield name, messages

    def _reporter(self, keys: Keys) -> Callable[[str, str], None]:
        return lambda message, fix: self.note(keys, message, fix)

    # Files

    def _read_text(self, path: str, keys: Keys, suffixes: Sequence[str] = (*_TEXT, *_DATA)) -> str | None:
        """Return the text of a file below the config's folder, or note why it is not read."""
        plain = path.partition("#")[0]
        suffix = PurePosixPath(re.sub(r":\w+$", "", plain)).suffix.lower()
        if suffix in _CODE:
            self.note(keys, f"{path} is code, which is never run", _NO_CODE)
        elif any(sign in plain for sign in "*?{}[]$"):
            self.note(keys, f"{path} stands for several files", "Name the files one by one, and import again.")
        elif suffix not in suffixes:
            self.note(keys, f"{path} is a file of a kind that is not imported")
        else:
            try:
                return self.read_file(plain)
            except Unreadable as error:
                self.note(keys, error.message, error.fix)
        return None

    def _parse(self, text: str, path: str, keys: Keys) -> object:
        try:
            return read_json(text) if path.lower().endswith(".json") else read_yaml(text, RULES)[0]
        except (ValueError, YamlError) as error:
            self.note(keys, f"{path} cannot be read: {error}", "Correct the file, and import again.")
            return None

    # Tests

    def _read_repeat(self, options: object) -> int | None:
        repeat = None
        for name, value in options.items() if isinstance(options, dict) else ():
            if name == "repeat" and isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1000:
                repeat = value if value > 1 else None
            else:
                self.note(("evaluateOptions", name), f"`{name}` is an option of the command", "See `prompty test -h`.")
        return repeat

    def _read_default(self, data: object) -> _Test:
        if data is not None and not isinstance(data, dict):
            self.note(("defaultTest",), "`defaultTest` is not a mapping")
        default = data if isinstance(data, dict) else {}
        for name in sorted(map(str, default.keys() - {"vars", "assert", "description"})):
            self.note(("defaultTest", name), f"`{name}` of a test has no counterpart")
        return _Test(default, ("defaultTest",))

    def _read_tests(self, entries: object, keys: Keys) -> Iterator[_Test]:
        for place, entry in _enumerate(entries, keys):
            if isinstance(entry, str):
                yield from self._read_test_file(entry.removeprefix(_FILE), place)
            elif isinstance(entry, dict):
                for name in sorted(map(str, entry.keys() - _TEST)):
                    self.note((*place, name), f"`{name}` of a test has no counterpart")
                yield _Test(entry, place)
            else:
                self.note(place, "the test is not a mapping")

    def _read_test_file(self, path: str, keys: Keys) -> Iterator[_Test]:
        text = self._read_text(path, keys, (*_DATA, ".csv", ".jsonl"))
        if text is None:
            return
        if path.lower().endswith(".csv"):
            rows: object = list(self.read_csv(text, keys))
        elif path.lower().endswith(".jsonl"):
            rows = [self._parse(line, "x.json", keys) for line in text.splitlines() if line.strip()]
        else:
            rows = self._parse(text, path, keys)
        for entry in _to_list(rows):
            if isinstance(entry, dict):
                for name in sorted(map(str, entry.keys() - _TEST)):
                    self.note(keys, f"`{name}` of a test in {path} has no counterpart")
                yield _Test(entry, keys)
            else:
                self.note(keys, f"a test in {path} is not a mapping")

    def read_csv(self, text: str, keys: Keys) -> Iterator[Json]:
        """Yield the tests of a CSV text. Columns that start with two underscores describe the test."""
        noted: set[str] = set()
        try:
            for row in csv.DictReader(StringIO(text), strict=True):
                cells = {str(name): cell for name, cell in row.items() if isinstance(cell, str) and name is not None}
                test: Json = {"vars": {name: cell for name, cell in cells.items() if not name.startswith("__")}}
                expected = [cell for name, cell in cells.items() if _COLUMN.fullmatch(name) and cell]
                test["assert"] = [parse_expected(cell) for cell in expected]
                if cells.get("__description"):
                    test["description"] = cells["__description"]
                unknown = {name for name in cells if name.startswith("__") and not _COLUMN.fullmatch(name)}
                for name in sorted(unknown - {"__description"} - noted):
                    self.note(keys, f"the column `{name}` has no counterpart")
                noted |= unknown
                yield test
        except csv.Error as error:
            self.note(keys, f"the CSV file cannot be read: {error}", "Correct the file, and import again.")

    def _read_cases(self, test: _Test, default: _Test, providers: Sequence[_Provider]) -> Iterator[DraftCase]:
        """Yield the cases of a test: one for each combination of the values of its variables."""
        given = {**_to_mapping(default.data.get("vars")), **_to_mapping(test.data.get("vars"))}
        for source in (test, default):
            if not isinstance(source.data.get("vars") or {}, dict):
                self.note((*source.keys, "vars"), "`vars` is not a mapping")
        lists = [_to_list(value) if value is not None else [None] for value in given.values()]
        count = 1
        for entries in lists:
            count *= len(entries)
        if count > _MAX_COMBINATIONS:
            self.note((*test.keys, "vars"), f"the lists have {count:,} combinations", "Write the cases that you need.")
            return
        combinations = list(product(*lists))
        for number, values in enumerate(combinations, 1):
            inputs = self._resolve(dict(zip(given, values, strict=True)), test.keys)
            if inputs is None:
                continue
            name = test.data.get("description")
            name = name if isinstance(name, str) else ""
            case = DraftCase(name=f"{name} {number}" if name and len(combinations) > 1 else name, inputs=inputs)
            for source in (default, test):
                case.checks += self._read_checks(source, inputs)
            case.models = self._choose_models(test, providers)
            yield case

    def _resolve(self, values: dict[str, object], keys: Keys) -> dict[str, object] | None:
        """Return variables with the files and the other variables in them. Note why there are none."""
        resolved: dict[str, object] = {}
        for name, value in values.items():
            if isinstance(value, str) and value.startswith(_FILE):
                text = self._read_text(value.removeprefix(_FILE), (*keys, "vars"), _TEXT)
                if text is None:
                    return None
                value = text.strip()
            elif isinstance(value, str) and "{{" in value:
                value = substitute(value, {key: other for key, other in values.items() if key != name}) or value
            if value is not None:
                resolved[name] = value
        return resolved

    def _read_checks(self, test: _Test, inputs: Mapping[str, object]) -> Iterator[DraftCheck]:
        for keys, entry in _enumerate(test.data.get("assert"), (*test.keys, "assert")):
            try:
                yield from list(convert_assertion(entry, inputs))
            except Unsupported as error:
                note = Note(keys, str(error), error.fix)
                if note not in self.notes:
                    self.notes.append(note)

    def _choose_models(self, test: _Test, providers: Sequence[_Provider]) -> list[str]:
        wanted = test.data.get("providers")
        return [one.model.name for one in providers if self._is_for(wanted, one.label)] if wanted else []

    def _is_for(self, wanted: object, name: str) -> bool:
        return wanted is None or any(
            isinstance(entry, str) and (entry == name or (entry.endswith("*") and name.startswith(entry[:-1])))
            for entry in _to_list(wanted)
        )


_KEY_FIX = "Set the variable of the provider, such as OPENAI_API_KEY, or use `prompty keys`."


def _enumerate(entries: object, keys: Keys) -> Iterator[tuple[Keys, Any]]:
    """Yield the entries of a list with their places. A value alone is a list of one."""
    if isinstance(entries, list):
        yield from (((*keys, index), entry) for index, entry in enumerate(entries))
    elif entries is not None:
        yield keys, entries


def _to_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _to_mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _is_path(text: str) -> bool:
    """Return True for `prompts/a.txt`. promptfoo takes a text that ends like a file for one."""
    return "\n" not in text and text.strip().lower().endswith((*_TEXT, *_DATA, *_CODE)) and " " not in text.strip()


def _show(id: object) -> str:
    text = id if isinstance(id, str) else "without an id"
    return f"`{text[:60]}`"
