"""Partials are inserted as text, and every line of the result is known to its file."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from prompty.model.agent import FileLine
from prompty.model.property import Property
from prompty.pipeline.compose import Composition, CompositionProblem, Partial, insert_partials
from prompty.pipeline.files import Unreadable
from prompty.renderers.jinja2 import jinja2_renderer as jinja2
from prompty.renderers.mustache import mustache_renderer as mustache


def insert(body: str, files: Mapping[str, str | Partial], engine: object = jinja2) -> Composition | None:
    def read(name: str) -> Partial:
        found = files.get(name)
        if found is None:
            raise Unreadable("file-missing", f"{name} does not exist", "Create it.")
        return found if isinstance(found, Partial) else Partial(Path(name), found)

    return insert_partials(body, engine, read)


def text_of(body: str, files: Mapping[str, str | Partial], engine: object = jinja2) -> str:
    composition = insert(body, files, engine)
    assert composition
    return composition.text


def problem_of(body: str, files: Mapping[str, str | Partial], engine: object = jinja2) -> CompositionProblem:
    with pytest.raises(CompositionProblem) as caught:
        insert(body, files, engine)
    return caught.value


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('a {% include "_x" %} b', "a X\nY b"),
        ("a {% include '_x' %}\nb", "a X\nY\nb"),
        ('a  {%- include "_x" -%}  b', "aX\nYb"),
        ('{% for n in ns %}{% include "_x" %}{% endfor %}', "{% for n in ns %}X\nY{% endfor %}"),
        ('{% include "_outer" %}!', "[X\nY]!"),
        ('{% raw %}{% include "_x" %}{% endraw %}{% include "_x" %}', '{% raw %}{% include "_x" %}{% endraw %}X\nY'),
        ('{# {% include "_x" %} #}{% include "_x" %}', '{# {% include "_x" %} #}X\nY'),
    ],
)
def test_a_jinja2_include_is_replaced_by_its_file(body: str, expected: str) -> None:
    assert text_of(body, {"_x": "X\nY", "_outer": '[{% include "_x" %}]'}) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a {{> _x}} b", "a X\nY b"),
        ("a\n  {{> _x}}  \nb", "a\n  X\n  Y\nb"),
        ("{{> _x}}", "X\nY"),
        ("{{#s}}\n{{>_x}}\n{{/s}}", "{{#s}}\nX\nY\n{{/s}}"),
        ("  {{> _outer}}", "  [\n    X\n    Y\n  ]"),
    ],
)
def test_a_mustache_partial_is_replaced_by_its_file_and_indented_like_its_tag(body: str, expected: str) -> None:
    assert text_of(body, {"_x": "X\nY", "_outer": "[\n  {{> _x}}\n]"}, mustache) == expected


@pytest.mark.parametrize(
    "body", ["plain", "{{ include }}", "the word include", '{% raw %}{% include "_x" %}{% endraw %}']
)
def test_a_body_without_includes_stays_what_it_is(body: str) -> None:
    assert insert(body, {}) is None
    assert insert(body, {}, mustache) is None or "%" in body


@pytest.mark.parametrize(
    ("body", "files", "code", "place"),
    [
        ('a\n{% include "_no" %}', {}, "file-missing", FileLine(None, 2)),
        ('{% include "_a" %}', {"_a": 'x\n{% include "_no" %}'}, "file-missing", FileLine(Path("_a"), 2)),
        ('{% include "_a" %}', {"_a": "{% include '_b' %}", "_b": '{% include "_a" %}'}, "include-cycle", None),
        ('{% include "_a" %}', {"_a": "x\n{% endif %}"}, "template-syntax", FileLine(Path("_a"), 2)),
        ('{% if x %}{% include "_a" %}', {"_a": "{% endif %}"}, "template-syntax", FileLine(Path("_a"), 1)),
        ('{% include "_a" %}', {"_a": "{% include x %}"}, "include-form", FileLine(Path("_a"), 1)),
        ("{% include x %}", {}, "include-form", FileLine(None, 1)),
        ('{% include "_a" ignore missing %}', {}, "include-form", FileLine(None, 1)),
        ('{% include "_a" %}', {"_a": "x" * 1_000_001}, "include-size", None),
    ],
)
def test_a_partial_that_cannot_be_inserted_is_a_problem_at_its_line(
    body: str, files: dict[str, str | Partial], code: str, place: FileLine | None
) -> None:
    problem = problem_of(body, files)
    assert problem.code == code
    assert place is None or problem.place == place


def test_a_mustache_partial_among_other_delimiters_is_refused() -> None:
    with pytest.raises(CompositionProblem) as caught:
        insert("{{=<% %>=}}\n<%> _x %>", {"_x": "{{y}}"}, mustache)
    assert caught.value.code == "include-form"


def test_a_hundred_levels_are_too_many() -> None:
    files: dict[str, str | Partial] = {f"_{n}": f'{{% include "_{n + 1}" %}}' for n in range(100)}
    assert problem_of('{% include "_0" %}', files).code == "include-depth"


def test_partials_that_double_each_time_end_at_the_limit() -> None:
    files: dict[str, str | Partial] = {f"_{n}": f'{{% include "_{n + 1}" %}}' * 4 for n in range(9)}
    assert problem_of('{% include "_0" %}', {**files, "_9": "x" * 1000}).code in ("include-depth", "include-size")


def test_a_partial_with_inputs_reads_nothing_else() -> None:
    own = (Property.model_validate({"name": "tone", "kind": "string", "default": "warm"}),)
    fine = Partial(Path("_tone"), "{{ tone }}", 4, own)
    composition = insert('{% include "_tone" %}', {"_tone": fine})
    assert composition
    assert composition.inputs == own
    other = Partial(Path("_tone"), "{{ tone }}\n{{ secret }}", 4, own)
    problem = problem_of('{% include "_tone" %}', {"_tone": other})
    assert (problem.code, problem.place) == ("partial-input", FileLine(Path("_tone"), 5))
    assert "`secret`" in problem.cause


def test_the_hash_of_each_file_is_kept() -> None:
    composition = insert('{% include "_a" %}{% include "_a" %}', {"_a": "x"})
    assert composition
    assert composition.hashes == {"_a": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}


lines = st.lists(st.sampled_from(["plain", "{{ x }}", "", "  indented"]), max_size=4).map("\n".join)


@given(st.dictionaries(st.sampled_from(["_a", "_b", "_c"]), lines, min_size=3), st.data())
def test_every_line_is_known_to_its_file(files: dict[str, str], data: st.DataObject) -> None:
    """Lines are unique, so that each can be looked for where it is said to come from."""
    numbered = {
        name: "\n".join(f"{name}{number} {line}" for number, line in enumerate(text.split("\n"), 1))
        for name, text in files.items()
    }
    pieces = data.draw(st.lists(st.sampled_from(["include _a", "include _b", "include _c", "text"]), min_size=1))
    body = "\n".join(
        f'{{% include "{piece.split()[1]}" %}}' if piece != "text" else f"body{number}"
        for number, piece in enumerate(pieces, 1)
    )
    composition = insert(body, dict(numbered))
    if composition is None:
        assert set(pieces) == {"text"}
        return
    sources: dict[Path | None, list[str]] = {
        None: body.split("\n"),
        **{Path(name): text.split("\n") for name, text in numbered.items()},
    }
    for number, line in enumerate(composition.text.split("\n"), 1):
        path, at = composition.lines.locate(number)
        assert sources[path][at - 1] == line
