"""The trace page shows what the provider ran and what the answer cites, and follows none of it."""

from pathlib import Path

import pytest

from prompty.viewer import find_traces, read_trace
from prompty.viewer.page import write_page
from tests.drivers.wires import Messages
from tests.providers import sources as a
from tests.security.test_source_injection import ATTACKS, URLS, hostile, traced
from tests.viewer.browser import Browser
from tests.viewer.test_injection import foreign_elements, walk


def test_the_page_shows_sources_and_calls_of_a_real_run(browser: Browser, tmp_path: Path) -> None:
    traced(Messages(), a.claude(*a.BLOCKS), tmp_path)
    trace = read_trace(find_traces(tmp_path)[0])
    assert [(frame.name, frame.title, frame.status) for frame in trace.frames if "provider" in frame.name] == [
        ("execute_provider_tool", "execute_tool web_search", "ok"),
        ("execute_provider_tool", "execute_tool web_fetch", "failed"),
    ]
    write_page(trace, tmp_path / "page.html")
    opened = browser.open(tmp_path / "page.html")
    seen = walk(opened)
    for text in (a.PAGE, a.TITLE, a.QUOTE, "the provider ran web_search", "url_not_accessible", "Sources 1"):
        assert text in " ".join(seen.split())
    assert foreign_elements(opened) == []
    assert opened.complaints() == []
    opened.screenshot(tmp_path / "sources.png")
    assert (tmp_path / "sources.png").stat().st_size > 10_000


@pytest.mark.parametrize("url", URLS)
def test_an_attack_in_a_source_stays_text(browser: Browser, tmp_path: Path, url: str) -> None:
    for number, attack in enumerate(ATTACKS.values()):
        folder = tmp_path / str(number)
        wire, whole, _ = hostile(attack, url)["messages"]
        traced(wire, whole, folder)
        write_page(read_trace(find_traces(folder)[0]), folder / "page.html")
        opened = browser.open(folder / "page.html")
        seen = walk(opened)
        assert url.partition(":")[0] in seen
        assert not {"\x1b", "\u202e", "\x07", "\x9b"} & set(seen)
        assert opened.evaluate("typeof window.canary") == "undefined"
        assert opened.evaluate("document.querySelectorAll('a, iframe, base, link').length") == 0
        assert foreign_elements(opened) == []
        assert [one for one in opened.requests() if not one.startswith(("file:", "data:image/"))] == []
        assert opened.complaints() == []
