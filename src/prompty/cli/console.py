"""Output to a terminal. Text from files and inputs is escaped, so that nothing in it controls the screen."""

import errno
import os
import re
import signal
from typing import Literal, NoReturn

from rich.console import Console
from rich.text import Text
from typer import Exit

from prompty.errors import Problem, PromptyError
from prompty.safety.redaction import mask_secrets, masked_traceback
from prompty.safety.visible import visible

# Rich leaves bold, dim and links with NO_COLOR. Tests of other programs trip over these.
_SYSTEM: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
out: Console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, color_system=_SYSTEM)
err: Console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, color_system=_SYSTEM, stderr=True)

EXIT_INTERRUPTED = 130
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}


# Lines that GitHub runs as commands of a workflow, with any spaces before `::`.
_COMMAND = re.compile(r"(?m)^(?=[^\S\n]*::)|(?<=##)(?=\[)")


def show(text: str) -> str:
    """Return a text for the screen. Nothing in it controls a terminal, or the workflow whose log it is part of."""
    return _COMMAND.sub(r"\\", visible(text))


def print_json(value: object) -> None:
    """Print JSON, with JSON escapes for characters that could control a terminal."""
    out.print_json(data=value, ensure_ascii=True, highlight=out.is_terminal)


def print_problem(problem: Problem, console: Console) -> None:
    """Print a problem as `place: severity: message`, then its line, then the fix.

    In a terminal, the severity links to the page that explains the problem, if there is a site.
    """
    link = f" link {problem.url}" if problem.url else ""
    subject = f"{problem.key}: " if problem.key else ""
    console.print(
        Text.assemble(
            (show(problem.place), "bold"),
            ": ",
            (problem.severity, f"{_STYLES[problem.severity]}{link}"),
            f": {show(subject + problem.message)}",
        )
    )
    if problem.text.strip():
        console.print(Text(f"    {show(problem.text.strip())}", "dim"))
    console.print(Text(f"    {show(problem.fix)}", "green"))


def print_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning in the form of a problem. Replaces `warnings.showwarning`."""
    err.print(Text.assemble(("warning", "yellow"), f": {show(mask_secrets(str(message)))}"))


def fail(error: PromptyError | str, *, debug: bool = False) -> NoReturn:
    """Print an error and exit with 1. With `debug`, print its traceback first."""
    if debug and isinstance(error, PromptyError):
        err.print(Text(show(masked_traceback(error)), "dim"))
    print_error(error, err)
    raise Exit(1)


def print_error(error: PromptyError | str, console: Console) -> None:
    """Print an error, with the fix for a command line."""
    message = error.for_command_line() if isinstance(error, PromptyError) else error
    console.print(Text.assemble(("error", "bold red"), f": {show(message)}"))


def print_unexpected(error: Exception, *, debug: bool) -> None:
    """Print an exception that prompty did not raise on purpose: one line, or with `debug` its traceback."""
    if debug:
        err.print(Text(show(masked_traceback(error)), "dim"))
        return
    if isinstance(error, OSError):
        print_error(explain_os_error(error), err)
        return
    kind = f"{type(error).__name__}: "
    line = next(iter(mask_secrets(f"{kind}{error}").splitlines()), kind)
    err.print(Text.assemble(("error", "bold red"), f": {show(line)}\n    To see the traceback, add --debug."))


def explain_os_error(error: OSError) -> str:
    """Return the file, the reason and the fix of an error of the operating system."""
    reason = "it does not exist" if error.errno == errno.ENOENT else error.strerror or str(error)
    cause = f"'{error.filename}' cannot be used: {reason}" if error.filename else reason
    return f"{mask_secrets(cause)}\n    {_OS_FIXES.get(error.errno or 0, 'To see the traceback, add --debug.')}"


_OS_FIXES = {
    errno.ENOENT: "Correct the path, or create the file.",
    errno.EACCES: "Choose another folder, or change its permissions.",
    errno.EROFS: "Choose a folder that can be written to.",
    errno.ENOSPC: "Free some space on the disk, or choose another folder.",
    errno.EISDIR: "Name a file in the folder.",
    errno.ELOOP: "Name the path that it leads to, or remove the link.",
    errno.ENOTDIR: "Correct the path: a part of it is a file.",
}
