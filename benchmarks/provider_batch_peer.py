"""The peer of `provider_batch_kills`, for an environment of its own: rows through pydantic-ai's batches, as its guide
shows them. Finished rows are appended to a file, and a restart runs the others."""

import asyncio
import json
import sys
from datetime import timedelta
from pathlib import Path

from pydantic_ai import Agent  # type: ignore[import-not-found]  # not in our environment
from pydantic_ai.capabilities import BatchModelRequests  # type: ignore[import-not-found]  # the same
from pydantic_ai.models.openai import OpenAIResponsesModel  # type: ignore[import-not-found]  # the same
from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]  # the same

POLL = timedelta(seconds=0.05)


async def main(url: str, rows: Path, out: Path, size: int) -> None:
    batches = BatchModelRequests(
        max_requests=size, max_wait=timedelta(seconds=0.2), poll_interval=POLL, max_poll_interval=POLL
    )
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="sk-of-the-batch-0001")
    agent = Agent(OpenAIResponsesModel("gpt-4o-mini", provider=provider), capabilities=[batches])
    finished = {json.loads(line)["row"] for line in _read_whole_lines(out)}
    at_once = asyncio.Semaphore(4 * size)
    with out.open("a") as file:

        async def run(number: int, question: str) -> None:
            async with at_once:
                answer = await agent.run(f"question {question}")
                file.write(json.dumps({"row": number, "result": answer.output}) + "\n")
                file.flush()

        lines = enumerate(rows.read_text().splitlines(), 1)
        left = [run(number, json.loads(line)["q"]) for number, line in lines if number not in finished]
        await asyncio.gather(*left, return_exceptions=True)


def _read_whole_lines(out: Path) -> list[str]:
    """Return the lines of an output. A process that died while it wrote leaves a part of one, which is removed."""
    whole = out.read_text().rpartition("\n")[0] if out.exists() else ""
    out.write_text(f"{whole}\n" if whole else "")
    return whole.splitlines()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
