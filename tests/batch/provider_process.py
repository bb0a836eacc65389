"""`prompty batch` as a process of its own, with the limits of a provider's batches made small for a test.

The first argument is a JSON object: `grace` and `poll` in seconds, and `rows` of a batch.
"""

import json
import sys

from prompty.batches.provider import anthropic, openai, run
from prompty.cli import main


def shrink(grace: float, poll: float, rows: int | None = None) -> None:
    run.GRACE_SECONDS, run.POLL_SECONDS, run.MAX_POLL_SECONDS = grace, poll, poll
    run.MAX_BACKOFF_SECONDS = poll
    if rows is not None:
        openai.OpenAIBatches.max_rows = anthropic.AnthropicBatches.max_rows = rows


if __name__ == "__main__":
    shrink(**json.loads(sys.argv.pop(1)))
    main()
