"""The built site, in a browser."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.pages import DOCS, ROOT
from tests.docs.walk import Site
from tests.viewer.browser import Browser
from tests.viewer.conftest import browser as browser


@pytest.fixture(scope="session")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)  # noqa: S603  our own pages
    return Site(browser, folder / "build" / "site")
