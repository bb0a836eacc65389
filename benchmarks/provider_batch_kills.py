"""Kill provider batches of prompty and of pydantic-ai at random, and compare the bill with the results.

    python -m venv build/peer && build/peer/bin/pip install "pydantic-ai-slim[openai]"
    python -m benchmarks.provider_batch_kills build/peer/bin/python [--kills 25] [--rows 1000]

Both send Responses requests to the same kind of server, which bills whether or not anybody polls. A process is killed
after a random number of requests, so that each step of its life is hit, however fast the machine is.
"""

import json
import random
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.batch.billing import Billing, Faults
from tests.batch.folder import lines_of

RESULTS = Path(__file__).parent / "results" / "provider_batch_kills.json"
PEER = Path(__file__).parent / "provider_batch_peer.py"
CHUNK, REQUESTS = 20, 10
PROMPT = """\
---
model:
  id: gpt-4o-mini
  provider: openai
  apiType: responses
  connection: {{kind: key, endpoint: "{url}/v1", apiKey: sk-of-the-batch-0001}}
inputs:
  q: {{kind: string, required: true}}
---
user:
question {{{{q}}}}
"""


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.provider_batch_kills")
    parser.add_argument("peer", help="a Python with pydantic-ai")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--rows", type=int, default=1000)
    arguments = parser.parse_args()
    version = "from importlib.metadata import version as v; print(v('pydantic-ai-slim'))"
    found = subprocess.run([arguments.peer, "-c", version], capture_output=True, text=True, check=True)
    figures = {
        "prompty": measure("prompty", sys.executable, arguments.kills, arguments.rows),
        f"pydantic-ai {found.stdout.strip()}": measure("peer", arguments.peer, arguments.kills, arguments.rows),
    }
    RESULTS.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


def measure(side: str, python: str, kills: int, rows: int) -> dict[str, Any]:
    """Kill one side, let it end, and count."""
    chance, begun = random.Random(11), time.monotonic()  # noqa: S311  not for secrets
    with TemporaryDirectory() as name, Billing(Faults(before=0.15, after=0.15, work=1.0)) as provider:
        folder = Path(name)
        command = write_command(side, python, folder, provider.url, rows)
        made = 0
        while made < kills and kill(command, provider, chance):
            made += 1
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=1800)
        time.sleep(2)  # batches that nobody polls end, too
        results = {line["row"] for line in lines_of(folder / "out.jsonl")}
        return {
            "kills": made,
            "rows": rows,
            "answers_billed": provider.billed.total(),
            "results": len(results),
            "seconds": round(time.monotonic() - begun),
        }


def write_command(side: str, python: str, folder: Path, url: str, rows: int) -> list[str]:
    prompt, inputs, out = folder / "ask.prompty", folder / "rows.jsonl", folder / "out.jsonl"
    prompt.write_text(PROMPT.format(url=url))
    inputs.write_text("".join(json.dumps({"q": f"n{number}"}) + "\n" for number in range(rows)))
    if side == "peer":
        return [python, "-W", "ignore", str(PEER), url, str(inputs), str(out), str(CHUNK)]
    settings = json.dumps({"grace": 3.0, "poll": 0.05, "rows": CHUNK})
    program = [python, "-m", "tests.batch.provider_process", settings]
    return [*program, "batch", str(prompt), str(inputs), "-o", str(out), "--provider-batch"]


def kill(command: list[str], provider: Billing, chance: random.Random) -> bool:
    """Kill a process at a random moment. Return False if it ended before."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wanted = len(provider.paths) + chance.randint(1, REQUESTS)
    while process.poll() is None and len(provider.paths) < wanted:
        time.sleep(0.002)
    time.sleep(chance.random() * 0.2)
    if process.poll() is not None:
        return False
    process.kill()
    process.wait()
    return True


if __name__ == "__main__":
    main()
