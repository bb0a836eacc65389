"""Notices of a worker, with a real service that fails, hangs and redirects."""

import hmac
import json
import logging
import threading
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from prompty import Paused, PromptAgent
from prompty.durable import Runs, Webhook, Worker
from prompty.durable.notices import SENDERS, Notices, claim_notices
from prompty.errors import ModelError, RequestError
from prompty.testing import Fault, Script, register_script
from tests.batch.folder import until
from tests.durable.databases import Databases
from tests.durable.runs import Desk, rounds, scripted
from tests.loopback import Hold, Reply, Request, Server, reply

SECONDS = 30.0
SECRET = "a-secret-of-two"
OK = reply(b"", 204)
ASKS = [[{"call": "look", "arguments": {"at": "a private place"}}], "Done."]
KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)]


def submit(runs: Runs, run_id: str, tenant: str | None = None) -> None:
    runs.submit(scripted(ASKS, name="rent"), run_id=run_id, approval="always", tools=["look"], tenant=tenant)


def pause(runs: Runs, run_id: str = "rent", tenant: str | None = None) -> Paused:
    submit(runs, run_id, tenant)
    paused = runs.result(run_id, timeout=SECONDS)
    assert isinstance(paused, Paused)
    return paused


def check_signature(request: Request) -> None:
    """Check a request as the documentation says."""
    parts = dict(part.split("=") for part in request.headers["prompty-signature"].split(","))
    signed = f"{parts['t']}.".encode() + request.content
    assert hmac.new(SECRET.encode(), signed, sha256).hexdigest() == parts["v1"]
    assert abs(time.time() - int(parts["t"])) < 60


def test_a_pause_is_told_with_the_names_of_its_calls_and_nothing_they_say(tmp_path: Path) -> None:
    with Server() as server:
        server.answer(OK)
        hook = Webhook(f"{server.url}/runs/?team=a", SECRET)
        with Worker(f"sqlite:///{tmp_path}/runs.db", tools=[Desk().look], notify=hook) as worker:
            paused = pause(worker.runs, tenant="acme")
            assert server.wait_until(lambda: len(server.requests) == 1)
            worker.runs.answer(paused, [True])
            assert worker.runs.result("rent", timeout=SECONDS) == "Done."
            time.sleep(2.5)  # nothing else is told
        [request] = server.requests
    assert (request.method, request.path) == ("POST", "/runs/?team=a")
    assert request.headers["content-type"] == "application/json"
    assert len(request.headers["idempotency-key"]) == 64
    body = dict(request.body)
    assert body.pop("since").endswith("+00:00")
    assert body == {
        "event": "run.paused",
        "run": "rent",
        "prompt": "rent",
        "tenant": "acme",
        "calls": [{"name": "look", "unknown": False}],
        "error": None,
    }
    assert "private" not in json.dumps(request.body)
    check_signature(request)


def test_a_run_that_fails_is_told_with_the_kind_of_its_error_each_time_it_fails(tmp_path: Path) -> None:
    down = Fault(ModelError("down for private reasons", status=503, retryable=False))
    register_script("failing", Script(down, down))
    agent = PromptAgent.model_validate({"model": {"id": "failing", "provider": "scripted"}, "instructions": "user:\nx"})
    with Server() as server:
        server.answer(OK)
        with Worker(f"sqlite:///{tmp_path}/runs.db", notify=Webhook(server.url)) as worker:
            run_id = worker.runs.submit(agent)
            assert server.wait_until(lambda: len(server.requests) == 1)
            worker.runs.retry(run_id)
            assert server.wait_until(lambda: len(server.requests) == 2)
        first, second = server.requests
    assert (first.body["event"], first.body["run"], first.body["error"]) == ("run.failed", run_id, "ModelError")
    assert "private" not in json.dumps(first.body)
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


def test_a_service_that_fails_is_asked_again_with_the_same_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.durable.notices.RETRY_SECONDS", 1.0)
    with Server() as server:
        server.answer(reply(b"down", 503), OK)
        with Worker(f"sqlite:///{tmp_path}/runs.db", tools=[Desk().look], notify=Webhook(server.url)) as worker:
            pause(worker.runs)
            until(lambda: len(server.requests) == 2)
            time.sleep(3)
        first, second = server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.content == second.content
    assert "prompty-signature" not in first.headers


@pytest.mark.parametrize("answer", [reply(b"no", 400), reply(b"", 302, {"location": "http://127.0.0.1:1/"})])
def test_a_service_that_refuses_is_named_in_the_log_once(
    answer: list[bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prompty.durable.notices.RETRY_SECONDS", 1.0)
    with Server() as server, caplog.at_level(logging.WARNING, "prompty"):
        server.answer(answer)
        hook = Webhook(f"{server.url}/?key=sk-hidden")
        with Worker(f"sqlite:///{tmp_path}/runs.db", tools=[Desk().look], notify=hook) as worker:
            paused = pause(worker.runs)
            until(lambda: "was not told that the run 'rent' is paused: HTTP" in caplog.text)
            worker.runs.answer(paused, [True])
            assert worker.runs.result("rent", timeout=SECONDS) == "Done."
            time.sleep(2.5)
        assert len(server.requests) == 1
    assert "sk-hidden" not in caplog.text


class Slow(Server):
    """Never answers about the runs whose names begin with `slow`, and answers all others at once."""

    def __init__(self) -> None:
        super().__init__()
        self.told: Counter[str] = Counter()
        self.hold = Hold()

    def next_reply(self, request: Request) -> Reply:
        self.requests.append(request)
        self.told[run := request.body["run"]] += 1
        self.has_changed()
        return [self.hold] if run.startswith("slow") else OK


def test_notices_that_hang_hold_up_neither_the_others_nor_any_run(tmp_path: Path) -> None:
    with Slow() as server:
        with Worker(f"sqlite:///{tmp_path}/runs.db", tools=[Desk().look], notify=Webhook(server.url)) as worker:
            for number in range(SENDERS - 1):
                submit(worker.runs, f"slow{number}")
            until(lambda: len(server.told) == SENDERS - 1)
            begun = time.monotonic()
            for number in range(20):
                submit(worker.runs, f"quick{number}")
            run_id = worker.runs.submit(scripted(rounds("look", 1, 1)), tools=["look"])
            assert worker.runs.result(run_id, timeout=SECONDS) == "Done."
            until(lambda: sum(run.startswith("quick") for run in server.told) == 20)
            assert time.monotonic() - begun < SECONDS / 2
            server.hold.release()
        assert {count for run, count in server.told.items() if run.startswith("quick")} == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_each_notice_is_claimed_by_one_sender_of_many(kind: str, databases: Databases) -> None:
    with Runs(databases.new(kind)) as runs:
        runs.table.notifies = True
        for number in range(40):
            runs.submit(scripted(["Done."]), run_id=f"r{number}")
            assert runs.table.change(f"r{number}", "failed", segment=0)
        time.sleep(1.1)
        claimed: list[str] = []

        def claim() -> None:
            while found := claim_notices(runs.table, 3):
                claimed.extend(notice.run_id for notice in found)

        threads = [threading.Thread(target=claim) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(claimed) == sorted(f"r{number}" for number in range(40))


def test_a_notice_survives_its_worker(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Server() as server:
        server.answer(OK)
        with Worker(url, tools=[Desk().look], notify=Webhook(f"{server.url}/first")) as worker:
            pause(worker.runs)  # it stops before the notice is due
        with Worker(url, tools=[Desk().look], notify=Webhook(f"{server.url}/second")):
            until(lambda: len(server.requests) >= 1)


def test_what_is_settled_before_its_notice_is_due_is_not_told_and_a_quarantined_run_is(tmp_path: Path) -> None:
    with Server() as server, Runs(f"sqlite:///{tmp_path}/runs.db") as runs:
        server.answer(OK)
        notices = Notices(Webhook(server.url), runs)
        notices.start()
        for run_id in ("retried", "poison"):
            runs.submit(scripted(["Done."]), run_id=run_id)
            assert runs.table.change(run_id, "quarantined", segment=0)
        assert runs.table.change("retried", "open", segment=0, was=["quarantined"])
        until(lambda: len(server.requests) == 1)
        time.sleep(1.5)
        notices.stop()
        assert [(one.body["event"], one.body["run"]) for one in server.requests] == [("run.quarantined", "poison")]
        assert claim_notices(runs.table, 10) == []


@pytest.mark.parametrize("url", ["http://example.com/runs", "ftp://example.com", "runs", "http://127.0.0.1@a.com/"])
def test_only_https_or_this_machine_is_told(url: str) -> None:
    with pytest.raises(RequestError, match="is not an https URL"):
        Webhook(url)
    assert SECRET not in repr(Webhook("https://example.com", SECRET))
