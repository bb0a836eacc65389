"""Check the built site: every link, anchor and image leads somewhere, and no page loads anything from another host.

python -m scripts.check_site build/site
"""

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}
NOT_FETCHED = {"canonical", "alternate", "next", "prev"}


@dataclass
class Page:
    """The places and the links of one page."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attributes if value is not None}
        self.page.anchors |= {values[name] for name in ("id", "name") if name in values and tag != "meta"}
        if tag == "a" and "href" in values:
            self.page.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values and not NOT_FETCHED & set(values.get("rel", "").split()):
            self.page.loaded.append(values[LOADED[tag]])


def read_page(html: str) -> Page:
    """Return the places and the links of a page."""
    reader = _Reader()
    reader.feed(html)
    return reader.page


def read_site(site: Path) -> dict[Path, Page]:
    """Return the pages of a built site."""
    return {path: read_page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def find_problems(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Return a line for each dead link, and for each resource of another host."""
    problems = []
    for path, page in pages.items():
        if path == site / "404.html":  # a server sends it for any address, so its links start at the root
            continue
        where = path.relative_to(site)
        problems += [f"{where}: loads {url}" for url in page.loaded if is_remote(url)]
        local = [url for url in page.links + page.loaded if not is_remote(url)]
        problems += [f"{where}: dead link {url}" for url in local if not leads_somewhere(url, path, pages)]
    return problems


def is_remote(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.scheme or parts.netloc)


def leads_somewhere(url: str, source: Path, pages: dict[Path, Page]) -> bool:
    """Return True if a local link leads to a file, and to a place in it if it names one."""
    parts = urlsplit(url)
    target = (source.parent / unquote(parts.path)).resolve() if parts.path else source
    if target.is_dir():
        target /= "index.html"
    if target not in pages:
        return target.is_file()
    return not parts.fragment or unquote(parts.fragment) in pages[target].anchors


def main(site: Path) -> int:
    site = site.resolve()
    pages = read_site(site)
    problems = find_problems(site, pages)
    print("\n".join(problems) or "Every link of the site leads somewhere.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
