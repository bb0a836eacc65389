"""Run a case once: render, build the request, and get an answer from a recording or a model.

Offline, the run's recording answers every model request, regardless of the provider. A request that was not recorded is
an error, so nothing connects to an endpoint.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from prompty.analysis.explain import explain
from prompty.api import invoke, resume, turn
from prompty.cases.answers import CallLedger, RunAnswers, Spending
from prompty.cases.case_file import LEVELS, Case, Level
from prompty.cases.checks import Evaluators, Observation, run_checks, show_value
from prompty.cases.evaluators import check_inside, parse_score, passes
from prompty.cases.plan import Trial, get_recording_path
from prompty.cases.results import CaseRun, CheckResult
from prompty.drivers.run import Result
from prompty.errors import PromptyError, RecordingMissing, RequestError, ResultError, ToolError
from prompty.loop.context import CHARACTERS_PER_TOKEN
from prompty.model.agent import PromptAgent
from prompty.model.content import TextPart
from prompty.model.event import Event, IterationStarted, ModelReply, ToolStarted
from prompty.model.message import Json, Message, Reply, ToolCall, Usage
from prompty.model.paused import Paused
from prompty.model.tool import CustomTool, FunctionTool, PromptyTool, SkillsTool, runs_at_provider
from prompty.pipeline.prepare import prepare
from prompty.safety.json import read_json
from prompty.safety.redaction import mask_secrets
from prompty.safety.write_files import check_target
from prompty.tools.toolbox import TOOLS
from prompty.tracing import names
from prompty.tracing.files import find_trace_file
from prompty.tracing.spans import begin, is_tracing
from prompty.wire.structured import parse_structured

_OFFLINE_KINDS = (FunctionTool, CustomTool, PromptyTool, SkillsTool)
MAX_PAUSES = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Mode:
    """The highest level, and the source of answers: recordings, or models if `live`.

    `record` writes recordings. Without `live`, it asks only for the answers that they lack.
    """

    level: Level = "replay"
    live: bool = False
    record: bool = False

    @property
    def asks(self) -> bool:
        """True if models may be asked."""
        return self.live or self.record

    def allows(self, level: Level) -> bool:
        return level == "render" or LEVELS.index(level) <= LEVELS.index(self.level)


OFFLINE = Mode()


class TrialContext(NamedTuple):
    """The context of a case: the agent, the evaluators, and the functions for its tools."""

    agent: PromptAgent
    mode: Mode
    evaluators: Callable[[], Evaluators]
    trial: Trial
    number: int = 1
    functions: Sequence[object] = ()
    keep_messages: bool = False
    spending: Spending = Spending()
    ledger: CallLedger | None = None

    @property
    def recording(self) -> Path:
        """The recording of this run. For an earlier prompt, it may be the earlier or the current one."""
        earlier = self.trial.suite.earlier
        if earlier is not None and (path := get_recording_path(self.trial, self.number, earlier)).exists():
            return path
        return get_recording_path(self.trial, self.number)


def run_case(context: TrialContext) -> CaseRun:
    """Run a case once. An error in the prompt, the model or a recording becomes the run's error."""
    steps = _Steps(context)
    error: str | None = None
    try:
        if is_tracing():
            _run_traced(steps)
        else:
            steps.run()
    except RecordingMissing as missing:
        error = f"{missing.cause}\n    Run `prompty test --record` to write {context.recording.name}."
        if other := _find_other_recording(context.recording):
            error += f" To replay {other}, add its --model or --variant."
    except PromptyError as failure:
        error = mask_secrets(failure.for_command_line())
    checks = tuple(steps.results)
    if error is None and not steps.observed:
        return CaseRun(number=context.number, level=steps.level, checks=checks)
    return CaseRun(number=context.number, level=steps.level, checks=checks, error=error, **steps.observed)


def _find_other_recording(path: Path) -> str | None:
    """Return the name of a recording with a model or a variant that the caller may have forgotten to choose."""
    others = () if path.exists() else path.parent.glob(f"{path.stem}.*.jsonl")
    return min((other.name for other in others), default=None)


def _run_traced(steps: "_Steps") -> None:
    trial = steps.context.trial
    with begin("test", {names.AGENT_NAME: trial.suite.name}, title=trial.key) as span:
        if (file := find_trace_file(span)) is not None:
            steps.observed["trace"] = str(file)
        steps.run()


def has_work(case: Case, mode: Mode) -> bool:
    """Return True if a mode reaches a check of the case, or if the case has no checks and only renders."""
    levels = case.expect.levels
    return not levels or mode.allows(levels[0])


class _Steps:
    """The levels of one run, cheapest first. `observed` holds the known fields of its `CaseRun`."""

    def __init__(self, context: TrialContext) -> None:
        self.case, self.context = context.trial.case, context
        self.level: Level = "render"
        self.observed: dict[str, Any] = {}
        self.results: list[CheckResult] = []

    def run(self) -> None:
        expect, mode = self.case.expect, self.context.mode
        if not self._check("render", self._render()) or (expect.levels == ("render",) and self.case.label is None):
            return
        if expect.wire and mode.allows("wire") and not self._check("wire", self._build_request()):
            return
        is_replayed = (expect.replay or self.case.label is not None) and mode.allows("replay")
        if is_replayed or (expect.live and mode.allows("live")):
            with self._answering() as answers:
                answer = self._get_answer(answers)
                self._compare_label()
                if self._check("replay", answer) and mode.live:
                    self._check("live", answer)

    def _check(self, level: Level, observation: Observation) -> bool:
        """Add the results of a level. Return True if it passed."""
        self.level = level
        checks = getattr(self.case.expect, level)
        if not checks:
            return True
        results = run_checks(level, checks, observation, self.context.evaluators)
        self.results += results
        return all(result.passed or result.advisory for result in results)

    def _compare_label(self) -> None:
        """Compare a judge's score with a person's label. A difference counts in the judge's report."""
        rules, label = self.context.trial.suite.judge, self.case.label
        if rules is None or label is None:
            return
        try:
            verdict, wanted = (passes(parse_score(score), rules.at_least) for score in (self.observed["answer"], label))
        except ValueError as error:
            raise RequestError(str(error), "Correct the label, the judge, or `at_least`.") from None
        message = "" if verdict == wanted else f"the judge says {_name(verdict)}, but the label is {_name(wanted)}"
        self.results.append(
            CheckResult(level="replay", name="label", passed=not message, message=message, advisory=True)
        )

    def _render(self) -> Observation:
        messages = prepare(self.context.agent, self.case.inputs)
        if self.context.keep_messages:
            self.observed["messages"] = tuple(_show_message(message) for message in messages)
        text = "\n\n".join([f"{message.role}:\n{message.text}" for message in messages])
        return Observation(text, lambda: [message.to_json() for message in messages])

    def _build_request(self) -> Observation:
        _require_offline_tools(self.context)
        explanation = explain(self.context.agent, self.case.inputs)
        text = json.dumps(explanation.body, ensure_ascii=False)
        tokens = round(len(text) / CHARACTERS_PER_TOKEN)
        return Observation(text, lambda: explanation.body, dropped=list(explanation.dropped), tokens=tokens)

    @contextmanager
    def _answering(self) -> Iterator[RunAnswers]:
        """Answer requests from the recording, or from models. Without an answer, keep the old recording."""
        context, mode = self.context, self.context.mode
        if not mode.asks:
            _require_offline_tools(context)
        path = context.recording
        if mode.record:
            try:
                check_target(path)
            except OSError as error:
                fix = "Remove it, and record again."
                raise RequestError(f"{path} cannot be written: {error.strerror}", fix) from None
            check_inside(path.parent, context.trial.suite.folder)
        answers = RunAnswers(
            f"{context.trial.key}, run {context.number}",
            context.agent,
            path,
            context.spending,
            context.ledger,
            plays=not mode.live,
            asks=mode.asks,
        )
        try:
            with answers:
                yield answers
        finally:
            self.observed.update(answers.describe())
            if mode.record and "answer" in self.observed:  # keep a paid answer, even if a check raises
                answers.save(path)

    def _get_answer(self, answers: RunAnswers) -> Observation:
        calls: list[ToolCall] = []
        replies: list[Reply] = []
        rounds = 0

        def listen(event: Event) -> None:
            nonlocal rounds
            if isinstance(event, ToolStarted):
                calls.append(event.call)
            elif isinstance(event, ModelReply):
                replies.append(event.reply)
            elif isinstance(event, IterationStarted):
                rounds += 1

        started = time.perf_counter()
        try:
            result = self._ask(listen)
        except ResultError as error:
            result = self._reject(error, replies)
        is_fresh = self.context.mode.live or answers.asked or answers.resumed
        seconds = time.perf_counter() - started + answers.resumed_seconds if is_fresh else None
        value = to_plain(result.value)
        if isinstance(result.value, list) and not calls:  # from `invoke`, which does not run tools
            calls = [call for call in result.value if isinstance(call, ToolCall)]
        observed = [(call.name, _parse_arguments(call.arguments)) for call in calls]
        self.observed.update(
            answer=value,
            calls=tuple({"name": name, "arguments": arguments} for name, arguments in observed),
            rounds=max(rounds, 1),
            seconds=seconds,
        )
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        return Observation(
            text,
            lambda: value,
            tokens=result.usage.output_tokens,
            calls=observed,
            rounds=max(rounds, 1),
            read_cost=lambda: answers.cost,
            seconds=seconds,
        )

    def _reject(self, error: ResultError, replies: Sequence[Reply]) -> Result[Any]:
        """Fail the case because its answer does not fit the prompt's `outputs`, and return the answer as it came."""
        found = f", found {show_value(error.text)}" if error.reason == "text" else ""
        self.results.append(CheckResult(level="replay", name="outputs", passed=False, message=error.cause + found))
        return Result(
            value=parse_structured(error.text),
            messages=error.messages,
            usage=sum((reply.usage for reply in replies), Usage()),
            finish_reason=replies[-1].finish_reason if replies else None,
            model=self.context.agent.model.id,
        )

    def _ask(self, listen: Callable[[Event], None]) -> Result[Any]:
        agent, inputs = self.context.agent, self.case.inputs
        if not agent.tools:
            found: Result[Any] = invoke(agent, inputs, details=True, on_event=listen)
            return found
        tools = [*_make_stubs(agent, self.case.tools), *self.context.functions]
        _require_functions(agent, tools)
        # Calls that run in parallel have no number.
        has_numbers = any(" " in name for name in self.case.tools)
        order: Literal["parallel", "sequential"] = "sequential" if has_numbers else "parallel"
        end = turn(agent, inputs, details=True, on_event=listen, tools=tools, tool_execution=order)
        for _ in range(MAX_PAUSES):
            if not isinstance(end, Paused):
                return end
            waiting = sorted({call.name for call in end.pending} - {name.partition(" ")[0] for name in self.case.tools})
            if waiting:
                fix = f"Add a result to the case, `tools: {{{waiting[0]}: …}}`, so that it is not called."
                raise RequestError(f"the call of '{waiting[0]}' needs approval", fix)
            verdicts = [True] * len(end.pending)
            end = resume(agent, end, verdicts, inputs, details=True, on_event=listen, tools=tools, tool_execution=order)
        raise RequestError(f"the turn paused more than {MAX_PAUSES} times", "Look at its calls with `prompty run`.")


def _name(verdict: bool | str) -> str:
    return verdict if isinstance(verdict, str) else "pass" if verdict else "fail"


def _show_message(message: Message) -> Json:
    is_text = all(type(part) is TextPart for part in message.content)
    return {"role": message.role, "content": message.text if is_text else message.to_json()["content"]}


def to_plain(value: object) -> Any:
    """Return an answer as JSON. Values that JSON does not have become text."""
    if isinstance(value, list) and value and isinstance(value[0], ToolCall):
        return [call.to_json() for call in value]
    return value if isinstance(value, str) else json.loads(json.dumps(value, ensure_ascii=False, default=str))


def _parse_arguments(text: str) -> object:
    try:
        return read_json(text)
    except ValueError:
        return text


def _make_stubs(agent: PromptAgent, results: Mapping[str, object]) -> Iterator[object]:
    """Yield a function for each tool with a result in the case. It returns that result for any arguments.

    The key `look 2` is for the second call of `look`. Calls without a result of their own get that of `look`.
    """
    declared = {tool.name for tool in agent.tools if isinstance(tool, FunctionTool | CustomTool)}
    by_call: dict[str, dict[int, object]] = {}
    for key, result in results.items():
        name, _, number = key.partition(" ")
        if name not in declared or not (number.isdecimal() or key == name):
            known = ", ".join(sorted(declared)) or "none"
            raise ToolError(f"the prompt declares no function '{key}'", f"Use one of its functions: {known}.")
        by_call.setdefault(name, {})[int(number or 0)] = result
    for name, numbered in by_call.items():
        if 0 not in numbered:
            fix = f"Add `{name}: …` beside `{name} {min(numbered)}`."
            raise ToolError(f"the case has results for some calls of '{name}', but none for the others", fix)
        yield _make_stub(name, numbered)


def _make_stub(name: str, results: Mapping[int, object]) -> Callable[..., object]:
    numbers = count(1)

    def stub(**arguments: object) -> object:
        return results.get(next(numbers), results[0])

    stub.__name__ = stub.__qualname__ = name
    stub.__doc__ = None
    return stub


def _require_functions(agent: PromptAgent, tools: Sequence[Any]) -> None:
    known = {getattr(tool, "__name__", None) for tool in tools} | set(agent.registry[TOOLS].names())
    for tool in agent.tools:
        if isinstance(tool, FunctionTool) and tool.name not in known:
            fix = f"Add a result to the case, `tools: {{{tool.name}: …}}`, or --tools FILE.py with the function."
            raise ToolError(f"the prompt declares the tool '{tool.name}', which needs a function", fix)


def _require_offline_tools(context: TrialContext) -> None:
    """Raise RequestError if a prompt's tools can only be listed by a server, which is not called offline."""
    for tool in context.agent.tools if not context.mode.asks else ():
        if not isinstance(tool, _OFFLINE_KINDS) and not runs_at_provider(tool):
            raise RequestError(
                f"the functions of the tool '{tool.name}' are on a server ({tool.kind}), which is not called offline",
                "Add --live, or only check the messages with --level render.",
            )
