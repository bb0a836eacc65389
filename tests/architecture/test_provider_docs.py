"""The pages of the providers are what the code says."""

from pathlib import Path

import pytest

from scripts.write_provider_docs import pages


@pytest.mark.spec("000 §7.8", "the wire mappings are documented")
@pytest.mark.parametrize(("path", "text"), pages().items(), ids=lambda value: getattr(value, "name", ""))
def test_the_page_of_a_provider_is_fresh(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "run: make docs"
