"""GitHub's public document, 1,223 operations: every one of them is a function."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tools.test_openapi_documents import check_large

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "npm"
DOCUMENT = FOLDER / "node_modules" / "@octokit" / "openapi" / "generated" / "api.github.com.json"


@pytest.fixture(scope="session")
def github() -> Path:
    """The document, from npm."""
    if not DOCUMENT.exists():
        npm = shutil.which("npm")
        assert npm, "npm is not installed; it brings the document"
        command = [npm, "install", "--silent", "--prefix", str(FOLDER), "@octokit/openapi@23.0.2"]
        subprocess.run(command, check=True, timeout=300)  # noqa: S603  our own words
    return DOCUMENT


@pytest.mark.real  # the document comes from npm
@pytest.mark.timing
def test_the_document_of_github_is_projected_within_two_seconds(github: Path) -> None:
    check_large(github, 1_223)
