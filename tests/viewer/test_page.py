"""The page in a real browser, opened from disk."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from prompty.viewer.page import render_page, write_page
from prompty.viewer.trace import read_trace
from tests.viewer.browser import Browser, Page
from tests.viewer.samples import Fields, day_out, frame, lines, many, nested, save, text

CHOSEN = "document.querySelector('[aria-selected=true]').innerText"
SHOWN = "document.querySelectorAll('.row').length"


def written(root: Fields, folder: Path, name: str = "day-out.20261115.064017.jsonl") -> Path:
    target = folder / "page.html"
    write_page(read_trace(save(root, folder, name)), target)
    return target


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(day_out(), tmp_path_factory.mktemp("page"))


def background(opened: Page) -> str:
    found: str = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_the_page_is_one_file_that_names_no_other(file: Path) -> None:
    html = file.read_text()
    outside = re.sub(r'<script type="application/json".*?</script>', "", html, flags=re.DOTALL)
    assert not re.search(r"https?://|@import|url\(|src=|href=", outside)
    assert re.search(r"default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'; img-src data:", html)


def test_the_top_tells_name_status_time_tokens_cost_and_calls(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    assert opened.text("h1") == "agent day-out ok"
    told = opened.text("#totals").split("\n")
    assert dict(zip(told[::2], told[1::2], strict=True)) == {
        "Duration": "7.7 s",
        "Tokens in → out": "3,938 → 631",
        "Cost": "$0.011",
        "Model calls": "4",
        "Tool calls": "9",
        "Failed steps": "1",
    }
    assert opened.complaints() == []
    assert [one for one in opened.requests() if not one.startswith(("file:", "data:image/png;base64,"))] == []


@pytest.mark.parametrize("width", [1440, 420])
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_drawn_light_dark_wide_and_narrow_without_a_complaint(
    browser: Browser, file: Path, width: int, dark: bool
) -> None:
    opened = browser.open(file, width=width, dark=dark)
    assert background(opened) == ("rgb(14, 18, 25)" if dark else "rgb(244, 246, 249)")
    assert opened.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    tops = opened.evaluate(
        "['#steps', '#details'].map((one) => document.querySelector(one).getBoundingClientRect().top)"
    )
    assert (tops[0] == tops[1]) == (width == 1440)
    assert opened.complaints() == []


def test_the_switch_turns_light_into_dark_and_back(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    light = background(opened)
    opened.evaluate("document.querySelector('#theme').click()")
    assert background(opened) != light
    opened.evaluate("document.querySelector('#theme').click()")
    assert background(opened) == light


def test_keys_move_fold_unfold_and_open(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    opened.press("j", "ArrowDown")
    assert "render" in opened.evaluate(CHOSEN)
    opened.press("k", "ArrowLeft")
    assert opened.evaluate(SHOWN) == 18, "prepare is folded"
    assert opened.evaluate("document.querySelector('[aria-selected=true]').ariaExpanded") == "false"
    opened.press("ArrowLeft")
    assert "day-out" in opened.evaluate(CHOSEN), "from a folded step to the one above"
    opened.press("j", "ArrowRight")
    assert opened.evaluate(SHOWN) == 20
    opened.press("ArrowRight", "End")
    assert "gpt-5" in opened.evaluate(CHOSEN)
    opened.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "details"
    opened.press("Escape")
    assert opened.evaluate("document.activeElement.id") == "tree"
    assert opened.complaints() == []


def test_help_opens_and_closes(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    opened.press("?")
    assert opened.evaluate("document.querySelector('#help').open")
    opened.press("j")
    assert "day-out" in opened.evaluate(CHOSEN), "keys below the help do nothing"
    opened.evaluate("document.querySelector('#help button').click()")
    assert not opened.evaluate("document.querySelector('#help').open")
    assert opened.complaints() == []


def test_short_steps_of_prompty_are_hidden_until_somebody_asks_or_goes_to_one(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    assert opened.text("#noise") == "Show 1 short step"
    opened.evaluate("document.querySelector('#noise').click()")
    assert (opened.text("#noise"), opened.evaluate(SHOWN)) == ("Hide 1 short step", 21)
    opened.evaluate("document.querySelector('#noise').click()")
    assert opened.evaluate(SHOWN) == 20
    hidden = opened.evaluate("frames.find((frame) => frame.name === 'process').id")
    opened.evaluate(f"location.hash = '#{hidden}'")
    opened.wait_for("document.querySelector('#noise').textContent === 'Hide 1 short step'")
    assert "process" in opened.evaluate(CHOSEN)


def test_an_agent_opens_with_its_conversation(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    titles = opened.evaluate("[...document.querySelectorAll('#details summary')].map((one) => one.textContent)")
    assert titles[0].startswith("Conversation")
    last = opened.evaluate("frames.findLast((frame) => frame.kind === 'model').inputs.messages.length")
    own = opened.evaluate("document.querySelector('#details .part').querySelectorAll('.message').length")
    assert own == last + 1, "with the answer"


def test_search_counts_marks_and_goes_from_hit_to_hit(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    opened.press("/")
    opened.type("chapel of BONES")
    opened.wait_for("document.querySelector('#hits').textContent === '3 steps'")
    opened.press("Enter")
    assert opened.text("#hits") == "1 of 3"
    assert "read_guide" in opened.evaluate(CHOSEN)
    assert opened.evaluate("document.querySelector('#details mark').textContent") == "chapel of bones"
    assert opened.evaluate("document.querySelectorAll('.row.miss').length") == 17
    opened.press("Enter")
    assert "claude" in opened.evaluate(CHOSEN)
    opened.press("Escape")
    assert opened.evaluate("document.querySelectorAll('mark, .miss').length") == 0


def test_search_opens_what_hides_a_hit(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    opened.evaluate("document.querySelector('#fold').click()")
    opened.press("/")
    opened.type("guide book, which")
    opened.press("Enter")
    assert "gpt-5" in opened.evaluate(CHOSEN)
    assert opened.evaluate("document.querySelector('#details mark').checkVisibility()"), "the offered tools are folded"
    opened.evaluate("document.querySelector('#query').value = ''")
    opened.type("nowhere at all")
    opened.wait_for("document.querySelector('#hits').textContent === 'no hit'")


def test_an_address_leads_to_a_step_and_choosing_one_changes_the_address(browser: Browser, file: Path) -> None:
    identity = read_trace(file.parent / "day-out.20261115.064017.jsonl").frames[8].id
    opened = browser.open(file, fragment=f"#{identity}")
    assert "failed" in opened.evaluate(CHOSEN)
    assert "ToolError\nthe weather service answered 503" in opened.text("#details .failure")
    opened.press("k")
    assert opened.evaluate("location.hash") != f"#{identity}"
    opened.evaluate(f"location.hash = '{identity}'")
    opened.wait_for(f"{CHOSEN}.includes('failed')")
    assert "day-out" in browser.open(file, fragment="#%E0nobody").evaluate(CHOSEN)


def test_a_model_call_shows_its_conversation_thoughts_calls_wire_and_curl(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    opened.press("j", "j", "j", "j")
    roles = opened.evaluate("[...document.querySelectorAll('.message .role b')].map((one) => one.textContent)")
    assert roles == ["system", "user", "assistant"]
    assert opened.evaluate("document.querySelectorAll('.message .call').length") == 8
    assert opened.text(".message .call pre") == '{ "city": "Lisbon", "day": "Sunday" }'
    assert not opened.evaluate("document.querySelector('.message .thought').open")
    assert opened.evaluate("[...document.images].map((one) => one.src.slice(0, 22))") == ["data:image/png;base64,"]
    assert "https://example.com/map.png" in opened.text(".message.user")
    parts = opened.evaluate("[...document.querySelectorAll('.part > summary')].map((one) => one.firstChild.data)")
    assert parts == [
        "Conversation",
        "Tools offered",
        "Wire, attempt 1",
        "Wire, attempt 2",
        "Attributes",
    ]
    opened.evaluate("document.querySelectorAll('.call header button')[3].click()")
    assert "failed" in opened.evaluate(CHOSEN), "a call leads to its step"


def test_the_curl_line_is_copied_as_it_is_seen(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    opened.press("j", "j", "j", "j")
    opened.evaluate("navigator.clipboard.writeText = async (text) => { document.title = text; }")
    opened.evaluate("document.querySelector('.sure .block button').click()")
    opened.wait_for("document.title.startsWith('curl https://api.openai.com/v1/chat/completions -H ')")


def test_a_turn_shows_its_result_and_the_tokens_and_cost_of_each_call(browser: Browser, file: Path) -> None:
    opened = browser.open(file)
    table = opened.evaluate("[...document.querySelectorAll('.figures tr')].map((one) => one.innerText)")
    assert len(table) == 6
    assert table[1].split("\t") == ["chat gpt-5", "1.8 s", "612", "348", "0", "192", "$0.0042"]
    assert table[-1].split("\t") == ["All", "7.7 s", "3,938", "631", "1,792", "224", "$0.011"]
    assert "12345678901234567890" in opened.text("#details"), "no digit of a large integer is lost"


def test_what_did_not_finish_is_said_and_drawn(browser: Browser, tmp_path: Path) -> None:
    source = tmp_path / "killed.20261115.064019.jsonl"
    source.write_text("\n".join(lines(day_out())[:11]))
    write_page(read_trace(source), tmp_path / "page.html")
    opened = browser.open(tmp_path / "page.html")
    assert opened.text("h1 .pill") == "did not finish"
    assert "This step did not finish" in opened.text("#details .failure")
    assert opened.evaluate("document.querySelectorAll('.row.unfinished').length") == 2
    assert opened.complaints() == []


def test_five_thousand_steps_are_usable_at_once_and_stay_smooth(
    browser: Browser, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    opened = browser.open(written(many(5000), tmp_path))
    usable = float(opened.evaluate("document.documentElement.dataset.ready"))
    assert usable < 5000, "milliseconds until the page can be used"
    assert opened.evaluate(SHOWN) < 80, "only the rows in sight are drawn"
    redraw = opened.evaluate(
        "(() => { const begin = performance.now(), tree = document.querySelector('#tree');"
        "for (let at = 0; at < 50; at++) { tree.scrollTop = at * 2900; drawRows(); }"
        "return (performance.now() - begin) / 50; })()"
    )
    assert redraw < 100, "milliseconds to draw the rows after scrolling"
    opened.press("End")
    assert "4998" in opened.evaluate(CHOSEN)
    opened.press("/")
    opened.type("batch 77.")
    opened.wait_for("document.querySelector('#hits').textContent === '1 step'")
    assert opened.complaints() == []
    record_property("usable_milliseconds", usable)
    record_property("redraw_milliseconds", redraw)


def test_two_thousand_levels_are_drawn_and_the_deepest_can_be_reached(browser: Browser, tmp_path: Path) -> None:
    opened = browser.open(written(nested(2000), tmp_path))
    opened.press("End")
    assert "1999" in opened.evaluate(CHOSEN)
    opened.evaluate("document.querySelector('#fold').click()")
    assert opened.evaluate(SHOWN) == 2
    assert opened.complaints() == []


def test_a_long_text_is_cut_until_it_is_asked_for_or_searched(browser: Browser, tmp_path: Path) -> None:
    answer = text("assistant", "word " * 4000 + "needle")
    opened = browser.open(written(frame("turn", "long", 0, 1, result=answer), tmp_path))
    assert len(opened.text(".message .plain")) < 4000
    assert "Show all 20,006 characters" in opened.text(".message")
    opened.evaluate("[...document.querySelectorAll('.message button')].at(-1).click()")
    assert opened.text(".message .plain").endswith("needle")


def test_a_text_of_endless_brackets_is_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    opened = browser.open(written(frame("turn", "deep", 0, 1, result="[" * 200_000 + "]" * 200_000), tmp_path))
    assert opened.text("#details .words").startswith("[[[[")
    assert opened.complaints() == []


def test_the_data_of_a_page_cannot_end_its_script_and_is_plain_json(tmp_path: Path) -> None:
    evil = "</script><!--<script>&\u2028\u2029\ud800"
    html = render_page(read_trace(save(frame("turn", evil, 0, 1), tmp_path)))
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, flags=re.DOTALL)
    assert not set(data) & {"<", ">", "&", "\u2028", "\u2029"}
    assert json.loads(data)["title"] == evil
