"""Whatever a model, a gate, tools, users and crashes do: the history can be sent, and no call runs twice or unasked."""

import os

import pytest
from hypothesis import HealthCheck, given, settings

from prompty.errors import Cancelled
from prompty.loop.effects import CallTools
from tests.loop.lives import Crash, Ending, Journal, Life
from tests.loop.plays import Play, plays

pytestmark = pytest.mark.slow

EXAMPLES = 3000 if os.environ.get("PROMPTY_SOAK") else 300


def played(play: Play, crashes: frozenset[int] = frozenset()) -> tuple[Ending, Journal, Life]:
    """Play a turn to its end, in as many lives as it takes."""
    journal = Journal(crashes)
    while True:
        life = Life(play, journal)
        try:
            return life.run(), journal, life
        except Crash:
            continue


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(play=plays())
def test_no_crash_and_no_end_of_a_turn_breaks_its_history_or_runs_a_call_twice(play: Play) -> None:
    undisturbed, journal, life = played(play)
    assert len(set(journal.ran)) == len(journal.ran)
    goes_on_after_crashes_as_if_there_had_been_none(play, undisturbed, journal)
    can_be_ended_at_any_step(play, journal, life)


def goes_on_after_crashes_as_if_there_had_been_none(play: Play, undisturbed: Ending, whole: Journal) -> None:
    resumed, journal, _ = played(play, play.crashes)
    assert resumed.told() == undisturbed.told()
    assert journal.ran == whole.ran


def can_be_ended_at_any_step(play: Play, journal: Journal, life: Life) -> None:
    """What each of these lives leaves behind is checked where it ends."""
    for position, effect in enumerate(life.effects):
        ending = Life(play, journal.until(position), cut_at=position).run()
        assert isinstance(ending.error, Cancelled)
        if isinstance(effect, CallTools) and len(effect.calls) > 1:
            part = Life(play, journal.until(position), cut_at=position, partly=True).run()
            assert isinstance(part.error, Cancelled)
