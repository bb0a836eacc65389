"""`prompty batch` in one process, against a provider on loopback."""

import csv
import json
import re
import signal
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest

from tests.batch.folder import SECONDS, Folder, lines_of, numbers_of, until
from tests.batch.hostile import Hostile
from tests.loopback import refusing_port
from tests.terminal import Terminal

pytestmark = pytest.mark.process

PRICE = Decimal("0.0000045")  # of an answer of the provider, whose model is gpt-4o-mini
TOOLS = """\
from prompty import tool

@tool
def look(at: str) -> str:
    return f"seen {at}"
"""
SCRIPTED = """\
---
model:
  id: m
  provider: scripted
  script: [[{{call: look, arguments: {{at: here}}}}], Done.]
tools:
  - name: look
    kind: function
    parameters: {{at: {{kind: string}}}}
    approvalMode: {approval}
---
user:
{{{{q}}}}
"""


@pytest.fixture
def provider() -> Iterator[Hostile]:
    with Hostile() as server:
        yield server


@pytest.fixture
def folder(provider: Hostile, tmp_path: Path) -> Folder:
    made = Folder(tmp_path, provider.url)
    made.write_rows({"q": f"n{number}"} for number in range(20))
    return made


@pytest.fixture
def priced(folder: Folder, provider: Hostile, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A model whose price is known, and which is on loopback all the same."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-batch-0001")
    text = folder.prompt.read_text()
    folder.prompt.write_text(re.sub("  connection: .*\n", "", text))
    return folder


def test_rows_that_failed_fail_the_command_until_they_are_retried_or_accepted(
    folder: Folder, provider: Hostile
) -> None:
    folder.rows = folder.path / "rows.csv"
    folder.rows.write_text("q\none\ntwo,three\nfour\n")
    first = folder.run(code=1)
    assert (first.summary["failed"], first.summary["failed_earlier"]) == (1, 0)
    assert "--accept-failed" not in first.stderr
    for _ in range(2):
        again = folder.run(code=1)
        assert (again.summary["failed"], again.summary["failed_earlier"], again.summary["done"]) == (0, 1, 0)
        assert "--accept-failed" in again.stderr
    assert folder.run("--accept-failed").summary["failed_earlier"] == 1
    folder.rows.write_text("q\none\nfour\ntwo,three\nfive,six\n")
    assert folder.run("--accept-failed", code=1).summary["failed"] == 2  # of this run
    folder.rows.write_text("q\none\nfour\n")
    assert folder.run("--retry-failed").summary["failed_earlier"] == 0
    assert provider.asked.total() == 2


def test_a_csv_error_stops_the_batch_before_a_row_is_sent(folder: Folder, provider: Hostile) -> None:
    folder.rows = folder.path / "rows.csv"
    letter = "word\n" * 30_000
    folder.rows.write_text(f'q\nfirst\n"{letter}"x\nsecond\n')
    said = folder.run(code=1)
    assert "the row that begins in line 3 of 'rows.csv' is not CSV" in said.stderr
    assert (provider.asked.total(), folder.out.exists()) == (0, False)


def test_every_row_has_its_line_and_is_not_run_again(folder: Folder, provider: Hostile) -> None:
    summary = folder.run().summary
    assert (summary["done"], summary["failed"], summary["complete"]) == (20, 0, True)
    [third] = [line for line in folder.results() if line["row"] == 3]
    assert list(third) == ["id", "row", "inputs", "result", "usage", "cost", "model", "attempts"]
    assert (third["inputs"], third["result"], third["model"]) == ({"q": "n2"}, "answer n2", "gpt-4o-mini")
    assert third["usage"] == {"input_tokens": 10, "output_tokens": 5}
    assert folder.run().summary["earlier"] == 20
    assert provider.asked.total() == 20
    assert sorted(path.name for path in folder.path.iterdir()) == ["ask.prompty", "out.jsonl", "rows.jsonl"]


def test_equal_rows_are_rows_of_their_own(folder: Folder, provider: Hostile) -> None:
    folder.write_rows([{"q": "same"}] * 5)
    folder.run("--limit", "2")
    folder.run()
    assert numbers_of(folder.results()) == [1, 2, 3, 4, 5]
    assert len({line["id"] for line in folder.results()}) == provider.answered["same"] == 5


def test_rows_that_are_added_are_run_and_a_changed_prompt_is_another_one(folder: Folder, provider: Hostile) -> None:
    folder.run()
    folder.write_rows({"q": f"n{number}"} for number in range(-2, 20))
    assert folder.run().summary["done"] == 2
    folder.prompt.write_text(folder.prompt.read_text().replace("question", "Please: question"))
    assert folder.run().summary["done"] == 22


def test_a_sample_is_the_same_each_time(folder: Folder, provider: Hostile) -> None:
    assert folder.run("--sample", "5").summary["done"] == 5
    assert folder.run("--sample", "5").summary["earlier"] == 5
    assert provider.asked.total() == 5
    assert folder.run().summary["done"] == 15


def test_shards_run_every_row_once_and_their_outputs_are_one(folder: Folder, provider: Hostile) -> None:
    folder.write_rows({"q": f"n{number % 15}"} for number in range(20))  # five rows are there twice
    whole, parts = folder.out, [folder.path / f"out-{number}.jsonl" for number in (1, 2, 3)]
    for number, part in enumerate(parts, 1):
        folder.out = part
        assert folder.run("--shard", f"{number}/3", "--limit", "9").summary["done"] == 3
        assert folder.run("--shard", f"{number}/3").summary["earlier"] == 3
    folder.out = whole
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    assert folder.run().summary["earlier"] == 20
    assert numbers_of(folder.results()) == list(range(1, 21))
    assert provider.asked.total() == 20


def test_a_shard_that_is_no_part_runs_nothing(folder: Folder, provider: Hostile) -> None:
    assert "--shard is '4/3', which is not a part of the rows" in folder.run("--shard", "4/3", code=1).stderr
    assert (provider.asked.total(), folder.out.exists()) == (0, False)


def test_csv_rows_and_rows_that_cannot_be_read(folder: Folder) -> None:
    folder.rows = folder.path / "rows.csv"
    folder.rows.write_text("q\none\ntwo,three\nfour\n")
    said = folder.run(code=1)
    assert numbers_of(folder.results()) == [1, 3]
    [failed] = folder.failures()
    assert failed["row"] == 2
    assert failed["error"]["class"] == "InputError"
    assert "it has 2 cells, but the first line has 1" in failed["error"]["message"]
    assert "Row 2 failed: row 2 is invalid: it has 2 cells, but the first line has 1" in said.stderr
    assert "--retry-failed" in said.stderr


def test_only_the_first_row_that_fails_is_told(folder: Folder) -> None:
    folder.write_rows([{"q": "one"}, {"q": 2}, {"q": 3}])
    assert folder.run(code=1).stderr.count(" failed: ") == 1


def test_results_as_csv_are_in_the_order_of_the_rows_and_continue_from_their_records(
    folder: Folder, provider: Hostile
) -> None:
    records, folder.out = folder.out, folder.path / "out.csv"
    folder.write_rows([{"q": "one", "note": "=1+1"}, {"q": 'two, "2"', "note": "a\nb"}, {"q": "three"}])
    assert folder.run("--limit", "2").summary["done"] == 2
    assert folder.run().summary["earlier"] == 2
    with folder.out.open(encoding="utf-8", newline="") as file:
        assert [*csv.reader(file)] == [
            ["row", "q", "note", "result", "cost"],
            ["1", "one", "'=1+1", "answer one", ""],  # which a spreadsheet would compute
            ["2", 'two, "2"', "a\nb", "answer two,", ""],
            ["3", "three", "", "answer three", ""],
        ]
    assert (len(lines_of(records)), provider.asked.total()) == (3, 3)


def test_a_csv_file_of_somebody_else_is_not_replaced(folder: Folder, provider: Hostile) -> None:
    folder.out = folder.path / "accounts.csv"
    folder.out.write_text("name,iban\n")
    assert "'accounts.csv' exists, and no batch has written it" in folder.run(code=1).stderr.replace(
        f"{folder.path}/", ""
    )
    assert (folder.out.read_text(), provider.asked.total()) == ("name,iban\n", 0)


def test_failed_rows_stand_beside_the_output_until_they_are_tried_again(folder: Folder, provider: Hostile) -> None:
    text = folder.prompt.read_text()
    with refusing_port() as port:
        folder.prompt.write_text(text.replace(provider.url, f"ftp://127.0.0.1:{port}"))
        folder.run("--limit", "4", code=1)
    assert {line["error"]["class"] for line in folder.failures()} == {"RequestError"}
    folder.prompt.write_text(text)
    assert folder.run("--limit", "4", code=1).summary["earlier"] == 4
    assert provider.asked.total() == 0
    assert folder.run("--limit", "4", "--retry-failed").summary["done"] == 4
    assert (numbers_of(folder.results()), folder.failed.exists()) == ([1, 2, 3, 4], False)


def test_no_secret_is_in_any_file_and_what_is_sensitive_is_masked(provider: Hostile, tmp_path: Path) -> None:
    folder = Folder(tmp_path, provider.url, more="  pin: {kind: string, sensitive: true}\n")
    folder.write_rows([{"q": "x", "pin": "pin-98765"}, {"pin": "pin-98765"}])
    folder.run(code=1)
    written = folder.out.read_bytes() + folder.failed.read_bytes()
    assert b"pin-98765" not in written
    assert b"sk-of-the-batch" not in written
    assert folder.results()[0]["inputs"] == {"q": "x", "pin": "••••"}


def test_a_second_process_on_the_same_output_is_refused(folder: Folder, provider: Hostile) -> None:
    provider.seconds = 1.0
    process = folder.start()
    until(lambda: provider.asked.total() > 0)
    process.send_signal(signal.SIGSTOP)  # so that it holds the output until the second one has started
    assert "another process is writing to" in folder.run(code=1).stderr
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_batch_that_is_told_to_stop_ends_what_it_has_begun(
    number: signal.Signals, folder: Folder, provider: Hostile
) -> None:
    provider.seconds = 0.5
    process = folder.start("--concurrency", "3")
    until(lambda: provider.asked.total() >= 3)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "To continue: prompty batch" in stderr
    assert len(folder.results()) == provider.asked.total() < 20
    provider.seconds = 0.0
    folder.run()
    assert provider.asked.total() == 20


def test_a_second_signal_ends_rows_at_once_and_the_next_start_says_so(folder: Folder, provider: Hostile) -> None:
    provider.seconds = 30.0
    process = folder.start("--concurrency", "3")
    until(lambda: provider.asked.total() >= 3)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "Interrupt again to stop now" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    process.communicate()
    provider.seconds = 0.0
    folder.run()
    assert numbers_of(folder.results()) == list(range(1, 21))
    assert sum(line.get("interrupted", 0) for line in folder.results()) == 3


def test_a_budget_ends_the_starting_of_rows_and_counts_what_was_spent_before(folder: Folder, provider: Hostile) -> None:
    folder.prompt.write_text(folder.prompt.read_text().replace(provider.url, "https://api.openai.com"))
    assert "budget" in folder.run("--max-cost", "0", code=130).stderr
    done = json.dumps({"id": "earlier", "row": 1, "result": "", "cost": 2.5}) + "\n"
    folder.out.write_text(done)
    assert "The budget is spent: $2.5000" in folder.run("--max-cost", "2.5", code=130).stderr
    assert folder.out.read_text() == done


def test_a_budget_that_is_used_up_half_way_ends_the_starting_of_rows(priced: Folder, provider: Hostile) -> None:
    stopped = priced.run("--max-cost", str(5 * PRICE), "--concurrency", "1", code=130)
    assert "The budget is spent: $0.0000." in stopped.stderr
    assert (stopped.summary["done"], stopped.summary["left"]) == (5, 15)
    assert priced.run("--max-cost", str(5 * PRICE), "--concurrency", "1", code=130).summary["done"] == 0
    assert priced.run("--max-cost", str(100 * PRICE)).summary["done"] == 15
    assert provider.asked.total() == 20


def test_a_budget_without_prices_is_refused(folder: Folder) -> None:
    folder.prompt.write_text(folder.prompt.read_text().replace("gpt-4o-mini", "made-up"))
    assert "the price of the model 'made-up' is unknown" in folder.run("--max-cost", "1", code=1).stderr


def test_rows_of_a_prompt_with_tools_are_turns(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "")
    folder.prompt.write_text(SCRIPTED.format(approval="never"))
    folder.write_rows([{"q": "one"}, {"q": "two"}])
    (tmp_path / "functions.py").write_text(TOOLS)
    folder.run("--tools", str(tmp_path / "functions.py"))
    assert {(line["result"], line["attempts"]) for line in folder.results()} == {("Done.", 2)}


def test_a_row_that_needs_a_person_fails_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "")
    folder.prompt.write_text(SCRIPTED.format(approval="always"))
    folder.write_rows([{"q": "one"}])
    (tmp_path / "functions.py").write_text(TOOLS)
    folder.run("--tools", str(tmp_path / "functions.py"), code=1)
    [failed] = folder.failures()
    assert failed["error"]["class"] == "Paused"
    assert "Call `prompty.turn` with the inputs" in failed["error"]["message"]


def test_a_hostile_provider_is_asked_no_more_than_is_told(tmp_path: Path) -> None:
    with Hostile(busy=0.05, broken=0.05, cut=0.05) as provider:
        folder = Folder(tmp_path, provider.url)
        folder.write_rows({"q": f"n{number}"} for number in range(200))
        folder.run()
        assert numbers_of(folder.results()) == list(range(1, 201))
        assert {f"n{line['row'] - 1}": line["attempts"] for line in folder.results()} == provider.asked


def test_what_a_provider_asks_to_wait_all_rows_wait(tmp_path: Path) -> None:
    with Hostile(capacity=3, seconds=0.2, retry_after=1.0) as provider:
        folder = Folder(tmp_path, provider.url)
        folder.write_rows({"q": f"n{number}"} for number in range(12))
        told = folder.run().stderr
        assert numbers_of(folder.results()) == list(range(1, 13))
        assert "The provider is overloaded (" in told
        assert "slow down): at most 3 rows at once for now." in told
        gaps = [later - earlier for earlier, later in pairwise(provider.moments)]
        assert 0.7 < max(gaps) < 5


def test_a_provider_with_little_room_is_not_pushed(tmp_path: Path) -> None:
    """Most rows are answered at the first request, although sixty-four might be under way at once."""
    with Hostile(capacity=6, seconds=0.3) as provider:
        folder = Folder(tmp_path, provider.url)
        folder.write_rows({"q": f"n{number}"} for number in range(150))
        folder.run()
        assert numbers_of(folder.results()) == list(range(1, 151))
        assert provider.asked.total() < 250


def test_a_terminal_shows_how_it_comes_along(folder: Folder, provider: Hostile) -> None:
    provider.seconds = 0.5
    place = [str(folder.prompt), str(folder.rows), "-o", str(folder.out), "--concurrency", "2"]
    terminal = Terminal(folder.path, "batch", *place)
    try:
        shown = terminal.until("of 20 rows")
        assert "rows/s" in shown
        assert "0 failed" in shown
        assert "━" in shown
        assert " left" in terminal.until(" left")
        done = terminal.until("20 of 20 rows")
        assert "300 tokens" in done
    finally:
        terminal.close()
