"""Session stores: the interface, and stores in the process and in SQLite."""

from prompty.memory.in_process import InProcessMemory
from prompty.memory.sqlite import SqliteMemory
from prompty.memory.store import MemoryStore

__all__ = ["InProcessMemory", "MemoryStore", "SqliteMemory"]
