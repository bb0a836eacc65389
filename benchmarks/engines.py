"""Rows on Ray Data, Dask and PySpark: the programs of the page "Run on many machines", beside the same calls by hand.

`python -m benchmarks.engines ENGINE… [--rows N]` needs the engines, which the environment of the development does not
have: `make engines` installs them in one of their own. A partition of the page's program is asked for its answers and
for its processor time, in the engine's own worker processes. Each answer holds the number of its row.
"""

import importlib
import os
import pickle
import re
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from benchmarks.provider import fake_provider

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "run-on-many-machines.md"
KEY = "sk-of-the-engines-0001"
AT_ONCE = 64
PARTS = 4
ROUNDS = 3
PROMPT = """\
---
name: ask
model:
  id: m
  provider: openai
  connection: {kind: key, endpoint: "${env:MODEL_URL}", apiKey: "${env:MODEL_KEY}"}
inputs:
  q: {kind: string, required: true}
---
system:
Be brief.
user:
{{q}}
"""
ON_LOOPBACK = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 pyspark-shell",
}
Ask = Callable[[list[dict[str, str]]], list[str]]
Part = tuple[list[str], float]  # answers, and seconds of processor time


def write_programs(folder: Path) -> None:
    """Write the prompt and the programs of the page into a folder."""
    (folder / "ask.prompty").write_text(PROMPT)
    for title, text in re.findall(
        r'^```python title="(\w+\.py)"\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL
    ):
        (folder / title).write_text(text)
    (folder / "by_hand.py").write_text(BY_HAND)


BY_HAND = f"""\
import asyncio
import os

import httpx2


async def ask_all(rows):
    room = asyncio.Semaphore({AT_ONCE})
    limits = httpx2.Limits(max_connections={AT_ONCE}, max_keepalive_connections={AT_ONCE})
    headers = {{"authorization": f"Bearer {{os.environ['MODEL_KEY']}}"}}
    async with httpx2.AsyncClient(limits=limits, timeout=60, headers=headers) as client:

        async def one(q):
            messages = [{{"role": "system", "content": "Be brief."}}, {{"role": "user", "content": q}}]
            async with room:
                url = f"{{os.environ['MODEL_URL']}}/chat/completions"
                reply = await client.post(url, json={{"model": "m", "messages": messages}})
            return reply.json()["choices"][0]["message"]["content"]

        return await asyncio.gather(*(one(row["q"]) for row in rows))


def ask(rows):
    return asyncio.run(ask_all(rows))
"""


def measure(ask: Ask) -> Callable[[list[dict[str, str]]], Part]:
    """Return a function that answers rows and says what processor time that took."""

    def answer(rows: list[dict[str, str]]) -> Part:
        begun = time.process_time()
        return ask(rows), time.process_time() - begun

    return answer


def run_dask(part: Callable[[list[dict[str, str]]], Part], rows: list[dict[str, str]]) -> Iterator[Part]:
    bag = importlib.import_module("dask.bag")
    return iter(bag.from_sequence(rows, npartitions=PARTS).map_partitions(lambda one: [part(list(one))]).compute())


def run_ray(part: Callable[[list[dict[str, str]]], Part], rows: list[dict[str, str]]) -> Iterator[Part]:
    data = importlib.import_module("ray.data").from_items(rows, override_num_blocks=PARTS)

    def answer(block: Any) -> Any:
        answers, seconds = part([{"q": str(q)} for q in block["q"]])
        return {"answer": answers, "seconds": [seconds / len(answers)] * len(answers)}

    found = data.map_batches(answer, batch_size=len(rows) // PARTS).take_all()
    yield [row["answer"] for row in found], sum(row["seconds"] for row in found)


def run_spark(part: Callable[[list[dict[str, str]]], Part], rows: list[dict[str, str]]) -> Iterator[Part]:
    session = importlib.import_module("pyspark.sql").SparkSession.getActiveSession()
    return iter(session.sparkContext.parallelize(rows, PARTS).mapPartitions(lambda one: [part(list(one))]).collect())


def open_dask() -> Any:
    client = importlib.import_module("dask.distributed").Client(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    )
    return client.close


def open_ray() -> Any:
    ray = importlib.import_module("ray")
    environment = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=150_000_000, runtime_env=environment)
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray.shutdown


def open_spark() -> Any:
    builder = importlib.import_module("pyspark.sql").SparkSession.builder.master("local[2]")
    settings = {"ui.enabled": "false", "driver.bindAddress": "127.0.0.1", "driver.host": "127.0.0.1"}
    for name, value in settings.items():
        builder = builder.config(f"spark.{name}", value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session.stop


ENGINES = {"dask": (open_dask, run_dask), "ray": (open_ray, run_ray), "spark": (open_spark, run_spark)}


def count_wrong(parts: Sequence[Part], rows: list[dict[str, str]]) -> int:
    answers = [answer for part, _ in parts for answer in part]
    missing = [row for row, answer in zip(rows, answers, strict=True) if row["q"] not in answer]
    return len(missing)


def compare(engine: str, count: int) -> bool:
    """Print the processor time of a row of the page's program and of calls by hand. Return True if it is as good."""
    open_engine, run = ENGINES[engine]
    rows = [{"q": f"turn-{number:05}"} for number in range(count)]
    program: ModuleType = importlib.import_module(f"with_{engine}")
    sides: dict[str, Ask] = {"prompty": program.ask, "by hand": importlib.import_module("by_hand").ask}
    found: dict[str, list[float]] = {name: [] for name in sides}
    wrong, close = 0, open_engine()
    try:
        for _ in range(ROUNDS):
            for name, ask in sides.items():
                parts = list(run(measure(ask), rows))
                wrong += count_wrong(parts, rows)
                found[name].append(sum(seconds for _, seconds in parts) / count)
    finally:
        close()
    own, hand = (1000 * median(found[name]) for name in ("prompty", "by hand"))
    print(
        f"{engine}: {count:,} rows, {wrong} wrong; {own:.2f} ms of processor time a row, {hand:.2f} by hand", flush=True
    )
    return not wrong and own <= hand


def run_program(engine: str) -> bool:
    """Run the page's program as it is. Return True if it ends well and prints an answer."""
    done = subprocess.run([sys.executable, f"with_{engine}.py"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        print(done.stderr[-2000:])
    return done.returncode == 0 and "turn-00007" in done.stdout


def is_key_pickled() -> bool:
    """Return True if the pickle of an agent has its key, which the file takes from a variable."""
    import prompty  # after the folder of the programs

    return KEY.encode() in pickle.dumps(prompty.load("ask.prompty"))


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("engines", nargs="+", choices=ENGINES)
    parser.add_argument("--rows", type=int, default=2000)
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder, fake_provider() as url:
        os.environ |= {
            "MODEL_URL": f"{url}/20/0/1/1/0",
            "MODEL_KEY": KEY,
            "PYSPARK_PYTHON": sys.executable,
        } | ON_LOOPBACK
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        write_programs(Path(folder))
        sys.path.insert(0, folder)
        os.chdir(folder)
        is_pickled = is_key_pickled()
        print(f"The key is{'' if is_pickled else ' not'} in the pickle of an agent.")
        passed = [run_program(engine) & compare(engine, chosen.rows) for engine in chosen.engines]
    return 0 if all(passed) and not is_pickled else 1


if __name__ == "__main__":
    raise SystemExit(main())
