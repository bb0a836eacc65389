"""`prompty chat`, used as a person uses it: keys are typed into a terminal, and the screen is read."""

import io
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from prompty import load
from prompty.cli.chat import Conversation
from prompty.cli.turns import Approver
from prompty.events import GatedCall
from prompty.memory import InProcessMemory
from tests.terminal import PROMPTY, Terminal

pytestmark = pytest.mark.process

TOOLS = """
import time
from prompty import tool

@tool
def pay(amount: int) -> str:
    return f"paid {amount}"

@tool
def rest(seconds: int) -> str:
    time.sleep(seconds)
    return "rested"
"""
PROMPT = """---
name: bank
model:
  id: any
  provider: scripted
  script: {script}
inputs:
  question: {{kind: string, required: true}}
tools:
  - {{name: pay, kind: function, approvalMode: always, parameters: [{{name: amount, kind: integer, required: true}}]}}
  - {{name: rest, kind: function, parameters: [{{name: seconds, kind: integer, required: true}}]}}
---
system:
You pay.
user:
{{{{question}}}}
"""
PAYING = (
    '[{text: "Let me pay.", reasoning: "They owe five.", calls: [{call: pay, arguments: {amount: 5}}]}, "Thank you."]'
)
RESTING = "[{call: rest, arguments: {seconds: 60}}, Awake.]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "pay.prompty").write_text(PROMPT.format(script=PAYING))
    (tmp_path / "rest.prompty").write_text(PROMPT.format(script=RESTING))
    return tmp_path


@pytest.fixture
def terminals(folder: Path) -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def chat(folder: Path, terminals: list[Terminal], *arguments: str) -> Terminal:
    terminal = Terminal(folder, "chat", *arguments, "--tools", "tools.py", "--database", "sessions.db")
    terminals.append(terminal)
    terminal.until("you>")
    return terminal


def test_an_answer_an_approval_a_denial_and_a_session_that_goes_on(folder: Path, terminals: list[Terminal]) -> None:
    terminal = chat(folder, terminals, "pay.prompty", "--session", "mine")
    terminal.type("Pay my debts")
    asked = terminal.until('allow pay {"amount":5}?')
    assert "They owe five." in asked
    assert "Let me pay." in asked
    terminal.type("y")
    done = terminal.until("Thank you.")
    assert '→ pay {"amount":5}' in done
    assert "← pay paid 5" in done
    terminal.until("you>", times=2)
    terminal.type("Again")
    terminal.until("allow pay", times=2)
    terminal.type("not before Friday")
    terminal.until("Thank you.", times=2)
    assert terminal.screen.count("← pay") == 1
    terminal.until("you>", times=3)
    terminal.type("/undo")
    terminal.until("removed: Again")
    terminal.press("C-d")
    again = chat(folder, terminals, "pay.prompty", "--session", "mine")
    resumed = again.until("assistant: Thank you.")
    assert "user: Pay my debts" in resumed
    assert "Again" not in resumed


def test_ctrl_c_in_a_tool_ends_the_turn_and_not_the_program(folder: Path, terminals: list[Terminal]) -> None:
    terminal = chat(folder, terminals, "rest.prompty")
    terminal.type("Sleep")
    terminal.until("→ rest")
    terminal.press("C-c")
    screen = terminal.until("cancelled: interrupted by Ctrl-C")
    assert "Awake." not in screen
    terminal.until("you>", times=2)
    terminal.type("/save nap")
    terminal.until("saved as nap")
    terminal.press("C-c")
    terminal.until("Ctrl-D or /exit to leave")
    terminal.type("/nonsense")
    terminal.until("unknown command /nonsense")
    terminal.type("/help")
    terminal.until("/steer TEXT")


def test_what_is_typed_while_a_turn_runs_steers_it(folder: Path, terminals: list[Terminal]) -> None:
    (folder / "rest.prompty").write_text(PROMPT.format(script=RESTING.replace("60", "2")))
    terminal = chat(folder, terminals, "rest.prompty")
    terminal.type("Sleep")
    terminal.until("→ rest")
    terminal.type("/steer not so long")
    terminal.until("(sent: /steer not so long)")
    terminal.until("you>", times=2)


def run_chat(folder: Path, prompt: str, keys: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a chat that reads its keys from a pipe, which ends."""
    command = [str(PROMPTY), "chat", prompt, "--tools", "tools.py", "--database", "sessions.db", *options]
    return subprocess.run(command, cwd=folder, input=keys, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  our own command


def piped(folder: Path, prompt: str, keys: str) -> str:
    """What a chat prints that reads its keys from a pipe."""
    done = run_chat(folder, prompt, keys)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_end_of_the_input_is_a_no_and_ends_the_chat(folder: Path) -> None:
    said = piped(folder, "pay.prompty", "Pay my debts\n")
    assert 'allow pay {"amount":5}?' in said
    assert "← pay" not in said
    assert "Thank you." in said


def test_each_line_of_a_pipe_is_a_message_of_its_own(folder: Path) -> None:
    (folder / "echo.prompty").write_text(PROMPT.format(script="[Noted.]"))
    said = piped(folder, "echo.prompty", "One\nTwo\n/exit\nThree\n")
    assert said.count("Noted.") == 2
    assert "sent:" not in said


def test_a_question_shows_every_argument_of_a_call_and_no_control_characters(folder: Path) -> None:
    body = "b" * 1000 + " \\u001b[2K\\u202e\\n"
    script = f'[{{call: mail, arguments: {{body: "{body}", bcc: evil@example.org}}}}, Sent.]'
    tool = "{name: mail, kind: function, approvalMode: always, parameters: [{name: body}, {name: bcc}, {name: copies}]}"
    text = PROMPT.format(script=script).replace("tools:\n", f"tools:\n  - {tool}\n")
    (folder / "mail.prompty").write_text(text)
    (folder / "tools.py").write_text(
        f"{TOOLS}\n@tool\ndef mail(body: str, bcc: str, copies: str = 'three') -> str:\n    return 'sent'\n"
    )
    said = piped(folder, "mail.prompty", "Write\nyes\n")
    question = said[said.index("allow mail") : said.index("? [y]es")]
    assert "b" * 1000 in question
    assert '"bcc":"evil@example.org","copies":"three"}' in question.replace("\n", "")
    assert "\\u001b[2K\\u202e\\n" in question
    assert "\x1b[2K" not in said
    assert "\u202e" not in said
    assert "Sent." in said


def test_always_ends_when_the_definition_of_a_tool_changes() -> None:
    shown, replies = Console(file=io.StringIO()), iter(["a", "n"])
    approver = Approver(shown, lambda: next(replies))

    def ask(definition: str) -> list[bool]:
        calls = [GatedCall(id="", name="pay", arguments={}, key="k", needs_approval=True, definition=definition)]
        return [verdict.allowed for verdict in approver.decide_all(calls)]

    assert [ask("one"), ask("one"), ask("two")] == [[True], [True], [False]]
    assert isinstance(shown.file, io.StringIO)
    assert shown.file.getvalue().count("allow pay") == 2


class TypedAhead:
    """A keyboard on which somebody has typed a line before the question."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def read_message(self) -> str | None:
        return None

    def read_reply(self, is_cancelled: Callable[[], bool]) -> str | None:
        return self.lines.pop(0) if self.lines else None

    def read_pending(self) -> Iterator[str]:
        while self.lines:
            yield self.lines.pop(0)


def test_a_line_typed_before_a_question_goes_to_the_model_and_is_no_answer(folder: Path) -> None:
    conversation = Conversation(
        load(folder / "pay.prompty"),
        {},
        functions=[],
        open_store=InProcessMemory,
        session=None,
        ask=None,
        approval=None,
        keyboard=TypedAhead("y"),
    )
    call = GatedCall(id="", name="pay", arguments={}, key="k", needs_approval=True)
    assert [verdict.allowed for verdict in conversation.decide_all([call])] == [False]
    assert conversation.steering.drain(follow_ups=False) == ["y"]


@pytest.mark.parametrize("word", ["exit", "quit", "/quit"])
def test_a_conversation_ends_with_the_usual_words(folder: Path, terminals: list[Terminal], word: str) -> None:
    terminal = chat(folder, terminals, "pay.prompty")
    terminal.type(word)
    terminal.until("exit code 0")


def test_a_chat_without_a_name_needs_no_file(folder: Path) -> None:
    (folder / "echo.prompty").write_text(PROMPT.format(script="[Noted.]"))
    unusable = ("--database", "/dev/null/sessions.db")
    done = run_chat(folder, "echo.prompty", "Hello\n/save mine\nAgain\n", *unusable)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Noted.") == 2
    assert "Name another file with --database" in done.stdout
    assert run_chat(folder, "echo.prompty", "Hello\n", "--session", "mine", *unusable).returncode == 1


def test_a_banner_names_the_server_that_the_user_named(folder: Path, terminals: list[Terminal]) -> None:
    terminal = chat(folder, terminals, "pay.prompty", "--model", "ollama:llama3.2")
    assert terminal.screen.splitlines()[0] == "pay.prompty with ollama:llama3.2"
    terminal.type("/exit")
    terminal.until("exit code 0")


def test_a_banner_names_the_file_and_the_model_and_says_how_to_leave(folder: Path, terminals: list[Terminal]) -> None:
    terminal = chat(folder, terminals, "pay.prompty")
    assert terminal.screen.splitlines()[:3] == [
        "pay.prompty with scripted:any",
        "/help lists the commands. /exit or Ctrl-D leaves.",
        "you>",
    ]
    terminal.type("/exit")
    terminal.until("exit code 0")


def test_arrow_keys_edit_a_line_and_recall_earlier_ones(folder: Path, terminals: list[Terminal]) -> None:
    (folder / "echo.prompty").write_text(PROMPT.format(script="[Noted.]"))
    terminal = chat(folder, terminals, "echo.prompty")
    terminal.tmux("send-keys", "-t", terminal.name, "-l", "helo")
    terminal.press("Left")
    terminal.type("l")  # before the last letter
    assert "you> hello" in terminal.until("Noted.")
    terminal.until("you>", times=2)
    terminal.press("Up")
    terminal.until("you> hello", times=2)
    terminal.press("Enter")
    terminal.until("Noted.", times=2)
    terminal.until("you>", times=3)
    terminal.type("/exit")
    terminal.until("exit code 0")
    assert "^[" not in terminal.screen
    again = chat(folder, terminals, "echo.prompty")
    again.press("Up")
    again.press("Up")
    again.until("you> hello")
    history = folder / "prompty" / "chat_history"
    assert "+hello" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_at_the_question_cancels_the_turn(folder: Path, terminals: list[Terminal]) -> None:
    terminal = chat(folder, terminals, "pay.prompty")
    terminal.type("Pay my debts")
    terminal.until("allow pay")
    terminal.press("C-c")
    screen = terminal.until("cancelled: interrupted by Ctrl-C")
    assert "← pay" not in screen
    terminal.until("you>", times=2)


def test_an_error_in_a_piped_chat_ends_it_with_the_exit_code_1(folder: Path) -> None:
    (folder / "end.prompty").write_text(PROMPT.format(script="[{call: rest, arguments: {seconds: 0}}]"))
    done = run_chat(folder, "end.prompty", "Hello\n")
    assert done.returncode == 1
    assert "error: the script has no reply left" in done.stdout


def test_functions_that_the_file_does_not_declare_are_offered_on_request_only(folder: Path) -> None:
    (folder / "tools.py").write_text(f"{TOOLS}\n@tool\ndef wipe() -> str:\n    return 'wiped'\n")
    (folder / "wipe.prompty").write_text(PROMPT.format(script="[{call: wipe}, Done.]"))
    done = run_chat(folder, "wipe.prompty", "Wipe\n")
    assert "not offered, because the file does not declare it: wipe" in done.stderr
    assert "← wipe wiped" not in done.stdout
    assert "← wipe wiped" in run_chat(folder, "wipe.prompty", "Wipe\n", "--all-tools").stdout
