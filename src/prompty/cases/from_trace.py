"""Convert the trace of a run to a case: its inputs, the results of its tools, its answer, and a recording.

The recording is made from the replies in the trace, so the case runs offline at once and costs nothing.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

from prompty.cases.evaluators import load_prompt
from prompty.cases.file_names import SUFFIXES, find_test_file
from prompty.cases.plan import get_recording_path, plan_trials
from prompty.cases.reading import RULES, Suite, find_file_reference, read_suite, write_yaml
from prompty.cases.results import TrialResult
from prompty.cases.runner import Runner, RunnerOptions
from prompty.cases.trial import Mode
from prompty.errors import InvalidMessage, RequestError
from prompty.model.message import Json, Message, Reply, Usage
from prompty.model.tool import CustomTool, FunctionTool
from prompty.safety.json import read_json
from prompty.safety.write_files import check_target, replace_file
from prompty.safety.yaml import YamlError, read_yaml
from prompty.testing.script import Script
from prompty.tracing.names import TOOL_NAME
from prompty.viewer.trace import MODEL_CALL, TOOL_CALL, Frame, RecordedTrace

_RUNS = ("turn", "invoke")
_RECORD = Mode(level="replay", live=True, record=True)
_RECORD_AGAIN = "Record a run to the end with --trace file:FOLDER, and name its file."
_YAML_BLANKS = " \t\r\n"  # not a no-break space, which may be the end of a text


class TracedRun(NamedTuple):
    """The parts of a run that a case needs. `results` has the first result of each tool."""

    name: str
    inputs: Json
    replies: tuple[Reply, ...]
    calls: list[tuple[str, object]]
    results: dict[str, object]
    changing: list[str]
    answer: object


class NewCase(NamedTuple):
    """A case that was written to a file, and the tools whose later results it lacks."""

    name: str
    path: Path
    changing: list[str]


def add_case(trace: RecordedTrace, prompt: Path) -> NewCase:
    """Add the run in a trace to a prompt's test file, with a recording. If the case would fail, change nothing."""
    run = read_run(trace)
    path = find_test_file(prompt) or prompt.with_name(f"{prompt.stem}{SUFFIXES[0]}")
    try:
        check_target(path)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}", "Write a file in its place.") from None
    before = path.read_text(encoding="utf-8") if path.exists() else None
    tools = load_prompt(prompt, prompt.parent).tools
    case = build_case(run, [tool.name for tool in tools if isinstance(tool, FunctionTool | CustomTool)])
    text = append_case(before, case, path)
    replace_file(path, text.encode())
    written: list[Path] = []
    try:
        suite = read_suite(path)
        for result in _record(suite, run, written):
            if result.status != "passed":
                reasons = "; ".join(result.reasons)
                fix = "Run the current prompt again, and use the new trace."
                raise RequestError(f"the run in {trace.path.name} does not pass as a case: {reasons}", fix)
    except BaseException:
        for recording in written:
            recording.unlink(missing_ok=True)
        if before is None:
            path.unlink()
        else:
            replace_file(path, before.encode())
        raise
    return NewCase(run.name, path, [name for name in run.changing if name in run.results])


def _record(suite: Suite, run: TracedRun, written: list[Path]) -> Iterator[TrialResult]:
    """Run the new case with the replies of the trace, for each model and variant of the file."""
    for trial in (trial for trial in plan_trials([suite]) if trial.case.name == run.name):
        written += [get_recording_path(trial, number) for number in range(1, trial.repeat + 1)]
        with Script(*run.replies * trial.repeat):
            yield from Runner(RunnerOptions(mode=_RECORD)).run([trial])


def read_run(trace: RecordedTrace) -> TracedRun:
    """Read the first run in a trace."""
    fail = partial(RequestError, fix=_RECORD_AGAIN)
    root = next((position for position, frame in enumerate(trace.frames) if frame.name in _RUNS), None)
    if root is None:
        raise fail(f"{trace.path.name} is not the trace of a prompt")
    frame = trace.frames[root]
    if frame.status != "ok":
        raise fail(f"the run in {trace.path.name} is {frame.status}")
    inputs, answer = frame.content.get("inputs") or {}, frame.content.get("result")
    if not isinstance(inputs, dict) or answer is None:
        raise fail(f"{trace.path.name} has no content")
    below = list(takewhile(lambda inner: inner.depth > frame.depth, trace.frames[root + 1 :]))
    tools = [tool for tool in below if tool.name == TOOL_CALL and tool.parent == root]
    called = [(str(tool.attributes.get(TOOL_NAME)), tool) for tool in tools]
    results: dict[str, object] = {}
    changing: list[str] = []
    for name, tool in called:
        result = _parse_result(tool.content.get("result"))
        if results.setdefault(name, result) != result:
            changing.append(name)
    replies = tuple(_read_reply(call, trace.path) for call in below if call.name == MODEL_CALL and call.status == "ok")
    start = f"{frame.start:%Y-%m-%d %H:%M:%S}" if frame.start else trace.path.stem
    calls = [(name, tool.content.get("inputs")) for name, tool in called]
    return TracedRun(f"run of {start}", inputs, replies, calls, results, list(dict.fromkeys(changing)), answer)


def _parse_result(text: object) -> object:
    try:
        return read_json(text) if isinstance(text, str) else text
    except ValueError:
        return text


def _read_reply(frame: Frame, path: Path) -> Reply:
    try:
        message = Message.from_json(frame.content.get("result"))  # type: ignore[arg-type]  # it checks the type
    except InvalidMessage as error:
        raise RequestError(f"{path.name} has a model call without an answer: {error}", _RECORD_AGAIN) from None
    usage = Usage(input_tokens=frame.usage.get("input_tokens"), output_tokens=frame.usage.get("output_tokens"))
    return Reply(text=message.text, tool_calls=message.tool_calls, finish_reason=message.finish_reason, usage=usage)


def build_case(run: TracedRun, functions: Sequence[str]) -> Json:
    """Return the case of a run, as in a test file.

    `functions` are the tools that get a result, which is null for a tool that was not called.
    """
    checks: Json = {"equals": run.answer}
    case: Json = {"name": run.name, "inputs": run.inputs}
    if run.calls or functions:
        checks["tools"] = [{name: arguments} if isinstance(arguments, dict) else name for name, arguments in run.calls]
        case["tools"] = {name: run.results.get(name) for name in functions}
    case["expect"] = {"replay": checks}
    text = find_file_reference(case)
    if text is not None:
        message = f"the run has the text {text!r}, which a test file would read as a file reference"
        raise RequestError(message, "Write the case by hand, with the text in its own file.")
    return case


def append_case(text: str | None, case: Json, path: Path) -> str:
    """Return the text of a test file with one more case at the end. The rest does not change."""
    item = write_yaml([case])
    if text is None:
        return f"cases:\n{indent(item, '  ')}"
    old = _read_mapping(text)
    cases: Any = old.get("cases")
    if isinstance(cases, list) and any(
        isinstance(known, dict) and known.get("name") == case["name"] for known in cases
    ):
        message = f"{path.name} already has a case '{case['name']}'"
        raise RequestError(message, "To add the run once more, give that case another name.")
    for spaces in ("  ", "") if isinstance(cases, list) else ():
        new = f"{text.rstrip(_YAML_BLANKS)}\n\n{indent(item, spaces)}"
        if _read_mapping(new) == {**old, "cases": [*cases, case]}:
            return new
    raise RequestError(
        f"`cases:` in {path.name} is not a list at the end of the file",
        f"Add the case yourself:\n{indent(item, '      ')}",
    )


def _read_mapping(text: str) -> dict[str, Any]:
    try:
        data, duplicates = read_yaml(text, RULES)
    except YamlError:
        return {}
    return data if isinstance(data, dict) and not duplicates else {}
