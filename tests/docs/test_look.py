"""How the built site looks and acts in a browser."""

import pytest

from prompty.version import __version__
from tests.docs.walk import Site

# What the copy button puts on the clipboard, which a page without https can't read back.
COPY = """[...document.querySelectorAll("code")].filter((code) => code.querySelector(".gp")).map((code) => {
  code.setAttribute("data-md-copying", "");
  const text = code.innerText;
  code.removeAttribute("data-md-copying");
  return text.trimEnd();
})"""
PAGES = [
    ".",
    "tutorial/tools",
    "how-to/agents",
    "reference/api/run",
    "reference/commands/run",
    "explanation/performance",
]


def test_the_copy_button_takes_the_command_without_prompt_and_output(site: Site) -> None:
    page = site.open("tutorial/tools")
    command = 'prompty run shop.prompty "Two books about dragons, please." --tools shop.py'
    assert page.evaluate(COPY) == [command, "python ask.py"]


@pytest.mark.parametrize("address", PAGES)
def test_a_narrow_page_does_not_scroll_sideways(site: Site, address: str) -> None:
    assert site.open(address, width=400).evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_footer_shows_the_version(site: Site) -> None:
    assert __version__ in site.open(".").evaluate("document.querySelector('.md-copyright').innerText")


def test_sections_of_the_navigation_fold(site: Site) -> None:
    shown = site.open("how-to").evaluate(
        """[...document.querySelectorAll(".md-sidebar--primary a")]
        .filter((link) => link.checkVisibility({ visibilityProperty: true })).length"""
    )
    assert shown <= 2
