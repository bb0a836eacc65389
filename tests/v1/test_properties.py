"""Generated v1 files: loading raises only our errors, and a file and its migration are the same agent."""

import json
import warnings
from typing import Any

import yaml
from hypothesis import HealthCheck, example, given, settings, strategies as st

from prompty import PromptAgent, loads
from prompty.analysis.check import check_text
from prompty.errors import LoadError, PromptyWarning
from prompty.pipeline.migrate import migrate_text
from tests.soak import SOAK

EXAMPLES = 20_000 if SOAK else 150
words = st.sampled_from(["a", "b", "name", "type", "kind", "chat_history", "image", "no", "1", "x: y", "#", "${env:A}"])
texts = words | st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)
types = st.sampled_from(["string", "List", "dict", "int", "number", "bool", "object", "circle", "image"])


def mapping(required: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return mappings with some of these keys, mostly with values that they may have."""
    return st.fixed_dictionaries({}, optional={key: value | values for key, value in required.items()})


properties = mapping(
    {
        "type": types,
        "kind": st.just("string"),
        "default": values,
        "description": texts,
        "is_required": st.booleans(),
        "optional": st.booleans(),
        "is_chat_history": st.booleans(),
        "sample": values,
    }
)
schemas = st.recursive(
    mapping({"type": st.sampled_from(["string", "integer"]), "description": texts, "enum": st.lists(texts)}),
    lambda inner: mapping(
        {
            "type": st.sampled_from(["object", "array"]),
            "properties": st.dictionaries(words, inner, max_size=2),
            "items": inner,
            "required": st.lists(words, max_size=2),
        }
    ),
    max_leaves=4,
)
functions = mapping(
    {"type": st.just("function"), "function": mapping({"name": texts, "description": texts, "parameters": schemas})}
)
configurations = mapping(
    {
        "type": st.sampled_from(["azure_openai", "openai", "serverless", "unify"]),
        "azure_deployment": texts,
        "name": texts,
        "azure_endpoint": texts,
        "base_url": texts,
        "api_key": texts,
        "api_version": texts,
        "connection": texts,
        "organization": texts,
    }
)
parameters = mapping(
    {
        "max_tokens": st.integers(1, 5),
        "max_completion_tokens": st.integers(1, 5),
        "temperature": st.floats(0, 2),
        "stop": texts | st.lists(texts, max_size=2),
        "stream": st.booleans(),
        "n": st.integers(1, 3),
        "deployment_name": texts,
        "tools": st.lists(functions, max_size=2),
        "response_format": mapping(
            {
                "type": st.sampled_from(["text", "json_object", "json_schema"]),
                "json_schema": mapping({"strict": st.booleans(), "schema": schemas}),
            }
        ),
    }
)
frontmatters = mapping(
    {
        "name": texts,
        "model": mapping(
            {
                "api": st.sampled_from(["chat", "completion", "embedding"]),
                "configuration": configurations | texts,
                "parameters": parameters,
                "response": st.sampled_from(["first", "all"]),
                "connection": texts,
                "id": texts,
                "options": mapping({"temperature": st.floats(0, 2)}),
            }
        ),
        "inputs": st.dictionaries(words, properties | scalars, max_size=3),
        "outputs": st.dictionaries(words, properties, max_size=2),
        "sample": st.dictionaries(words, values, max_size=3) | texts,
        "template": st.sampled_from(["jinja2", "mustache"]) | mapping({"type": st.just("jinja2"), "parser": texts}),
        "authors": st.lists(texts, max_size=2),
        "metadata": st.dictionaries(words, values, max_size=2),
        "tools": st.lists(functions, max_size=1),
    }
)
LINES = [
    "system:",
    "# user:",
    "{{name}}",
    "{% for item in chat_history %}",
    "{{item.role}}:",
    "{{ item['content'] }}",
    "{% endfor %}",
    "![alt]({{image}})",
    "![alt](https://example.test/a.png)",
    "# tool:",
    "text",
    "",
]
bodies = st.lists(st.sampled_from(LINES), max_size=9).map("\n".join) | st.just("\n".join(LINES))


def write(data: dict[str, Any], body: str, as_json: bool) -> str:
    written = json.dumps(data) + "\n" if as_json else yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return f"---\n{written}---\n{body}"


def read(text: str, *, strict: bool = False) -> PromptAgent:
    with warnings.catch_warnings():
        warnings.simplefilter("error" if strict else "ignore", PromptyWarning)
        return loads(text, env={"A": "value"})


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(frontmatters, bodies, st.booleans())
@example({"sample": {"a": [{"name": []}]}}, "{{name}}\n", False)  # a list as the name of an entry
def test_a_generated_file_and_its_migration_are_the_same_agent(data: dict[str, Any], body: str, as_json: bool) -> None:
    text = write(data, body, as_json)
    assert isinstance(check_text(text, env={}), list)
    try:
        migrated = migrate_text(text, "x.prompty").text
    except LoadError as error:  # a key that JSON Schema or YAML does not allow, or a file that is not there
        assert error.problems
        return
    assert migrate_text(migrated, "x.prompty").text == migrated
    try:
        agent = read(text)
    except LoadError as error:
        assert error.problems
        return
    assert read(migrated, strict=True).model_dump() == agent.model_dump()


comments = st.lists(st.sampled_from(["# one", "# two: 2", "#", "# - x"]), min_size=0, max_size=12)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(frontmatters, comments, st.data())
def test_no_comment_is_lost(data: dict[str, Any], chosen: list[str], draw: st.DataObject) -> None:
    lines = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100_000).splitlines()
    for number, comment in enumerate(chosen):
        at = draw.draw(st.integers(0, len(lines)))
        lines.insert(at, f"{comment} {number}")
    text = "---\n" + "\n".join(lines) + "\n---\nHi"
    try:
        migrated = migrate_text(text, "x.prompty")
    except LoadError:
        return
    if not migrated.is_changed or any(line.endswith(("|", ">", "|-", ">-")) for line in lines):
        return
    for number, comment in enumerate(chosen):
        if f"\n{comment} {number}\n" in text:
            assert f"{comment} {number}" in migrated.text
