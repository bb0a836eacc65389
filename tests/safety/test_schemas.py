"""Regular expressions from outside: the meaning that Python gives them, in a bounded number of steps."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from prompty.safety.schemas import find_pattern_problem, is_pattern, search

letters = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "c1", r"\.", r"\{", "é", "^", "$"])
simple_patterns = st.recursive(
    letters,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}"])).map(
            lambda parts: f"(?:{parts[0]}){parts[1]}"
        ),
        inner.map(lambda pattern: f"({pattern})"),
        inner.map(lambda pattern: f"(?={pattern})"),
        inner.map(lambda pattern: f"(?!{pattern})"),
        inner.map(lambda pattern: f"(?i:{pattern})"),
    ),
    max_leaves=5,
)


@given(simple_patterns, st.text("abcABé1. {\n", max_size=6))
def test_an_ordinary_pattern_matches_where_python_finds_it(pattern: str, text: str) -> None:
    # The engine repeats no group that is a lookahead alone.
    assume(is_pattern(pattern) or not re.search(r"\(\?[=!].*\)[*+?{]", pattern))
    # In a lookahead, next to other groups, it takes `\w` for the letters of all languages.
    assume(text.isascii() or not re.search(r"\(\?[=!].*\\w", pattern))
    # In JSON Schema, `$` is the end of the text, and classes have the letters and digits of ASCII.
    python = pattern.replace("$", r"\Z").replace(r"\d", "[0-9]").replace(r"\w", "[A-Za-z0-9_]")
    assert search(pattern, text) == bool(re.search(python, text))


ENDLESS = {
    "nested repetition": (r"(a+)+$", "a" * 40 + "!"),
    "repeated alternatives": (r"(a|a)*b", "a" * 60 + "!"),
    "overlapping alternatives": (r"(a|aa)+$", "a" * 60 + "!"),
    "two runs": (r"(x+x+)+y", "x" * 5_000),
    "an address": (r"([\w.]+)+@", "a" * 20_000),
    "blanks": (r"\s+$", " " * 100_000 + "x"),
    "many optional letters": (r"(?:a?){40}a{41}", "a" * 40),
    "behind a lookahead": (r"(?=x*)(a+)+$", "a" * 40 + "!"),
}
BACKTRACKING = {
    "a backreference": (r"(a*)*\1$", "a" * 60 + "!"),
    "alternatives and a lookbehind": (r"(?<!b)(a|a)*$(?!b)", "a" * 60 + "!"),
    "nested, before a lookahead": (r"((a+)+)+(?=b)$", "a" * 60),
    "a guarded dot": (r"(?:(?!foo).)*bar", "x" * 20_000),
}


@pytest.mark.parametrize(("pattern", "text"), ENDLESS.values(), ids=ENDLESS)
def test_a_pattern_that_would_run_for_years_ends_without_a_match(pattern: str, text: str) -> None:
    assert not search(pattern, text)


@pytest.mark.parametrize(("pattern", "text"), BACKTRACKING.values(), ids=BACKTRACKING)
def test_a_pattern_that_must_backtrack_ends_at_its_limit(pattern: str, text: str) -> None:
    assert find_pattern_problem(pattern) is None
    with pytest.raises(ValueError, match="takes more than 1,000,000 steps on this text"):
        search(pattern, text)


OTHERS = r"Escape each literal brace as `\{`, and write flags as `(?i)`, `(?m)`, `(?s)` or `(?x)`."
UNSUPPORTED = {
    r"a\Z": "Write `$` instead.",
    "(?P<n>a)(?P=n)": r"Write `\1` instead.",
    "a{,3}": "Write `{0,` instead.",
    "a(?#why)": "Write no comment instead.",
    r"\N{BULLET}": "Write the character itself instead.",
    "{name}": OTHERS,
    r"(?a)\w": OTHERS,
    "(a{999}){999}": OTHERS,
}


@pytest.mark.parametrize(("pattern", "fix"), UNSUPPORTED.items())
def test_syntax_that_python_alone_has_is_named_with_a_fix(pattern: str, fix: str) -> None:
    re.compile(pattern)
    problem = find_pattern_problem(pattern)
    assert problem is not None
    assert problem[0].startswith("the regular expression is Python's, not one of JSON Schema (ECMA 262)")
    assert problem[1] == fix


@pytest.mark.parametrize("pattern", ["(", "[a", "a**", "(?P<a", "a{99999999999999999999}"])
def test_what_is_no_pattern_is_a_problem_with_its_cause(pattern: str) -> None:
    problem = find_pattern_problem(pattern)
    assert problem is not None
    assert problem[0].startswith("the regular expression is invalid: ")


@pytest.mark.process
def test_a_test_file_with_an_endless_pattern_ends(tmp_path: Path) -> None:
    (tmp_path / "p.prompty").write_text("---\nmodel: gpt-4o\n---\nuser:\n" + "a" * 40 + "!\n")
    (tmp_path / "p.test.yaml").write_text("cases:\n- expect: {render: {path: '[0].content', regex: (a+)+$}}\n")
    done = subprocess.run(  # noqa: S603  our own code
        [sys.executable, "-m", "prompty", "test", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert "expected text that matches '(a+)+$'" in done.stdout
