"""What things are: the definitions a file holds (pydantic) and the values that flow (dataclasses)."""
