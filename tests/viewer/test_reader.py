"""Recorded traces as they are found on disk: finished, unfinished, cut off, damaged, enormous."""

import json
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from prompty.errors import PromptyError
from prompty.viewer import trace as reader
from prompty.viewer.page import trace_to_json
from prompty.viewer.trace import TraceUnreadable, find_traces, read_trace
from tests.viewer.samples import BEGIN, Fields, day_out, frame, lines, many, nested, save, tokens


def titles(file: Path) -> list[str]:
    return [one.title for one in read_trace(file).frames]


def test_a_finished_trace_is_read_with_its_parents_depths_and_times(tmp_path: Path) -> None:
    trace = read_trace(save(day_out(), tmp_path))
    assert (trace.root.title, trace.root.status, trace.root.duration) == ("invoke_agent day-out", "ok", 7684.2)
    assert trace.runtime == "prompty-python 0.1"
    assert (trace.count("execute"), trace.count("execute_tool")) == (4, 9)
    guide = next(one for one in trace.frames if one.title == "chat claude-sonnet-4-5")
    assert guide.depth == 3
    assert guide.parent is not None
    assert trace.frames[guide.parent].title == "invoke_agent guide-book"
    assert guide.start == BEGIN + timedelta(milliseconds=3905)


def test_siblings_come_in_the_order_they_started_whatever_the_order_they_were_written_in(tmp_path: Path) -> None:
    children = [frame("step", "late", 20, 5), frame("step", "early", 2, 30), frame("step", "middle", 9, 1)]
    assert titles(save(frame("run", "run", 0, 40, children=children), tmp_path)) == ["run", "early", "middle", "late"]


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_last_line_that_was_cut_in_half_is_ignored_and_its_frame_did_not_finish(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "day-out.20261115.064017.jsonl"
    file.write_bytes("\n".join(lines(day_out())).encode()[:-cut])
    trace = read_trace(file)
    assert (trace.root.status, trace.root.duration) == ("unfinished", None)
    assert len(trace.frames) == 21


def test_what_had_started_when_a_process_was_killed_did_not_finish(tmp_path: Path) -> None:
    file = tmp_path / "day-out.20261115.064017.jsonl"
    file.write_text("\n".join(lines(day_out())[:11]))
    trace = read_trace(file)
    assert [(one.title, one.status) for one in trace.frames if one.status != "ok"] == [
        ("invoke_agent day-out", "unfinished"),
        ("execute_tool get_weather", "unfinished"),
    ]
    assert trace.root.usage == tokens(612, 348, 0, 192), "summed from below, as the end that tells it never came"


def test_a_cut_may_go_through_a_letter_of_several_bytes(tmp_path: Path) -> None:
    file = tmp_path / "x.20261115.064017.jsonl"
    header, start = lines(frame("run", "run", 0, 1))[:2]
    file.write_bytes(f'{header}\n{start}\n{{"start": {{"title": "É'.encode()[:-1])
    assert titles(file) == ["run"]


def test_a_line_whose_parent_is_unknown_or_comes_later_makes_no_circle(tmp_path: Path) -> None:
    file = tmp_path / "x.20261115.064017.jsonl"
    starts = [{"start": {"id": "a", "name": "a", "parent": "b"}}, {"start": {"id": "b", "name": "b", "parent": "a"}}]
    header = lines(frame("run", "run", 0, 1))[0]
    file.write_text("\n".join([header, *map(json.dumps, starts), '{"end": {"id": "nobody"}}']))
    assert [(one.name, one.parent) for one in read_trace(file).frames] == [("a", None), ("b", 0)]


DAMAGED = {
    "no JSON": ("a.jsonl", b"{", "a.jsonl:1: the line is damaged", "Copy the original"),
    "not text": ("a.jsonl", b"\xff\xfe\x00", "a.jsonl:1: the line is damaged", "Copy the original"),
    "a list": ("a.jsonl", b"[1]", "a.jsonl:1: the line is not a JSON object", "Copy the original"),
    "an endless number": ("a.jsonl", b'{"lines": ' + b"9" * 5000 + b"}", "the line is damaged", "Copy the original"),
    "lines of another kind": ("a.jsonl", b'{"question": "x"}\n', "`lines` is not 1", "Update prompty"),
    "lines of the future": ("a.jsonl", b'{"lines": 2}\n', "`lines` is not 1", "Update prompty"),
    "a damaged line in the middle": ("a.jsonl", b'{"lines": 1}\n{"sta\n{}\n', "a.jsonl:2: the line is damaged", "Copy"),
    "a line that is no object": ("a.jsonl", b'{"lines": 1}\n7\n', "a.jsonl:2: the line is not a JSON object", "Copy"),
    "nothing yet": ("a.jsonl", b'{"lines": 1}\n', "no span has started", "Try again"),
    "empty": ("a.jsonl", b"", "a.jsonl:1: the line is damaged", "Copy the original file again"),
}


@pytest.mark.parametrize(("name", "data", "cause", "fix"), DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_cannot_be_read_says_where_why_and_what_to_do(
    tmp_path: Path, name: str, data: bytes, cause: str, fix: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TraceUnreadable) as caught:
        read_trace(tmp_path / name)
    assert isinstance(caught.value, PromptyError)
    told = str(caught.value)
    assert told.startswith(str(tmp_path / name))
    assert cause in told
    assert fix in told.splitlines()[1]


def test_a_missing_file_and_one_that_is_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceUnreadable, match="the file cannot be read: No such file"):
        read_trace(tmp_path / "none.jsonl")
    monkeypatch.setattr(reader, "MAX_BYTES", 1000)
    with pytest.raises(TraceUnreadable, match=r"has 0 MB, but the limit is 0 MB\n    Record less"):
        read_trace(save(day_out(), tmp_path))


STRANGE: dict[str, Fields] = {
    "nothing at all": {},
    "wrong types": {"name": 7, "__time": "now", "attributes": [1], "__usage": 3, "error": "bad"},
    "wrong types within": {"name": "x", "__time": {"start": 5, "duration": "long"}},
    "no numbers": {"__time": {"start": "2026-11-15T06:40:17", "duration": float("nan")}, "result": [float("inf")]},
    "huge numbers": {"__time": {"start": "9999-12-31T23:59:59Z", "duration": 9e99}, "__usage": {"input_tokens": 9**99}},
}  # fmt: skip


@pytest.mark.parametrize("fields", STRANGE.values(), ids=STRANGE)
def test_frames_of_strange_shapes_are_read_as_well_as_they_can(tmp_path: Path, fields: Fields) -> None:
    file = tmp_path / "strange.jsonl"
    start = {"id": "a", **fields}
    file.write_text("\n".join(map(json.dumps, [{"lines": 1}, {"start": start}, {"end": start}])))
    assert json.dumps(trace_to_json(read_trace(file)), allow_nan=False)


def test_two_frames_never_have_the_same_id(tmp_path: Path) -> None:
    twins = [frame("step", "same", 1, 1), frame("step", "same", 1, 1)]
    trace = read_trace(save(frame("run", "run", 0, 3, children=twins), tmp_path))
    assert len({one.id for one in trace.frames}) == 3


def test_five_thousand_frames_are_read_side_by_side_and_inside_each_other(tmp_path: Path) -> None:
    assert len(read_trace(save(many(5000), tmp_path)).frames) == 5000
    assert [one.depth for one in read_trace(save(nested(5000), tmp_path)).frames] == list(range(5000))


def test_content_of_any_depth_is_cut_where_it_could_not_be_drawn(tmp_path: Path) -> None:
    file = tmp_path / "deep.jsonl"
    file.write_text('{"lines": 1}\n{"start": {"name": "x", "result": ' + "[" * 50_000 + "]" * 50_000 + "}}\n")
    assert "nested deeper than 100 levels" in json.dumps(read_trace(file).root.content)


def test_traces_are_found_newest_first_by_the_time_in_their_names(tmp_path: Path) -> None:
    names = [
        "b.20261115.064019.jsonl",
        "a.20261115.064018-2.jsonl",
        "a.20261114.235959.jsonl",
        "data.jsonl",
        "a.20261115.064018.html",
    ]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "folder.20261115.064018.jsonl").mkdir()
    assert [file.name for file in find_traces(tmp_path)] == names[:3]


def test_cost_is_summed_upward_and_is_partial_where_a_price_is_not_known(tmp_path: Path) -> None:
    root = day_out()
    trace = read_trace(save(root, tmp_path))
    calls = [one for one in trace.frames if one.name == "execute"]
    assert trace.root.cost == sum((one.cost for one in calls if one.cost), Decimal(0))
    assert not trace.root.cost_is_partial
    root["__frames"][1]["attributes"] |= {"gen_ai.request.model": "nobody-1", "gen_ai.response.model": "nobody-1"}
    partial = read_trace(save(root, tmp_path)).root
    assert partial.cost == trace.root.cost - (calls[0].cost or 0)
    assert partial.cost_is_partial


def test_a_price_that_nobody_knows_is_none_and_never_zero(tmp_path: Path) -> None:
    call = frame("execute", "chat x", 0, 1, attributes={"gen_ai.provider.name": "x", "gen_ai.request.model": "x"})
    trace = read_trace(save(frame("turn", "turn", 0, 2, children=[call]), tmp_path))
    assert [one.cost for one in trace.frames] == [None, None]
    assert trace.root.cost_is_partial


def test_without_a_price_list_nothing_is_priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert read_trace(save(day_out(), tmp_path)).root.cost is None


def test_azure_is_priced_under_the_name_that_telemetry_gives_it(tmp_path: Path) -> None:
    attributes = {"gen_ai.provider.name": "azure.ai.openai", "gen_ai.request.model": "gpt-4o"}
    call = frame("execute", "chat gpt-4o", 0, 1, attributes=attributes, usage=tokens(1000, 10))
    assert read_trace(save(call, tmp_path)).root.cost == Decimal("0.0026")
