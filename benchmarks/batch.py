"""Processor time of a row of a shared batch, compared with the same steps on a bare DBOS queue, on both databases.

`python -m benchmarks.batch SIDE URL ROWS` puts that many rows through one worker in a process of its own, and prints
the seconds of all its threads, from the first row that is submitted to the last that is collected. Both sides ask the
same scripted model, keep the same steps (what tools there are, and the answer), and write the results to a file. Only
prompty lists the runs, so it writes two more transactions for each row. With two steps, that is a large share.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer

from benchmarks.cost import Cost, take_turns
from benchmarks.durable import answered, described, kept, on_both_databases
from prompty import PromptAgent, prepare
from prompty.batches.job import BatchJob
from prompty.batches.ledger import Ledger
from prompty.batches.records import PlannedRow
from prompty.batches.rows import Row
from prompty.batches.shared import SharedBatch
from prompty.durable import Limits, Runs, Worker

ROWS = 400
AT_ONCE = 32
POLL = 0.1
LIMIT = 1.6


def agent() -> PromptAgent:
    """An agent that answers at once."""
    model = {"id": "m", "provider": "scripted", "script": ["Fine."]}
    body = {"instructions": "system:\nBe brief.\nuser:\nquestion {{q}}", "inputs": {"q": "one"}}
    return PromptAgent.model_validate({"model": model, **body})


def prompty_rows(url: str, out: Path) -> Iterator[Callable[[int], object]]:
    """Rows as durable runs, submitted and collected."""

    def run(rows: int) -> None:
        job = BatchJob(
            agent=agent(),
            rows=out,
            numbers=range(rows),
            output=out,
            tools=[],
            price=lambda _: None,
            max_concurrency=AT_ONCE,
        )
        with Ledger(out) as ledger:
            batch = SharedBatch(job, ledger, client)
            batch.rows = (
                PlannedRow(row=Row(number=n, inputs={"q": f"n{n}"}), id=uuid4().hex, masked_inputs={})
                for n in range(rows)
            )
            ledger.complete = batch.run()
            assert ledger.complete

    with Worker(url, limits=Limits(worker_concurrency=AT_ONCE)), Runs(url) as client:
        yield run


def dbos_rows(url: str, out: Path) -> Iterator[Callable[[int], object]]:
    """The queue that people write on DBOS."""
    prompt, serializer = agent(), DBOSPortableJSONSerializer()

    @DBOS.workflow(name="row")
    async def row(record: dict[str, Any]) -> str:
        messages = prepare(prompt, record["inputs"])
        await kept("tools", described)
        found = await kept("model:0", lambda: answered(prompt, messages))
        return str(found)

    config: Any = {"name": "by-hand", "system_database_url": url, "application_version": "1", "executor_id": "bench"}
    config |= {"serializer": serializer, "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue("rows", worker_concurrency=AT_ONCE, polling_interval_sec=POLL)
    client = DBOSClient(system_database_url=url, serializer=serializer, application_name="by-hand")
    record = {"agent": prompt.model_dump(mode="json")}

    def run(rows: int) -> None:
        options: Any = {"workflow_name": "row", "queue_name": "rows", "app_version": "1"}
        handles: list[Any] = [client.enqueue(options, {**record, "inputs": {"q": f"n{n}"}}) for n in range(rows)]
        with out.open("a") as file:
            for handle in handles:
                result = handle.get_result(polling_interval_sec=POLL)
                file.write(json.dumps({"id": handle.workflow_id, "result": result}) + "\n")

    yield run
    client.destroy()
    DBOS.destroy()


SIDES = {"prompty": contextmanager(prompty_rows), "dbos": contextmanager(dbos_rows)}


def batch_costs(rounds: int) -> list[Cost]:
    """A row of a shared batch on either database."""
    return on_both_databases(lambda name, url: row_cost(name, url, rounds))


def row_cost(name: str, url: str, rounds: int) -> Cost:
    """Return the median of the ratios of the rounds."""
    times = take_turns(2 * rounds, {side: lambda side=side: fresh(side, url) for side in SIDES})  # type: ignore[misc]  # a default binds it
    seconds = {side: median(time[side] for time in times) for side in SIDES}
    figure = median(time["prompty"] / time["dbos"] for time in times)
    return Cost(name=f"row of a batch, {name}", figure=figure, unit="times bare DBOS", limit=LIMIT, seconds=seconds)


def fresh(side: str, url: str) -> float:
    """The processor seconds of a row, in a process of its own."""
    command = [sys.executable, "-m", __name__, side, url, str(ROWS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=280)
    return float(done.stdout) / ROWS


def main(side: str, url: str, rows: int) -> None:
    """Print the seconds of the rows. Some before them have imported what they need."""
    with TemporaryDirectory() as folder, SIDES[side](url, Path(folder) / "out.jsonl") as run:
        run(10)
        begun = time.process_time()
        run(rows)
        print(time.process_time() - begun)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
