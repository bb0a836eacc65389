"""Do what README says about a first answer, in a fresh environment, and compare what is printed with README.

    python -m scripts.first_answer

The first `console` block of that section installs from the folder of the checkout. The others run in an empty folder.
The last one asks llama.cpp, so its answer is the model's own and is not compared.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.pages import ROOT, Step, parse_blocks
from scripts.run_page import make_environment
from tests.real.llama import llama_server, why_not

LLAMA_PORT = 8080  # where the profile `llama.cpp` looks for a server


def run_step(step: Step, folder: Path, environment: dict[str, str]) -> str:
    """Run a command as a shell does, and return what it printed."""
    done = subprocess.run(  # noqa: S602  the commands of our own README
        step.command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    print(f"$ {step.command}\n{done.stdout}", end="")
    if done.returncode or done.stderr:
        sys.exit(f"the command failed with {done.returncode}:\n{done.stderr}")
    return done.stdout


def main() -> None:
    """Run the section, and fail if README prints anything else."""
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("## Get a first answer\n")[2].partition("\n## ")[0]
    )
    install, scripted, real = (block.steps for block in parse_blocks(section) if block.steps)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        venv.create(folder / "venv", with_pip=True)
        environment = make_environment(folder, folder / "venv" / "bin")
        environment |= {"PIP_QUIET": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        environment.pop("PYTHONPATH", None)
        (work := folder / "empty").mkdir()
        for step in [*install, *scripted]:
            if run_step(step, ROOT if step in install else work, environment) != step.output:
                sys.exit(f"README says that this is printed:\n{step.output}")
        if reason := why_not():
            if os.environ.get("CI"):
                sys.exit(reason)
            print(f"not run: {real[0].command} ({reason})")
        else:
            with llama_server(folder, LLAMA_PORT):
                answers = [run_step(step, work, environment) for step in real]
            if any(scripted[-1].output in answer for answer in answers):
                sys.exit("the answer came from the script, not from llama.cpp")
    print("README prints the same.")


if __name__ == "__main__":
    main()
