"""Names of test files. Apart from the code that reads them, because most prompts that are checked have none."""

from pathlib import Path

SUFFIXES = (".test.yaml", ".test.yml")


def strip_suffix(path: Path) -> str:
    """Return the name of a test file without `.test.yaml`."""
    return next((path.name.removesuffix(suffix) for suffix in SUFFIXES if path.name.endswith(suffix)), path.stem)


def find_test_file(prompt: Path) -> Path | None:
    """Return the test file of a prompt."""
    candidates = (prompt.with_name(f"{prompt.stem}{suffix}") for suffix in SUFFIXES)
    return next((path for path in candidates if path.is_file()), None)
