"""Public Prompty v1 files, read from the shared folder and not copied, and inputs for them."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from prompty import PromptAgent, load
from prompty.errors import PromptyWarning
from tests.public_data import SHARED

ROOT = SHARED / "corpus" / "v1"
# Files whose companions are missing or lie outside their folders, with the key that names each of these.
BROKEN = {
    "eager_flows/stream_prompty/chat.prompty": {"sample": "file-missing"},
    "test_configs/prompty/prompty_tool_with_chat_history.prompty": {"model.parameters.tools": "file-outside"},
    "test_configs/prompty/prompty_with_reference_file.prompty": {
        "model.configuration": "file-outside",
        "model.parameters.tools": "file-outside",
        "sample": "file-outside",
    },
}
# Variables that the files name.
VARIABLES = {
    "AZURE_OPENAI_CHAT_DEPLOYMENT": "gpt-4o-of-the-environment",
    "AZURE_DEPLOYMENT": "gpt-4-of-the-environment",
    "AZURE_OPENAI_API_KEY": "key-of-the-environment",
    "MOCK_AZURE_DEVELOPMENT": "gpt-35-of-the-environment",
    "MOCK_AZURE_API_KEY": "mock-key",
    "MOCK_AZURE_API_VERSION": "2024-02-01",
}
ENDPOINTS = ("AZURE_OPENAI_ENDPOINT", "MOCK_AZURE_ENDPOINT")
_VALUES: dict[str, Any] = {
    "string": "a generated text",
    "integer": 3,
    "float": 0.5,
    "boolean": True,
    "array": [{"role": "user", "content": "Hi"}],
    "object": {"conversation": [{"role": "user", "content": "Hi"}]},
    "thread": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
    "image": "https://example.test/picture.png",
}


def list_files() -> list[Path]:
    """Return the files of the corpus; of equal ones, the first."""
    files = {file.read_bytes(): file for file in sorted(ROOT.rglob("*.prompty"), reverse=True)}
    return sorted(files.values())


def set_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables that the files name."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for name in ENDPOINTS:
        monkeypatch.setenv(name, "https://example.openai.azure.com")


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def get_broken(file: Path) -> dict[str, str] | None:
    return next((keys for name, keys in BROKEN.items() if name_of(file).endswith(name)), None)


def generate_inputs(agent: PromptAgent) -> dict[str, Any]:
    """Return a value for each required input. Samples are defaults already."""
    return {one.name: _VALUES[one.kind] for one in agent.inputs if one.required and one.default is None}


def load_quietly(file: Path) -> PromptAgent:
    """Load a file without the warning that it is v1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PromptyWarning)
        return load(file)
