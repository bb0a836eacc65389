"""Reader of the five documents: every statement, with its section and a fingerprint.

The documents are read in place and their sentences stay there: the repository holds fingerprints and our own words.
Run `python -m tests.spec_statements [FINGERPRINT or SECTION…]` to print statements with their fingerprints.
"""

import hashlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.public_data import SHARED

SPEC = SHARED / "spec"
DOCUMENTS = ("000", "001", "002", "003", "004")

STRENGTHS = {  # of each keyword
    "MUST": "MUST",
    "REQUIRED": "MUST",
    "REQUIRES": "MUST",
    "SHALL": "MUST",
    "SHOULD": "SHOULD",
    "RECOMMENDED": "SHOULD",
    "MAY": "MAY",
    "OPTIONAL": "MAY",
}
KEYWORD = re.compile("|".join(STRENGTHS))  # also inside of words: the documents lost blanks around names
PLAIN = re.compile(r"\b(must|never|always|only|cannot)\b", re.IGNORECASE)

# The headings of document 001, which nothing in its text marks, and what marks call them.
HEADINGS = {
    "The Four Roles": "The Four Roles",
    "How a Turn Interleaves": "How a Turn Interleaves",
    "The model only ever sees this array": "The model only ever sees this array",
    "Message Shapes — the Wire vs. the Abstraction": "Message Shapes",
    "user and system": "user and system",
    "assistant — text and/or tool calls": "assistant — text and/or tool calls",
    "Arguments are a string until the moment of execution": "Arguments are a string until the moment of execution",
    "tool — one result per call": "tool — one result per call",
    "Pairing: One Result per Call": "Pairing: One Result per Call",
    "Why ordering, not just ids: tool_call_id collisions": "Why ordering, not just ids",
    "Parallel Tool Calling": "Parallel Tool Calling",
    "Interleaved Thinking: Reasoning Across Tool Calls": "Interleaved Thinking",
    "Where the rule lives": "Where the rule lives",
    "Recap": "Recap",
}
_HEADING = re.compile(rf"(?:^|(?<=}}))({'|'.join(map(re.escape, HEADINGS))})$", re.MULTILINE)
_TITLED = re.compile(r"([^\n“”]*)\nSection titled “([^”]+)”")
_NUMBER = re.compile(r"§[\d.]*\d")
_MARK = "\x1e"  # stands around the title of a section

# The documents lost line breaks at the ends of code blocks: the next sentence begins in the middle of a line.
_GLUED = re.compile(
    r"""(?<=[a-z\]})>$])
    (?=(?:Implementations|The|When|With|Response|Anthropic|Audio|Kind|Binding|For|Full|Nothing|url)\ [\w→])
    |(?<=})(?=A\ ToolCall|Compare\ with)|(?<=\]:)(?=Role\ markers|Content\ between)|(?<=Completions\.)(?=The\ agent)""",
    re.VERBOSE,
)
_SAMPLE = re.compile(
    r"""[\[{}\]]([ ]?"|,?$)|"\w+":\ (?!//)|---name|---<|user:|tools:\ -|system:user:|role:role
    |\#\ (Shorthand|Equivalent|Sync|Async|result)|//\ result|from\ prompty|agent\ =|result\ =|@tool
    |const\ |var\ |using\ |public\ class|Rust\ does
    |style\ |subgraph|direction|end$|flowchart|[A-F]\d?(\[|\ --|\ -\.)""",
    re.VERBOSE,
)
_CODE = re.compile(
    r"""function\ |//|for\ \w+\ in|for\ each|return\b|if\ \S+\ (is|and|not|in|==)|if\ \S+:|"\w+":\ //|default:
    |(input|args|tools|response_format|results|mapping|json_schema)\ =|input_items|wire_tools|ToolCall:|process\(
    |\#\ Vector|\^""",
    re.VERBOSE,
)
_SENTENCE_END = re.compile(
    r"(?<!e\.g\.)(?<!etc\.)(?<!vs\.)(?<=[.:])\s+(?=[A-Z“(§—]|arguments |content |url )|\s+-\s+(?=[A-Z])"
)


@dataclass(frozen=True, slots=True)
class Statement:
    section: str  # "000 §7.1.3" or "001 The Four Roles"
    text: str

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.section}\n{self.text}".encode()).hexdigest()[:8]

    @property
    def strengths(self) -> set[str]:
        return {STRENGTHS[keyword] for keyword in KEYWORD.findall(self.text)}

    @property
    def is_normative(self) -> bool:
        """Return True if the words of the statement leave no choice. Of others, the table decides."""
        return bool(KEYWORD.search(self.text) or PLAIN.search(self.text))


def read_documents(folder: Path = SPEC) -> dict[str, str]:
    """Return the text of each document by its number."""
    return {path.name[:3]: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))}


def list_statements(documents: dict[str, str]) -> list[Statement]:
    """Return every statement of the documents, in order."""
    return [
        Statement(f"{number} {title}", text)
        for number, document in documents.items()
        for title, body in split_sections(document)
        for text in split_statements(body)
    ]


def split_sections(document: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the body of each section. A subsection without a number belongs to the numbered one above."""
    marked = _HEADING.sub(rf"\n{_MARK}\1{_MARK}\n", _TITLED.sub(_mark_title, document))
    title, _, rest = marked.partition("\n")
    parts = rest.split(_MARK)
    yield _name_section(title), parts[0]
    for following, body in zip(parts[1::2], parts[2::2], strict=True):
        if following.startswith("§") or not title.startswith("§"):
            title = following
        yield _name_section(title), body


def _mark_title(match: re.Match[str]) -> str:
    before, title = match.groups()
    return f"{before.removesuffix(title)}\n{_MARK}{title}{_MARK}\n"


def _name_section(title: str) -> str:
    number = _NUMBER.match(title)
    return number[0] if number else HEADINGS.get(title, title)


def split_statements(body: str) -> Iterator[str]:
    """Yield rows of tables, lines of pseudo-code, items of lists and sentences. Leave out figures and samples."""
    lines = _GLUED.sub("\n", body).split("\n")
    prose: list[str] = []
    in_table = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        is_rule = line.startswith("|---")
        is_header = following.startswith("|---")
        in_table = is_rule or (in_table and "|" in line)
        is_sample = bool(_SAMPLE.match(line)) and not in_table
        if not (is_header or in_table or is_sample or _CODE.match(line)):
            prose.append(line)
            continue
        yield from split_sentences(prose)
        prose.clear()
        if not (is_rule or is_header or is_sample):
            yield normalise(line)
    yield from split_sentences(prose)


def split_sentences(lines: list[str]) -> Iterator[str]:
    text = re.sub(r"^- ", "\n - ", "\n".join(lines), flags=re.MULTILINE)
    yield from filter(None, map(normalise, _SENTENCE_END.split(text)))


def normalise(text: str) -> str:
    return " ".join(text.split()).strip("| ")


if __name__ == "__main__":
    for statement in list_statements(read_documents()):
        if not sys.argv[1:] or {statement.fingerprint, statement.section} & set(sys.argv[1:]):
            print(statement.fingerprint, f"{statement.section}:", statement.text)  # noqa: T201  a command
