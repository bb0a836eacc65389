"""Every error and warning prompty raises, on one page.

PromptyError
├── LoadError (ValueError)          a .prompty file cannot be used; `problems` holds every mistake found in it
│   └── FileMissing (FileNotFoundError)   the file, or a file it refers to, does not exist
├── WrongArgument (TypeError)       a function of prompty got an argument of the wrong type
├── InputError (ValueError)         inputs are missing, unknown or invalid; `problems` holds one entry for each
├── InvalidMessage (ValueError)     a value is not a message, or not a part of one
├── RenderError (ValueError)        the template is invalid, or exceeded its limits
├── RequestError (ValueError)       the messages or options cannot be sent to this provider
├── ModelError                      a call to a model failed
│   ├── EmptyReply (ValueError)     the provider sent an empty reply
│   ├── ResponseFailed (ValueError) the provider reported that the response failed
│   ├── StreamCut                   a stream ended before its reply was complete; `partial` holds what arrived
│   └── Refused (ValueError)        the model refused, in a stream
├── ResultError (ValueError)        an answer does not match the requested type or the file's `outputs`
├── ArgumentsError (ValueError)     the arguments of a tool call are invalid
├── ToolError (ValueError)          a tool cannot be offered: its function is missing or does not match
├── Cancelled                       the turn was cancelled
├── IterationsExceeded (ValueError) the model asked for tools more often than the limit allows
├── BudgetSpent                     the turn used up its budget of tokens, money or time
├── DeadlineExceeded                a durable run did not end before its deadline
├── GuardrailError (ValueError)     a guardrail refused the model's input or output
├── MemoryFailed                    a stored conversation cannot be read or written
├── StoreUnusable (OSError)         a session file cannot be opened, or has another format
├── PausedRefused (ValueError)      a paused turn cannot be resumed: it was changed, or its policies differ
├── RunRefused (ValueError)         this release cannot read the stored data of a durable run
├── RunBroken                       an unexpected error ended a durable run
├── RecordingMissing                no recording answers a call in a test that replays them
├── UnknownName (LookupError)       no renderer, parser … has that name
└── MissingExtra (ImportError)      an optional dependency is not installed

PromptyWarning (UserWarning)        the file works, but something in it is probably a mistake
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from prompty.version import SITE, build_install_command

_MAX_CANDIDATES = 300  # comparing names takes 10 µs each


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`, ignoring case and underscores."""
    plain = {candidate.lower().replace("_", ""): candidate for candidate in islice(known, _MAX_CANDIDATES)}
    matches = get_close_matches(name.lower().replace("_", ""), plain, 1)
    return plain[matches[0]] if matches else None


def did_you_mean(near: str | None) -> str:
    """Return the question that begins a fix, with a blank after it, or nothing if no name is near."""
    return f"Did you mean `{near}`? " if near else ""


Severity = Literal["error", "warning", "info"]


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

    Positions count like those of `TextEdit`, and the line is 0 for a file that does not exist. `edits`, where there are
    any, make the fix when they are applied together.
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
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path

    @property
    def url(self) -> str | None:
        """The section about this kind of problem on the documentation site, if there is a site."""
        return f"{SITE}reference/problems/#{self.code}" if SITE and self.code else None

    def __str__(self) -> str:
        subject = f"{self.key}: " if self.key else ""
        source = f"\n    {self.text.strip()}" if self.text.strip() else ""
        return f"{self.place}: {subject}{self.message}{source}\n    {self.fix}"


class PromptyError(Exception):
    """Base class of all prompty errors. An error that ends a run has the conversation so far in `messages`, a legal
    history to continue with, and in `usage` and `cost` what its model calls used, as `Result` has them."""

    messages: tuple[Any, ...] = ()
    usage: Any = None
    _cost: Any = None  # or a function that looks it up
    # Where in the file the cause is: the line of the declared input, the tool, the model's key, or the body.
    problem: "Problem | None" = None
    # The path of that key in the file, if the code that raised the error knows it.
    keys: tuple[str | int, ...] = ()

    @property
    def cost(self) -> Any:
        """What the model calls of the run cost in dollars, or None if it is not known."""
        if callable(self._cost):
            self._cost = self._cost()
        return self._cost

    def __reduce__(self) -> Any:
        """Let other processes read an error that was pickled: few classes take their message as an argument."""
        self._cost = self.cost
        return _restore_error, (type(self), self.args), vars(self)

    def for_command_line(self) -> str:
        """Return the message with the fixes of a command line."""
        return str(self)


def mask_error(error: PromptyError, mask: Callable[[str], str]) -> None:
    """Mask secrets in the message of an error: what a server says may repeat them."""
    error.args = tuple(mask(part) if isinstance(part, str) else part for part in error.args)


def describe_run(error: PromptyError, messages: tuple[Any, ...], usage: Any, find_cost: Callable[[], Any]) -> None:
    """Say in an error what the run was that it ends. The cost is looked up when it is asked for."""
    error.messages, error.usage, error._cost = messages, usage, find_cost


def _restore_error(kind: type[PromptyError], arguments: tuple[object, ...]) -> PromptyError:
    error = kind.__new__(kind)
    error.args = arguments
    return error


class _Explained(PromptyError):
    """An error whose message is its cause, and its fix on the next line. `command_fix` is the fix on a command line, if
    it differs."""

    cause: str = ""  # those of an error that was stored before it had them
    fix: str = ""
    command_fix: str = ""

    def __init__(
        self, cause: str, fix: str, command_fix: str = "", *, keys: tuple[str | int, ...] = (), where: str = ""
    ) -> None:
        super().__init__(f"{where}{cause}\n    {fix}" if fix else f"{where}{cause}")
        self.cause = cause
        self.fix = fix
        self.command_fix = command_fix
        self.keys = keys

    def for_command_line(self) -> str:
        """Return the message with the fix of a command line."""
        if not self.command_fix:
            return str(self)
        return str(self).replace(self.fix, self.command_fix) if self.fix else f"{self}\n    {self.command_fix}"


class WrongArgument(_Explained, TypeError):
    """A function of prompty got an argument of the wrong type. Nothing was sent and nothing ran."""

    def __init__(self, argument: str, value: object, expected: str, fix: str) -> None:
        found = "None" if value is None else f"a {type(value).__name__}"
        super().__init__(f"{argument} takes {expected}, not {found}", fix)


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
    """The problem of one input and its fix in Python. `command_fix` is the fix on a command line, if it differs.
    `place` is the file and the line that declare the input, if they are known."""

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
    """Inputs are missing, unknown or invalid. `problems` has one entry for each.

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


class RenderError(_Explained, ValueError):
    """The template is invalid, or exceeded its limits. `line` counts within `file`: a partial, or the prompt's body."""

    def __init__(self, cause: str, fix: str, line: int | None = None, file: str | None = None) -> None:
        where = f"line {line} of {file or 'the body'}: " if line else ""
        super().__init__(cause, fix, where=where)
        self.line = line
        self.file = file


class RequestError(_Explained, ValueError):
    """The messages or options cannot be sent to this provider. `command_fix` is the fix on a command line."""


class ModelError(PromptyError):
    """A call to a model failed. `cause` says why. `status` is the HTTP status, if there was one. `retryable` says
    whether the same call may succeed later, and `retry_after` is the server's delay in seconds, if it sent one.

    `provider`, `model`, `url`, `file` and `attempt` identify the call, as far as they are known. The URL has no
    credentials, and `attempt` counts from 1.
    """

    provider: str | None = None
    model: str | None = None
    url: str | None = None
    file: str | None = None
    attempt: int | None = None
    advice: str = ""

    def __init__(
        self, cause: str, *, status: int | None = None, retryable: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(cause)
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after

    @property
    def cause(self) -> str:
        """The reason, without the description of the call."""
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
        """The fix, if one is known. `advice` is one from the facts about the model."""
        if self.status is None and self.retryable and self.url and "connection" in self.cause:
            if self.provider == "ollama":
                return "Start Ollama: `ollama serve`."
            return "Check that the server is running and that the endpoint is correct."
        if self.cause.startswith(_ODD_ANSWERS) and self.url:
            return "Check the endpoint. Most servers expect one that ends with /v1."
        return self.advice or _FIXES.get(self.status or 0, "")


TIMED_OUT = "the provider did not answer in time"
NOT_JSON = "the provider's answer is not JSON"
_ODD_ANSWERS = (NOT_JSON, "the provider sent JSON that is not an object", "the provider answered without ")
_FIXES = {
    401: "Check the key: `prompty doctor` shows where it comes from.",
    403: "Check the key's permissions: `prompty doctor` shows where it comes from.",
    404: "Check the model's id and the endpoint. Most servers expect an endpoint that ends with /v1.",
}


class StreamCut(ModelError):
    """A stream, or an answer in pieces, ended before it was complete. `partial` holds what arrived: its calls must not
    run."""

    def __init__(self, cause: str, partial: object = None, *, retryable: bool = True) -> None:
        super().__init__(cause, retryable=retryable)
        self.partial = partial


class Refused(ModelError, ValueError):
    """The model refused to answer, in a stream. `reply` is its answer, with what it used."""

    def __init__(self, refusal: str, reply: object = None) -> None:
        super().__init__(f"Model refused: {refusal}")
        self.refusal = refusal
        self.reply = reply


class EmptyReply(ModelError, ValueError):
    """The provider sent an empty reply."""


class ResponseFailed(ModelError, ValueError):
    """The provider reported that the response failed (§8.4)."""


ResultReason = Literal["text", "shape", "cut", "filtered", "empty", "refusal", "stopped"]


class ResultError(_Explained, ValueError):
    """An answer does not match the requested type or the file's `outputs`. `text` is the answer as it came.

    `reason` is `text` (not JSON), `shape` (other JSON), `cut` (by the token limit), `filtered` (by the provider's
    content filter), `empty`, `refusal`, or `stopped` (a stop condition ended the turn before the model answered).
    `cause` says what is wrong, and `fix` what to do about it.
    """

    def __init__(
        self,
        output_type: object,
        cause: Exception | str,
        *,
        reason: ResultReason = "shape",
        text: str = "",
        fix: str = "",
        command_fix: str = "",
    ) -> None:
        name = getattr(output_type, "__name__", str(output_type))
        found = f"the answer is not a {name}: {cause}" if output_type is not None else str(cause)
        super().__init__(found, fix, command_fix)
        self.reason: ResultReason = reason
        self.text = text


class ArgumentsError(PromptyError, ValueError):
    """The arguments of a tool call are invalid."""


class ToolError(_Explained, ValueError):
    """A tool cannot be offered: its function is missing or does not match. `command_fix` is the command line's fix."""


class Cancelled(PromptyError):
    """The turn was cancelled. `messages` has the conversation so far."""

    def __init__(self, reason: str = "the turn was cancelled") -> None:
        super().__init__(reason)
        self.reason = reason


class IterationsExceeded(_Explained, ValueError):
    """The model asked for tools more often than the limit allows."""

    def __init__(self, limit: int, called: Sequence[str] = ()) -> None:
        tools = ", ".join(f"{name} ×{called.count(name)}" for name in dict.fromkeys(called))
        calls = f" The model called {tools}." if tools else ""
        super().__init__(
            f"Agent loop exceeded {limit} iterations",
            f"Pass a larger max_iterations= if it needs more rounds.{calls}",
            f"Add --trace console to see each round.{calls}",
        )
        self.limit = limit


class BudgetSpent(PromptyError):
    """The turn used up its budget of tokens, money or time."""


class DeadlineExceeded(PromptyError):
    """A durable run did not end before its `deadline`. `messages` has the conversation so far."""

    def __init__(self, deadline: str) -> None:
        super().__init__(
            f"the run did not end before its deadline, {deadline}\n    Start it again, with more time if it needs more."
        )
        self.deadline = deadline


class GuardrailError(PromptyError, ValueError):
    """A guardrail refused the model's input or output, as `kind` says."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"the {kind} guardrail refused: {reason}")
        self.kind = kind
        self.reason = reason


class MemoryFailed(PromptyError):
    """A stored conversation cannot be read or written."""

    def __init__(self, session_id: str, cause: Exception) -> None:
        super().__init__(f"the session '{session_id}' cannot be used: {cause}")
        self.session_id = session_id


class StoreUnusable(_Explained, OSError):
    """A session file cannot be opened, or has another format."""

    def __init__(self, path: str, cause: object) -> None:
        super().__init__(
            f"the sessions in '{path}' cannot be used: {cause}",
            "Name another file, or restore this one.",
            "Name another file with --database, or restore this one.",
        )
        self.path = path


class PausedRefused(_Explained, ValueError):
    """A paused turn cannot be resumed: it was changed, was resumed already, or its policies differ."""

    def __init__(self, cause: str, fix: str) -> None:
        super().__init__(cause, fix, where="the paused turn is refused: ")


class RunRefused(_Explained, ValueError):
    """This release cannot read the stored data of a durable run."""

    def __init__(self, place: str, cause: str) -> None:
        fix = "Read it with the release that wrote it, or prune the run."
        super().__init__(cause, fix, where=f"{place} is refused: ")
        self.place = place


class RunBroken(PromptyError):
    """An unexpected error ended a durable run, for example one from an executor that the host registered."""


class RecordingMissing(_Explained):
    """No recording answers a call. Not a ModelError, because a retry would not help."""


class UnknownName(_Explained, LookupError):
    """Nothing is registered under this name."""

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        self.nearest: str | None = nearest(name, known)
        fix = f"{did_you_mean(self.nearest)}Use one of {', '.join(known)}, or register your own."
        super().__init__(f"no {kind} is called '{name}'", fix)
        self.kind = kind
        self.name = name
        self.known = known


class MissingExtra(PromptyError, ImportError):
    """An optional dependency is needed but not installed. Without an `extra`, the host brings it."""

    def __init__(self, package: str, extra: str) -> None:
        command = build_install_command(extra) if extra else f"pip install {package}"
        super().__init__(f"`{package}` is not installed. Run: {command}")
        self.package = package
        self.extra = extra


class PromptyWarning(UserWarning):
    """The file works, but something in it is probably a mistake."""


def _listing(problems: Sequence[Problem]) -> str:
    if len(problems) == 1:
        return str(problems[0])
    return "\n".join([f"{len(problems)} problems", *map(str, problems)])
