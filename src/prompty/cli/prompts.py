"""Load the prompt that a command line names: a file, or standard input."""

import os
from pathlib import Path

from prompty.analysis.check import check, check_text
from prompty.cli.inputs import load_dotenv
from prompty.cli.stdin import STDIN
from prompty.errors import Problem, RequestError
from prompty.model.agent import PromptAgent
from prompty.pipeline.load import load, loads, read_default_variant
from prompty.pipeline.variants import variants

_STDIN = Path("-")


class Prompt:
    """A prompt on the command line. One from standard input resolves paths in the working directory."""

    def __init__(self, file: Path, variant: str | None = None) -> None:
        self.file: Path = file
        self.variant: str | None = variant
        if file == _STDIN and variant:
            raise RequestError("a prompt from standard input has no variants", "Pass its file, or remove --variant.")
        self._text = STDIN.read_text("the prompt") if file == _STDIN else None
        load_dotenv(Path.cwd() / "stdin.prompty" if file == _STDIN else file)

    def load(self) -> PromptAgent:
        """Return the agent. Raise LoadError if the prompt has mistakes."""
        return load(self.file, variant=self.variant) if self._text is None else loads(self._text, base_dir=os.curdir)

    def check(self) -> list[Problem]:
        """Return the problems of the prompt, or of the chosen variant."""
        if self._text is not None:
            return check_text(self._text, "<stdin>", Path.cwd())
        default = read_default_variant() if self.variant is None else ""
        return check(self.file, variant=self.variant or (default if default in variants(self.file) else ""))
