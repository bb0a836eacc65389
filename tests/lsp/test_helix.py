"""The settings of docs/how-to/editors.md in Helix. `make helix` installs it from a newer Debian in build/."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.run_page import make_environment
from tests.lsp.mistakes import MISTAKES
from tests.lsp.test_editors import SETTINGS

pytestmark = [pytest.mark.nightly, pytest.mark.process]

SYSTEM = Path(__file__).parents[2] / "build" / "forky"
LIBRARIES = SYSTEM / "usr" / "lib" / "x86_64-linux-gnu"
HELIX = SYSTEM / "usr" / "lib" / "hx"
SECONDS = 60.0
INLINE = '[editor]\nend-of-line-diagnostics = "hint"\n[editor.inline-diagnostics]\nother-lines = "hint"\n'


def test_helix_shows_the_problems(tmp_path: Path) -> None:
    if not HELIX.exists() and not os.environ.get("CI"):
        pytest.skip("Helix is not installed: make helix")
    settings = tmp_path / "config" / "helix"
    settings.mkdir(parents=True)
    (settings / "languages.toml").write_text(SETTINGS["languages.toml"])
    (settings / "config.toml").write_text(INLINE)
    (tmp_path / "emoji.prompty").write_text(MISTAKES["emoji"], encoding="utf-8")
    environment = {
        **make_environment(tmp_path, Path(sys.executable).parent),
        "HELIX_RUNTIME": str(HELIX / "runtime"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TMUX_TMPDIR": str(tmp_path),
    }
    loader = SYSTEM / "lib64" / "ld-linux-x86-64.so.2"  # Helix runs outside its Debian, next to our Python
    helix = shlex.join([str(loader), "--library-path", str(LIBRARIES), str(HELIX / "hx"), "emoji.prompty"])

    def tmux(*arguments: str) -> str:
        command = ["tmux", "-L", "helix", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603  our own command

    tmux("-u", "new-session", "-d", "-x", "110", "-y", "30", helix)
    try:
        end, screen = time.monotonic() + SECONDS, ""
        while "is not declared under" not in screen and time.monotonic() < end:
            time.sleep(0.2)
            screen = tmux("capture-pane", "-p")
    finally:
        tmux("kill-server")
    assert "the variable `nam` is not declared under `inputs`" in screen
    assert "Did you mean `name`?" in screen
