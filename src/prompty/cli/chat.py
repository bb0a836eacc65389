"""`prompty chat`: talk to an agent in the terminal, with slash commands and approvals."""

import json
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated
from uuid import uuid4

from rich.text import Text
from typer import Option

from prompty.api import turn
from prompty.cancellation import CancelToken
from prompty.cli.console import out
from prompty.cli.functions import ToolFiles, load_functions
from prompty.cli.inputs import load_dotenv, read_pairs
from prompty.cli.options import (
    ApiType,
    File,
    InputPairs,
    ModelId,
    ProviderKey,
    TraceTo,
    get_state_path,
    start_tracing,
)
from prompty.drivers.target import override_model
from prompty.errors import Cancelled, InputError, PromptyError
from prompty.loop.effects import Verdict
from prompty.loop.policy import ALLOW, deny
from prompty.memory.in_process import InProcessMemory
from prompty.memory.sqlite import SqliteMemory
from prompty.memory.store import MemoryStore
from prompty.model.agent import PromptAgent
from prompty.model.event import (
    Compacted,
    Event,
    FellBack,
    HistoryRepaired,
    ModelReply,
    ReasoningDelta,
    Retry,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from prompty.model.message import Message, user
from prompty.model.paused import GatedCall
from prompty.pipeline.load import load
from prompty.pipeline.prepare import prepare
from prompty.safety.visible import visible
from prompty.steering import Steering

HELP = """\
/steer TEXT   send a message to the model while it works (or just type a line)
/undo         remove your last message and the replies to it
/save NAME    save the conversation under a name
/help  /quit"""
_USUAL_NAMES = ("question", "input", "message", "query", "text")
_MAX_CHARACTERS = 400


def chat(
    file: File,
    inputs: InputPairs = None,
    tools: ToolFiles = None,
    session: Annotated[str | None, Option(help="Save the conversation under this name, or continue it.")] = None,
    database: Annotated[Path | None, Option(help="The SQLite file with saved conversations.")] = None,
    ask: Annotated[str | None, Option(help="The input that receives your messages.")] = None,
    approve: Annotated[bool, Option("--approve", help="Ask before every tool call, whatever the file says.")] = False,
    model: ModelId = None,
    provider: ProviderKey = None,
    api: ApiType = None,
    trace: TraceTo = None,
) -> None:
    """Talk to the agent in FILE. Ctrl-C cancels a turn, Ctrl-D ends the conversation, /help lists commands."""
    load_dotenv(file)
    start_tracing(trace)
    agent = override_model(load(file), model, provider=provider, api_type=api)
    Conversation(
        agent,
        read_pairs(agent, inputs or []),
        functions=load_functions(tools),
        store=SqliteMemory(database or get_state_path("sessions.db")),
        session=session,
        ask=ask,
        approval="always" if approve else None,
    ).run()


class Conversation:
    """Turns with one agent. Without a session name, the messages last as long as the process."""

    def __init__(
        self,
        agent: PromptAgent,
        inputs: dict[str, object],
        *,
        functions: list[object],
        store: MemoryStore,
        session: str | None,
        ask: str | None,
        approval: str | None,
    ) -> None:
        self.agent = agent
        self.inputs = inputs
        self.functions = functions
        self.approval = approval
        self.saved = store
        self.store: MemoryStore = store if session else InProcessMemory()
        self.session: str = session or uuid4().hex
        self.ask: str | None = _choose_input(agent, inputs, ask)
        self.trusted: set[tuple[str, str]] = set()  # the name and the hash of a tool's definition
        self.keyboard: Keyboard = Keyboard()

    def run(self) -> None:
        """Read and answer lines until the user leaves."""
        self._show_history()
        while True:
            out.print(Text("you> ", "bold cyan"), end="")
            line = self._read_line()
            if line is None or line.strip() == "/quit":
                out.print()
                return
            self._handle(line.strip())

    def _read_line(self) -> str | None:
        """Wait for a line. Ctrl-C at the prompt prints how to leave."""
        while True:
            try:
                return self.keyboard.read_line()
            except KeyboardInterrupt:
                out.print(Text("\n(Ctrl-D or /quit to leave)", "dim"))
                out.print(Text("you> ", "bold cyan"), end="")

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
        display, cancel, steering = Display(), CancelToken(), Steering()
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
                    gate=self.decide_all,
                    steering=steering,
                    cancel=cancel,
                )
                for event in stream.events():
                    display.show(event)
                    for line in self.keyboard.read_pending():
                        steering.send(line.removeprefix("/steer").strip())
                        out.print(Text(f"  (sent: {visible(line)})", "dim"))
            display.end_line()
        except Cancelled as error:
            display.end_line()
            out.print(Text(f"cancelled: {visible(error.reason)}", "yellow"))
        except PromptyError as error:
            display.end_line()
            out.print(Text(f"error: {visible(str(error))}", "red"))

    def decide_all(self, calls: list[GatedCall]) -> list[Verdict]:
        """Return a verdict for each call: the gate of the conversation."""
        return [self._decide(call) if call.needs_approval else ALLOW for call in calls]

    def _decide(self, call: GatedCall) -> Verdict:
        """Ask the person about a call, with all its arguments. The end of the input is a no."""
        definition = (call.name, call.definition)
        if definition in self.trusted:
            return ALLOW
        arguments = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))
        question = f"allow {visible(f'{call.name} {arguments}')}? [y]es, [n]o, [a]lways, or a reason to deny: "
        out.print(Text(question, "bold yellow"), end="", soft_wrap=True)
        reply = (self.keyboard.read_line() or "no").strip()
        match reply.lower():
            case "a" | "always":
                self.trusted.add(definition)
                return ALLOW
            case "y" | "yes":
                return ALLOW
            case "n" | "no" | "":
                return deny("the user said no")
        return deny(reply)

    def _load_messages(self) -> list[Message]:
        return [Message.from_json(message) for message in self.store.load(self.session)]

    def _show_history(self) -> None:
        for message in self._load_messages():
            if message.role in ("user", "assistant") and message.text:
                style = "cyan" if message.role == "user" else "dim"
                out.print(Text(f"{message.role}: {visible(_shorten(message.text))}", style))

    def _undo(self) -> None:
        messages = self._load_messages()
        positions = [position for position, message in enumerate(messages) if message.role == "user"]
        if not positions:
            out.print(Text("there is nothing to undo", "dim"))
            return
        self.store.replace(self.session, tuple(message.to_json() for message in messages[: positions[-1]]))
        out.print(Text(f"removed: {visible(_shorten(messages[positions[-1]].text))}", "dim"))

    def _save(self, name: str) -> None:
        if not name:
            out.print(Text("usage: /save NAME", "yellow"))
            return
        self.saved.replace(name, tuple(self.store.load(self.session)))
        self.store, self.session = self.saved, name
        out.print(Text(f"saved as {visible(name)}; continue later with --session {visible(name)}", "dim"))


class Display:
    """Prints the events of a turn."""

    def __init__(self) -> None:
        self._style: str | None = None

    def show(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._write(text, "")
            case ReasoningDelta(text):
                self._write(text, "dim italic")
            case ToolStarted(call):
                self._print_line(f"→ {call.name} {visible(_shorten(call.arguments))}", "magenta")
            case ToolFinished(call, result):
                style = "red" if event.is_error else "green"
                self._print_line(f"← {call.name} {visible(_shorten(result.text))}", style)
            case Retry(attempt, seconds, reason):
                self._print_line(f"attempt {attempt} failed: {visible(reason)}; retrying in {seconds:.1f} s", "yellow")
            case Compacted(messages, _):
                self._print_line(f"({messages} messages were replaced by a summary)", "dim")
            case HistoryRepaired(problems):
                self._print_line(f"(the stored conversation was repaired: {visible('; '.join(problems))})", "yellow")
            case FellBack(model, reason):
                self._print_line(f"({visible(reason)}; continuing with {visible(model)})", "yellow")
            case ModelReply():
                self.end_line()

    def _write(self, text: str, style: str) -> None:
        """Append to the current line. Reasoning and text do not share one."""
        if self._style not in (None, style):
            out.print()
        self._style = style
        out.print(Text(visible(text), style), end="")

    def _print_line(self, text: str, style: str) -> None:
        self.end_line()
        out.print(Text(text, style))

    def end_line(self) -> None:
        """End the current line, if there is one."""
        if self._style is not None:
            out.print()
        self._style = None


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"


def _choose_input(agent: PromptAgent, inputs: dict[str, object], ask: str | None) -> str | None:
    """Return the input that receives the user's messages: `ask`, one with a usual name, or the only one without a
    value. Return None if there is no such input: a message is then appended to the prompt."""
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


class Keyboard:
    """Lines from the terminal, read on their own thread."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="keyboard", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def read_line(self) -> str | None:
        """Wait for the next line. Return None at the end of the input, as often as it is asked for."""
        while True:
            try:
                line = self._lines.get(timeout=0.5)  # so that signals are handled in between
            except queue.Empty:
                continue
            if line is None:
                self._lines.put(None)
            return line

    def read_pending(self) -> Iterator[str]:
        """Yield the lines that have been typed already."""
        while not self._lines.empty():
            line = self._lines.get()
            if line is None:
                self._lines.put(None)
                return
            yield line


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
