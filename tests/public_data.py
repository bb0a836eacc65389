"""Where the public files are that tests read and the repository does not contain (CONTRIBUTING.md, "Test data")."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("PROMPTY_SHARED", Path(__file__).parents[2] / "shared"))
