"""Takeover: each worker has a heartbeat in the database, and one worker at a time queues the jobs of those without.

Open-source DBOS continues the workflows of a process when one with the same executor id starts. In a fleet no process
can know that it is the next one, so the others look after it.
"""

import os
import sys
import threading
import time
from typing import Any

import psycopg
from dbos import DBOSClient

URL = os.environ.get("JOBS_DATABASE", "postgresql://localhost/jobs")
LEASE = float(os.environ.get("JOBS_LEASE", "10"))  # seconds without a heartbeat after which a worker counts as dead
SUSPECT_DEATHS, POISON_DEATHS = 2, 5  # nobody works on the queue `poison`
LOCK = 7166020290  # any number that no other program takes for an advisory lock of this database
TABLES = """
CREATE TABLE IF NOT EXISTS job_workers (id text PRIMARY KEY, seen timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS job_deaths
  (id text PRIMARY KEY, deaths int NOT NULL, steps int NOT NULL, at timestamptz NOT NULL)"""
BEAT = "INSERT INTO job_workers VALUES (%s, now()) ON CONFLICT (id) DO UPDATE SET seen = now()"
# Only deaths since the last stored step count: a job that gets on is not what kills its workers. They count for all
# workflows of the job. Otherwise a poison job begins again at none after each pause.
DIED = """
INSERT INTO job_deaths AS old VALUES (%s, 1, %s, now())
ON CONFLICT (id) DO UPDATE SET at = now(), steps = excluded.steps,
  deaths = CASE WHEN old.steps < excluded.steps OR old.at < now() - interval '10 min' THEN 1 ELSE old.deaths + 1 END
RETURNING deaths"""


class Keeper(threading.Thread):
    """Keeps this worker alive in the database, and queues the jobs of workers that are not."""

    def __init__(self, id: str, client: DBOSClient) -> None:
        super().__init__(daemon=True, name="keeper")
        self._id, self._client, self._stopping = id, client, threading.Event()
        limit = int(LEASE * 500)  # milliseconds: one that hangs in a transaction must not keep the lock
        self._options: dict[str, Any] = {
            "autocommit": True,
            "connect_timeout": 2,
            "options": f"-c statement_timeout={limit} -c idle_in_transaction_session_timeout={limit}",
        }
        with psycopg.connect(URL, autocommit=True) as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", (LOCK,))  # two workers that start at the same time
            connection.execute(TABLES)
            self._beat(connection)
        self._patient_until = self._beaten + LEASE

    def run(self) -> None:
        connection = None
        while not self._stopping.wait(LEASE / 8):
            try:
                connection = connection or psycopg.connect(URL, **self._options)
                was_away = read_clock() - self._beaten > LEASE / 2
                self._beat(connection)
                if was_away:  # maybe the database was, and nobody could beat: give the others time to
                    self._patient_until = read_clock() + LEASE
                elif read_clock() > self._patient_until:
                    self._take_over(connection)
            except Exception as error:  # of either database driver; a keeper that ends would lose its worker's jobs
                print(f"keeper: {type(error).__name__}", file=sys.stderr, flush=True)
                connection = None

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def leave(self) -> None:
        with psycopg.connect(URL, autocommit=True) as connection:
            connection.execute("DELETE FROM job_workers WHERE id = %s", (self._id,))

    def _beat(self, connection: Any) -> None:
        begun = read_clock()
        connection.execute(BEAT, (self._id,))
        self._beaten = begun

    def _take_over(self, connection: Any) -> None:
        """Queue what dead workers were executing. One that was only suspended does no harm when it wakes: a turn asks
        before each call who owns its workflow, and DBOS refuses what the old execution writes."""
        with connection.transaction():
            if not connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (LOCK,)).fetchone()[0]:
                return
            fresh = "SELECT id FROM job_workers WHERE seen > now() - %s * interval '1 s'"
            alive = {id for (id,) in connection.execute(fresh, (LEASE,))}
            running = self._client.list_workflows(name="job", status="PENDING", load_input=False, load_output=False)
            lost = [one.workflow_id for one in running if one.executor_id not in alive]
            # `resume_workflows` has no condition. If this process hung meanwhile, another one may have resumed these
            # jobs, and a second time would take them from a worker that is alive.
            if not lost or read_clock() - self._beaten > LEASE / 2:
                return
            targets: dict[str, list[str]] = {}
            for id in lost:
                steps = len(self._client.list_workflow_steps(id, load_output=False))
                deaths = connection.execute(DIED, (id.partition("#")[0], steps)).fetchone()[0]
                queue = "poison" if deaths >= POISON_DEATHS else "suspects" if deaths >= SUSPECT_DEATHS else "jobs"
                targets.setdefault(queue, []).append(id)
            for queue, ids in targets.items():
                print(f"keeper: {len(ids)} jobs of dead workers go to '{queue}'", file=sys.stderr, flush=True)
                self._client.resume_workflows(ids, queue_name=queue)
            connection.execute("DELETE FROM job_workers WHERE seen < now() - interval '1 day'")


def forget_deaths(id: str) -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        connection.execute(TABLES)
        connection.execute("DELETE FROM job_deaths WHERE id = %s", (id,))


def read_clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # it goes on while the machine sleeps
