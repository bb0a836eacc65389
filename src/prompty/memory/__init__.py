"""Session stores: the interface, and stores in the process and in SQLite."""

from prompty.memory.sqlite import SqliteMemory
from prompty.memory.store import InProcessMemory, MemoryStore

__all__ = ["InProcessMemory", "MemoryStore", "SqliteMemory"]
