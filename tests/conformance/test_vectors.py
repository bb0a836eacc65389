"""The public vectors for load, render and parse, read from where they are kept.

A vector is waived only by name, with the number of the decision that contradicts it.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prompty import Message, PromptAgent, invoke, load, loads, prepare, render
from prompty.errors import PromptyError, RequestError
from prompty.model.content import part_to_json
from prompty.model.message import parse_messages
from prompty.pipeline import parse, validate_inputs
from prompty.pipeline.prepare import insert_rich_inputs
from tests.public_data import SHARED

VECTORS = SHARED / "vectors"

WAIVED = {
    "template_string_invalid": "F5: a template as a string is the format kind",
}

Vector = dict[str, Any]


def vectors(stage: str) -> list[Any]:
    if not VECTORS.is_dir():
        reason = f"the public vectors are not at {VECTORS.name}; set PROMPTY_SHARED to the folder that holds them"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        return [pytest.param({}, id="no vectors", marks=pytest.mark.skip(reason=reason))]
    found = json.loads((VECTORS / f"{stage}.json").read_text(encoding="utf-8"))
    return [pytest.param(vector, id=vector["name"]) for vector in found]


def agent_of(vector: Vector, folder: Path) -> PromptAgent:
    """Load the vector's file, or one written from the frontmatter it gives."""
    given = vector["input"]
    env = given.get("env", {})
    if "fixture" in given:
        return load(VECTORS / "fixtures" / given["fixture"], env=env)
    base = folder / given.get("agent_subdir", ".")
    base.mkdir(exist_ok=True)
    for name, content in given.get("files", {}).items():
        path = base / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(json.dumps(content))
    text = given.get("frontmatter_raw") or f"---\n{json.dumps(given['frontmatter'])}\n---\n"
    return loads(text, base_dir=base, env=env)


def shown(agent: PromptAgent) -> dict[str, Any]:
    """An agent as plain data with its secrets told, for comparing only."""
    data: dict[str, Any] = reveal(agent.model_dump(mode="python"))
    return data


def reveal(value: Any) -> Any:
    if hasattr(value, "get_secret_value"):
        return reveal(value.get_secret_value())
    if isinstance(value, dict):
        return {key: reveal(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [reveal(entry) for entry in value]
    return value


def agrees(actual: Any, expected: Any) -> bool:
    """Whether everything expected is there; null stands for absent, empty or default."""
    if expected is None:
        return not actual or actual == shown(PromptAgent())["model"]
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(agrees(actual.get(key), value) for key, value in expected.items())
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(agrees, actual, expected))
    return bool(actual == expected)


@pytest.mark.parametrize("vector", vectors("load"))
def test_load(vector: Vector, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    if vector["name"] in WAIVED:
        record_property("waived", f"{vector['name']} ({WAIVED[vector['name']]})")
        agent, written = agent_of(vector, tmp_path), vector["input"]["frontmatter"]
        if "template" in written:
            assert agent.template.format.kind == written["template"]
        else:
            with pytest.raises(RequestError, match="Environment variable 'NONEXISTENT' not set"):
                invoke(agent)
        return
    expected = vector["expected"]
    if "error" in expected:
        assert_refused(vector, tmp_path)
        return
    agent = agent_of(vector, tmp_path)
    if "validated_inputs" in expected:
        assert validate_inputs(agent, vector["input"]["inputs"]) == expected["validated_inputs"]
    else:
        actual = shown(agent)
        assert agrees(actual, expected), actual


def assert_refused(vector: Vector, folder: Path) -> None:
    with pytest.raises(PromptyError) as caught:
        validate_inputs(agent_of(vector, folder), vector["input"].get("inputs", {}))
    said = f"{[base.__name__ for base in type(caught.value).__mro__]} {caught.value}"
    assert vector["expected"]["error"].lower() in said.lower()
    assert vector["expected"].get("error_field", "") in said


@pytest.mark.parametrize("vector", vectors("render"))
def test_render(vector: Vector, record_property: Callable[[str, object], None]) -> None:
    given, expected = vector["input"], vector["expected"]
    threads = {name: v for name, v in given["inputs"].items() if isinstance(v, dict) and v.get("_kind") == "thread"}
    inputs = [{"name": name, "kind": "thread"} for name in threads]
    agent = PromptAgent.model_validate(
        {"instructions": given["template"], "template": given["engine"], "inputs": inputs}
    )
    text = render(agent, given["inputs"])
    if "nonce_pattern" in expected:
        record_property("waived", f"{vector['name']} in part (R5: a placeholder has 16 hex digits)")
        assert re.search(expected["nonce_pattern"].replace("{8}", "{16}"), text)
        assert prepare(agent, given["inputs"])[1].text == threads["conversation"]["messages"][0]["content"]
    else:
        assert text == expected["rendered"]


@pytest.mark.parametrize("vector", vectors("parse"))
def test_parse(vector: Vector) -> None:
    given = vector["input"]
    messages = parse(PromptAgent(), given["rendered"])
    if "thread_inputs" in given:
        messages = insert_rich_inputs(messages, threads_in(given))
    assert [as_vector(message) for message in messages] == vector["expected"]["messages"]


def as_vector(message: Message) -> dict[str, Any]:
    """A message as the vectors write it: parts, and everything else as metadata."""
    shown: dict[str, Any] = {"role": message.role, "content": [part_to_json(part) for part in message.content]}
    return {**shown, "metadata": message.metadata} if message.metadata else shown


def threads_in(given: Vector) -> dict[str, Any]:
    table: dict[str, list[Message]] = {}
    for name, thread in given["thread_inputs"].items():
        placeholder = re.search(rf"__PROMPTY_THREAD_[a-f0-9]+_{name}__", given["rendered"])
        assert placeholder
        table[placeholder[0]] = parse_messages(thread)
    return dict(table)


def test_all_public_vectors_are_there() -> None:
    if not VECTORS.is_dir():
        pytest.skip("no vectors")
    assert {stage: len(vectors(stage)) for stage in ("load", "render", "parse")} == {
        "load": 29,
        "render": 23,
        "parse": 19,
    }
