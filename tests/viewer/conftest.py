"""The browser, started once."""

import os
from collections.abc import Iterator

import pytest

from tests.viewer.browser import NEEDED, Browser, chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium()
    if program is None and os.environ.get("CI"):
        pytest.fail(NEEDED)
    if program is None:
        pytest.skip(NEEDED)
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
