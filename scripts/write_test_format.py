"""Write the reference of test files from their definition."""

from pathlib import Path

from pydantic import BaseModel

from prompty.cases import case_file
from prompty.cases.case_file import Case, CaseFile, Check, Defaults, ToolCalls

PATH = Path(__file__).parent.parent / "docs" / "reference" / "test-files.md"
_HEAD = """\
# Test files

A test file has cases for a prompt: `answer.test.yaml` for `answer.prompty`. [Test prompts](../how-to/test-prompts.md)
shows how to write one. Editors complete its keys with the JSON Schema `schemas/test.schema.json`. `prompty check` names
each mistake, with its line and its fix.
"""
_SECTIONS: tuple[tuple[str, str, type[BaseModel], type[BaseModel] | None], ...] = (
    ("The file", "", CaseFile, None),
    ("Defaults", "Values for every case. A case adds to `inputs`, `tools`, `tags` and `expect`.", Defaults, None),
    ("Cases", "A case has the keys of `defaults`, and these:", Case, Defaults),
    ("Levels", "`expect` has checks by level. A level takes one check, or a list of checks.", case_file.Expect, None),
    (
        "Checks",
        "All conditions of a check must hold. Where a check needs data and the answer is text, the text must be JSON, "
        "alone or in one fence of Markdown.",
        Check,
        None,
    ),
    (
        "Tool calls",
        "`tools` is a list of all calls in their order, or these keys. A call is `look`, `{pay: {amount: 5}}` with "
        "equal arguments, or `{pay: [{path: to, regex: ^A}]}` with checks of its arguments. Others don't matter.",
        ToolCalls,
        None,
    ),
    ("Ranges", "A number alone is both limits.", case_file.Range, None),
    ("Similarity", "", case_file.Similarity, None),
    ("Judges", "`judge` at the top of the file says when a judge may fail a build.", case_file.JudgeRules, None),
)


def page_text() -> str:
    parts = [_HEAD]
    for title, intro, part, base in _SECTIONS:
        known = base.model_fields if base else {}
        rows = [
            f"| `{field.alias or name}` | {field.description} |"
            for name, field in part.model_fields.items()
            if name not in known
        ]
        table = "\n".join(["| key | meaning |", "|---|---|", *rows])
        parts.append(f"## {title}\n\n{intro}\n\n{table}\n" if intro else f"## {title}\n\n{table}\n")
        if part is ToolCalls:
            values = ", ".join(f"`{name}`" for name in case_file.ValueCheck.model_fields)
            parts.append(f"A check of arguments takes {values}.\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PATH.write_text(page_text(), encoding="utf-8")
