"""Walk the built site in a browser, as a newcomer who looks for the answer to a task."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import yaml

from tests.viewer.browser import Browser, Page

TASKS: list[dict[str, str]] = yaml.safe_load(Path(__file__).with_name("newcomer_tasks.yaml").read_text("utf-8"))
WIDTH, HEIGHT = 1280, 800

# The links that can be clicked, each with the words next to it, and for each pattern the bottom of its highest match.
_READ = """((patterns) => {
  const isShown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const links = [...document.querySelectorAll("a[href]")].filter(isShown).map((link) => {
    const around = link.closest(".md-content") && link.closest("li, td, p");
    const isAlone = around && around.querySelectorAll("a:not(.headerlink)").length === 1;
    return [link.href, (isAlone ? around : link).innerText];
  });
  const nodes = [], article = document.querySelector("article");
  let text = "";
  for (let walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT), node; (node = walker.nextNode()); ) {
    if (!isShown(node.parentElement)) continue;
    nodes.push([text.length, node]);
    text += node.data;
  }
  const place = (offset) => {
    const [start, node] = nodes.findLast(([start]) => start <= offset);
    return [node, offset - start];
  };
  const bottoms = patterns.map((pattern) => {
    const found = [...text.matchAll(new RegExp(pattern, "g"))].map((match) => {
      const range = document.createRange();
      range.setStart(...place(match.index));
      range.setEnd(...place(match.index + match[0].length - 1));
      const box = range.getBoundingClientRect();
      return box.top < 0 ? Infinity : box.bottom;
    });
    return Math.min(1e6, ...found);
  });
  return [links, bottoms];
})"""


class Visit(NamedTuple):
    """A page as it opens: its links with their words, and where the answer to each task is, in pixels from the top."""

    links: list[tuple[str, str]]
    bottoms: list[float]


class Way(NamedTuple):
    """The shortest way to an answer."""

    clicks: int
    page: str
    bottom: float

    @property
    def is_on_first_screen(self) -> bool:
        return self.bottom <= HEIGHT


class Site:
    """A built site in a browser."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser, self._folder = browser, folder.resolve()
        self.visit = cache(self._visit)

    def open(self, address: str, width: int = WIDTH) -> Page:
        """Open a page, or a place on it."""
        path, _, fragment = address.partition("#")
        file, ready = self._folder / path / "index.html", "document.readyState === 'complete'"
        return self._browser.open(
            file, fragment=f"#{fragment}" * bool(fragment), width=width, height=HEIGHT, ready=ready
        )

    def _visit(self, address: str) -> Visit:
        patterns = [task["answer"] for task in TASKS]
        links, bottoms = self.open(address).evaluate(f"{_READ}({json.dumps(patterns)})")
        return Visit(list(self._keep_own(links)), bottoms)

    def _keep_own(self, links: list[Any]) -> Iterator[tuple[str, str]]:
        for link, words in links:
            parts = urlsplit(link)
            file = Path(unquote(parts.path))
            if parts.scheme == "file" and file.is_relative_to(self._folder) and (file / "index.html").is_file():
                path = file.relative_to(self._folder).as_posix()
                yield path + f"#{parts.fragment}" * bool(parts.fragment), words

    def find_ways(self, task: int) -> Iterator[Way]:
        """Yield the ways of at most two clicks to pages that have the answer."""
        words = re.compile(TASKS[task]["words"], re.IGNORECASE)
        home = self.visit(".")
        yield Way(0, ".", home.bottoms[task])
        for address, text in home.links:
            if words.search(text):
                yield Way(1, address, self.visit(address).bottoms[task])
        for first in dict.fromkeys(address.partition("#")[0] for address, _ in home.links):
            for address, text in self.visit(first).links:
                if words.search(text):
                    yield Way(2, address, self.visit(address).bottoms[task])

    def find_way(self, task: int) -> Way:
        """Return the shortest way to a first screen with the answer, or else to a page that has it further down."""
        return min(
            self.find_ways(task),
            key=lambda way: (not way.is_on_first_screen, way.bottom == 1e6, way.clicks, way.bottom),
        )
