"""Read a test file: its YAML, the files it refers to, and every mistake in it with line and fix.

`write_yaml` writes data as YAML that reads back as the same data, for generated test files and prompts.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from prompty.cases.case_file import (
    LEVELS,
    ROWS_REFERENCE,
    Case,
    CaseFile,
    Check,
    Defaults,
    JudgeRules,
    Level,
    ToolCalls,
    ValueCheck,
)
from prompty.cases.checks import parse_path
from prompty.cases.file_names import strip_suffix
from prompty.cases.project_file import find_project
from prompty.errors import InputError, LoadError, Problem, PromptyError, PromptyWarning, RequestError, nearest
from prompty.model.agent import PromptAgent
from prompty.pipeline.files import Buffers, Unreadable
from prompty.pipeline.frontmatter import normalize
from prompty.pipeline.load import load, read_prompt
from prompty.pipeline.packages import SCHEME
from prompty.pipeline.references import References
from prompty.pipeline.source_map import Finding, KeyPath, SourceMap, SourceText, first_findings, first_problems
from prompty.safety.schemas import find_pattern_problem, get_validator
from prompty.safety.yaml import YAML_1_1, Rules, YamlError, YamlProblem, read_yaml

RULES = Rules(YAML_1_1, max_depth=64, max_nodes=1_000_000)
_MAX_NAME_BYTES = 100
_UNSAFE = re.compile(r"[^\w=+-]")
_FILE = re.compile(r"\$\{file:([^{}]+)\}")
_ROWS = re.compile(ROWS_REFERENCE)
_EVALUATORS = frozenset({"python", "similar", "judge"})
_ANSWER_KEYS = frozenset({"tools", "rounds", "cost", "at_least", "judge_inputs"}) | _EVALUATORS


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The cases of one test file, with defaults and names.

    `earlier` is the folder with an earlier version of the prompt, if that is used.
    """

    path: Path
    prompt: Path
    cases: tuple[Case, ...]
    judge: JudgeRules | None = None
    earlier: Path | None = None

    @cached_property
    def folder(self) -> Path:
        return self.path.parent

    @cached_property
    def name(self) -> str:
        """The name of the file without its suffixes, which recordings and baselines share."""
        return strip_suffix(self.path)

    @cached_property
    def label(self) -> str:
        """The path of the file without its suffixes, as it was named."""
        return self.path.with_name(self.name).as_posix()


def make_file_name(text: str) -> str:
    """Return the part of a recording's file name for a case, a variant or a model.

    Spaces and colons become dashes. A text with other characters, or a long one, also gets a hash.
    """
    name = _UNSAFE.sub("-", text).encode()[:_MAX_NAME_BYTES].decode(errors="ignore")
    is_plain = name == text.replace(" ", "-").replace(":", "-") and not name.startswith("-")
    return name if is_plain else f"{name.strip('-')}-{sha256(text.encode()).hexdigest()[:8]}".lstrip("-")


def read_suite(path: Path, buffers: Buffers | None = None) -> Suite:
    """Read a test file. Raise LoadError with all of its problems. `buffers` replace the texts of files."""
    text, _ = read_prompt(path, str(path), buffers)
    source = SourceText(str(path), normalize(text))
    file, findings = _read(source.text, path, buffers or {})
    if findings or file is None:
        raise LoadError(first_problems(source.problems(sorted(findings, key=lambda finding: finding.start), 0)))
    cases = tuple(apply_defaults(file.defaults, case, number) for number, case in enumerate(file.cases, 1))
    return Suite(path=path, prompt=_get_prompt_path(path, file.prompt), cases=cases, judge=file.judge)


def check_suite(path: Path, buffers: Buffers | None = None) -> list[Problem]:
    """Return the problems of a test file. `buffers` replace the texts of files, as in an editor."""
    try:
        read_suite(path, buffers)
    except LoadError as error:
        return list(error.problems)
    return []


def apply_defaults(defaults: Defaults, case: Case, number: int) -> Case:
    """Return a case with the defaults of its file, and with a name."""
    changes: dict[str, Any] = {} if case.name else {"name": f"case {number}"}
    given = defaults.model_fields_set
    for name in given & {"inputs", "tools"}:
        changes[name] = {**getattr(defaults, name), **getattr(case, name)}
    for name in given & {"models", "variants", "repeat", "passes"}:
        if getattr(case, name) is None:
            changes[name] = getattr(defaults, name)
    if "tags" in given:
        changes["tags"] = (*defaults.tags, *case.tags)
    if "expect" in given and not case.expect.model_fields_set:
        changes["expect"] = defaults.expect
    elif "expect" in given:
        levels: dict[str, Any] = {
            level: getattr(defaults.expect, level) + getattr(case.expect, level) for level in LEVELS
        }
        changes["expect"] = case.expect.model_copy(update=levels)
    return case.model_copy(update=changes) if changes else case


def _read(text: str, path: Path, buffers: Buffers) -> tuple[CaseFile | None, list[Finding]]:
    try:
        data, duplicates = read_yaml(text, RULES)
    except YamlError as error:
        return None, [_place(text, "invalid-yaml", error.problem)]
    if not isinstance(data, dict):
        fix = "Write `cases:`, and below it a list of cases."
        return None, [_place(text, "invalid-yaml", YamlProblem("the file is not a mapping", fix, 0, 0))]
    findings = [_place(text, "duplicate-key", problem) for problem in duplicates]
    source_map = SourceMap(text)
    resolved = cast(dict[str, Any], _insert_files(data, path, source_map, findings, buffers))
    if findings:
        return None, findings
    try:
        file = CaseFile.model_validate(resolved)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        wrong = [_locate(detail, resolved, data, source_map) for detail in details]
        return None, first_findings([*wrong, *_find_other_mistakes(details, resolved, data, source_map)])
    return file, first_findings(_find_mistakes(file, data, source_map))


def _find_other_mistakes(
    details: Sequence[ErrorDetails], resolved: dict[str, Any], written: object, source_map: SourceMap
) -> Iterator[Finding]:
    """Yield the mistakes outside the parts that do not fit their types, so that one pass shows all of them."""
    rest = deepcopy(resolved)
    paths = [_follow(detail["loc"], resolved) for detail in details]
    for *above, last in filter(None, paths):
        part: Any = rest
        for key in above:  # a part above may be gone by now
            part = part[int(key)] if isinstance(part, list) else part.get(key) if isinstance(part, dict) else None
        if isinstance(part, dict):
            part.pop(last, None)
    wrong = [".".join(map(str, path[:-1])) for path in paths]
    if {"", "defaults"}.intersection(wrong):
        return  # they change what is right in every case
    try:
        file = CaseFile.model_validate(rest)
    except ValidationError:
        return
    for finding in _find_mistakes(file, written, source_map):
        key = f"{finding.problem.key}."
        if not any(key.startswith(f"{part}.") or f"{part}.".startswith(key) for part in wrong):
            yield finding


def _place(text: str, code: str, problem: YamlProblem) -> Finding:
    lines = text.split("\n")
    start = sum(len(line) + 1 for line in lines[: problem.line]) + problem.column
    end = start + len(lines[problem.line][problem.column :].rstrip()) if problem.line < len(lines) else start
    return Finding(start, max(start, end), Problem(code=code, message=problem.message, fix=problem.fix))


def _insert_files(
    data: dict[str, Any], path: Path, source_map: SourceMap, findings: list[Finding], buffers: Buffers
) -> object:
    """Return the data with each value `${file:…}` replaced with the file. Environment variables are not read."""
    references = References(path.parent, buffers=buffers)

    def insert(value: object, keys: tuple[str | int, ...]) -> object:
        if isinstance(value, dict):
            return {key: insert(entry, (*keys, key)) for key, entry in value.items()}
        if isinstance(value, list):
            return [insert(entry, (*keys, index)) for index, entry in enumerate(value)]
        reference = _FILE.fullmatch(value) if isinstance(value, str) else None
        if reference is None:
            return value
        try:
            if keys == ("cases",) and _ROWS.fullmatch(str(value)):
                from prompty.batches.rows import get_input_kinds  # few test files need tables
                from prompty.cases.case_rows import read_case_rows  # as above

                rows, _ = references.read_text(reference[1])
                agent = _load_prompt(path, data.get("prompt"))
                return read_case_rows(rows, get_input_kinds(agent) if agent else {})
            return references.read_data(reference[1])
        except Unreadable as error:
            outside = "Keep the file below the test file's folder."
            fix = outside if error.code == "file-outside" else error.fix
            findings.append(source_map.locate(keys, error.code, error.message, fix))
        except (InputError, RequestError) as error:
            findings.append(source_map.locate(keys, "file-content", error.cause, error.fix))
        return value

    return insert(data, ())


def _load_prompt(path: Path, prompt: object) -> PromptAgent | None:
    """Return the prompt of a test file. If it cannot be loaded, running its cases reports that."""
    file = _get_prompt_path(path, prompt)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PromptyWarning)
            return load(file, allowed_roots=find_project(file).roots, missing_env="defer")
    except PromptyError:
        return None


def _get_prompt_path(path: Path, prompt: object) -> Path:
    return path.parent / (prompt if isinstance(prompt, str) else f"{strip_suffix(path)}.prompty")


def _locate(detail: ErrorDetails, data: object, written: dict[str, Any], source_map: SourceMap) -> Finding:
    """Locate a problem that pydantic found in the file."""
    keys = _follow(detail["loc"], data)
    last = str(keys[-1]) if keys else ""
    expected, fix = _EXPECTED.get(detail["type"].partition("_")[0], (None, "Correct the value of `{key}`."))
    if keys[:1] == ["cases"] and isinstance(written.get("cases"), str) and len(keys) > 1:
        place = ".".join(map(str, keys[2:]))
        what = f"unknown key `{place}`" if detail["type"] == "extra_forbidden" else f"expected {expected} at `{place}`"
        message = f"row {int(keys[1]) + 1}: {what if expected or 'unknown' in what else detail['msg']}"
        return source_map.locate(("cases",), "wrong-value", message, "Write it as in a test file.")
    if detail["type"] == "missing":
        return source_map.locate(keys[:-1], "missing-key", f"`{last}` is missing", f"Add `{last}: …` here.")
    if detail["type"] == "extra_forbidden":
        known = _KNOWN_KEYS.get(_get_part(keys), ())
        near = nearest(last, known)
        fix = f"Write `{near}`." if near else f"Use one of {', '.join(known)}, or remove it."
        return source_map.locate(keys, "unknown-key", f"unknown key `{last}`", fix, on_key=True)
    found = f"expected {expected}, found {source_map.describe(keys)}" if expected else detail["msg"]
    if keys == ["cases"]:
        fix = "Write one `- name: …` for each case below `cases:`, or ${{file:rows.csv}}."
    return source_map.locate(keys, "wrong-value", found, fix.format(key=last))


_EXPECTED = {
    "float": ("a number", "Write a number, for example `{key}: 0.7`."),
    "int": ("a whole number", "Write a whole number, for example `{key}: 3`."),
    "string": ("text", 'Put it in quotes: `{key}: "…"`.'),
    "dict": ("a mapping", "Write keys and values, indented below `{key}:`."),
    "model": ("a mapping", "Write keys and values, indented below `{key}:`."),
    "tuple": ("a list", "Write one `- …` for each entry below `{key}:`."),
}


def _list_keys(part: type[Any]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in part.model_fields.items())


_KNOWN_KEYS = {
    "file": _list_keys(CaseFile),
    "defaults": _list_keys(Defaults),
    "judge": _list_keys(JudgeRules),
    "case": _list_keys(Case),
    "expect": LEVELS,
    "check": _list_keys(Check),
    "value": _list_keys(ValueCheck),
    "tools": _list_keys(ToolCalls),
    "range": ("min", "max"),
    "similar": ("to", "prompt", "at_least"),
}


def _get_part(keys: Sequence[str | int]) -> str:
    """Return the part of the file that a key belongs to."""
    above = [key for key in keys[:-1] if isinstance(key, str)]
    if not above:
        return "file"
    if "expect" in above and "tools" in above[above.index("expect") :]:
        return "tools" if above[-1] == "tools" else "value"
    if above[-1] in (*LEVELS, "any_of"):
        return "check"
    if above[-1] in ("expect", "defaults", "judge", "similar"):
        return above[-1]
    return "case" if above[-1] == "cases" else "range"


def _follow(loc: tuple[str | int, ...], data: object) -> list[str | int]:
    """Return the keys in the file for a location that pydantic reports."""
    keys: list[str | int] = []
    for position, key in enumerate(loc):
        is_last = position == len(loc) - 1
        if isinstance(data, dict) and (key in data or is_last):
            data = data.get(key)
        elif isinstance(data, list | tuple) and isinstance(key, int) and key < len(data):
            data = data[key]
        elif not (is_last and isinstance(key, str)) or isinstance(data, str | int | float):
            continue  # a step that exists only in pydantic: the tag of a union, or an entry of an implicit list
        keys.append(key)
    return keys


def _find_mistakes(file: CaseFile, written: object, source_map: SourceMap) -> Iterator[Finding]:
    """Yield the mistakes that types cannot detect."""
    if file.prompt is not None and file.prompt.startswith(SCHEME):
        message = f"`{SCHEME}` imports a package, and a test file cannot do that"
        yield source_map.locate(("prompt",), "wrong-value", message, "Name a file below the folder of the test file.")
    yield from _find_wrong_checks(file.defaults, ("defaults",), source_map)
    yield from _find_repeated(file.defaults, ("defaults",), source_map)
    seen: dict[str, int] = {}
    is_rows = isinstance(written, dict) and isinstance(written.get("cases"), str)
    if not file.cases:
        yield source_map.locate(("cases",), "missing-key", "the file has no cases", "Add one below `cases:`.")
    for index, case in enumerate(file.cases):
        keys: KeyPath = ("cases",) if is_rows else ("cases", index)
        name = case.name or f"case {index + 1}"
        file_name = make_file_name(name).lower()
        if file_name in seen:
            message = f"the name '{name}', or the recording's file name, is the same as for case {seen[file_name]}"
            yield source_map.locate((*keys, "name"), "duplicate-key", message, "Give each case a unique name.")
        seen.setdefault(file_name, index + 1)
        yield from _find_wrong_case(file, case, keys, source_map)


def _find_wrong_case(file: CaseFile, case: Case, keys: KeyPath, source_map: SourceMap) -> Iterator[Finding]:
    repeat, passes = case.repeat or file.defaults.repeat or 1, case.passes or file.defaults.passes
    if passes is not None and passes > repeat:
        message = f"`pass` is {passes}, but the case runs {repeat} times"
        yield source_map.locate((*keys, "pass"), "wrong-value", message, f"Write `repeat: {passes}`, or lower `pass`.")
    if file.judge and case.label is None:
        message = "the case of a judge has no label"
        yield source_map.locate(keys, "missing-key", message, "Add `label:` with a person's verdict.")
    if case.label is not None and file.judge is None:
        message = "only the cases of a judge can have a label"
        fix = "Add `judge: {at_least: …}` at the top of the file, or remove the label."
        yield source_map.locate((*keys, "label"), "wrong-value", message, fix)
    yield from _find_wrong_checks(case, keys, source_map)
    yield from _find_repeated(case, keys, source_map)


def _find_repeated(part: Defaults, keys: KeyPath, source_map: SourceMap) -> Iterator[Finding]:
    """Yield models and variants that would run twice with one recording."""
    for key in ("models", "variants"):
        given: tuple[str, ...] = getattr(part, key) or ()
        seen: dict[str, str] = {}
        for index, name in enumerate(given):
            file_name = make_file_name(name).lower()
            if file_name in seen:
                message = f"'{name}', or its recording's file name, is the same as for '{seen[file_name]}'"
                yield source_map.locate((*keys, key, index), "duplicate-key", message, "Remove one of them.")
            seen.setdefault(file_name, name)


def _find_wrong_checks(part: Defaults, keys: KeyPath, source_map: SourceMap) -> Iterator[Finding]:
    if not part.expect.model_fields_set:
        return
    for level in LEVELS:
        for index, check in enumerate(getattr(part.expect, level)):
            place = (*keys, "expect", level, index) if index else (*keys, "expect", level)
            for path, message, fix in find_check_mistakes(check, level):
                yield source_map.locate((*place, *path), "wrong-value", message, fix)


def find_check_mistakes(check: ValueCheck, level: Level) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield the keys, the cause and the fix of each mistake in a check and in the checks below it."""
    of_level = _find_wrong_level(check, level) if isinstance(check, Check) else ()
    for key, message, fix in (*of_level, *_find_incomplete(check), *_find_unusable(check)):
        yield (key,), message, fix
    below = [(("any_of", index), alternative) for index, alternative in enumerate(check.any_of or ())]
    for keys, alternative in below:
        for key in sorted(alternative.model_fields_set & _EVALUATORS):
            message = f"`{key}` runs code or a model, and cannot be one of several alternatives"
            yield (*keys, key), message, "Write it beside `any_of`, not in it."
        if not alternative.conditions:
            yield keys, "the check has no condition, so it always holds", "Add one, or remove the check."
    if isinstance(check, Check) and check.tools is not None:
        yield from _find_wrong_calls(check.tools, level)
    for keys, inner in below:
        for path, message, fix in find_check_mistakes(inner, level):
            yield (*keys, *path), message, fix


def _find_wrong_calls(tools: ToolCalls, level: Level) -> Iterator[tuple[KeyPath, str, str]]:
    given = tools.model_fields_set - {"any_order"}
    if not given or (tools.any_order and given == {"not_contains"}):
        fix = "Add `equals:` or `contains:` with a list of calls."
        yield ("tools",), "there is no call to compare", fix
    for key in sorted(given):
        for index, entry in enumerate(getattr(tools, key) or ()):
            place = ("tools", key, index)
            if isinstance(entry, dict) and len(entry) != 1:
                yield place, "an entry names one call", "Write one `- tool: {…}` for each call."
            for name, arguments in entry.items() if isinstance(entry, dict) else ():
                for number, inner in enumerate(arguments if isinstance(arguments, tuple) else ()):
                    for path, message, fix in find_check_mistakes(inner, level):
                        yield (*place, name, number, *path), message, fix


def _find_wrong_level(check: Check, level: Level) -> Iterator[tuple[str, str, str]]:
    given = check.model_fields_set
    if level in ("render", "wire"):
        for key in sorted(given & _ANSWER_KEYS):
            yield key, f"`{key}` checks an answer, but `{level}` has none", "Write it under `replay:` or `live:`."
    if "seconds" in given and level != "live":
        yield "seconds", "only live runs are timed", "Write it under `live:`."
    if "dropped" in given and level != "wire":
        yield "dropped", "only requests have dropped options", "Write it under `wire:`."
    if "tokens" in given and level == "render":
        yield "tokens", "rendered messages have no token count", "Write it under `wire:`."
    if given & {"at_least", "judge_inputs"} and check.judge is None:
        yield "at_least", "there is no `judge`", "Add `judge: FILE.prompty`, or remove it."
    if check.python is not None and not re.fullmatch(r"[\w.]+:\w+", check.python):
        yield "python", "does not have the form `module:function`", "Write `python: module:function`."


def _find_incomplete(check: ValueCheck) -> Iterator[tuple[str, str, str]]:
    given = check.model_fields_set
    if given == {"path"}:
        yield "path", "there is no condition for this path", "Add `equals:`, `contains:` or another condition."
    if check.ignore_case and not given & {"equals", "contains", "not_contains"}:
        fix = "Add `equals:`, `contains:` or `not_contains:`. In a `regex:`, write `(?i)` at its start."
        yield "ignore_case", "there is no text to compare", fix
    if check.any_of == ():
        yield "any_of", "there is no check in it", "Write one `- …` for each alternative below `any_of:`."


def _find_unusable(check: ValueCheck) -> Iterator[tuple[str, str, str]]:
    if problem := find_pattern_problem(check.regex or ""):
        yield "regex", *problem
    try:
        get_validator(json.dumps(check.json_schema or {}))
    except ValueError as error:
        yield "json_schema", f"not a JSON Schema: {error}", "Correct the schema."
    try:
        parse_path(check.path or "")
    except ValueError as error:
        yield "path", str(error), "Write it like `choices[0].message`."


def write_yaml(data: object) -> str:
    """Write YAML. Some characters, such as U+0085, must be escaped to be read back."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    with suppress(YamlError):
        if read_yaml(text, RULES)[0] == data:
            return text
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120))


def find_file_reference(value: object) -> str | None:
    """Return a text in the data that a test file would read as a file reference, or None."""
    return next(filter(_FILE.fullmatch, _list_texts(value)), None)


def _list_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _list_texts(entry)
    elif isinstance(value, Sequence):
        for entry in value:
            yield from _list_texts(entry)


class _Dumper(yaml.SafeDumper):
    """Writes equal values again, instead of as aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
