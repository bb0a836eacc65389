"""The definitions in a file (pydantic) and the values of a run (dataclasses)."""
