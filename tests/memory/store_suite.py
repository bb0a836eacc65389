"""The tests that every store of sessions must pass."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prompty.memory import MemoryStore
from prompty.model.message import Json

_HELLO: Json = {"role": "user", "content": "Grüße, 世界 🌍"}
_ANSWER: Json = {
    "role": "assistant",
    "content": [],
    "tool_calls": [{"id": "", "function": {"name": "look", "arguments": '{"at": "\\u0000"}'}}],
    "opaque": {"number": 1.5, "nothing": None},
    "finishReason": "tool_calls",
}


class MemoryStoreSuite:
    """The tests. Each gets an empty folder."""

    def store(self, folder: Path) -> MemoryStore:
        """Return a new store in this folder, or another instance of the store that is there."""
        raise NotImplementedError

    def test_a_session_nobody_has_written_to_is_empty(self, tmp_path: Path) -> None:
        assert self.store(tmp_path).load("a") == []

    def test_messages_come_back_as_they_were_and_in_order(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        store.append("a", (_HELLO, _ANSWER))
        store.append("a", (_HELLO,))
        assert store.load("a") == [_HELLO, _ANSWER, _HELLO]

    def test_sessions_do_not_mix_whatever_they_are_called(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        names = ["a", "A", "a ", "", "../a", "a%", "ä", "x" * 500, "a\n'; --"]
        for name in names:
            store.append(name, ({"role": "user", "content": name},))
        assert [store.load(name) for name in names] == [[{"role": "user", "content": name}] for name in names]

    def test_what_is_loaded_can_be_changed_without_changing_what_is_stored(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        store.append("a", (_HELLO,))
        store.load("a")[0]["role"] = "system"
        assert store.load("a") == [_HELLO]

    def test_all_messages_can_be_replaced(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        store.append("a", (_HELLO, _ANSWER))
        store.replace("a", (_ANSWER,))
        assert store.load("a") == [_ANSWER]
        store.replace("a", ())
        assert store.load("a") == []

    def test_a_session_has_one_owner_at_a_time(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        release = store.acquire("a")
        assert release is not None
        assert store.acquire("a") is None
        other = store.acquire("b")
        assert other is not None
        release()
        again = store.acquire("a")
        assert again is not None
        again()
        other()

    def test_messages_of_many_threads_are_all_there(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        pairs: list[tuple[Json, ...]] = [({"role": "user", "n": n}, {"role": "assistant", "n": n}) for n in range(40)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda pair: store.append("a", pair), pairs))
        stored = store.load("a")
        assert sorted(stored[::2], key=_number) == [first for first, _ in pairs]
        assert [message["n"] for message in stored[::2]] == [message["n"] for message in stored[1::2]]

    def test_owners_on_many_threads_take_turns(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        inside: list[int] = []
        most: list[int] = []

        def take(number: int) -> None:
            while (release := store.acquire("a")) is None:
                pass
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)
            release()

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(take, range(60)))
        assert most == [1] * 60


def _number(message: Json) -> int:
    number = message["n"]
    return number if isinstance(number, int) else -1
