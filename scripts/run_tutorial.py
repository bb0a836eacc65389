"""Follow the tutorial from its own text, in a fresh environment, and compare what every command prints.

    python -m scripts.run_tutorial

Where the first step installs a checkout, it finds this one. The steps share one folder, as a reader's do.
"""

import shutil
import sys
import time
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

from prompty.version import SOURCE
from scripts.pages import ROOT
from scripts.run_page import make_environment, run_page

STEPS = ("first-answer", "prompt", "python", "tools", "approval", "tests")
PAGES = [ROOT / "docs" / "tutorial" / f"{step}.md" for step in STEPS]


def main() -> None:
    """Run all steps, and fail at the first output that differs from the page."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        venv.create(folder / "venv", with_pip=True)
        (folder / "home").mkdir()
        checkout = folder / "work" / SOURCE
        checkout.parent.mkdir(parents=True)
        checkout.symlink_to(ROOT)
        environment = make_environment(folder / "home", folder / "venv" / "bin")
        environment |= {"PIP_QUIET": "2", "PIP_NO_INPUT": "1"}
        environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        environment["PIP_DEFAULT_TIMEOUT"] = "30"  # a stalled download is tried again before the command has to end
        environment.pop("PYTHONPATH", None)
        start, commands = time.monotonic(), 0
        for page in PAGES:
            for outcome in run_page(page, folder / "work", environment):
                commands += len(outcome.outputs)
                for step, output in outcome.differences:
                    sys.exit(f"{page.name}: $ {step.command}\nthe page says:\n{step.output}\nprinted:\n{output}")
            print(f"{page.name}: as printed", flush=True)
            # pytest would look for tests in it
            shutil.rmtree(folder / "work" / Path(SOURCE).parts[0], ignore_errors=True)
    print(f"{commands} commands in {time.monotonic() - start:.1f} seconds. Every output is as the tutorial says.")


if __name__ == "__main__":
    main()
