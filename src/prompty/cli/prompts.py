"""Load the prompt that a command line names: a file, or standard input."""

import os
from pathlib import Path

from prompty.analysis.check import check, check_text
from prompty.cli.inputs import load_dotenv
from prompty.cli.stdin import STDIN
from prompty.errors import Problem
from prompty.model.agent import PromptAgent
from prompty.pipeline.load import load, loads

_STDIN = Path("-")


class Prompt:
    """A prompt on the command line. Standard input is read once, and belongs to the working directory."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._text = STDIN.read_text("the prompt") if file == _STDIN else None
        load_dotenv(Path.cwd() / "stdin.prompty" if file == _STDIN else file)

    def load(self) -> PromptAgent:
        """Return the agent. Raise LoadError if the prompt has mistakes."""
        return load(self.file) if self._text is None else loads(self._text, base_dir=os.curdir)

    def check(self) -> list[Problem]:
        """Return the problems of the prompt."""
        return check(self.file) if self._text is None else check_text(self._text, "<stdin>", Path.cwd())
