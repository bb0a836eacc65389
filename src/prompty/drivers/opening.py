"""The messages a turn begins with, and where a remembered conversation goes among them (L10)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prompty.model.agent import PromptAgent
from prompty.model.message import Message, user
from prompty.pipeline.prepare import prepare
from prompty.pipeline.request import read_messages


class Opening(NamedTuple):
    """Messages; history goes to `history_at`, and those from `new_from` on are what this turn adds to it."""

    messages: list[Message]
    history_at: int
    new_from: int


def opening(
    agent: PromptAgent,
    inputs: Mapping[str, object] | None,
    messages: Sequence[object] | None,
    session_id: str | None,
) -> Opening:
    """What a file and its inputs make, or the messages that the host has."""
    if messages is not None:
        return _placed(read_messages(messages), None)
    thread = _thread_for_history(agent, inputs) if session_id is not None else None
    if thread is None:
        return _placed(prepare(agent, inputs), None)
    marker = user("the history goes here")
    prepared = prepare(agent, {**(inputs or {}), thread: [marker]})
    at = next((position for position, message in enumerate(prepared) if message is marker), None)
    return _placed([message for message in prepared if message is not marker], at)


def _thread_for_history(agent: PromptAgent, inputs: Mapping[str, object] | None) -> str | None:
    """The input in which the file asks for the conversation, unless the caller gives one."""
    threads = (one.name for one in agent.inputs if one.kind == "thread" and one.name not in (inputs or {}))
    return next(threads, None)


def _placed(messages: list[Message], history_at: int | None) -> Opening:
    """What this turn adds is what the user says last; what stands before it is the file's own, made anew each time."""
    spoken = [at for at, message in enumerate(messages) if message.role == "user"]
    new_from = spoken[-1] if spoken else len(messages)
    while new_from - 1 in spoken:
        new_from -= 1
    if history_at is None:
        return Opening(messages, new_from, new_from)
    return Opening(messages, history_at, max(new_from, history_at))
