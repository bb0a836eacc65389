"""`prompty trace list`, `show` and `html`, as they are typed."""

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from prompty.cli.app import app
from tests.viewer.samples import Fields, day_out, frame, lines, nested, save


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["trace", *map(str, arguments)], env={"COLUMNS": "80", "TZ": "UTC"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three runs: one good, one that failed later, one that did not finish."""
    save(day_out(), tmp_path)
    error = {"type": "ModelError", "message": "the server is down"}
    save(frame("turn", "invoke_agent broken", 1000, 12, error=error), tmp_path, "broken.20261115.064018.jsonl")
    (tmp_path / "killed.20261115.064019.jsonl").write_text("\n".join(lines(day_out())[:4]))
    return tmp_path


def test_list_shows_the_newest_first_with_time_tokens_cost_and_status(folder: Path) -> None:
    done = run("list", folder)
    heads, *rows = [line.rstrip() for line in done.stdout.splitlines()]
    assert heads.split() == ["when", "name", "duration", "tokens", "cost", "status", "file"]
    assert [row.split("  ")[-1].strip() for row in rows] == [
        str(folder / name)
        for name in ("killed.20261115.064019.jsonl", "broken.20261115.064018.jsonl", "day-out.20261115.064017.jsonl")
    ]
    assert "unfinished" in rows[0]
    assert "failed" in rows[1]
    assert "7.7 s     3,938 → 631  $0.011  ok" in rows[2]


def test_list_as_json_has_the_totals_without_the_frames(folder: Path) -> None:
    newest, failed, good = json.loads(run("list", folder, "--json").stdout)
    assert [one["status"] for one in (newest, failed, good)] == ["unfinished", "failed", "ok"]
    assert (good["modelCalls"], good["toolCalls"], good["frames"]) == (4, 9, 21)
    assert good["cost"] == pytest.approx(0.0105165)
    assert (newest["duration"], newest["cost"]) == (None, None)


def test_list_goes_on_after_a_damaged_file(folder: Path) -> None:
    (folder / "bad.20261115.064020.jsonl").write_text("{")
    done = run("list", folder)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 4
    assert "warning" in done.stderr
    assert "the line is damaged" in done.stderr


def test_a_folder_without_traces_says_how_to_get_one(tmp_path: Path) -> None:
    for done in (run("list", tmp_path), run("show", tmp_path), run("list", tmp_path / "none")):
        assert done.exit_code == 1
        assert "Record a run with --trace file:FOLDER" in done.stderr


def test_show_draws_the_tree_with_figures_and_errors(folder: Path) -> None:
    done = run("show", folder / "day-out.20261115.064017.jsonl")
    shown = done.stdout.splitlines()
    assert len(shown) == 21
    assert shown[0] == "invoke_agent day-out  7.7 s  3,938 → 631 tokens  $0.011"
    assert shown[2:4] == ["│  ├─ render  3 ms", "│  └─ parse  2 ms"]
    assert "├─ execute_tool get_weather  920 ms  ToolError: the weather service answered 503" in shown[8]
    assert shown[-1] == "└─ process  0.40 ms"
    assert "arguments" not in done.stdout


def test_show_of_a_folder_takes_the_newest_trace_and_says_what_did_not_finish(folder: Path) -> None:
    assert run("show", folder).stdout.splitlines()[0] == "invoke_agent day-out  did not finish"


def test_show_with_content_has_messages_arguments_results_and_reasoning(folder: Path) -> None:
    shown = run("show", folder / "day-out.20261115.064017.jsonl", "--content").stdout
    assert 'arguments: {"city": "Lisbon", "day": "Sunday"}' in shown
    assert 'assistant calls get_weather: {"city": "Évora", "day": "Sunday"}' in shown
    assert "reasoning: They want light like in the picture" in shown
    assert "user: [image sunset.png, " in shown
    assert "│      system: You plan days out in Portugal." in shown


def test_show_as_json_has_every_frame(folder: Path) -> None:
    shown = json.loads(run("show", folder / "day-out.20261115.064017.jsonl", "--json").stdout)
    assert len(shown["frames"]) == 21
    assert shown["frames"][4]["result"]["tool_calls"][0]["id"] == "call_0"


def test_nothing_in_a_trace_controls_the_terminal_or_draws_lines_of_its_own(tmp_path: Path) -> None:
    evil = "\x1b[31mred\u202e\x9b2J\nline"
    inner: Fields = frame("step", evil, 1, 1, inputs={evil: evil}, result=evil, error={"type": evil, "message": evil})
    file = save(frame("turn", evil, 0, 3, children=[inner]), tmp_path)
    for done in (run("show", "--content", file), run("list", tmp_path), run("show", "--json", file)):
        shown = done.stdout
        assert "red" in shown
        assert not {"\x1b", "\u202e", "\x9b"} & set(shown)
    assert len(run("show", file).stdout.splitlines()) == 2


def test_show_of_a_trace_two_thousand_levels_deep_tells_the_level(tmp_path: Path) -> None:
    shown = run("show", save(nested(2000), tmp_path)).stdout.splitlines()
    assert len(shown) == 2000
    assert shown[-1].strip() == "(1999) level 1999  1 ms"


def test_html_writes_one_page_for_its_owner_only_and_prints_its_path(folder: Path) -> None:
    done = run("html", folder / "day-out.20261115.064017.jsonl")
    page = folder / "day-out.20261115.064017.html"
    assert done.stdout == f"{page}\n"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_html_goes_where_it_is_told_and_narrows_the_mode_of_a_file_that_was_there(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.html"
    target.touch(mode=0o644)
    assert run("html", folder, "-o", target).exit_code == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_html_that_cannot_be_written_names_the_place_and_the_option(folder: Path) -> None:
    done = run("html", folder, "-o", folder / "none" / "out.html")
    assert done.exit_code == 1
    assert (
        "the page cannot be written: No such file or directory\n    Choose another file with --output." in done.stderr
    )
