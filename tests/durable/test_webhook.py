"""The webhook of a worker, with a real server that fails, hangs and redirects."""

import hmac
import json
import logging
import time
from hashlib import sha256
from pathlib import Path

import pytest

from prompty import Paused
from prompty.durable import DurableRuntime, Webhook
from prompty.errors import RequestError
from tests.durable.runs import Desk, rounds, scripted, working
from tests.durable.suite import wait_until
from tests.loopback import Hold, Request, Server, reply

SECONDS = 30.0
SECRET = "a-secret-of-two"
OK = reply(b"", 204)


def pause(runtime: DurableRuntime, run_id: str = "rent") -> Paused:
    agent = scripted([[{"call": "look", "arguments": {"at": "a private place"}}], "Done."], name="rent")
    paused = runtime.start(agent, run_id=run_id, approval="always").result(timeout=SECONDS)
    assert isinstance(paused, Paused)
    return paused


def check_signature(request: Request) -> None:
    """Check a request as the documentation says."""
    parts = dict(part.split("=") for part in request.headers["prompty-signature"].split(","))
    signed = f"{parts['t']}.".encode() + request.content
    assert hmac.new(SECRET.encode(), signed, sha256).hexdigest() == parts["v1"]
    assert abs(time.time() - int(parts["t"])) < 60


def test_a_pause_is_told_with_the_names_of_its_calls_and_nothing_they_say(tmp_path: Path) -> None:
    desk = Desk()
    with Server() as server:
        server.answer(OK)
        hook = Webhook(f"{server.url}/paused/?team=a", SECRET)
        with working(f"sqlite:///{tmp_path}/runs.db", desk.look, on_pause=hook) as runtime:
            paused = pause(runtime)
            assert server.wait_until(lambda: len(server.requests) == 1)
            runtime.answer(paused, [True])
            assert runtime.result("rent", timeout=SECONDS) == "Done."
            time.sleep(2.5)  # nothing else is told
        [request] = server.requests
    assert (request.method, request.path) == ("POST", "/paused/?team=a")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == sha256(b"rent").hexdigest()
    body = dict(request.body)
    assert body.pop("paused").endswith("+00:00")
    assert body == {
        "event": "run.paused",
        "run": "rent",
        "prompt": "rent",
        "calls": [{"name": "look", "unknown": False}],
    }
    assert "private" not in json.dumps(request.body)
    shown = Path(__file__).parents[2] / "docs" / "snippets" / "how-to" / "workers" / "paused.json"
    assert json.loads(shown.read_text()).keys() == request.body.keys(), "the documentation shows this message"
    check_signature(request)


def test_a_service_that_fails_is_asked_again_with_the_same_key(tmp_path: Path) -> None:
    with Server() as server:
        server.answer(reply(b"down", 503), OK)
        with working(f"sqlite:///{tmp_path}/runs.db", Desk().look, on_pause=Webhook(server.url)) as runtime:
            pause(runtime)
            wait_until(lambda: len(server.requests) == 2)
            time.sleep(1)
        first, second = server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.content == second.content
    assert "prompty-signature" not in first.headers


@pytest.mark.parametrize("answer", [reply(b"no", 400), reply(b"", 302, {"location": "http://127.0.0.1:1/"})])
def test_a_service_that_refuses_is_named_in_the_log_once(
    answer: list[bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Server() as server, caplog.at_level(logging.WARNING, "prompty"):
        server.answer(answer)
        hook = Webhook(f"{server.url}/?key=sk-hidden")
        with working(f"sqlite:///{tmp_path}/runs.db", Desk().look, on_pause=hook) as runtime:
            paused = pause(runtime)
            wait_until(lambda: "was not told that the run 'rent' is paused: HTTP" in caplog.text)
            runtime.answer(paused, [True])
            assert runtime.result("rent", timeout=SECONDS) == "Done."
            time.sleep(6)
        assert len(server.requests) == 1
    assert "sk-hidden" not in caplog.text


def test_a_service_that_hangs_delays_no_run(tmp_path: Path) -> None:
    hold = Hold()
    with Server() as server:
        server.answer([hold])
        with working(f"sqlite:///{tmp_path}/runs.db", Desk().look, on_pause=Webhook(server.url)) as runtime:
            pause(runtime, "first")
            assert server.wait_until(lambda: len(server.requests) == 1)
            begun = time.monotonic()
            run = runtime.start(scripted(rounds("look", 1, 1)))
            assert run.result(timeout=SECONDS) == "Done."
            paused = pause(runtime, "second")
            runtime.answer(paused, [True])
            assert runtime.result("second", timeout=SECONDS) == "Done."
            assert time.monotonic() - begun < 5
            hold.release()


def test_a_notice_survives_its_worker(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Server() as server:
        server.answer(OK)
        with working(url, Desk().look, on_pause=Webhook(f"{server.url}/first")) as runtime:
            pause(runtime)  # it stops before the notice is due
        with working(url, Desk().look, on_pause=Webhook(f"{server.url}/second")):
            assert server.wait_until(lambda: len(server.requests) == 1)


@pytest.mark.parametrize("url", ["http://example.com/paused", "ftp://example.com", "paused", "http://127.0.0.1@a.com/"])
def test_only_https_or_this_machine_is_told(url: str) -> None:
    with pytest.raises(RequestError, match="is not an https URL"):
        Webhook(url)
    assert SECRET not in repr(Webhook("https://example.com", SECRET))
