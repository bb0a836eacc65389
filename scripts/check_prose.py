"""Check what textlint has no rule for: the length of sentences, how they open, and phrases that sound translated.

python -m scripts.check_prose
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MAX_WORDS = 30
SHORT_SENTENCES = ("tutorial", "how-to")  # folders of docs/ whose sentences have a limit

_CODE_BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
_MARKUP = re.compile(r"^\s*([-*>]|\d+\.)\s+|\*\*|^---$", re.MULTILINE)
_END = re.compile(r"(?<=[.!?:])[)\"”]?\s+(?=[A-Z`\"“(])")
_GENERATED = ("docs/reference/conformance.md", "docs/reference/model-facts.md")  # from names of tests, and from facts
# A turn of phrase, and what to write instead.
_FOREIGN = {
    r"\bof (?:yours|ours|(?:your|its|their) own)\b(?! \w)": "your, its",
    r"\bof (?:OpenAI|Anthropic|Microsoft|Google|Azure|Ollama|Claude)\b(?!'s)": "OpenAI's",
    r"\b(?:stands?|stood|lies|lying)\b(?! (?:in )?for\b)": "is",
    r"\b(?:go|goes|gone) on\b": "continue",
    r"\b(?:away|dear|dearer|dearest|meanwhile|so many)\b": "unreachable, expensive, in the meantime, N",
    r"\b(?:no|some|any)body\b": "a person, a program, you",
    r"\b(?:is|are) none of\b|\b(?<!there )is no (?!longer\b)[a-z]+\b": "is not",
    r", too\b": "also",
    r"\b[Rr]eplaced? [^.]{1,60} by\b|\bbeside\b|\bat port\b": "with, next to, on port",
}
_OPENING = re.compile(r"(Who|What)\b(?!')")


class Finding(NamedTuple):
    """A sentence to rewrite."""

    page: Path
    problem: str
    sentence: str


def list_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page: of its paragraphs, items and cells. Code counts as one word."""
    text = _HEADING.sub("\n", _COMMENT.sub("", _CODE_BLOCK.sub("\n", text)))
    text = _LINK.sub(r"\1", _CODE.sub("`code`", text))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.|\|)\s)|(?<=\|)\n|\|", text):
        plain = " ".join(_MARKUP.sub("", block).split())
        yield from filter(None, _END.split(plain))


def check_text(page: Path, text: str, *, short: bool) -> Iterator[Finding]:
    """Yield the sentences of a page that break a rule."""
    for sentence in list_sentences(text):
        words = len(sentence.split())
        if short and words > MAX_WORDS:
            yield Finding(page, f"{words} words", sentence)
        if _OPENING.match(sentence) and not sentence.rstrip('*"”)').endswith("?"):
            yield Finding(page, "opens with Who or What", sentence)
        for pattern, better in _FOREIGN.items():
            if found := re.search(pattern, sentence):
                yield Finding(page, f"'{found[0]}' sounds translated: write {better}", sentence)


def check_pages() -> list[Finding]:
    """Check README and all pages below docs/."""
    docs = ROOT / "docs"
    pages = [
        ROOT / "README.md",
        *(
            page
            for page in sorted(docs.rglob("*.md"))
            if "snippets" not in page.parts and page.relative_to(ROOT).as_posix() not in _GENERATED
        ),
    ]
    return [
        finding
        for page in pages
        for finding in check_text(
            page,
            page.read_text(encoding="utf-8"),
            short=page.is_relative_to(docs) and page.relative_to(docs).parts[0] in SHORT_SENTENCES,
        )
    ]


def main() -> None:
    """Print the findings, and fail if there are any."""
    findings = check_pages()
    for finding in findings:
        print(f"{finding.page.relative_to(ROOT)}: {finding.problem}: {finding.sentence}")
    if findings:
        sys.exit(f"{len(findings)} sentences to rewrite")
    print("Every sentence is short enough, and none sounds translated.")


if __name__ == "__main__":
    main()
