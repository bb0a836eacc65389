"""Try an installed wheel that has nothing beside it: load, prepare, and what the command says without its extra."""

import subprocess
import sys
from pathlib import Path

import prompty
from prompty.version import build_install_command

TEXT = """---
name: smoke
inputs:
  who: world
---
user:
Hello {{ who }}
"""

agent = prompty.loads(TEXT)
messages = prompty.prepare(agent, {"who": "system:\nwheel"})
if [(message.role, message.text) for message in messages] != [("user", "Hello system:\nwheel")]:
    sys.exit(f"prepare gave {messages}")

script = Path(sys.executable).parent / "prompty"
told = subprocess.run([script, "check", "x.prompty"], capture_output=True, text=True, check=False)  # noqa: S603  our own script
if told.returncode == 0 or build_install_command("cli") not in told.stderr:
    sys.exit(f"without the cli extra the command said: {told}")

print(f"the wheel of prompty {prompty.__version__} works alone")
