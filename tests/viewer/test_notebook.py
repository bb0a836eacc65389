"""Tables for notebooks, and a notebook that shows them."""

import re
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import prompty
from prompty import Message, Paused, Result, loads, tool_result, trace_to, user
from prompty.safety.html import LONGEST_TEXT
from prompty.testing import Fault, Script, answer, call
from prompty.tracing import Tracer
from prompty.viewer import find_traces, read_trace

ATTACK = "<script>alert(1)</script> & \"quoted\" 'too' \x1b[31m\u202e"
KEY = "sk-abcdefgh12345678"
FILE = f"""---
name: greet
description: Greets people.
model:
  id: gpt-4o
  connection: {{kind: key, endpoint: "https://user:secretpassword@api.openai.com/v1", apiKey: {KEY}}}
inputs:
  q: {{kind: string, required: true, description: The question.}}
  pin: {{kind: string, default: "4711-0815", sensitive: true}}
tools:
  - {{name: look, kind: function, description: Looks at something., parameters: {{at: {{kind: string}}}}}}
---
system:
Be brief.
user:
{{{{q}}}} {{{{pin}}}}
"""


BARE = "---\nmodel: gpt-4o\n---\nuser:\nHi"


@dataclass
class Person:
    name: str


def looks_right(html: str) -> str:
    """Return the text of a view, which must be well formed, and neither run nor load anything."""
    opened: list[str] = []
    for closing, name in re.findall(r"<(/?)([a-z]+)[^>]*>", html):
        if closing:
            assert opened.pop() == name
        else:
            opened.append(name)
    assert opened == []
    assert not re.search(r"<(script|img|link|iframe|style)|\son\w+=|javascript:|src=|href=", html)
    assert "\x1b" not in html
    assert "\u202e" not in html
    return unescape(re.sub(r"<[^>]*>", " ", html))


def test_an_agent_shows_its_model_inputs_tools_and_template_but_no_secret() -> None:
    agent = loads(FILE)
    shown = looks_right(agent._repr_html_())
    for words in ("greet", "Greets people.", "openai:gpt-4o", "The question.", "required", "look", "Be brief."):
        assert words in shown
    for secret in (KEY, "secretpassword", "4711-0815"):
        assert secret not in shown
        assert secret not in repr(agent)


def test_the_repr_of_an_agent_is_one_short_line() -> None:
    assert repr(loads(FILE)) == (
        "PromptAgent(name='greet', model='openai:gpt-4o', inputs=['q', 'pin'], tools=['look'])"
    )
    assert repr(loads("user:\nHi")) == "PromptAgent()"


def test_a_message_shows_its_role_its_text_and_its_calls() -> None:
    shown = looks_right(Message("assistant", "Let me see.", tool_calls=[call("look", at=ATTACK)])._repr_html_())
    assert "assistant" in shown
    assert "assistant calls look" in shown
    assert "<script>alert(1)</script>" in shown
    assert "image" in looks_right(user("x", prompty.Image("AAAA", "image/png"))._repr_html_())
    assert "seen" in looks_right(tool_result("c1", "seen")._repr_html_())


def test_a_result_shows_its_value_its_figures_and_its_messages() -> None:
    with Script(answer(ATTACK, finish_reason="length"), '{"name": "Ada"}'):
        text = prompty.invoke(loads(FILE), {"q": "Who?"}, details=True)
        person = prompty.invoke(loads(FILE), {"q": "Who?", "pin": "1234-5678"}, output_type=Person, details=True)
    shown = looks_right(text._repr_html_())
    for words in ("gpt-4o", "input tokens", "length", "Who?", "Be brief."):
        assert words in shown
    assert "4711-0815" not in shown
    shown = looks_right(person._repr_html_())
    assert '"name":"Ada"' in shown
    assert "1234-5678" not in shown


def test_a_result_shows_its_cost_if_it_is_known() -> None:
    with Script("Hello."):
        assert "$0.000075" in looks_right(prompty.invoke(loads(BARE), details=True)._repr_html_())


def test_the_repr_of_a_stream_says_what_has_arrived() -> None:
    with Script("Hello there."):
        stream = prompty.invoke(loads(FILE), {"q": "Hi"}, stream=True)
        assert repr(stream) == "<PromptyStream running, text so far: ''>"
        assert stream.result == "Hello there."
    assert repr(stream) == "<PromptyStream complete, text so far: 'Hello there.'>"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    trace_to(f"file:{tmp_path / 'traces'}")

    def look(at: str) -> str:
        """Look at something."""
        return f"seen {at}"

    try:
        with Script(call("look", at=ATTACK), "Done."):
            prompty.turn(loads(FILE), {"q": KEY}, tools=[look])
    finally:
        Tracer.clear()
    return tmp_path / "traces"


def test_a_trace_shows_its_spans_with_time_tokens_and_cost(traces: Path) -> None:
    shown = looks_right(read_trace(find_traces(traces)[0])._repr_html_())
    for words in ("2 model calls", "1 tool call ", "execute_tool look", "invoke_agent greet"):
        assert words in shown
    assert KEY not in shown


@given(st.text(), st.text())
def test_no_text_becomes_html(role: str, text: str) -> None:
    looks_right(Message(role, text, reasoning=text, name=text)._repr_html_())
    result = Result(value=text, messages=(), usage=prompty.Usage(), finish_reason=text, model=role)
    looks_right(result._repr_html_())


def test_a_pause_shows_its_calls_and_what_waits() -> None:
    def look(at: str) -> str:
        """Look at something."""
        return at

    with Script(call("look", at=ATTACK)):
        paused = prompty.turn(loads(FILE), {"q": KEY}, tools=[look], approval="always")
    assert isinstance(paused, Paused)
    shown = looks_right(paused._repr_html_())
    for words in ("look, waits for a decision", "<script>alert(1)</script>", paused.run_id):
        assert words in shown
    assert KEY not in shown


def test_a_row_of_a_batch_shows_its_value_its_error_or_what_waits() -> None:
    with Script(ATTACK, Fault(prompty.ModelError(f"no such model {KEY}"))):
        done, failed = prompty.batch(loads(BARE), [{}, {}], concurrency=1)
    assert "<script>alert(1)</script>" in looks_right(done._repr_html_())
    shown = looks_right(failed._repr_html_())
    assert "ModelError" in shown
    assert "no such model" in shown
    assert KEY not in shown


def test_a_long_text_is_cut() -> None:
    html = user("x" * 100_000)._repr_html_()
    assert len(html) < 2 * LONGEST_TEXT
    assert "more characters" in html


CELLS = [
    "import prompty, tempfile\nfrom prompty.testing import Script, call\n"
    "from prompty.viewer import find_traces, read_trace\nfolder = tempfile.mkdtemp()\n"
    "prompty.trace_to(f'file:{folder}')\n"
    "def look(at: str) -> str:\n    'Look at something.'\n    return f'seen {at}'",
    f"agent = prompty.loads({FILE!r})\nagent",
    "prompty.prepare(agent, {'q': 'Who is there?'})[0]",
    "with Script(call('look', at='<b>me</b>')):\n"
    "    paused = prompty.turn(agent, {'q': 'Hi'}, tools=[look], approval='always')\npaused",
    "with Script(call('look', at='the door'), 'Nobody is there.'):\n"
    "    result = prompty.turn(agent, {'q': 'Who is there?'}, tools=[look], details=True)\nresult",
    "read_trace(find_traces(folder)[0])",
    "with Script('One.', 'One.'):\n    rows = prompty.batch(agent, [{'q': 'a'}, {'q': 'b'}], tools=[look])\n"
    "[row.value for row in rows]",
    "rows[1]",
    "from prompty.pipeline import prepare_async\n(await prepare_async(agent, {'q': 'x'}))[0]",
]


@pytest.mark.process
def test_a_notebook_shows_an_agent_a_message_a_pause_a_result_a_trace_and_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat  # late: it builds a grammar, which takes a fifth of the time to collect all tests
    from nbclient import NotebookClient  # late: it imports nbformat

    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    make: Any = nbformat.v4  # its functions have no types
    notebook = make.new_notebook(cells=[make.new_code_cell(cell) for cell in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python", "language": "python"}
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    done: Any = client.execute()
    outputs = [output.get("data", {}) for cell in done.cells for output in cell.outputs]
    views = [data["text/html"] for data in outputs if "text/html" in data]
    assert len(views) == 7
    texts = [looks_right(view) for view in views]
    for text, words in zip(
        texts,
        ("greet", "Be brief.", "<b>me</b>", "Nobody is there.", "2 model calls", "One.", "Be brief."),
        strict=True,
    ):
        assert words in text
    assert outputs[-3]["text/plain"] == "['One.', 'One.']"
    assert not any(secret in str(outputs) for secret in ("secretpassword", KEY, "4711-0815"))
