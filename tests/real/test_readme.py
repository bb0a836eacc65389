"""README's first program on a model that writes nonsense: it ends in an answer, or in an error that explains itself."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = range(6)
SECONDS = 60
APIS = {
    "chat": ("openai", "chat", "/v1"),
    "responses": ("openai", "responses", "/v1"),
    "messages": ("anthropic", "chat", ""),
}
MODEL = """\
model:
  id: tiny
  provider: {provider}
  apiType: {api_type}
  connection: {{kind: anonymous, endpoint: "{url}"}}
  options: {{temperature: 1.2, maxOutputTokens: 60, additionalProperties: {{seed: {seed}}}}}
"""


def read_readme() -> tuple[str, str]:
    """Return the first prompt and the first program of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [prompt, *_] = re.findall(r"^```\n(---\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    [program, *_] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return prompt, program


@pytest.mark.parametrize("api", APIS)
def test_the_first_program_ends_in_an_answer_or_in_an_error_of_ours(url: str, tmp_path: Path, api: str) -> None:
    prompt, program = read_readme()
    provider, api_type, path = APIS[api]
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    for seed in SEEDS:
        model = MODEL.format(provider=provider, api_type=api_type, url=url + path, seed=seed)
        text = prompt.replace("model: gpt-6-luna\n", model)
        assert text != prompt
        (tmp_path / "support.prompty").write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            assert "\nprompty.errors." in done.stderr, done.stderr
            assert "TypeError" not in done.stderr
            assert done.stderr.rstrip().splitlines()[-1].startswith("    "), done.stderr  # what to do
        else:
            assert done.stdout
