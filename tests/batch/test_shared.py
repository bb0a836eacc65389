"""`prompty batch` on the workers of a database: the same command in several processes, one of them killed half-way."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prompty.batches.calls import MAX_RETRIES
from prompty.durable import Runs
from prompty.durable.outcome import read_record
from tests.batch.folder import SECONDS, Folder, Process, lines_of, numbers_of, until
from tests.batch.hostile import Hostile
from tests.batch.test_command import SCRIPTED, TOOLS
from tests.durable.databases import Databases
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.database]

ROWS = 10_000 if SOAK else 1_000
PATIENCE = 1800 if SOAK else SECONDS


@contextmanager
def started(folder: Folder, *words: str) -> Iterator[Process]:
    process = folder.start("--json", *words)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.nightly
def test_two_workers_of_which_one_is_killed_finish_every_row_once(
    databases: Databases, tmp_path: Path, keep: Keep
) -> None:
    url = databases.postgres()
    with Hostile(busy=0.01, broken=0.01, cut=0.005, seconds=0.5) as provider:
        folder = Folder(tmp_path, provider.url)
        folder.write_rows({"q": f"n{number}"} for number in range(ROWS))
        begun = time.monotonic()
        with started(folder, "--database", url, "--name", "one") as first:
            with started(folder, "--database", url, "--name", "two"):
                until(lambda: provider.answered.total() > ROWS // 2, PATIENCE)
            killed = provider.answered.total()
            with started(folder, "--database", url, "--name", "two") as second:
                assert first.wait(PATIENCE) == 0, folder.failed.read_text()[:2000] if folder.failed.exists() else ""
                seconds = time.monotonic() - begun
                assert second.wait(PATIENCE) == 0
    lines = folder.results()
    assert ROWS // 2 < killed < ROWS
    assert numbers_of(lines) == list(range(1, ROWS + 1))
    assert {line["row"]: line["result"] for line in lines} == {at + 1: f"answer n{at}" for at in range(ROWS)}
    recovered = {f"n{line['row'] - 1}" for line in lines if line.get("interrupted")}
    twice = {question for question, count in provider.answered.items() if count > 1}
    assert twice <= recovered, "what was paid twice is told"
    assert twice, "the worker that was killed was not being answered, so this has shown nothing"
    check_the_record(url, provider, recovered)
    keep(
        rows=ROWS,
        seconds=round(seconds),
        requests=provider.asked.total(),
        answers_before_the_kill=killed,
        told_as_interrupted=len(recovered),
        answered_twice=len(twice),
    )


def check_the_record(url: str, provider: Hostile, recovered: set[str]) -> None:
    """The provider was asked as often as the database tells, but for what was under way in the worker that died."""
    with Runs(url) as runs:
        for run in runs.list():
            [status] = runs.client.list_workflows(workflow_ids=[run.id])
            question = str(read_record(status).inputs["q"])
            steps = runs.client.list_workflow_steps(run.id, load_output=False)
            asked = sum(step["function_name"].startswith("model") for step in steps)
            assert provider.asked[question] in (asked, asked + (question in recovered))


@pytest.mark.nightly
def test_when_the_one_who_collects_is_killed_another_one_does(databases: Databases, tmp_path: Path) -> None:
    url = databases.postgres()
    with Hostile(seconds=0.2) as provider:
        folder = Folder(tmp_path, provider.url)
        folder.write_rows({"q": f"n{number}"} for number in range(300))
        with started(folder, "--database", url, "--name", "one") as first:
            until(lambda: folder.out.exists())
            with started(folder, "--database", url, "--name", "two") as second:
                until(lambda: len(folder.out.read_bytes().splitlines()) > 100)
                first.kill()
                first.wait()
                with started(folder, "--database", url, "--name", "one") as again:
                    assert second.wait(SECONDS) == again.wait(SECONDS) == 0
    lines = folder.results()
    assert numbers_of(lines) == list(range(1, 301))
    interrupted = {f"n{line['row'] - 1}" for line in lines if line.get("interrupted")}
    assert {question for question, count in provider.answered.items() if count > 1} <= interrupted


@pytest.mark.nightly
def test_rows_go_on_when_the_database_was_away(databases: Databases, tmp_path: Path) -> None:
    url = databases.postgres()
    with Hostile(seconds=0.1) as provider:
        folder = Folder(tmp_path, provider.url)
        folder.write_rows({"q": f"n{number}"} for number in range(300))
        with started(folder, "--database", url, "--name", "one") as process:
            until(lambda: provider.answered.total() > 50)
            databases.server.stop()
            time.sleep(2)
            databases.server.start()
            _, told = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, told
    assert numbers_of(folder.results()) == list(range(1, 301))
    assert provider.answered.total() == 300


def test_who_takes_the_place_of_another_pays_for_nothing_again(databases: Databases, tmp_path: Path) -> None:
    url = databases.sqlite()
    with Hostile() as provider:
        folder = Folder(tmp_path, provider.url)
        folder.write_rows({"q": f"n{number}"} for number in range(30))
        folder.run("--database", url, "--name", "one")
        results = {line["id"]: line["result"] for line in folder.results()}
        folder.out.unlink()
        folder.run("--database", url, "--name", "two")
        assert {line["id"]: line["result"] for line in folder.results()} == results
        assert provider.asked.total() == len(results) == 30


def test_who_only_submits_needs_workers_and_others_are_refused(databases: Databases, tmp_path: Path) -> None:
    url = databases.sqlite()
    with Hostile() as provider:
        folder = Folder(tmp_path, provider.url)
        folder.write_rows({"q": f"n{number}"} for number in range(5))
        with started(folder, "--database", url) as waiting:
            until(lambda: folder.out.exists())
            assert "another process is collecting the batch" in folder.run("--database", url, code=1).stderr
            assert "another process is writing to" in folder.run(code=1).stderr
            waiting.terminate()
            assert waiting.wait(SECONDS) == 130
        assert provider.asked.total() == 0
        folder.run("--database", url, "--name", "one")
        assert numbers_of(folder.results()) == [1, 2, 3, 4, 5]


def test_a_name_without_a_database_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "")
    folder.write_rows([])
    assert "--database" in folder.run("--name", "one", code=1).stderr


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_row_that_waits_for_a_person_is_answered_and_collected(
    kind: str, databases: Databases, tmp_path: Path
) -> None:
    url = databases.new(kind)
    folder = Folder(tmp_path, "")
    folder.prompt.write_text(SCRIPTED.format(approval="always"))
    folder.write_rows([{"q": "one"}])
    (tmp_path / "functions.py").write_text(TOOLS)
    words = ("--database", url, "--name", "one", "--tools", str(tmp_path / "functions.py"))
    folder.run(*words, code=1)
    [failed] = lines_of(folder.failed)
    run_id = failed["error"]["message"].partition("answer ")[2].partition(" ")[0]
    with Runs(url) as client:
        client.answer(run_id, [True])
    folder.run(*words, "--retry-failed")
    assert [line["result"] for line in folder.results()] == ["Done."]


def test_failed_rows_are_run_once_more(databases: Databases, tmp_path: Path) -> None:
    url = databases.sqlite()
    with Hostile(broken=1.0) as provider:
        folder = Folder(tmp_path, provider.url)
        folder.write_rows([{"q": "one"}])
        folder.run("--database", url, "--name", "one", code=1)
        with Runs(url) as client:
            [run] = client.list()
        show = [sys.executable, "-m", "prompty.cli", "runs", "show", run.id, "--database", url]
        shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout  # noqa: S603  our own code
        assert shown.count("the model call was retried") == provider.asked.total() - 1 == MAX_RETRIES
        provider.broken_share = 0.0
        folder.run("--database", url, "--name", "one", code=1)
        assert folder.results() == []
        folder.run("--database", url, "--name", "one", "--retry-failed")
        assert numbers_of(folder.results()) == [1]
