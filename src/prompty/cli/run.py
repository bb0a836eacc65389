"""`prompty run`: run a prompt, with tools if the command names them."""

import json
import sys
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Exit, Option

from prompty.api import invoke, turn as run_turn
from prompty.cases.project_file import Project, override_in_project
from prompty.cli import options as shared
from prompty.cli.console import err, fail, out, print_json, print_problem
from prompty.cli.functions import AllTools, McpFile, ToolFiles, load_mcp, select_functions
from prompty.cli.inputs import read_inputs
from prompty.cli.options import read_options, start_tracing
from prompty.cli.provider_tools import ProviderTools, decide_provider_tools
from prompty.cli.render import Prompt
from prompty.cli.turns import BLOCKED, Approver, describe_call, describe_event, describe_sources, truncate_line
from prompty.errors import Problem, PromptyWarning
from prompty.model.agent import PromptAgent
from prompty.model.citation import Citation, ProviderCall
from prompty.model.event import Done, Event, ModelReply, ReasoningDelta, TextDelta
from prompty.model.message import Reply, ToolCall, Usage
from prompty.model.paused import Paused
from prompty.model.tool import FunctionTool, McpTool
from prompty.pipeline.model_override import find_default_model
from prompty.registry import DEFAULT
from prompty.safety.visible import visible
from prompty.safety.write_files import check_target, replace_file

_CUT_SHORT = {
    "length": "the model reached its token limit, so the answer is not complete. Add --option maxOutputTokens=N.",
    "content_filter": "the provider's content filter ended the answer, so it is not complete.",
}


def run_prompt(
    file: shared.FileOrStdin,
    value: shared.InputValue = None,
    variant: shared.Variant = None,
    inputs: shared.InputPairs = None,
    inputs_file: shared.InputFile = None,
    tools: ToolFiles = None,
    all_tools: AllTools = False,
    mcp: McpFile = None,
    turn: Annotated[
        bool, Option("--turn", help="Run the file's tools until the model answers. --tools and --mcp imply it.")
    ] = False,
    approve: shared.Approve = False,
    allow: Annotated[
        list[str] | None, Option(metavar="TOOL", help="Run calls to this tool without asking for approval.")
    ] = None,
    stream: Annotated[bool, Option("--stream", "-s", help="Print the answer as it arrives.")] = False,
    as_json: shared.AsJson = False,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="PATH", help="Write the answer to this file.")
    ] = None,
    model: shared.ModelId = None,
    provider: shared.ProviderKey = None,
    api: shared.ApiType = None,
    options: shared.ModelOptionPairs = None,
    timeout: Annotated[float | None, Option(metavar="SECONDS", help="Cancel the call after SECONDS.")] = None,
    lenient_outputs: shared.LenientOutputs = False,
    provider_tools: ProviderTools = None,
    roots: shared.Roots = None,
    allow_env: shared.AllowEnv = None,
    trace: shared.TraceTo = None,
) -> None:
    """Run the prompt in FILE and print the answer.

    Without --tools, --mcp or --turn, the model is called once, and its tool calls are printed.
    """
    prompt = Prompt(file, variant, roots, allow_env)
    _report_problems(prompt.check(), prompt.project, overridden=bool(model or provider or api))
    agent = override_in_project(
        prompt.load(), prompt.project, model, read_options(options), provider=provider, api_type=api
    )
    values = read_inputs(agent, inputs, inputs_file, value)
    load_mcp(mcp)
    runs_tools = bool(tools or mcp or turn)
    functions = select_functions(agent, tools, all_tools=all_tools) if runs_tools else []
    _check_output(output)
    start_tracing(trace, prompt.project)
    display = RunDisplay(quiet=as_json or output is not None)
    settings: dict[str, Any] = {"stream": stream, "timeout": timeout, "on_event": display.show}
    settings["outputs_mode"] = shared.get_outputs_mode(lenient=lenient_outputs)
    settings["provider_tools"] = decide_provider_tools(agent, file, provider_tools)
    if runs_tools:
        read_reply = (lambda: sys.stdin.readline() or None) if sys.stdin.isatty() else None
        approver = Approver(err, read_reply, allow or ())
        settings |= {"tools": functions, "gate": approver.decide_all, "approval": "always" if approve else None}
        answer: Any = run_turn(agent, values, **settings)
    else:
        answer = invoke(agent, values, **settings)
    result = answer.result if stream else answer
    if isinstance(result, Paused):
        _refuse(result)
    _print_result(agent, display, result, as_json=as_json, output=output)


class RunDisplay:
    """Shows the events of a run, and keeps the details to print with the result."""

    def __init__(self, *, quiet: bool) -> None:
        self.reply: Reply = Reply()
        self.usage: Usage = Usage()
        self.citations: tuple[Citation, ...] = ()
        self.provider_calls: tuple[ProviderCall, ...] = ()
        self.streamed: str = ""  # the printed text of the current reply
        self._quiet = quiet

    def show(self, event: Event) -> None:
        match event:
            case ModelReply(reply):
                self.reply = reply
                if self.streamed:
                    out.print()
            case Done():
                self.usage = event.usage
                self.citations, self.provider_calls = event.citations, event.provider_calls
            case ReasoningDelta(text) if not self._quiet:
                err.print(Text(visible(text), "dim"), end="")
            case TextDelta(text) if not self._quiet:
                out.print(Text(visible(text)), end="")
                self.streamed += text
            case _:
                if line := describe_event(event):
                    self.streamed = ""
                    err.print(Text(*line))


def _refuse(paused: Paused) -> None:
    """Exit with 1, because the paused calls cannot be approved without a terminal."""
    calls = ", ".join(map(describe_call, paused.pending))
    flags = " ".join(f"--allow {name}" for name in dict.fromkeys(call.name for call in paused.pending))
    fail(
        f"{calls} needs approval, but standard input is not a terminal. The call did not run.\n"
        f"    Run the command in a terminal, or add {flags}."
    )


def _check_output(output: Path | None) -> None:
    """Fail before the call, not after it, if the answer cannot be written."""
    if output is None:
        return
    if output.is_dir() or not output.absolute().parent.is_dir():
        fail(f"'{output}' cannot be written: it is a folder, or its folder does not exist\n    Name a file.")
    check_target(output)


def _print_result(
    agent: PromptAgent, display: RunDisplay, result: object, *, as_json: bool, output: Path | None
) -> None:
    reply = display.reply
    if reply.finish_reason == "content_filter" and not result:
        fail(BLOCKED)
    if warning := _CUT_SHORT.get(reply.finish_reason or ""):
        err.print(Text.assemble(("warning", "yellow"), f": {warning}"))
    calls = reply.tool_calls if isinstance(result, list) and result and isinstance(result[0], ToolCall) else ()
    plain = [call.to_json() for call in calls] if calls else result
    if as_json:
        usage = {name: value for name, value in display.usage.to_json().items() if value is not None}
        plain = {"result": plain, "model": reply.model, "finishReason": reply.finish_reason, "usage": usage}
        if display.citations:
            plain["citations"] = [citation.to_json() for citation in display.citations]
        if display.provider_calls:
            plain["providerCalls"] = [call.to_json() for call in display.provider_calls]
    if output is not None:
        text = plain if isinstance(plain, str) else json.dumps(plain, indent=2, ensure_ascii=False)
        replace_file(output, f"{text}\n".encode())
        err.print(Text(visible(f"wrote {output}"), "dim"))
    elif as_json:
        print_json(plain)
    elif calls:
        for call in calls:
            out.print(Text(f"{visible(call.name)} {visible(call.arguments)}"))
    elif not isinstance(plain, str):
        print_json(plain)
    elif not display.streamed:
        out.print(Text(visible(plain)))
    if calls:
        err.print(Text(visible(_explain_calls(agent, calls)), "yellow"))
    if not as_json and (sources := describe_sources(display.citations)):
        err.print(Text(f"\n{sources}", "dim"))


def _explain_calls(agent: PromptAgent, calls: Sequence[ToolCall]) -> str:
    """Return a note with the option that would run the calls."""
    declared = {tool.name: tool for tool in agent.tools}
    names = truncate_line(", ".join(dict.fromkeys(call.name for call in calls)))
    if any(isinstance(declared.get(call.name), FunctionTool) for call in calls):
        return f"not run: {names}. To run them, add --tools FILE.py with functions of these names."
    if any(isinstance(tool, McpTool) for tool in agent.tools):
        return f"not run: {names}. To run them, add --mcp FILE.json with their servers."
    return f"not run: {names}. To run them, add --turn."


# Problems with the file's model, which do not matter if the command line overrides it.
_MODEL_PROBLEMS = frozenset(
    {"missing-model", "unknown-provider", "provider-in-model-id", "foreign-model", "unknown-api-type"}
    | {"wrong-connection-kind"}
    | {"endpoint-scheme", "model-ends", "model-refuses", "option-refused", "small-output", "untrusted-endpoint"}
)


def _report_problems(found: Sequence[Problem], project: Project, *, overridden: bool) -> None:
    """Print the problems of a prompt that is about to run, and exit with 1 if it cannot.

    A variable that is not set is an error of the load, or of the call if that needs it. `prompty check` says that a
    file is v1, so that each run need not.
    """
    settled: Collection[str] = ()
    if overridden:
        settled = _MODEL_PROBLEMS
    elif project.model or find_default_model(DEFAULT):
        settled = ("missing-model",)
    problems = [
        one for one in found if one.code not in (*settled, "env-missing", "version-1") and one.severity != "info"
    ]
    for problem in problems:
        print_problem(problem, err)
    # The load would warn about the same problems again.
    warnings.filterwarnings("ignore", message=r"(?s).*this is a Prompty v1 file", category=PromptyWarning)
    if any(problem.severity == "error" for problem in problems):
        raise Exit(1)
