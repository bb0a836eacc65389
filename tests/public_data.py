"""Where the public files are that tests read and the repository does not contain (CONTRIBUTING.md, "Test data")."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("PROMPTY_SHARED", Path(__file__).parents[2] / "shared"))
DOCUMENT = SHARED / "openapi" / "openai.json"
NO_DOCUMENT = "OpenAI's document is not there, so no request was compared with it"
