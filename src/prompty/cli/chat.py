"""`prompty chat`: talk to an agent in the terminal, with slash commands and approvals."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal
from uuid import uuid4

from rich.text import Text
from typer import Argument, Exit, Option

from prompty.api import turn
from prompty.cancellation import CancelToken
from prompty.cases.project_file import find_project
from prompty.cli import options as shared
from prompty.cli.console import out, print_error
from prompty.cli.functions import AllTools, McpFile, ToolFiles, load_mcp, select_functions
from prompty.cli.inputs import NO_FILE, STDIN, build_bare_agent, load_prompt_file, read_inputs
from prompty.cli.keyboard import Keyboard, open_keyboard
from prompty.cli.options import get_state_path, read_options, start_tracing
from prompty.cli.provider_tools import ProviderTools, decide_provider_tools
from prompty.cli.turns import BLOCKED, Approver, describe_event, describe_sources, truncate_line
from prompty.errors import Cancelled, InputError, PromptyError, RequestError, StoreUnusable
from prompty.loop.effects import Verdict
from prompty.memory.sqlite import SqliteMemory
from prompty.memory.store import InProcessMemory, MemoryStore
from prompty.model.agent import PromptAgent
from prompty.model.event import Event, ModelReply, ReasoningDelta, TextDelta
from prompty.model.message import Message, user
from prompty.model.paused import GatedCall
from prompty.pipeline.prepare import prepare
from prompty.providers.endpoint import find_server_name
from prompty.safety.visible import visible
from prompty.steering import Steering

HELP = """\
/steer TEXT   send a message to the model while it works (or just type a line)
/undo         remove your last message and the replies to it
/save NAME    save the conversation under a name
/help         list these commands
/exit         leave (also exit, quit and Ctrl-D)"""
_LEAVE = frozenset({"/exit", "/quit", "exit", "quit"})
_USUAL_NAMES = ("question", "input", "message", "query", "text")


def chat(
    file: Annotated[Path | None, Argument(help="The .prompty file. Without one, you talk to the model alone.")] = None,
    variant: shared.Variant = None,
    inputs: shared.InputPairs = None,
    inputs_file: shared.InputFile = None,
    tools: ToolFiles = None,
    all_tools: AllTools = False,
    mcp: McpFile = None,
    session: Annotated[str | None, Option(help="Save the conversation under this name, or continue it.")] = None,
    database: Annotated[Path | None, Option(help="The SQLite file with saved conversations.")] = None,
    ask: Annotated[str | None, Option(help="The input that receives your messages.")] = None,
    approve: shared.Approve = False,
    model: shared.ModelId = None,
    provider: shared.ProviderKey = None,
    api: shared.ApiType = None,
    options: shared.ModelOptionPairs = None,
    lenient_outputs: shared.LenientOutputs = False,
    provider_tools: ProviderTools = None,
    roots: shared.Roots = None,
    allow_env: shared.AllowEnv = None,
    trace: shared.TraceTo = None,
) -> None:
    """Talk to the agent in FILE, or without a file to the model in --model.

    Ctrl-C cancels a turn, /exit or Ctrl-D ends the conversation, /help lists commands.

    If standard input is not a terminal, the exit code is 1 after an error.
    """
    STDIN.claim("your messages")
    start_tracing(trace, find_project(file or NO_FILE))
    if file is None:
        agent = _build_agent(model, read_options(options), provider, api)
    else:
        agent = load_prompt_file(
            file, variant, model, read_options(options), provider=provider, api=api, roots=roots, allow_env=allow_env
        )
    values = read_inputs(agent, inputs, inputs_file)
    load_mcp(mcp)
    functions = select_functions(agent, tools, all_tools=all_tools)
    conversation = Conversation(
        agent,
        values,
        functions=functions,
        open_store=lambda: SqliteMemory(database or get_state_path("sessions.db")),
        session=session,
        ask=ask,
        approval="always" if approve else None,
        outputs_mode=shared.get_outputs_mode(lenient=lenient_outputs),
        provider_tools=decide_provider_tools(agent, file or NO_FILE, provider_tools),
        keyboard=open_keyboard(get_state_path("chat_history")),
    )
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        _print_banner(file, agent)
    conversation.run()
    if conversation.failed and not is_terminal:
        raise Exit(1)


def _build_agent(model: str | None, options: dict[str, object], provider: str | None, api: str | None) -> PromptAgent:
    agent = build_bare_agent(model, options, provider=provider, api=api)
    if not agent.model.id and not provider:
        raise RequestError("there is no model to talk to", "Name one, or a file: prompty chat -m ollama:llama3.2")
    return agent


def _print_banner(file: Path | None, agent: PromptAgent) -> None:
    server = find_server_name(agent)
    model = f"{server}:{agent.model.id}" if agent.model.id else server
    out.print(Text.assemble((visible(str(file)), "bold"), " with ") if file else "", end="")
    out.print(visible(model))
    out.print(Text("/help lists the commands. /exit or Ctrl-D leaves.", "dim"))


class Conversation:
    """Turns with one agent. Without a session name, the messages last as long as the process."""

    def __init__(
        self,
        agent: PromptAgent,
        inputs: dict[str, object],
        *,
        functions: list[object],
        open_store: Callable[[], MemoryStore],
        session: str | None,
        ask: str | None,
        approval: str | None,
        outputs_mode: Literal["strict", "lenient"] = "strict",
        provider_tools: bool = True,
        keyboard: Keyboard,
    ) -> None:
        self.agent = agent
        self.inputs = inputs
        self.functions = functions
        self.approval = approval
        self.outputs_mode: Literal["strict", "lenient"] = outputs_mode
        self.provider_tools = provider_tools
        self.store: MemoryStore = open_store() if session else InProcessMemory()
        self._open_store = open_store
        self.session: str = session or uuid4().hex
        self.ask: str | None = _choose_input(agent, inputs, ask)
        self.keyboard = keyboard
        self.cancel: CancelToken = CancelToken()  # for the running turn, like `steering`
        self.steering: Steering = Steering()
        self.approver: Approver = Approver(out, lambda: keyboard.read_reply(lambda: self.cancel.cancelled))
        self.failed: bool = False

    def run(self) -> None:
        """Read and answer lines until the user leaves."""
        self._show_history()
        while True:
            line = self._read_line()
            if line is None or line.strip() in _LEAVE:
                out.print()
                return
            self._handle(line.strip())

    def _read_line(self) -> str | None:
        """Wait for a line. Ctrl-C at the prompt prints how to leave."""
        while True:
            try:
                return self.keyboard.read_message()
            except KeyboardInterrupt:
                out.print(Text("(Ctrl-D or /exit to leave)", "dim"))

    def _handle(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        match command:
            case "":
                return
            case "/help":
                out.print(HELP)
            case "/undo":
                self._undo()
            case "/save":
                self._save(rest.strip())
            case "/steer":
                out.print(Text("no turn is running; type the message without /steer", "dim"))
            case _ if command.startswith("/") and command[1:].isalpha():
                out.print(Text(f"unknown command {visible(command)}; /help lists the commands", "yellow"))
            case _:
                self._run_turn(line)

    def _run_turn(self, text: str) -> None:
        display = Display()
        cancel, steering = self.cancel, self.steering = CancelToken(), Steering()
        inputs = {**self.inputs, self.ask: text} if self.ask else self.inputs
        messages = None if self.ask else [*prepare(self.agent, self.inputs), user(text)]
        try:
            with cancel_on_interrupt(cancel):
                stream = turn(
                    self.agent,
                    inputs,
                    stream=True,
                    tools=self.functions,
                    memory=self.store,
                    session_id=self.session,
                    messages=messages,
                    approval=self.approval,
                    outputs_mode=self.outputs_mode,
                    provider_tools=self.provider_tools,
                    gate=self.decide_all,
                    steering=steering,
                    cancel=cancel,
                )
                for event in stream.events():
                    display.show(event)
                    self._send_pending()
            display.end_line()
            if display.blocked:
                self.failed = True
                print_error(BLOCKED, out)
        except Cancelled as error:
            display.end_line()
            out.print(Text(f"cancelled: {visible(error.reason)}", "yellow"))
        except PromptyError as error:
            self.failed = True
            display.end_line()
            print_error(error, out)

    def decide_all(self, calls: list[GatedCall]) -> list[Verdict]:
        """Return a verdict for each call. Lines typed before a question are steering messages, not its answer."""
        self._send_pending()
        return self.approver.decide_all(calls)

    def _send_pending(self) -> None:
        """Send the typed lines to the model."""
        for line in self.keyboard.read_pending():
            self.steering.send(line.removeprefix("/steer").strip())
            out.print(Text(f"  (sent: {visible(line)})", "dim"))

    def _load_messages(self) -> list[Message]:
        return [Message.from_json(message) for message in self.store.load(self.session)]

    def _show_history(self) -> None:
        for message in self._load_messages():
            if message.role in ("user", "assistant") and message.text:
                style = "cyan" if message.role == "user" else "dim"
                out.print(Text(f"{message.role}: {visible(truncate_line(message.text))}", style))

    def _undo(self) -> None:
        messages = self._load_messages()
        positions = [position for position, message in enumerate(messages) if message.role == "user"]
        if not positions:
            out.print(Text("there is nothing to undo", "dim"))
            return
        self.store.replace(self.session, tuple(message.to_json() for message in messages[: positions[-1]]))
        out.print(Text(f"removed: {visible(truncate_line(messages[positions[-1]].text))}", "dim"))

    def _save(self, name: str) -> None:
        if not name:
            out.print(Text("usage: /save NAME", "yellow"))
            return
        try:
            saved = self._open_store()
        except StoreUnusable as error:
            print_error(error, out)
            return
        saved.replace(name, tuple(self.store.load(self.session)))
        self.store, self.session = saved, name
        out.print(Text(f"saved as {visible(name)}; continue later with --session {visible(name)}", "dim"))


class Display:
    """Prints the events of a turn."""

    def __init__(self) -> None:
        self._style: str | None = None
        self.blocked: bool = False  # by the provider's content filter

    def show(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._write(text, "")
            case ReasoningDelta(text):
                self._write(text, "dim italic")
            case ModelReply(reply):
                self.end_line()
                self.blocked = reply.finish_reason == "content_filter" and not (reply.text or reply.tool_calls)
                if sources := describe_sources(reply.citations):
                    out.print(Text(sources, "dim"))
            case _:
                if line := describe_event(event):
                    self.end_line()
                    out.print(Text(*line))

    def _write(self, text: str, style: str) -> None:
        """Append to the current line. Reasoning and text are on separate lines."""
        if self._style not in (None, style):
            out.print()
        self._style = style
        out.print(Text(visible(text), style), end="")

    def end_line(self) -> None:
        """End the current line, if there is one."""
        if self._style is not None:
            out.print()
        self._style = None


def _choose_input(agent: PromptAgent, inputs: dict[str, object], ask: str | None) -> str | None:
    """Return the input that receives the user's messages: `ask`, one with a usual name, or the only one without a
    value. Return None if there is no such input: then messages are appended to the prompt."""
    if ask is not None:
        return ask
    texts = [declared.name for declared in agent.inputs if declared.kind == "string" and declared.name not in inputs]
    usual = [name for name in _USUAL_NAMES if name in texts]
    if usual or len(texts) == 1:
        return (usual or texts)[0]
    if texts:
        raise InputError(
            texts[0],
            f"your messages could be any of the inputs {', '.join(texts)}",
            f"Choose one, for example --ask {texts[0]}.",
        )
    return None


@contextmanager
def cancel_on_interrupt(cancel: CancelToken) -> Iterator[None]:
    """Cancel the token on Ctrl-C, from another thread: a signal handler can interrupt code that holds a lock."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=cancel.cancel, args=("interrupted by Ctrl-C",), daemon=True).start()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
