"""What a long conversation takes in the history of Temporal."""

from tests.durable.runs import working
from tests.durable.suite import wait_until
from tests.durable.temporal import TemporalServer
from tests.durable.test_stored_bytes import CALLS, long_conversation
from tests.soak import Keep

MOST_EVENTS = 51_200  # of a history, by default


def test_the_history_grows_with_what_is_new_in_a_conversation(temporal: TemporalServer, keep: Keep) -> None:
    conversation = long_conversation()
    url = temporal.namespace()
    with working(url, conversation.read) as runtime:
        run = runtime.start(conversation.agent, max_iterations=CALLS)
        assert run.result(timeout=120) == "Done."
        wait_until(lambda: runtime.engine.wait(run.id, 0).state == "finished")
    events = temporal.read_events(url)
    stored, new = sum(map(len, events)), conversation.new_bytes
    keep(model_calls=CALLS, new_bytes=new, history_bytes=stored, ratio=round(stored / new, 2), events=len(events))
    assert new > 4 * 190_000
    assert stored <= 1.5 * new
    assert len(events) < MOST_EVENTS / 40
