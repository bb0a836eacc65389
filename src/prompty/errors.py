"""Every error and warning prompty raises, on one page.

PromptyError
├── LoadError (ValueError)          a .prompty file cannot be used; `problems` holds every mistake found in it
│   └── FileMissing (FileNotFoundError)   the file, or a file it refers to, does not exist
├── WrongArgument (TypeError)       an argument of a function of prompty is not what the function takes
├── InputError (ValueError)         inputs are missing, unknown or cannot be used; `problems` holds all of them
├── InvalidMessage (ValueError)     a value is not a message, or not a part of one
├── RenderError (ValueError)        the template is broken, or asked for more than its limits
├── RequestError (ValueError)       the messages or options cannot be sent to this provider
├── ModelError                      a call to a model failed
│   ├── EmptyReply (ValueError)     the provider answered with nothing in it
│   ├── ResponseFailed (ValueError) the provider answered that it has no answer
│   ├── StreamCut                   a stream ended before its reply was complete; `partial` has what came
│   └── Refused (ValueError)        the model refused, in a stream
├── ResultError (ValueError)        an answer does not fit the type asked for
├── ArgumentsError (ValueError)     the arguments of a tool call cannot be used
├── ToolError (ValueError)          a tool cannot be offered: no function runs it, or one that does not fit
├── Cancelled                       somebody ended the turn
├── IterationsExceeded (ValueError) the model asked for tools more often than it may
├── BudgetSpent                     the turn has used its tokens, its money or its time
├── DeadlineExceeded                a durable run has not ended before its deadline
├── QueueFull                       so many durable runs wait for a worker that no other is accepted
├── GuardrailError (ValueError)     a guardrail refused what goes to the model, or what came from it
├── MemoryFailed                    a stored conversation cannot be read or written
├── StoreUnusable (OSError)         a file of sessions cannot be opened, or is not one
├── PausedRefused (ValueError)      a paused turn cannot be resumed: it was changed, or other policies would apply to it
├── RunRefused (ValueError)         what is stored of a durable run cannot be read by this release
├── RunBroken                       a durable run met an error that is none of these
├── UnknownRun (LookupError)        there is no durable run of that id
├── RecordingMissing                a call that no recording answers, in a test that plays them
├── UnknownName (LookupError)       no renderer, parser … of that name
└── MissingExtra (ImportError)      an optional dependency is not installed

PromptyWarning (UserWarning)        the file works, but something in it is probably not meant
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from prompty.safety.nearest import nearest

Severity = Literal["error", "warning"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEdit:
    """Replace the text from one position up to another. Lines and columns count from 1, columns in characters."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One mistake in a file: where it begins and ends, what is wrong, and how to fix it.

    Positions count like those of `TextEdit`. `edits`, where there are any, make the fix when they are applied together.
    """

    code: str
    message: str
    fix: str
    path: str = "<text>"
    line: int = 1
    column: int = 1
    end_line: int = 1
    end_column: int = 1
    key: str = ""
    text: str = ""
    severity: Severity = "error"
    edits: tuple[TextEdit, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"

    def __str__(self) -> str:
        subject = f"{self.key}: " if self.key else ""
        source = f"\n    {self.text.strip()}" if self.text.strip() else ""
        return f"{self.place}: {subject}{self.message}{source}\n    {self.fix}"


class PromptyError(Exception):
    """The root of everything prompty raises on purpose. An error that ends a turn has the conversation so far in
    `messages`: a legal history to continue with."""

    messages: tuple[Any, ...] = ()
    # The problem of the file that the error comes from, as `check` reports it.
    problem: "Problem | None" = None

    def for_command_line(self) -> str:
        """Return the message with the fixes of a command line."""
        return str(self)


class WrongArgument(PromptyError, TypeError):
    """An argument of a function of prompty is not what the function takes. Nothing was sent and nothing ran."""

    def __init__(self, argument: str, value: object, expected: str, fix: str) -> None:
        found = "None" if value is None else f"a {type(value).__name__}"
        self.cause: str = f"{argument} takes {expected}, not {found}"
        self.fix = fix
        super().__init__(f"{self.cause}\n    {fix}")


def check_path(path: object, argument: str, expected: str) -> None:
    """Raise WrongArgument if a value is not a path."""
    if not isinstance(path, str) and not (isinstance(path, os.PathLike) and isinstance(os.fspath(path), str)):
        raise WrongArgument(argument, path, expected, "Pass a str or a pathlib.Path.")


class LoadError(PromptyError, ValueError):
    """A .prompty file cannot be used; `problems` holds every mistake found in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(_listing(problems))
        self.problems: tuple[Problem, ...] = tuple(problems)


class FileMissing(LoadError, FileNotFoundError):
    """The file, or one it refers to, does not exist."""


class InputProblem(NamedTuple):
    """The problem of one input, and its fix in Python. `command_fix` is the fix on a command line, if it differs, and
    `place` the file and the line that declare the input, if a run knows them."""

    name: str
    cause: str
    fix: str
    command_fix: str = ""
    place: str = ""

    def __str__(self) -> str:
        return self._describe(self.fix)

    def for_command_line(self) -> str:
        """Return the problem with the fix of a command line."""
        return self._describe(self.command_fix or self.fix)

    def _describe(self, fix: str) -> str:
        return f"{self.place}: {self.cause}\n    {fix}" if self.place else f"{self.cause}\n    {fix}"


class InputError(PromptyError, ValueError):
    """Inputs are missing, unknown or cannot be used: `problems` has one entry for each of them.

    `name`, `cause` and `fix` are those of the first problem.
    """

    def __init__(
        self,
        name: str,
        cause: str,
        fix: str,
        command_fix: str = "",
        place: str = "",
        *,
        others: Sequence[InputProblem] = (),
    ) -> None:
        self.problems: tuple[InputProblem, ...] = (InputProblem(name, cause, fix, command_fix, place), *others)
        super().__init__("\n".join(map(str, self.problems)))
        self.name = name
        self.cause = cause
        self.fix = fix

    def for_command_line(self) -> str:
        """Return the message with the fixes of a command line."""
        return "\n".join(problem.for_command_line() for problem in self.problems)


class InvalidMessage(PromptyError, ValueError):
    """A value is not a message, or not a part of one."""


class RenderError(PromptyError, ValueError):
    """The template is broken, or asked for more than its limits; `line` counts within the body, or within the partial
    called `file`."""

    def __init__(self, cause: str, fix: str, line: int | None = None, file: str | None = None) -> None:
        where = f"line {line} of {file or 'the body'}: " if line else ""
        super().__init__(f"{where}{cause}\n    {fix}")
        self.cause = cause
        self.fix = fix
        self.line = line
        self.file = file


class RequestError(PromptyError, ValueError):
    """The messages or options cannot be sent to this provider. `command_fix` is the fix on a command line."""

    def __init__(self, cause: str, fix: str, command_fix: str = "") -> None:
        super().__init__(f"{cause}\n    {fix}")
        self.cause = cause
        self.fix = fix
        self.command_fix = command_fix

    def for_command_line(self) -> str:
        """Return the message with the fix of a command line."""
        return str(self).replace(self.fix, self.command_fix) if self.command_fix else str(self)


class ModelError(PromptyError):
    """A call to a model failed. `cause` says why. `status` is the HTTP status, if there was one; `retryable` says
    whether the same call may succeed later, and `retry_after` when the server said how long to wait.

    `provider`, `model`, `url`, `file` and `attempt` say which call it was, as far as it is known. The URL has no
    credentials, and `attempt` counts from 1.
    """

    provider: str | None = None
    model: str | None = None
    url: str | None = None
    file: str | None = None
    attempt: int | None = None

    def __init__(
        self, cause: str, *, status: int | None = None, retryable: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(cause)
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after

    @property
    def cause(self) -> str:
        """The reason alone, without the call that it belongs to."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        if self.provider is None:
            return self.cause
        file = f" in {PurePath(self.file).name}" if self.file else ""
        url = f" at {self.url}" if self.url else ""
        attempt = f", attempt {self.attempt}" if self.attempt else ""
        fix = f"\n    {self.fix}" if self.fix else ""
        return f"{self.cause}\n    Model '{self.model}' of {self.provider}{file}{url}{attempt}.{fix}"

    @property
    def fix(self) -> str:
        """The fix, if one is known."""
        if self.status is None and self.retryable and self.url and "connection" in self.cause:
            return "Check that the server runs and that the endpoint is right."
        return _FIXES.get(self.status or 0, "")


_FIXES = {
    401: "Check the key: `prompty doctor` shows where it comes from.",
    403: "Check what the key may do: `prompty doctor` shows where it comes from.",
    404: "Check the model's id and the endpoint, which ends with /v1 at most servers.",
}


class StreamCut(ModelError):
    """A stream ended before its reply was complete. `partial` is what had come: its calls must not run."""

    def __init__(self, cause: str, partial: object = None, *, retryable: bool = True) -> None:
        super().__init__(cause, retryable=retryable)
        self.partial = partial


class Refused(ModelError, ValueError):
    """The model refused to answer, in a stream."""

    def __init__(self, refusal: str) -> None:
        super().__init__(f"Model refused: {refusal}")
        self.refusal = refusal


class EmptyReply(ModelError, ValueError):
    """The provider answered with nothing in it."""


class ResponseFailed(ModelError, ValueError):
    """The provider answered that it has no answer (§8.4)."""


class ResultError(PromptyError, ValueError):
    """An answer does not fit the type asked for."""

    def __init__(self, output_type: object, cause: Exception) -> None:
        name = getattr(output_type, "__name__", str(output_type))
        super().__init__(f"the answer is not a {name}: {cause}")


class ArgumentsError(PromptyError, ValueError):
    """The arguments of a tool call cannot be used."""


class ToolError(PromptyError, ValueError):
    """A tool cannot be offered: no function runs it, or one that does not fit. `command_fix` is the fix on a command
    line."""

    def __init__(self, cause: str, fix: str, command_fix: str = "") -> None:
        super().__init__(f"{cause}\n    {fix}")
        self.cause = cause
        self.fix = fix
        self.command_fix = command_fix

    def for_command_line(self) -> str:
        """Return the message with the fix of a command line."""
        return str(self).replace(self.fix, self.command_fix) if self.command_fix else str(self)


class Cancelled(PromptyError):
    """Somebody ended the turn. `messages` has the conversation so far."""

    def __init__(self, reason: str = "the turn was cancelled") -> None:
        super().__init__(reason)
        self.reason = reason


class IterationsExceeded(PromptyError, ValueError):
    """The model asked for tools more often than it may."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"Agent loop exceeded {limit} iterations")
        self.limit = limit


class BudgetSpent(PromptyError):
    """The turn has used its tokens, its money or its time."""


class DeadlineExceeded(PromptyError):
    """A durable run has not ended before its deadline. `deadline` is the moment, `messages` the conversation so far."""

    def __init__(self, deadline: str) -> None:
        super().__init__(
            f"the run has not ended before its deadline, {deadline}\n    Start it again, with more time if it needs it."
        )
        self.deadline = deadline


class QueueFull(PromptyError):
    """As many durable runs wait for a worker as may. `waiting` says how many."""

    def __init__(self, waiting: int, most: int) -> None:
        super().__init__(
            f"{waiting} runs wait for a worker, and at most {most} may\n"
            "    Start it later, start more workers, or raise Limits(max_waiting=…)."
        )
        self.waiting = waiting

    def for_command_line(self) -> str:
        """Return the message with the fix of a command line."""
        return str(self).replace("Limits(max_waiting=…)", "--max-waiting")


class GuardrailError(PromptyError, ValueError):
    """A guardrail refused what goes to the model (`input`), or what came from it (`output`)."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"the {kind} guardrail refused: {reason}")
        self.kind = kind
        self.reason = reason


class MemoryFailed(PromptyError):
    """A stored conversation cannot be read or written."""

    def __init__(self, session_id: str, cause: Exception) -> None:
        super().__init__(f"the session '{session_id}' cannot be used: {cause}")
        self.session_id = session_id


class StoreUnusable(PromptyError, OSError):
    """A file of sessions cannot be opened, or is not one."""

    def __init__(self, path: str, cause: object) -> None:
        super().__init__(
            f"the sessions in '{path}' cannot be used: {cause}\n    Name another file, or restore this one."
        )
        self.path = path


class PausedRefused(PromptyError, ValueError):
    """A paused turn cannot be resumed: it was changed, was resumed already, or would run under other policies."""

    def __init__(self, cause: str, fix: str) -> None:
        super().__init__(f"the paused turn is refused: {cause}\n    {fix}")
        self.cause = cause
        self.fix = fix


class RunRefused(PromptyError, ValueError):
    """This release cannot read the stored data of a durable run, and guesses nothing."""

    def __init__(self, place: str, cause: str) -> None:
        super().__init__(f"{place} is refused: {cause}\n    Read it with the release that wrote it, or prune the run.")
        self.place = place
        self.cause = cause


class RunBroken(PromptyError):
    """A durable run met an error that is none of ours, like one that an executor of the host's raised."""


class UnknownRun(PromptyError, LookupError):
    """There is no durable run of this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run '{run_id}'\n    See `prompty runs list`, and check the database.")
        self.run_id = run_id


class RecordingMissing(PromptyError):
    """A call that no recording answers. It is no ModelError: to make the call again would not help."""

    def __init__(self, cause: str, fix: str) -> None:
        super().__init__(f"{cause}\n    {fix}")
        self.cause = cause
        self.fix = fix


class UnknownName(PromptyError, LookupError):
    """Nothing is registered under this name."""

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        self.nearest: str | None = nearest(name, known)
        hint = f"Did you mean `{self.nearest}`? " if self.nearest else ""
        self.cause: str = f"no {kind} is called '{name}'"
        self.fix: str = f"{hint}Use one of {', '.join(known)}, or register your own."
        super().__init__(f"{self.cause}\n    {self.fix}")
        self.name = name
        self.known = known


class MissingExtra(PromptyError, ImportError):
    """An optional dependency is needed but not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"`{package}` is not installed. Run: pip install 'prompty-runtime[{extra}]'")
        self.package = package
        self.extra = extra


class PromptyWarning(UserWarning):
    """The file works, but something in it is probably not meant."""


def _listing(problems: Sequence[Problem]) -> str:
    if len(problems) == 1:
        return str(problems[0])
    return "\n".join([f"{len(problems)} problems", *map(str, problems)])
