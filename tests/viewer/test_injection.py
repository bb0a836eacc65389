"""A trace holds what models, tools and strangers wrote. Whatever that is, the page shows it and runs none of it."""

import json
from itertools import cycle
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest

from prompty.safety.visible import visible
from prompty.viewer.page import write_page
from prompty.viewer.trace import read_trace
from tests.safety.test_visible import HIDDEN
from tests.viewer.browser import Browser, Page
from tests.viewer.samples import Fields, day_out, save

ATTACKS = [
    "</script><script>window.canary = 1</script>",
    "<img src=x onerror='window.canary = 2'>",
    "javascript:window.canary=3",
    "${window.canary = 4}{{window.canary = 4}}%%SCRIPT%%",
    "\u202egnp.exe\u2066\u0007\x9b31m",
    "'\"><svg onload=window.canary=5><iframe srcdoc='<script>parent.canary=5</script>'>",
    "<!--<script>--><style>*{display:none}</style><base href='https://example.com/'><a href='javascript:canary=6'>x",
    "data:text/html,<script>opener.canary=7</script>",
    "data:image/svg+xml,<svg onload=canary=8>",
    "__proto__",
    "constructor",
]
# What the page looks at to know what to draw; everything else is free text.
STRUCTURE = {"name", "id", "role", "kind", "start", "end", "title", "gen_ai.tool.call.id", "tool_call_id", "mediaType"}
KEYS = {"inputs", "attributes", "request", "response"}
# Ours, and no other: neither frames, links, vectors nor anything that loads.
ELEMENTS = (
    " html head meta title style body header div h1 h2 h3 p dl dt dd form input kbd output button noscript main "
    "section span article dialog script details summary pre table thead tbody tr th td figure figcaption img b "
    "strong mark "
)


def poisoned(value: Any, attacks: "cycle[str]", *, all_of_it: bool, key: str = "") -> Any:
    """The value with every text replaced by an attack; with `all_of_it` also those that decide what is drawn."""
    if isinstance(value, list):
        return [poisoned(one, attacks, all_of_it=all_of_it, key=key) for one in value]
    if isinstance(value, dict):
        made = {name: poisoned(one, attacks, all_of_it=all_of_it, key=name) for name, one in value.items()}
        return made | ({attack: attack for attack in ATTACKS} if key in KEYS else {})
    if isinstance(value, str) and (key not in STRUCTURE or (all_of_it and key not in ("start", "end"))):
        return next(attacks)
    if isinstance(value, str) and key in ("id", "title", "tool_call_id"):
        return f"{value} {next(attacks)}"
    return value


def walk(opened: Page) -> str:
    """Choose every step, open everything in it, press every button of it; all that was to be read."""
    seen: str = opened.evaluate(
        """(() => {
            const seen = [];
            for (let index = 0; index < frames.length; index++) {
                choose(index);
                const details = document.querySelector("#details");
                for (const one of details.querySelectorAll("details")) one.open = true;
                const buttons = [...details.querySelectorAll("button")];
                buttons.filter((one) => one.textContent.startsWith("Show")).forEach((one) => one.click());
                seen.push(details.innerText);
            }
            return [...seen, ...["#tree", "#top"].map((id) => document.querySelector(id).innerText)].join("\\n");
        })()"""
    )
    return seen


def foreign_elements(opened: Page) -> list[str]:
    found: list[str] = opened.evaluate(
        f"""[...document.querySelectorAll("*")].filter((one) => !{json.dumps(ELEMENTS)}.includes(` ${{one.localName}} `)
            || [...one.attributes].some((own) => /^(on.*|href|srcdoc|action)$/.test(own.name))
            || (one.localName === "img" && !one.src.startsWith("data:image/"))
        ).map((one) => one.outerHTML.slice(0, 200))"""
    )
    return found


@pytest.mark.parametrize("all_of_it", [False, True], ids=["in all free text", "in every field"])
@pytest.mark.parametrize("turn", range(2))
def test_an_attack_in_every_field_of_every_frame_stays_text(
    browser: Browser, tmp_path: Path, all_of_it: bool, turn: int
) -> None:
    root: Fields = poisoned(day_out(), cycle(ATTACKS[turn * 5 :] + ATTACKS[: turn * 5]), all_of_it=all_of_it)
    target = tmp_path / "page.html"
    write_page(read_trace(save(root, tmp_path, "<img src=x onerror=canary=9>.20261115.064017.jsonl")), target)
    opened = browser.open(target)
    seen = walk(opened)
    opened.press("/")
    opened.type("canary")
    opened.wait_for("document.querySelectorAll('mark').length > 0")
    assert ATTACKS[0] in seen
    assert ATTACKS[1] in seen
    assert "\\u202egnp.exe\\u2066\\x07\\x9b31m" in seen
    assert not {"\u202e", "\u2066", "\x07", "\x9b"} & set(seen)
    assert opened.evaluate("typeof window.canary") == "undefined"
    assert opened.evaluate("document.scripts.length") == 2
    assert opened.evaluate("document.querySelectorAll('style, base, link').length") == 1
    assert foreign_elements(opened) == []
    assert [one for one in opened.requests() if not one.startswith(("file:", "data:image/"))] == []
    assert opened.complaints() == []


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Page:
    target = tmp_path / "page.html"
    write_page(read_trace(save(day_out(), tmp_path, "day-out.20261115.064017.jsonl")), target)
    return browser.open(target)


def test_the_page_escapes_the_characters_that_the_console_escapes(opened: Page) -> None:
    marks: str = opened.evaluate(
        """Array.from({length: 0x110000}, (_, code) => {
            const character = String.fromCodePoint(code);
            if (/\\p{Cn}/u.test(character)) return "?";
            return visible("a" + character) === "a" + character ? "=" : "x";
        }).join("")"""
    )
    # Python and the browser may know different versions of Unicode: compare what both know.
    known = [code for code, mark in enumerate(marks) if mark != "?" and category(chr(code)) != "Cn"]
    assert [hex(code) for code in known if (visible(f"a{chr(code)}") == f"a{chr(code)}") != (marks[code] == "=")] == []
    assert len(known) > 280_000


@pytest.mark.parametrize(("hidden", "escape"), HIDDEN.values(), ids=HIDDEN)
def test_the_page_writes_the_escape_of_the_console(opened: Page, hidden: str, escape: str) -> None:
    assert opened.evaluate(f"visible({json.dumps(f'a{hidden}b')})") == f"a{escape}b"
    assert opened.evaluate(f"words({json.dumps(f'a{hidden}b')}).textContent") == f"a{escape}b"


@pytest.mark.parametrize("text", ["⚠\ufe0f", "1\ufe0f\u20e3", "\ufe0f", "\n\t"])
def test_the_page_leaves_emoji_and_lines_alone(opened: Page, text: str) -> None:
    assert opened.evaluate(f"visible({json.dumps(text)})") == text
