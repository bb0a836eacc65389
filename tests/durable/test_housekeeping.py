"""The thread of a worker that does what has to be done regularly."""

import logging

import pytest

from prompty.durable.housekeeping import Housekeeper
from tests.durable.suite import wait_until


def test_a_chore_that_fails_keeps_no_other_from_being_done_and_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []

    def fail() -> None:
        done.append("failed")
        raise OSError("the database is away")

    def succeed() -> None:
        done.append("done")

    with caplog.at_level(logging.WARNING, "prompty"):
        housekeeper = Housekeeper({fail: 0.0, succeed: 0.0})
        wait_until(lambda: done.count("done") == 3)
        housekeeper.stop()
    assert done.count("failed") == 3
    assert [record.getMessage() for record in caplog.records] == ["The worker cannot look after waiting runs: OSError"]


def test_a_chore_is_done_as_often_as_it_says() -> None:
    done: list[str] = []
    housekeeper = Housekeeper({lambda: done.append("often"): 0.0, lambda: done.append("seldom"): 60.0})
    wait_until(lambda: done.count("often") == 3)
    housekeeper.stop()
    assert done.count("seldom") == 1
