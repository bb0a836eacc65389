"""What a newcomer wants to do is two clicks from the home page, and the answer is in the first screen of its page."""

import re
from pathlib import Path

import pytest

from scripts.pages import ROOT

DOCS = ROOT / "docs"
SCREEN = 45  # lines of a page, that a reader sees without scrolling
LINK = re.compile(r"\]\((?!https?:)([^)#]+\.md)[^)]*\)")

TASKS = {
    "install it": ("tutorial/first-answer.md", "pip install 'prompty-runtime[openai,cli]'"),
    "get an answer without a key": ("tutorial/first-answer.md", "prompty run chat.prompty"),
    "write a prompt": ("tutorial/prompt.md", "inputs:"),
    "call a prompt from Python": ("tutorial/python.md", "prompty.invoke("),
    "use a model on my machine": ("how-to/local-models.md", "--model ollama:llama3.2"),
    "try another model": ("how-to/switch-models.md", "model=model"),
    "get typed data": ("how-to/structured-output.md", "output_type=Person"),
    "stream the answer": ("how-to/stream-answers.md", "stream=True"),
    "send a picture": ("how-to/images-audio-files.md", "Image.from_file"),
    "let the model call my function": ("how-to/agents.md", "tools=[get_weather]"),
    "remember the conversation": ("how-to/conversations.md", 'session_id="ada"'),
    "ask before a tool acts": ("how-to/approvals.md", "approvalMode:"),
    "use an MCP server": ("how-to/mcp.md", "kind: mcp"),
    "use a web service as tools": ("how-to/openapi.md", "specification: ./shop.json"),
    "serve it with FastAPI": ("how-to/web.md", "StreamingResponse"),
    "show the sources of an answer": ("how-to/cite-sources.md", "result.citations"),
    "know what a call costs": ("how-to/usage-and-cost.md", "result.cost"),
    "test my program without a model": ("how-to/testing.md", "with Script("),
    "see what happened": ("how-to/tracing.md", "--trace file:traces"),
    "run a prompt over a CSV file": ("how-to/batch.md", "prompty batch translate.prompty rows.csv"),
    "survive a crash": ("how-to/durable.md", "Worker("),
    "move from v1": ("how-to/migrate-from-v1.md", "prompty migrate"),
    "keep my keys safe from a prompt file": ("how-to/credentials.md", "apiKey: ${env:OPENAI_API_KEY}"),
}


def find_links(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text(encoding="utf-8"))}


def read_first_screen(page: Path) -> str:
    return "\n".join(page.read_text(encoding="utf-8").splitlines()[:SCREEN])


@pytest.mark.parametrize(("page", "answer"), TASKS.values(), ids=TASKS)
def test_a_newcomer_finds_the_answer(page: str, answer: str) -> None:
    first = find_links(DOCS / "index.md")
    second = {target for link in first for target in find_links(link)}
    assert DOCS / page in first | second
    assert answer in read_first_screen(DOCS / page)
