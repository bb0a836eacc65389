"""`prompty import`: turn the tests of another tool into prompts and test files."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from prompty.cases.file_names import SUFFIXES
from prompty.cases.imports.importing import Imported, import_config
from prompty.cli.console import err, fail, out, print_problem
from prompty.pipeline.files import create_files
from prompty.safety.visible import visible

ForeignFile = Annotated[Path, Argument(help="A promptfoo config, or a GitHub .prompt.yml file.")]
Output = Annotated[Path | None, Option("--output", "-o", metavar="PATH", help="Write to this folder.")]


def import_tests(file: ForeignFile, output: Output = None) -> None:
    """Turn FILE, with tests of another tool, into .prompty files and .test.yaml files in the same folder.

    The command lists everything that has no counterpart, and writes it into the files as comments. It runs no code that
    FILE names, and overwrites no file.
    """
    found = import_config(file)
    for problem in found.problems:
        print_problem(problem, err)
    _write(found, output or file.parent)


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
    cases, unchecked = (
        sum(counts) for counts in zip(*((one.cases, one.unchecked) for one in found.files), strict=True)
    )
    out.print(visible(f"Created {', '.join(map(str, texts))}: {_count(cases, 'case')}."))
    if unchecked:
        err.print(f"{_count(unchecked, 'case')} {'has' if unchecked == 1 else 'have'} no check.")
    if left := len(found.problems):
        verb = "was" if left == 1 else "were"
        err.print(f"{_count(left, 'thing')} {verb} not imported: see the list above, and the comments in the files.")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
