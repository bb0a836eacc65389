"""YAML into plain data, bounded (F9)."""

import pytest
import yaml
from hypothesis import given, strategies as st

from prompty.safety.yaml import JSON, Rules, YamlError, read_yaml

SAME_AS_PYYAML = {
    "scalars": "a: 1\nb: 1.5\nc: true\nd: null\ne: text\nf: 'quoted'\ng: \"1\"\nh: ~\ni: 0x1F\nj: .inf\n",
    "nested": "a:\n  b:\n    - 1\n    - c: d\n",
    "flow": "a: {b: [1, 2, {c: d}]}\n",
    "blocks": "a: |\n  x\n  y\nb: >\n  x\n  y\n",
    "an alias": "a: &x {b: 1}\nc: *x\n",
    "a merge": "a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n",
    "merges of several": "a: &x {b: 1}\ne: &y {b: 2, f: 3}\nd:\n  <<: [*x, *y]\n",
    "standard tags": "a: !!str 1\nb: !!int '3'\nc: !!map {d: e}\n",
    "nothing": "",
    "a comment": "# nothing\n",
}


@pytest.mark.parametrize("text", SAME_AS_PYYAML.values(), ids=SAME_AS_PYYAML)
def test_ordinary_yaml_reads_as_pyyaml_reads_it(text: str) -> None:
    assert read_yaml(text) == (yaml.safe_load(text), [])


DIFFERENT = {
    "a timestamp stays text": ("a: 2024-01-02\n", {"a": "2024-01-02"}),
    "a time of day stays text": ("a: 12:30\nb: 1:30.5\n", {"a": "12:30", "b": "1:30.5"}),
    "keys are text as written": ("1: a\nyes: b\nnull: c\n", {"1": "a", "yes": "b", "null": "c"}),
    "an equals sign is text": ("a: =\n", {"a": "="}),
}


@pytest.mark.spec("003 §2.1", "frontmatter is any YAML")
@pytest.mark.parametrize(("text", "data"), DIFFERENT.values(), ids=DIFFERENT)
def test_where_we_read_yaml_differently_on_purpose(text: str, data: object) -> None:
    assert read_yaml(text) == (data, [])


AS_JSON = Rules(JSON, max_depth=4, max_nodes=20)
READ_AS_JSON = {
    "words of YAML 1.1 are text": ("[no, yes, on, off, y]\n", ["no", "yes", "on", "off", "y"]),
    "booleans": ("[true, True, TRUE, false]\n", [True, True, True, False]),
    "nulls": ("[~, null, Null, '']\n", [None, None, None, ""]),
    "numbers": ("[1, -2, +3, 010, 1.5, 1e2, .5, 1_000]\n", [1, -2, 3, 10, 1.5, 100.0, 0.5, "1_000"]),
    "dates and hexadecimals are text": ("[2024-01-01, 0x1F, .inf]\n", ["2024-01-01", "0x1F", ".inf"]),
    "a merge key is a key": ("a: &x {b: 1}\nc: {<<: *x}\n", {"a": {"b": 1}, "c": {"<<": {"b": 1}}}),
    "tags": ("[!!str 1, !!int '3', !!float '1']\n", ["1", 3, 1.0]),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("text", "data"), READ_AS_JSON.values(), ids=READ_AS_JSON)
def test_with_the_rules_of_json_only_what_json_can_say_is_more_than_text(text: str, data: object) -> None:
    assert read_yaml(text, AS_JSON) == (data, [])


BEYOND_THE_RULES = {
    "too deep": ("[[[[[1]]]]]", "more than 4 levels"),
    "too many values": (f"[{', '.join('x' * 30)}]", "more than 20 values"),
    "a number that is too large": ("a: 1e999", "not a valid float"),
    "not a boolean": ("a: !!bool no", "not a valid bool"),
    "a timestamp": ("a: !!timestamp 2024-01-01", "tag"),
}


@pytest.mark.parametrize(("text", "said"), BEYOND_THE_RULES.values(), ids=BEYOND_THE_RULES)
def test_rules_have_limits_of_their_own(text: str, said: str) -> None:
    with pytest.raises(YamlError, match=said):
        read_yaml(text, AS_JSON)


REFUSED = {
    "a tag that constructs": ("a: !!python/object/apply:os.system [x]\n", "tag", 0),
    "a binary": ("a: !!binary YQ==\n", "tag", 0),
    "a tag of one's own": ("b: 1\na: !thing x\n", "tag", 1),
    "a second document": ("a: 1\n---\nb: 2\n", "second", 1),
    "an alias without an anchor": ("a: *x\n", "anchor", 0),
    "an alias inside its own anchor": ("a: &x [*x]\n", "anchor", 0),
    "a key that is a list": ("[a]: 1\n", "key", 0),
    "a merge of text": ("<<: text\n", "mapping", 0),
    "a number with too many digits": (f"a: {'9' * 5000}\n", "not a valid int", 0),
    "a hexadecimal number with too many digits": (f"a: 0x{'f' * 100_000}\n", "14,000 bits", 0),
    "a number without digits": ("a: !!int ''\n", "not a valid int", 0),
    "an open list": ("a: 1\nb: [1\n", "expected", 2),
    "a control character": ("a: 1\nb: \x07\n", "character", 1),
}


@pytest.mark.spec("003 §2.1", "frontmatter is any YAML")
@pytest.mark.parametrize(("text", "said", "line"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_named_with_its_line(text: str, said: str, line: int) -> None:
    with pytest.raises(YamlError, match=said) as caught:
        read_yaml(text)
    assert caught.value.problem.line == line
    assert caught.value.problem.fix


def test_each_key_that_stands_twice_is_a_problem_and_the_rest_is_read() -> None:
    data, problems = read_yaml("a: 1\nb: 2\na: 3\nc:\n  d: 1\n  d: 2\n")
    assert data == {"a": 1, "b": 2, "c": {"d": 1}}
    assert [(problem.line, problem.column) for problem in problems] == [(2, 0), (5, 2)]


def test_a_key_may_override_what_is_merged() -> None:
    assert read_yaml("a: &x {b: 1}\nc:\n  b: 2\n  <<: *x\n")[0] == {"a": {"b": 1}, "c": {"b": 2}}


# PyYAML writes these line breaks as they are, and they are folded into spaces when they are read.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029"), max_size=20)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdef", min_size=1, max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
def test_what_yaml_writes_is_read_back(data: object) -> None:
    assert read_yaml(yaml.safe_dump(data, allow_unicode=True))[0] == data


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#,?% \n\t~1<", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_yaml(text)
    except YamlError as error:
        assert error.problem.line >= 0
