"""A conversation in the terminal: what is said, what happens meanwhile, and what a person decides."""

from uuid import uuid4

from rich.text import Text

from prompty.api import turn
from prompty.cancellation import CancelToken
from prompty.cli.console import out
from prompty.cli.keyboard import Keyboard, interrupts
from prompty.errors import Cancelled, InputError, PromptyError
from prompty.loop.effects import Verdict
from prompty.loop.policy import ALLOW, deny
from prompty.memory.in_process import InProcessMemory
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
from prompty.pipeline.messages import message_from
from prompty.pipeline.prepare import prepare
from prompty.safety.visible import visible
from prompty.steering import Steering
from prompty.wire.json_bytes import write_bytes

HELP = """\
/steer TEXT   tell the model something while it works (any line you type meanwhile does the same)
/undo         forget the last thing you said, and what came of it
/save NAME    keep the conversation under a name
/help  /quit"""
_ASKED = ("question", "input", "message", "query", "text")
_LONGEST = 400


class Conversation:
    """Turns with one agent. Without a session's name, it is remembered as long as the program runs."""

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
        self.agent, self.inputs, self.functions, self.approval = agent, inputs, functions, approval
        self.saved = store
        self.store: MemoryStore = store if session else InProcessMemory()
        self.session = session or uuid4().hex
        self.ask = _input_for(agent, inputs, ask)
        self.trusted: set[str] = set()
        self.keyboard = Keyboard()

    def hold(self) -> None:
        """Talk until the person leaves."""
        self._show_history()
        while True:
            out.print(Text("you> ", "bold cyan"), end="")
            line = self._typed()
            if line is None or line.strip() == "/quit":
                out.print()
                return
            self._say(line.strip())

    def _typed(self) -> str | None:
        """The next line; at the prompt Ctrl-C only says how to leave."""
        while True:
            try:
                return self.keyboard.line()
            except KeyboardInterrupt:
                out.print(Text("\n(Ctrl-D or /quit to leave)", "dim"))
                out.print(Text("you> ", "bold cyan"), end="")

    def _say(self, line: str) -> None:
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
                out.print(Text("nothing is running; just say it", "dim"))
            case _ if command.startswith("/") and command[1:].isalpha():
                out.print(Text(f"there is no {visible(command)}; /help lists what there is", "yellow"))
            case _:
                self._turn(line)

    def _turn(self, text: str) -> None:
        show, cancel, steering = Display(), CancelToken(), Steering()
        inputs = {**self.inputs, self.ask: text} if self.ask else self.inputs
        messages = None if self.ask else [*prepare(self.agent, self.inputs), user(text)]
        try:
            with interrupts(cancel):
                stream = turn(
                    self.agent,
                    inputs,
                    stream=True,
                    tools=self.functions,
                    memory=self.store,
                    session_id=self.session,
                    messages=messages,
                    approval=self.approval,
                    gate=self._judge,
                    steering=steering,
                    cancel=cancel,
                )
                for event in stream.events():
                    show.event(event)
                    for said in self.keyboard.typed_meanwhile():
                        steering.send(said.removeprefix("/steer").strip())
                        out.print(Text(f"  (told: {visible(said)})", "dim"))
            show.end()
        except Cancelled as error:
            show.end()
            out.print(Text(f"cancelled: {visible(error.reason)}", "yellow"))
        except PromptyError as error:
            show.end()
            out.print(Text(f"error: {visible(str(error))}", "red"))

    def _judge(self, calls: list[GatedCall]) -> list[Verdict]:
        return [self._asked(call) if call.needs_approval else ALLOW for call in calls]

    def _asked(self, call: GatedCall) -> Verdict:
        if call.name in self.trusted:
            return ALLOW
        question = f"allow {shown_call(call.name, call.arguments)}? [y]es, [n]o, [a]lways, or why not: "
        out.print(Text(question, "bold yellow"), end="")
        said = (self.keyboard.line() or "no").strip()
        match said.lower():
            case "a" | "always":
                self.trusted.add(call.name)
                return ALLOW
            case "y" | "yes":
                return ALLOW
            case "n" | "no" | "":
                return deny("the user said no")
        return deny(said)

    def _messages(self) -> list[Message]:
        return [message_from(message) for message in self.store.load(self.session)]

    def _show_history(self) -> None:
        for message in self._messages():
            if message.role in ("user", "assistant") and message.text:
                style = "cyan" if message.role == "user" else "dim"
                out.print(Text(f"{message.role}: {visible(shortened(message.text))}", style))

    def _undo(self) -> None:
        messages = self._messages()
        spoken = [position for position, message in enumerate(messages) if message.role == "user"]
        if not spoken:
            out.print(Text("there is nothing to undo", "dim"))
            return
        self.store.replace(self.session, tuple(message.to_json() for message in messages[: spoken[-1]]))
        out.print(Text(f"forgotten: {visible(shortened(messages[spoken[-1]].text))}", "dim"))

    def _save(self, name: str) -> None:
        if not name:
            out.print(Text("write /save NAME", "yellow"))
            return
        self.saved.replace(name, tuple(self.store.load(self.session)))
        self.store, self.session = self.saved, name
        out.print(Text(f"kept as {visible(name)}; go on later with --session {visible(name)}", "dim"))


class Display:
    """Shows a turn while it happens."""

    def __init__(self) -> None:
        self._style: str | None = None

    def event(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._write(text, "")
            case ReasoningDelta(text):
                self._write(text, "dim italic")
            case ToolStarted(call):
                self._line(f"→ {call.name} {visible(shortened(call.arguments))}", "magenta")
            case ToolFinished(call, result):
                style = "red" if event.is_error else "green"
                self._line(f"← {call.name} {visible(shortened(result.text))}", style)
            case Retry(attempt, seconds, reason):
                self._line(f"attempt {attempt} failed: {visible(reason)}; again in {seconds:.1f} s", "yellow")
            case Compacted(messages, _):
                self._line(f"({messages} messages are summed up from here on)", "dim")
            case HistoryRepaired(problems):
                self._line(f"(the stored conversation was mended: {visible('; '.join(problems))})", "yellow")
            case FellBack(model, reason):
                self._line(f"({visible(reason)}; going on with {visible(model)})", "yellow")
            case ModelReply():
                self.end()

    def _write(self, text: str, style: str) -> None:
        """More of what is being said; thoughts and words do not share a line."""
        if self._style not in (None, style):
            out.print()
        self._style = style
        out.print(Text(visible(text), style), end="")

    def _line(self, text: str, style: str) -> None:
        self.end()
        out.print(Text(text, style))

    def end(self) -> None:
        """Finish the line that is being written."""
        if self._style is not None:
            out.print()
        self._style = None


def shown_call(name: str, arguments: dict[str, object]) -> str:
    return visible(f"{name} {shortened(write_bytes(arguments).decode())}")


def shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _input_for(agent: PromptAgent, inputs: dict[str, object], asked: str | None) -> str | None:
    """The input that takes what is said: the one that is named, one with a usual name, or the only one that is open.
    Without inputs, what is said is a message of its own."""
    texts = [one.name for one in agent.inputs if one.kind == "string" and one.name not in inputs]
    if asked is not None:
        return asked
    usual = [name for name in _ASKED if name in texts]
    if usual or len(texts) == 1:
        return (usual or texts)[0]
    if texts:
        raise InputError(
            texts[0], f"what you say could be any of the inputs {', '.join(texts)}", f"Say which: --ask {texts[0]}."
        )
    return None
