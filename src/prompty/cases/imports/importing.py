"""Read a file of another tool, and tell which tool it is of. A `.prompt.yml` is translated to a promptfoo config."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from prompty.cases.imports.promptfoo import PromptfooReader
from prompty.cases.imports.templates import to_list, to_mapping
from prompty.cases.imports.writing import Keys, PromptFiles, write_prompts
from prompty.cases.reading import RULES
from prompty.errors import Problem, RequestError
from prompty.model.message import Json
from prompty.pipeline.frontmatter import normalize
from prompty.pipeline.load import read_prompt
from prompty.pipeline.source_map import SourceMap, SourceText
from prompty.safety.json import read_json
from prompty.safety.yaml import YamlError, read_yaml

_CODE = "not-imported"
_TRANSLATED = {"name", "model", "modelParameters", "messages", "testData", "evaluators", "responseFormat", "jsonSchema"}


class Imported(NamedTuple):
    """The texts of new files, and a warning for whatever was left out."""

    files: list[PromptFiles]
    problems: list[Problem]


def import_config(path: Path) -> Imported:
    """Read a promptfoo config or a `.prompt.yml`. Raise RequestError or LoadError for another file."""
    source = SourceText(str(path), normalize(read_prompt(path, str(path))[0]))
    try:
        data, _ = read_yaml(source.text, RULES)
    except YamlError as error:
        raise RequestError(f"'{path}' is not YAML: {error}", "Correct the file.") from None
    is_github = path.name.endswith((".prompt.yml", ".prompt.yaml"))
    if not isinstance(data, dict) or not (is_github or data.keys() & {"prompts", "providers", "targets", "tests"}):
        fix = "A config has the keys `prompts:`, `providers:` and `tests:`."
        raise RequestError(f"'{path}' is neither a promptfoo config nor a .prompt.yml of GitHub Models", fix)
    reader = PromptfooReader(path.parent)
    name = path.absolute().parent.name if path.stem == "promptfooconfig" else path.stem.removesuffix(".prompt")
    prompts = reader.read(translate_prompt_yml(data, name) if is_github else data, name)
    files = write_prompts(prompts, list(dict.fromkeys(reader.notes)))
    source_map = SourceMap(source.text)
    findings = []
    for note in dict.fromkeys([*reader.notes, *(note for file in files for note in file.notes)]):
        keys = _locate_in_prompt_yml(note.keys, data) if is_github else note.keys
        findings.append(source_map.locate(keys, _CODE, note.message, note.fix))
    problems = source.problems(sorted(findings, key=lambda finding: finding.start), 0)
    return Imported(files, [replace(problem, severity="warning") for problem in problems])


def translate_prompt_yml(data: Json, name: str) -> Json:
    """Return the config for a `.prompt.yml`. `name` is that of the prompt."""
    model, shape = data.get("model"), data.get("jsonSchema")
    config = dict(to_mapping(data.get("modelParameters")))
    if shape is not None or data.get("responseFormat") not in (None, "text"):
        config["response_format"] = shape
        with suppress(ValueError):
            config["response_format"] = read_json(shape) if isinstance(shape, str) else shape
    return {
        **{key: value for key, value in data.items() if key not in _TRANSLATED},
        "prompts": [{"label": name, "raw": data.get("messages")}],
        "providers": [{"id": model, "config": config}] if model is not None or config else [],
        "defaultTest": {"assert": [rule for _, rule in _list_rules(data)]},
        "tests": [{"vars": row} for row in to_list(data.get("testData"))],
    }


def _locate_in_prompt_yml(keys: Keys, data: Json) -> Keys:
    """Return the place in a `.prompt.yml` for a place in its config."""
    match keys:
        case ("providers", _, "config", "response_format", *_):
            return ("jsonSchema",) if "jsonSchema" in data else ("responseFormat",)
        case ("providers", _, "config", *rest):
            return ("modelParameters", *rest)
        case ("defaultTest", "assert", int(index), *_):
            return ("evaluators", _list_rules(data)[index][0])
        case ("tests" | "providers" | "prompts" as part, *rest):
            return {"tests": ("testData", *rest), "providers": ("model",), "prompts": ("messages",)}[part]
    return keys


def _list_rules(data: Json) -> list[tuple[int, Json]]:
    """Return the rules of evaluators as assertions, each with the position of its evaluator."""
    found: list[tuple[int, Json]] = []
    for index, evaluator in enumerate(to_list(data.get("evaluators"))):
        settings = to_mapping(evaluator)
        rules = to_mapping(settings.get("string"))
        found += [(index, {"type": str(rule), "value": value}) for rule, value in rules.items()]
        if not rules:
            kind = "evaluator" if "llm" in settings or "uses" in settings else "other evaluator"
            found.append((index, {"type": kind, "value": str(settings.get("name", index + 1))}))
    return found
