"""Session stores: the interface, and stores in the process and in SQLite."""

from prompty.memory.sqlite import SqliteMemory
from prompty.memory.store import AsyncMemoryStore, InProcessMemory, MemoryStore

__all__ = ["AsyncMemoryStore", "InProcessMemory", "MemoryStore", "SqliteMemory"]
