"""Keyrings for tests: one that holds its keys in memory, and one that is locked."""

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked


class MemoryKeyring(KeyringBackend):
    """Holds keys in memory, and counts how often it is asked."""

    priority = 5

    def __init__(self, keys: dict[str, str] | None = None) -> None:
        self.keys = dict(keys or {})
        self.asked = 0

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        return self.keys.get(username) if service == "prompty" else None

    def set_password(self, service: str, username: str, password: str) -> None:
        assert service == "prompty"
        self.keys[username] = password

    def delete_password(self, service: str, username: str) -> None:
        assert service == "prompty"
        del self.keys[username]


class LockedKeyring(MemoryKeyring):
    """Cannot be opened. Its errors quote what they should not."""

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("cannot unlock: sk-quoted-by-the-backend")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked(f"cannot store {password}")
