"""`prompty migrate`: rewrite Prompty v1 files as v2 files, or files for another model."""

from difflib import unified_diff
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, echo

from prompty.cases.project_file import find_project
from prompty.cli.console import err, explain_os_error, fail, out, print_problem
from prompty.cli.options import Roots, complete_model
from prompty.cli.search import find_prompts
from prompty.errors import LoadError
from prompty.pipeline.load import read_prompt
from prompty.pipeline.migrate import Migration, change_model, migrate_text
from prompty.safety.visible import visible
from prompty.safety.write_files import replace_file


def migrate_files(
    files: Annotated[list[Path], Argument(help="Files, or folders to search for .prompty files.")],
    check: Annotated[bool, Option("--check", help="Write nothing, and exit with 1 if a file would change.")] = False,
    diff: Annotated[bool, Option("--diff", help="Print the changes as a unified diff.")] = False,
    write: Annotated[bool, Option("--write", "-w", help="Rewrite the files.")] = False,
    roots: Roots = None,
    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            metavar="[PROVIDER:]ID",
            autocompletion=complete_model,
            help="Also change the model, with its options.",
        ),
    ] = None,
) -> None:
    """Rewrite FILES of Prompty v1 as v2, and with --model for another model.

    Comments and the order of keys are kept. Keys without a counterpart are listed with their line. A v2 file is
    changed only with --model: options that the new model refuses are removed.
    Without an option, print the new text of a single file, or list which of several files would change.
    The exit code is 1 if a file cannot be migrated, and with --check if one would change.
    """
    if check and write:
        fail("--check and --write exclude each other\n    Use one of them.")
    prompts = list(find_prompts(files))
    is_printed = len(prompts) == 1 and not (check or diff or write)
    failed = changed = 0
    for file in prompts:
        try:
            text, _ = read_prompt(file, str(file))
            allowed = (*(roots or ()), *find_project(file).roots)
            migration = migrate_text(text, str(file), file.absolute().parent, allowed)
            if model is not None:
                changed_model = change_model(migration.text, str(file), model, file.absolute().parent, allowed)
                migration = changed_model._replace(
                    notes=[*migration.notes, *changed_model.notes], is_changed=changed_model.text != text
                )
        except LoadError as error:
            for problem in error.problems:
                print_problem(problem, err)
            failed += 1
            continue
        for note in migration.notes:
            print_problem(note, err)
        changed += migration.is_changed
        if is_printed:
            echo(visible(migration.text) if out.is_terminal else migration.text, nl=False)
        else:
            _report(file, text, migration, diff=diff, write=write)
    if not is_printed:
        err.print(_summarize(len(prompts), changed, failed, write=write))
    if failed or (check and changed):
        raise Exit(1)


def _report(file: Path, text: str, migration: Migration, *, diff: bool, write: bool) -> None:
    if not migration.is_changed:
        return
    if diff:
        name = str(file)
        lines = unified_diff(text.splitlines(True), migration.text.splitlines(True), name, name)
        shown = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        echo(visible(shown) if out.is_terminal else shown, nl=False)
    if write:
        _write(file, migration.text)
    if not diff:
        out.print(visible(f"{'rewrote' if write else 'would rewrite'} {file}"))


def _write(file: Path, text: str) -> None:
    try:
        replace_file(file, text.encode())
    except OSError as error:
        fail(explain_os_error(error))


def _summarize(files: int, changed: int, failed: int, *, write: bool) -> str:
    verb = "rewritten" if write else "to rewrite"
    failures = f", {failed} cannot be migrated" if failed else ""
    return f"{files} {'file' if files == 1 else 'files'}: {changed} {verb}{failures}"
