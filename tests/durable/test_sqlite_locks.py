"""Two clients of one process and a second process share a SQLite file, and none loses what another one wrote."""

import subprocess
import sys

from prompty.durable import DurableRuntime
from tests.durable.databases import Databases
from tests.durable.runs import scripted

OTHER = """
import sys
from prompty.durable import DurableRuntime
from tests.durable.runs import scripted
client = DurableRuntime(sys.argv[1])
client.start(scripted(["Hi."]), run_id=sys.argv[2])
client.close()
"""


def start_elsewhere(url: str, run_id: str) -> None:
    subprocess.run([sys.executable, "-c", OTHER, url, run_id], check=True, timeout=60)  # noqa: S603  our own command


def test_clients_of_one_process_and_another_process_keep_each_others_runs(databases: Databases) -> None:
    url = databases.sqlite()
    first = DurableRuntime(url)
    first.start(scripted(["Hi."]), run_id="first")
    second = DurableRuntime(url)
    second.start(scripted(["Hi."]), run_id="second")
    start_elsewhere(url, "third")
    first.start(scripted(["Hi."]), run_id="fourth")
    start_elsewhere(url, "fifth")
    expected = {"first", "second", "third", "fourth", "fifth"}
    for client in (first, second, DurableRuntime(url)):
        assert {run.id for run in client.list()} == expected
        client.close()
