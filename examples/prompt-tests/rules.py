"""Checks of our own, for `python:` in test files."""


def is_short(answer: str, inputs: dict[str, object]) -> bool | str:
    """Return True, or the reason why the answer does not pass."""
    sentences = answer.count(". ") + answer.endswith(".")
    return sentences <= 2 or f"the answer has {sentences} sentences"
