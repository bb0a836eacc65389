"""Read a file of another tool, and tell which tool it is of."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from prompty.batches.rows import get_input_kinds
from prompty.cases.case_rows import read_case_rows
from prompty.cases.imports.draft import Import
from prompty.cases.imports.prompt_yml import read_prompt_yml
from prompty.cases.imports.promptfoo import read_promptfoo
from prompty.cases.imports.rows import read_case_list
from prompty.cases.imports.writing import PromptFiles, write_prompts
from prompty.cases.reading import RULES
from prompty.errors import Problem, RequestError
from prompty.pipeline.frontmatter import normalize
from prompty.pipeline.load import load, read_prompt
from prompty.pipeline.references import References
from prompty.pipeline.source_map import SourceMap, SourceText
from prompty.safety.yaml import YamlError, read_yaml

NOT_IMPORTED = "not-imported"
_PROMPT_YML = (".prompt.yml", ".prompt.yaml")
ROWS = (".csv", ".jsonl", ".ndjson")


class Imported(NamedTuple):
    """The texts of new files, and a warning for whatever was left out."""

    files: list[PromptFiles]
    problems: list[Problem]


def import_config(path: Path) -> Imported:
    """Read a promptfoo config or a `.prompt.yml`. Raise RequestError or LoadError for another file."""
    text, _ = read_prompt(path, str(path))
    source = SourceText(str(path), normalize(text))
    data = _read_mapping(source.text, path)
    if path.name.endswith(_PROMPT_YML):
        found = read_prompt_yml(data, path.name.removesuffix(".yml").removesuffix(".yaml").removesuffix(".prompt"))
    elif data.keys() & {"prompts", "providers", "targets", "tests"}:
        references = References(path.parent)
        name = path.stem if path.stem != "promptfooconfig" else path.absolute().parent.name
        found = read_promptfoo(data, name, lambda file: references.read_text(file)[1])
    else:
        raise RequestError(
            f"'{path}' is neither a promptfoo config nor a .prompt.yml of GitHub Models",
            "A config has the keys `prompts:`, `providers:` and `tests:`.",
        )
    return _finish(found, source)


def import_rows(path: Path, prompt: Path) -> Imported:
    """Read the rows of a CSV or JSONL file as cases of a prompt."""
    kinds = get_input_kinds(load(prompt, variant=""))
    found = read_case_list(read_case_rows(path, kinds), prompt.stem, set(kinds))
    [file] = write_prompts(found.prompts)
    problems = [
        Problem(code=NOT_IMPORTED, message=note.message, fix=note.fix, path=str(path), severity="warning")
        for note in (*found.notes, *file.notes)
    ]
    return Imported([file._replace(name=prompt.stem)], problems)


def _read_mapping(text: str, path: Path) -> dict[str, Any]:
    try:
        data, _ = read_yaml(text, RULES)
    except YamlError as error:
        raise RequestError(f"'{path}' is not YAML: {error}", "Correct the file.") from None
    if not isinstance(data, dict):
        raise RequestError(f"'{path}' has no mapping of keys", "Name a promptfoo config or a .prompt.yml.")
    return data


def _finish(found: Import, source: SourceText) -> Imported:
    files = write_prompts(found.prompts)
    notes = [*found.notes, *(note for file in files for note in file.notes)]
    source_map = SourceMap(source.text)
    findings = [source_map.locate(note.keys, NOT_IMPORTED, note.message, note.fix) for note in notes]
    problems = source.problems(sorted(findings, key=lambda finding: finding.start), 0)
    return Imported(files, [replace(problem, severity="warning") for problem in problems])
