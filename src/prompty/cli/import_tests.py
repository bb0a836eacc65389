"""`prompty import`: turn the tests of another tool into prompts and test files."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from prompty.cases.imports.importing import ROWS, Imported, import_config, import_rows
from prompty.cases.reading import SUFFIXES
from prompty.cli.console import err, fail, out, print_problem
from prompty.pipeline.files import create_files
from prompty.safety.visible import visible

ForeignFile = Annotated[
    Path, Argument(help="A promptfoo config, a .prompt.yml file, or rows in a .csv or .jsonl file.")
]
RowsPrompt = Annotated[Path | None, Option("--prompt", metavar="FILE", help="The prompt that rows are cases of.")]
Output = Annotated[Path | None, Option("--output", "-o", metavar="FOLDER", help="Write to this folder.")]


def import_tests(file: ForeignFile, prompt: RowsPrompt = None, output: Output = None) -> None:
    """Turn FILE, with tests of another tool, into .prompty files and .test.yaml files in the same folder.

    The command lists everything that has no counterpart. It runs no code that FILE names, and overwrites no file.
    """
    if file.suffix.lower() in ROWS:
        if prompt is None:
            fail(f"{file} has rows, but no prompt\n    Name their prompt: --prompt FILE.prompty.")
        found, folder = import_rows(file, prompt), output or prompt.parent
    elif prompt is not None:
        fail(f"{file} already has prompts\n    Remove --prompt.")
    else:
        found, folder = import_config(file), output or file.parent
    for problem in found.problems:
        print_problem(problem, err)
    _write(found, folder)


def _write(found: Imported, folder: Path) -> None:
    texts: dict[Path, bytes] = {}
    for prompt in found.files:
        for suffix, text in ((".prompty", prompt.prompt), (SUFFIXES[0], prompt.tests)):
            if text is not None:
                texts[folder / f"{prompt.name}{suffix}"] = text.encode()
    if not texts:
        fail("nothing was imported\n    The list above says why.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        create_files(texts)
    except FileExistsError as error:
        fail(f"{error}\n    Write to another folder: --output FOLDER.")
    cases = sum(prompt.cases for prompt in found.files)
    out.print(visible(f"Created {', '.join(map(str, texts))}: {cases} {'case' if cases == 1 else 'cases'}."))
    left = len(found.problems)
    if left:
        err.print(f"{left} {'thing was' if left == 1 else 'things were'} not imported: see the list above.")
