"""What a long conversation takes in the database."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from dbos import DBOSPortableJSONSerializer

from prompty import PromptAgent, tool
from prompty.testing import Script, answer, call, register_script
from tests.durable.own import launched
from tests.soak import Keep

CALLS = 100
WORDS = 1100  # of a tool's result: 200,000 tokens in all, at four characters each


def write_words(chance: random.Random, count: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join("".join(chance.choices(letters, k=6)) for _ in range(count))


class Conversation(NamedTuple):
    """An agent that reads pages with its tool, and the bytes of what is new in all of it."""

    agent: PromptAgent
    read: Callable[..., object]
    new_bytes: int


def long_conversation() -> Conversation:
    chance = random.Random(7)  # noqa: S311  not for secrets
    pages = [write_words(chance, WORDS) for _ in range(CALLS - 1)]
    replies = [answer(write_words(chance, 20), call("read", page=number)) for number in range(CALLS - 1)]
    register_script("long conversation", Script(*replies, "Done."))

    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return pages[page]

    model = {"id": "long conversation", "provider": "scripted"}
    agent = PromptAgent.model_validate({"model": model, "instructions": "user:\nRead it all."})
    return Conversation(agent, read, sum(map(len, pages)) + sum(len(reply.text) for reply in replies))


def test_the_database_grows_with_what_is_new_in_a_conversation(tmp_path: Path, keep: Keep) -> None:
    conversation = long_conversation()
    path = tmp_path / "own.db"
    with launched(f"sqlite:///{path}", serializer=DBOSPortableJSONSerializer()) as program:
        run = program.start_turn(conversation.agent, tools=[conversation.read], max_iterations=CALLS)
        assert run.get_result() == "Done."
    stored, new = count_stored(path), conversation.new_bytes
    keep(model_calls=CALLS, new_bytes=new, stored_bytes=stored, ratio=round(stored / new, 2))
    assert new > 4 * 190_000
    assert stored <= 1.5 * new


def count_stored(path: Path) -> int:
    """The bytes of all values in all tables."""
    total = 0
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            lengths = " + ".join(f'coalesce(length(CAST("{column}" AS BLOB)), 0)' for column in columns)
            [(size,)] = connection.execute(f'SELECT coalesce(sum({lengths}), 0) FROM "{table}"').fetchall()  # noqa: S608  our names
            total += size
    return total
