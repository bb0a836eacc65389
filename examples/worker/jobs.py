"""Submit jobs, look at them, and decide about them.

    python jobs.py submit refund.prompty '{"order": "A-17"}' [--id ID] [--deadline SECONDS]
    python jobs.py list [--state paused] [--limit 100]
    python jobs.py show ID | cancel ID | retry ID
    python jobs.py answer ID '[true, {"allowed": false, "reason": "too late"}, {"result": "paid"}]'

A job is a workflow `ID`. When it pauses, it queues a workflow `ID#1` that is delayed until it is answered or until its
time is up, and ends. A job that waits for days then holds no process, no slot of the queue and no memory, and its state
is the one that DBOS has of its last workflow: DELAYED is paused.
"""

import argparse
import json
import os
import time
from typing import Any
from uuid import uuid4

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer
from keeper import URL, forget_deaths

from prompty import Paused
from prompty.durable import verdict_from_json
from prompty.durable.dbos import find_retry_step

PAUSE = float(os.environ.get("JOBS_PAUSE", 30 * 86400))  # seconds after which calls without an answer are denied
VERSION = "1"  # count it up when the steps of `run_job` change: old jobs then wait for a worker of their version
STATES = {
    "waiting": "ENQUEUED",
    "running": "PENDING",
    "paused": "DELAYED",
    "done": "SUCCESS",
    "failed": "ERROR",
    "cancelled": "CANCELLED",
}


def open_client() -> DBOSClient:
    DBOS.migrate(URL)  # creates the tables, unless they are there
    serializer = DBOSPortableJSONSerializer()
    return DBOSClient(system_database_url=URL, serializer=serializer, application_name="jobs")


def submit(client: DBOSClient, prompt: str, inputs: Any, id: str, deadline: float | None = None) -> str:
    """Queue a job. One of the same id is not started again. The file is read when the job starts."""
    until = None if deadline is None else time.time() + deadline
    task = {"id": id, "prompt": prompt, "inputs": inputs, "deadline": until, "paused": None}
    client.enqueue(describe_workflow(id), task)
    return id


def pause(task: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return how to queue the next workflow of a job: after its pause, or at its deadline if that is earlier."""
    id, _, number = task["id"].partition("#")
    following = {**task, "id": f"{id}#{int(number or 0) + 1}"}
    left = PAUSE if task["deadline"] is None else min(PAUSE, task["deadline"] - time.time())
    return {**describe_workflow(following["id"]), "delay_seconds": max(left, 0.1)}, following


def describe_workflow(id: str) -> Any:
    return {"workflow_name": "job", "queue_name": "jobs", "workflow_id": id, "app_version": VERSION}


def list_jobs(client: DBOSClient, state: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """Return the last workflows of jobs, the newest first. Those that only led to the next one are left out."""
    status = None if state is None else STATES.get(state, "ENQUEUED")
    found = client.list_workflows(name="job", status=status, limit=limit, sort_desc=True, load_input=False)
    last = [one for one in found if not (isinstance(one.output, dict) and "continues" in one.output)]
    shown = [{"id": one.workflow_id, "state": get_state(one), "worker": one.executor_id} for one in last]
    return [one for one in shown if state in (None, one["state"])]


def get_state(workflow: Any) -> str:
    if workflow.status == "ENQUEUED" and workflow.queue_name == "poison":
        return "poison"
    return next(name for name, status in STATES.items() if status == workflow.status)


def find_last(client: DBOSClient, id: str) -> Any:
    """Return the last workflow of a job."""
    found = client.list_workflows(name="job", workflow_id_prefix=id)
    own = [one for one in found if one.workflow_id.partition("#")[0] == id]
    if not own:
        raise SystemExit(f"there is no job '{id}'")
    return max(own, key=lambda one: int(one.workflow_id.partition("#")[2] or 0))


def show(client: DBOSClient, id: str) -> dict[str, Any]:
    """Return the state of a job, its result or error, and the calls that wait for an answer."""
    last = find_last(client, id)
    found: dict[str, Any] = {"id": id, "state": get_state(last), "output": last.output, "error": str(last.error or "")}
    if found["state"] == "paused":
        paused = Paused.from_json(last.input["args"][0]["paused"])
        # `unknown`: its worker died during the call. Look first what it has done, when no process is suspended.
        found["pending"] = [{"name": c.name, "arguments": c.arguments, "unknown": c.unknown} for c in paused.pending]
    return found


def answer(client: DBOSClient, id: str, verdicts: list[Any]) -> None:
    """Answer a pause. The first answer counts. Repeat it if this process dies between the two calls."""
    last = find_last(client, id)
    if last.status != "DELAYED":
        raise SystemExit(f"the job '{id}' is {get_state(last)}")
    for one in verdicts:
        verdict_from_json(one)  # a mistake is an error here, and not in the job
    client.send(last.workflow_id, verdicts, "answer", idempotency_key=last.workflow_id)
    client.set_workflow_delay(last.workflow_id, delay_until_epoch_ms=0)


def cancel(client: DBOSClient, id: str) -> None:
    client.cancel_workflow(find_last(client, id).workflow_id)


def retry(client: DBOSClient, id: str) -> None:
    """Continue a job that failed, was cancelled or is poison, after its last good step."""
    last = find_last(client, id)
    if (state := get_state(last)) not in ("failed", "cancelled", "poison"):
        raise SystemExit(f"the job '{id}' is {state}")
    forget_deaths(id)
    steps = client.list_workflow_steps(last.workflow_id)
    if not steps and last.input["args"][0]["paused"] is not None and state != "poison":
        # It was cancelled while it was paused. If it was resumed, it would find no answer and deny its calls.
        client.enqueue(*pause(last.input["args"][0]))
    elif state == "failed":
        # DBOS would go on at the step that failed. But the step of a model call that failed has succeeded for DBOS.
        start = find_retry_step(steps)
        client.rewind_workflow(last.workflow_id, start_step=start, application_version=VERSION, queue_name="jobs")
    else:
        client.resume_workflow(last.workflow_id, queue_name="jobs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["submit", "list", "show", "answer", "retry", "cancel"])
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--state", choices=[*STATES, "poison"])
    parser.add_argument("--id", default=None)
    parser.add_argument("--deadline", type=float)
    given = parser.parse_args()
    client, words = open_client(), given.arguments
    match given.command, words:
        case "submit", [prompt, *inputs]:
            print(submit(client, prompt, json.loads(*inputs or ["{}"]), given.id or uuid4().hex, given.deadline))
        case "list", []:
            print(*map(json.dumps, list_jobs(client, given.state, given.limit)), sep="\n")
        case "show", [id]:
            print(json.dumps(show(client, id), indent=1))
        case "answer", [id, verdicts]:
            answer(client, id, json.loads(verdicts))
        case "retry", [id]:
            retry(client, id)
        case "cancel", [id]:
            cancel(client, id)
        case _:
            parser.error(f"wrong arguments for {given.command}")


if __name__ == "__main__":
    main()
