"""Sixty broken and forty right files, which the command line, the server and editors must report alike.

`python -m tests.lsp.corpus FOLDER` writes them, each with the files that it uses in a folder of its own, and prints a
JSON list of `{name, file, problems}`. Positions of problems count like those of the protocol: lines from 0, columns in
units of UTF-16.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prompty.cases.checking import check_in_project
from prompty.cases.file_names import find_test_file
from prompty.cases.reading import check_suite
from prompty.errors import Problem
from tests.analysis.test_mistakes import MISTAKES

HEAD = "---\nname: shop\nmodel: {id: house-model, provider: openai}\n"
GOOD = f"{HEAD}inputs:\n  who: {{kind: string}}\n---\nsystem:\nBe kind.\nuser:\nHello {{{{ who }}}}\n"
TESTS = "cases:\n  - name: greets\n    inputs: {who: Ada}\n    expect: {render: {contains: Ada}}\n"


class Sample(NamedTuple):
    """A file, and the files next to it."""

    main: str
    files: Mapping[str, str]

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (folder / name).write_bytes(text.encode())
        return folder / self.main


def _prompt(text: str, **others: str) -> Sample:
    return Sample(
        "a.prompty", {"a.prompty": text, **{name.replace("__", "."): other for name, other in others.items()}}
    )


def _body(text: str, **others: str) -> Sample:
    return _prompt(f"{HEAD}---\n{text}\n", **others)


def _tests(text: str) -> Sample:
    return Sample("a.test.yaml", {"a.prompty": GOOD, "a.test.yaml": text})


def _variant(text: str, base: str = GOOD, main: str = "a.short.prompty") -> Sample:
    return Sample(main, {"a.prompty": base, "a.short.prompty": text})


_V1 = "---\nname: old\nmodel:\n  api: chat\n  configuration: {type: azure_openai, azure_deployment: d}\n"
BROKEN: dict[str, Sample] = {
    **{name: _prompt(text.replace("scripted", "openai")) for name, (text, *_) in MISTAKES.items()},
    "a key behind an emoji": _prompt(f"{HEAD}metadata: {{a: 😀}}\nx: {{y: 😀, z: ${{file:}}}}\n---\nuser:\nHi\n"),
    "a variable behind emoji": _body("user:\n😀😀 {{ nobody }} 😀 {{ nothing }}"),
    "a variable behind combining marks": _body("user:\ne\u0301a\u0308 {{ nobody }} \u0915\u094d\u0937 {{ nothing }}"),
    "a variable behind flags and families": _body("user:\n🇩🇪👩‍👩‍👧 {{ nobody }}"),
    "carriage returns": _prompt(f"{HEAD}descripton: x\n---\nuser:\n😀 {{{{ nobody }}}}\n".replace("\n", "\r\n")),
    "other line ends in the text": _body("user:\na\u2028b\x0cc\x85d {{ nobody }}\n{{ nothing }}"),
    "a partial with a variable": _body('user:\n{% include "_p.md" %}', _p__md="One\n😀 {{ nobody }}\n"),
    "a partial with a broken tag": _body('user:\n{% include "_p.md" %}', _p__md="One\n{% if %}\n"),
    "a partial that includes itself": _body('user:\n{% include "_p.md" %}', _p__md='{% include "_p.md" %}\n'),
    "a partial that reads more than it declares": _body(
        'user:\n{% include "_p.md" %}', _p__md="---\ninputs: {a: x}\n---\n{{ a }} {{ b }}\n"
    ),
    "a variant with a wrong key": _variant("---\nmodle: x\n---\n"),
    "a variant whose base is wrong": _variant("---\nname: s\n---\n", GOOD.replace("name: shop", "nmae: shop")),
    "a base whose variant is wrong": _variant("---\nmodle: x\n---\nuser:\n😀 {{ nobody }}\n", main="a.prompty"),
    "a prompt whose test file is wrong": _prompt(GOOD, a__test__yaml="cases:\n  - nmae: x\n"),
    "a test file with a wrong key": _tests("cases:\n  - nmae: x\n"),
    "a test file with a wrong value": _tests("cases:\n  - {name: x, repeat: often}\n"),
    "a test file that is no YAML": _tests("cases: [\n"),
    "a test file with two names": _tests("cases:\n  - {name: 😀 x}\n  - {name: 😀 x}\n"),
    "a test file with a missing file": _tests("cases:\n  - {name: 😀, inputs: {who: '${file:no.txt}'}}\n"),
    "a test file with a wrong level": _tests("cases:\n  - name: x\n    expect: {render: {cost: 1}}\n"),
    "a v1 file": _prompt(f"{_V1}---\nuser:\nHi\n"),
    "a v1 file with a part that v2 lacks": _prompt(f"{_V1}sample: {{who: Ada}}\nfoo: bar\n---\nuser:\n{{{{ who }}}}\n"),
    "a v1 file with a variable": _prompt(f"{_V1}inputs: {{a: {{type: string}}}}\n---\nsystem:\n😀 {{{{ nobody }}}}\n"),
}
_RIGHT_INPUTS = {
    "a default": "{kind: string, default: you}",
    "a number": "{kind: float, default: 0.5}",
    "a whole number": "{kind: integer, required: true}",
    "a flag": "{kind: boolean}",
    "a choice": "{kind: string, enumValues: [a, b]}",
    "a list": "{kind: array, items: {kind: string}}",
    "an object": "{kind: object, properties: {a: {kind: string}}}",
    "an emoji": "{kind: string, default: 😀}",
    "a description": "{kind: string, description: Whom to greet.}",
    "an example": "{kind: string, example: Ada}",
}
_RIGHT_BODIES = {
    "a condition": "user:\n{% if who %}{{ who }}{% endif %}",
    "a loop": "user:\n{% for one in [1, 2] %}{{ one }} {{ who }}{% endfor %}",
    "a filter": "user:\n{{ who | upper | trim }}",
    "an assignment": "user:\n{% set whole = who %}{{ whole }}",
    "a comment": "user:\n{# {{ nothing }} #}{{ who }}",
    "raw text": "user:\n{% raw %}{{ nothing }}{% endraw %}{{ who }}",
    "several messages": "system:\nA\nuser:\n{{ who }}\nassistant:\nB\nuser:\nC",
    "a marker with attributes": "system[name=house]:\nA\nuser:\n{{ who }}",
    "Markdown": "user:\n# Title\n- {{ who }}\n\n```json\n{}\n```",
    "a block": "user:\n{% block tone %}{{ who }}{% endblock %}",
    "other scripts": "user:\n😀 e\u0301 \u0915\u094d\u0937 {{ who }} a\u2028b",
}
_RIGHT_KEYS = {
    "a description": "description: A shop.",
    "metadata": "metadata: {tags: [a, 😀]}",
    "outputs": "outputs: {answer: {kind: string}}",
    "a function": "tools:\n  - name: look\n    kind: function\n    parameters: {place: {kind: string}}",
    "a binding": "tools: [{name: f, kind: function, parameters: {w: {kind: string}}, bindings: {w: {input: who}}}]",
    "a template": "template: {format: {kind: jinja2}, parser: {kind: prompty}}",
    "a default of a variable": "description: ${env:PROMPTY_TEST_UNSET:nothing}",
    "a comment": "# a comment\ndisplayName: x # another",
}
RIGHT: dict[str, Sample] = {
    **{f"an input with {name}": _prompt(GOOD.replace("{kind: string}", text)) for name, text in _RIGHT_INPUTS.items()},
    **{
        f"a body with {name}": _prompt(f"{HEAD}inputs:\n  who: {{kind: string}}\n---\n{text}\n")
        for name, text in _RIGHT_BODIES.items()
    },
    **{
        f"a file with {name}": _prompt(GOOD.replace("inputs:", f"{text}\ninputs:"))
        for name, text in _RIGHT_KEYS.items()
    },
    "a plain file": _prompt(GOOD),
    "carriage returns": _prompt(GOOD.replace("\n", "\r\n")),
    "Mustache": _prompt(GOOD.replace("inputs:", "template: mustache\ninputs:")),
    "a partial": _prompt(GOOD.replace("Be kind.", '{% include "_p.md" %}'), _p__md="Be 😀.\n"),
    "a partial with inputs": _prompt(
        GOOD.replace("Be kind.", '{% include "_p.md" %}'), _p__md="---\ninputs: {tone: x}\n---\n{{ tone }}\n"
    ),
    "a variant": _variant("---\ndescription: short\n---\n"),
    "a variant with a body": _variant("---\ndescription: short\n---\nuser:\n{{ who }}\n"),
    "a base with a variant": _variant("---\ndescription: short\n---\n", main="a.prompty"),
    "a prompt with tests": _prompt(GOOD, a__test__yaml=TESTS),
    "tests": _tests(TESTS),
    "tests with defaults": _tests("defaults: {inputs: {who: 😀}}\ncases: [{name: x}]\n"),
}
SAMPLES: dict[str, Sample] = {
    **{f"broken: {name}": sample for name, sample in BROKEN.items()},
    **{f"right: {name}": sample for name, sample in RIGHT.items()},
}


def find_problems(file: Path) -> list[Problem]:
    """Return the problems that `prompty check` prints for a file."""
    if file.name.endswith(".test.yaml"):
        return check_suite(file)
    tests = find_test_file(file)
    return [*check_in_project(file), *(check_suite(tests) if tests else [])]


def to_protocol(problem: Problem) -> dict[str, Any]:
    """Return the file, the code and the range of a problem, in the units of the protocol."""
    path = Path(problem.path)
    lines = path.read_bytes().decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")

    def count(line: int, column: int) -> dict[str, int]:
        text = lines[line - 1][: column - 1] if line else ""
        return {"line": max(line - 1, 0), "character": len(text.encode("utf-16-le")) // 2}

    start, end = count(problem.line, problem.column), count(problem.end_line, problem.end_column)
    return {"file": path.name, "code": problem.code, "range": {"start": start, "end": end}}


def main(folder: Path) -> None:
    """Write the files, and print what an editor must show for each."""
    shown = []
    for number, (name, sample) in enumerate(SAMPLES.items()):
        file = sample.write(folder / str(number))
        problems = [to_protocol(problem) for problem in find_problems(file)]
        shown.append({"name": name, "file": str(file), "problems": problems})
    print(json.dumps(shown, indent=1))  # noqa: T201  a script


if __name__ == "__main__":
    main(Path(sys.argv[1]))
