"""Ids of calls: unique on the wire whatever a model gives, and the model's own wherever a person sees them."""

from itertools import chain, pairwise

import pytest

from prompty import ToolCall, ToolContext
from prompty.events import GatedCall, ToolFinished, ToolGated, ToolStarted
from prompty.testing import Script
from tests.loop.bodies import APIS, assert_taken, calls_in, results_in
from tests.ways import Seen, Way, agent_of, every_wire, whole_and_streamed

IDS: dict[str, list[list[str]]] = {
    "all the same": [["call_0", "call_0"], ["call_0"], ["call_0", "call_0"]],
    "empty": [["", ""], [""]],
    "the same in each turn": [["call_0"], ["call_0"], ["call_0"]],
    "like our own": [["call_0", "call_0", "call_0_2"], ["call_0_2", "call_0_3", "call_0"]],
    "of odd letters": [["ä b", "functions.look:0"], ["ä b", "€_b"]],
    "very long": [["x" * 80, "x" * 80 + "y"], ["x" * 64]],
    "as they should be": [["call_a", "call_b"], ["call_c"]],
}


def batches(pattern: list[list[str]]) -> list[list[ToolCall]]:
    return [
        [ToolCall(id=one, name="look", arguments=f'{{"at":"{turn}.{at}"}}') for at, one in enumerate(ids)]
        for turn, ids in enumerate(pattern)
    ]


@pytest.mark.spec("001 Pairing: One Result per Call", "ids cross the wire as the model wrote them")
@whole_and_streamed
@every_wire
@pytest.mark.parametrize("pattern", IDS.values(), ids=IDS)
@pytest.mark.spec("001 Why ordering, not just ids", "ids that a model repeats do no harm")
def test_ids_are_unique_on_the_wire_and_original_for_people(way: Way, wire: str, pattern: list[list[str]]) -> None:
    asked: list[str] = []
    known: list[tuple[str, str]] = []

    def look(at: str, context: ToolContext) -> str:
        known.append((at, context.call_id))
        return f"saw {at}"

    def gate(calls: list[GatedCall]) -> list[bool]:
        asked.extend(one.id for one in calls)
        return [True] * len(calls)

    with Script(*batches(pattern), "Done.") as script:
        seen = way.turn(agent_of(wire), tools=[look], gate=gate)
    body = script.requests[-1]
    assert_taken(wire, body)
    places = [f"{turn}.{at}" for turn, ids in enumerate(pattern) for at, _ in enumerate(ids)]
    assert [one["content"] for one in results_in(wire, body)] == [f"saw {place}" for place in places]
    check_original(wire, pattern, asked, [one for _, one in sorted(known)])
    check_messages(as_read(wire, pattern), seen)


def check_messages(given: list[list[str]], seen: Seen) -> None:
    every_one = list(chain.from_iterable(given))
    messages = [message for message in seen.messages if message.role == "assistant"]
    assert [[call.id for call in message.tool_calls] for message in messages] == [*given, []]
    assert [message.tool_call_id for message in seen.messages if message.role == "tool"] == every_one
    assert [event.call.id for event in seen.of(ToolGated)] == every_one
    assert [event.call.id for event in seen.of(ToolStarted)] == every_one
    assert sorted(event.call.id for event in seen.of(ToolFinished)) == sorted(every_one)


def as_read(wire: str, pattern: list[list[str]]) -> list[list[str]]:
    """The ids as they are read: chat's reader numbers calls that have none."""
    if wire != "chat":
        return pattern
    return [[one or f"call_{at}" for at, one in enumerate(ids)] for ids in pattern]


def check_original(wire: str, pattern: list[list[str]], asked: list[str], known: list[str]) -> None:
    given = list(chain.from_iterable(as_read(wire, pattern)))
    assert asked == given
    assert known == given


@every_wire
def test_a_longer_conversation_sends_the_same_ids_for_what_was_there_before(wire: str) -> None:
    """So that what a provider has cached stays of use."""
    with Script(*batches(IDS["like our own"] * 2), "Done.") as script:
        Way(asynchronous=False, streamed=False).turn(agent_of(wire), tools={"look": lambda at: at})
    sent = [[one["id"] for one in calls_in(wire, body)] for body in script.requests]
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
    assert len(sent[-1]) == 12
    assert all(APIS[wire].call_ids.fullmatch(one) for one in sent[-1])


@whole_and_streamed
@every_wire
def test_a_conversation_that_goes_on_keeps_its_ids_apart(way: Way, wire: str) -> None:
    agent, tools = agent_of(wire), {"look": lambda at: f"saw {at}"}
    with Script(*batches([["call_0"]]), "Done."):
        first = way.turn(agent, tools=tools)
    goes_on = [*first.messages, {"role": "user", "content": "Again."}]
    with Script(*batches([["call_0", "call_0"]]), "Done.") as script:
        second = way.turn(agent, tools=tools, messages=goes_on)
    assert [one["id"] for one in calls_in(wire, script.requests[1])] == ["call_0", "call_0_2", "call_0_3"]
    assert second.told == ["saw 0.0", "saw 0.0", "saw 0.1"]
