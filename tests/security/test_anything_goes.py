"""No text whatever makes load, render, parse or check raise anything but our errors."""

import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from prompty import PromptAgent, PromptyError, loads, prepare, render
from prompty.analysis.check import check_text
from prompty.pipeline import parse
from tests.security.fuzz.words import MARKER_WORDS, PROMPT_WORDS, TEMPLATE_WORDS
from tests.soak import SOAK

pytestmark = pytest.mark.slow

EXAMPLES = 3000 if SOAK else 300
thorough = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

PIECES = (*PROMPT_WORDS, *TEMPLATE_WORDS, *MARKER_WORDS, *" []{}>\ufeff\x00\ud800é")
any_text = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=25).map("".join)
any_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KINDS = ["string", "integer", "array", "object", "thread", "image", "file", "audio"]
any_frontmatter = st.fixed_dictionaries(
    {},
    optional={
        "name": any_value,
        "model": any_value,
        "metadata": any_value,
        "inputs": any_value,
        "outputs": any_value,
        "tools": st.lists(
            st.dictionaries(st.sampled_from(["name", "kind", "path", "parameters", "bindings"]), any_value)
        ),
        "template": any_value,
        "unknown": any_value,
    },
)


@thorough
@given(any_text)
def test_any_text_loads_and_renders_or_is_refused_by_us(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            agent = loads(text, env={})
            prepare(agent, {"x": ["a", "b"]})
            parse(agent, render(agent, {"x": "user:\n"}))
        except PromptyError as error:
            assert str(error)


@thorough
@given(any_frontmatter)
def test_any_data_in_the_frontmatter_is_an_agent_or_problems_with_places(data: dict[str, Any]) -> None:
    text = f"---\n{as_yaml(data)}\n---\nHello {{{{ x }}}}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert loads(text, env={}).kind == "prompt"
        except PromptyError as error:
            assert all(problem.line >= 1 and problem.fix for problem in getattr(error, "problems", ()))


def as_yaml(value: Any) -> str:
    """Flow YAML with every text quoted, so that the data arrives as it was made."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_yaml(str(key))}: {as_yaml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_yaml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}" for c in value) + '"'
    return {None: "null", True: "true", False: "false"}.get(value, str(value))


@thorough
@given(any_text)
def test_any_text_can_be_checked(text: str) -> None:
    for problem in check_text(text, env={}):
        assert problem.message
        assert problem.fix
        assert problem.line >= 1


@thorough
@given(
    st.sampled_from(["jinja2", "mustache"]),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(KINDS), min_size=1),
    st.dictionaries(st.sampled_from("abcd"), any_value),
)
def test_any_inputs_make_messages_or_an_error_of_ours(
    engine: str, kinds: dict[str, str], inputs: dict[str, Any]
) -> None:
    agent = PromptAgent.model_validate(
        {
            "template": engine,
            "inputs": {name: {"kind": kind} for name, kind in kinds.items()},
            "instructions": "system:\n{{a}}\nuser:\n{{b}} {{c}}\nassistant:\n{{d}}",
        }
    )
    try:
        messages = prepare(agent, inputs)
    except PromptyError as error:
        assert str(error)
    else:
        own = [message.role for message in messages if message.role in ("system", "user", "assistant")]
        # Threads bring messages of their own, and empty ones take away the message that they stand alone in.
        assert "thread" in kinds.values() or own[0] in ("system", "user")


@thorough
@given(st.dictionaries(st.sampled_from("abcd"), st.text() | st.integers() | st.lists(st.text(max_size=9)), max_size=4))
def test_the_number_of_messages_does_not_depend_on_what_inputs_contain(inputs: dict[str, Any]) -> None:
    body = "system:\n{{a}}\nuser:\n{{b}}{{c}}\n# assistant[x=1]:\n{{d}}\nuser:\n{{a}}"
    for engine in ("jinja2", "mustache"):
        agent = PromptAgent.model_validate({"template": engine, "instructions": body})
        assert [m.role for m in prepare(agent, inputs)] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb"])
def test_half_a_character_is_carried_not_choked_on(value: str) -> None:
    assert prepare(PromptAgent(instructions="user:\n{{ x }}"), {"x": value})[0].text == value
