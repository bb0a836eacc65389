"""A worker of your own: it executes jobs of agents from a DBOS queue on PostgreSQL, together with any number of others.

python worker.py [--concurrency 8]                   SIGTERM gives its jobs 30 seconds to end
python worker.py --queue suspects --concurrency 1    one more process, for jobs that were there when two workers died
"""

import argparse
import os
import signal
import threading
import time
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import uuid4

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer
from jobs import VERSION, open_client, pause
from keeper import LEASE, URL, Keeper

from prompty import Paused
from prompty.durable import verdict_from_json
from prompty.durable.dbos import turn

DRAIN = int(os.environ.get("JOBS_DRAIN", "30"))  # seconds that jobs have to end after SIGTERM


@DBOS.workflow(name="job", max_recovery_attempts=None)  # the keeper counts deaths, and knows which are the job's fault
async def run_job(task: dict[str, Any]) -> dict[str, Any]:
    """Run a job from its start or a pause to its end or the next pause."""
    left = None if task["deadline"] is None else timedelta(seconds=task["deadline"] - time.time())
    tools = import_module(os.environ.get("JOBS_TOOLS", "tools")).TOOLS
    options: dict[str, Any] = {"tools": tools, "model": os.environ.get("MODEL"), "deadline": left}
    if task["paused"] is not None:
        paused = Paused.from_json(task["paused"])
        answer = await DBOS.recv_async("answer", timeout_seconds=0)
        denied = {"allowed": False, "reason": "nobody answered in time"}
        given = [denied] * len(paused.pending) if answer is None else answer
        options |= {"paused": paused, "verdicts": [verdict_from_json(one) for one in given]}
    end = await turn(task["prompt"], task["inputs"], on_pause="return", **options)
    if not isinstance(end, Paused):
        return {"result": end}
    following = {**task, "paused": end.to_json()}
    handle = await DBOS.enqueue_workflow_with_options_async(*pause(following))
    return {"continues": handle.get_workflow_id()}


def work(queue: str, concurrency: int) -> None:
    """Execute jobs until SIGTERM. Jobs that have not ended in DRAIN seconds go on elsewhere."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    # No two processes may have one id: the keepers tell by it who has died.
    executor = f"{os.uname().nodename}-{os.getpid()}-{uuid4().hex[:8]}"
    DBOS(
        config={
            "name": "jobs",
            "system_database_url": URL,
            "application_version": VERSION,
            "executor_id": executor,
            "serializer": DBOSPortableJSONSerializer(),  # DBOS would store pickles
            "sys_db_idle_transaction_timeout_sec": LEASE / 2,  # a suspended process must not keep its locks
            "log_level": "ERROR",
        }
    )
    client = open_client()
    keeper = Keeper(executor, client)
    keeper.start()
    DBOS.listen_queues([queue])
    DBOS.launch()
    DBOS.register_queue(queue, worker_concurrency=concurrency, polling_interval_sec=0.5)
    print(f"working as {executor}", flush=True)
    while not stopping.wait(0.5):  # a wait without end would sleep through a signal that comes just before it
        pass
    # DBOS takes no more jobs from now on. It would fail those that it ends itself, so they are given back before.
    ending = threading.Thread(target=DBOS.destroy, kwargs={"workflow_completion_timeout_sec": DRAIN + 5})
    ending.start()
    until = time.monotonic() + DRAIN
    while (left := find_running(client, executor)) and time.monotonic() < until:
        time.sleep(0.5)
    keeper.stop()
    if left:
        client.resume_workflows(left, queue_name=queue)
    keeper.leave()  # not before: without the heartbeat others would queue the same jobs
    ending.join()


def find_running(client: DBOSClient, executor: str) -> list[str]:
    found = client.list_workflows(status="PENDING", executor_id=executor, load_input=False, load_output=False)
    return [one.workflow_id for one in found]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", default="jobs", choices=["jobs", "suspects"])
    parser.add_argument("--concurrency", type=int, default=8)
    given = parser.parse_args()
    work(given.queue, given.concurrency)
